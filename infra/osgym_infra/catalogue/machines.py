"""Options of a host type: disks, network cards, markets, maintenance, nesting. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from fnmatch import fnmatchcase

from osgym_infra.catalogue.rows import Catalogue, HostRow, MachineRow


def machine_of(machines: Iterable[MachineRow], provider: str, type_: str) -> MachineRow | None:
    """Return the first row that matches a type, or `None`."""
    return next(
        (
            one
            for one in machines
            if one.provider == provider and any(fnmatchcase(type_, pattern) for pattern in one.types)
        ),
        None,
    )


def sold(catalogue: Catalogue) -> Catalogue:
    """Return the catalogue without prices of markets in which a type is not sold; its note names them.

    Price lists name such prices all the same, and a plan must not rest on what cannot be bought.
    """

    def buyable(row: HostRow) -> HostRow:
        machine = machine_of(catalogue.machines, row.provider, row.type)
        missing = [] if machine is None else [one for one in row.prices if one not in machine.markets]
        if not missing:
            return row
        prices = {market: price for market, price in row.prices.items() if market not in missing}
        said = f"not sold as {', '.join(missing).replace('_', '-')}"
        note = row.note if said in row.note else f"{row.note}; {said}".removeprefix("; ")
        return dataclasses.replace(row, prices=prices, note=note)

    return dataclasses.replace(catalogue, hosts=tuple(buyable(row) for row in catalogue.hosts))
