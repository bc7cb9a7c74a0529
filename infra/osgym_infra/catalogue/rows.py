"""Rows of the catalogue, and how one catalogue is laid over another. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from typing import TypeVar

from osgym_infra.catalogue.shapes import GIB_PER_GB, HOURS_PER_MONTH, HostShape, Kvm, Market
from osgym_infra.errors import BadInput

_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class PriceSource:
    """Source of figures; `as_of` is `None` where the source gives no date."""

    title: str
    as_of: date | None
    url: str = ""


@dataclass(frozen=True, slots=True)
class Price:
    """Price per hour, as a range where it moves; `low == high` where it does not.

    `currency` is an ISO 4217 code; only USD is planned with (`Catalogue.in_usd`).
    """

    low: float
    high: float
    source: PriceSource
    currency: str = "USD"

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high:
            raise BadInput("price", f"{self.low} to {self.high}", "0 < low ≤ high")


@dataclass(frozen=True, slots=True)
class HostRow:
    """One host type in one region. `ram_gib` is `None` where no source gave it: then it is not planned with.

    `nvme_gb` is local storage that comes with the type, in GB (10⁹ B); 0 for none. A market that is not in
    `prices` has no known price. `threads_per_core` is how many vCPUs make a core; `None` where no source
    gave it: then two are planned with, which carries fewer replicas.
    """

    provider: str
    region: str
    type: str
    vcpu: float
    ram_gib: float | None
    nvme_gb: float
    kvm: Kvm
    prices: Mapping[Market, Price]
    note: str = ""
    threads_per_core: int | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Provider, region and type, which together identify a row."""
        return (self.provider, self.region, self.type)

    def shape(self) -> HostShape | None:
        """Shape for the cost model; `None` when the RAM is unknown."""
        if self.ram_gib is None:
            return None
        disk = self.nvme_gb * GIB_PER_GB if self.nvme_gb else None
        threads = 2 if self.threads_per_core is None else self.threads_per_core
        return HostShape(self.type, self.vcpu, self.ram_gib, self.kvm, disk, threads_per_core=threads)


@dataclass(frozen=True, slots=True)
class StorageRow:
    """Network volume of a provider's region, USD per month."""

    provider: str
    region: str
    name: str
    usd_per_gib_month: float
    source: PriceSource


@dataclass(frozen=True, slots=True)
class NetworkRow:
    """Prices of traffic and of a public IPv4 address; `None` where unknown.

    `region_usd_per_gb` is of traffic that stays in the region but goes to a public address or to another
    zone, both ends together.
    """

    provider: str
    region: str
    source: PriceSource
    egress_usd_per_gb: float | None = None
    ip_usd_per_hour: float | None = None
    region_usd_per_gb: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """Figure of a region; `of` names the region it is from: another one, or empty where none has it."""

    usd: float
    of: str


@dataclass(frozen=True, slots=True)
class MachineRow:
    """Options of some types of a provider.

    Attributes:
        types: Shell patterns of the types it speaks of.
        disks: Kinds of boot and data disks that these types take, the one to ask for first.
        maintenance: What may happen at maintenance of the machine below, what to ask for first.
        nesting: Whether virtual machines run inside once that is switched on.
        image: A host image that boots there where the usual one does not; empty otherwise.
    """

    provider: str
    types: tuple[str, ...]
    disks: tuple[str, ...]
    cards: tuple[str, ...]
    markets: frozenset[Market]
    maintenance: tuple[str, ...]
    nesting: bool
    source: PriceSource
    image: str = ""
    note: str = ""

    def is_of(self, type_: str) -> bool:
        return any(fnmatchcase(type_, pattern) for pattern in self.types)


@dataclass(frozen=True, slots=True)
class ReferenceRow:
    """Figure to compare with; such a host cannot be bought."""

    name: str
    usd_per_replica_day: float
    source: PriceSource
    note: str = ""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All rows; `files` are the files that were read, each laid over those before."""

    hosts: tuple[HostRow, ...] = ()
    storage: tuple[StorageRow, ...] = ()
    network: tuple[NetworkRow, ...] = ()
    references: tuple[ReferenceRow, ...] = ()
    files: tuple[str, ...] = ()
    machines: tuple[MachineRow, ...] = ()

    def over(self, base: Catalogue) -> Catalogue:
        """Lay this catalogue over `base`: equal rows are replaced, prices of other markets stay."""
        return Catalogue(
            hosts=tuple(_merged(base.hosts, self.hosts)),
            storage=_by(base.storage, self.storage, "provider", "region", "name"),
            network=_by(base.network, self.network, "provider", "region"),
            references=_by(base.references, self.references, "name"),
            files=base.files + self.files,
            # The first that matches counts, so these go before.
            machines=self.machines + base.machines,
        )

    def in_usd(self, rates: Mapping[str, float]) -> tuple[Catalogue, tuple[str, ...]]:
        """Convert prices to USD.

        Args:
            rates: USD per unit of a currency, e.g. `{"EUR": 1.1}`. There is no built-in rate.

        Returns:
            The catalogue without the prices it has no rate for, and a sentence for each of those.
        """
        left_out: list[str] = []

        def usd(row: HostRow) -> HostRow:
            prices: dict[Market, Price] = {}
            for market, price in row.prices.items():
                rate = 1.0 if price.currency == "USD" else rates.get(price.currency)
                if rate is None:
                    left_out.append(
                        f"{row.provider} {row.type} is priced in {price.currency} "
                        f"({price.high * HOURS_PER_MONTH:.0f} a month) and left out: "
                        f"give --rate {price.currency}=<USD for one>"
                    )
                    continue
                prices[market] = Price(price.low * rate, price.high * rate, price.source)
            return dataclasses.replace(row, prices=prices)

        return dataclasses.replace(self, hosts=tuple(usd(row) for row in self.hosts)), tuple(left_out)

    def machine(self, provider: str, type_: str) -> MachineRow | None:
        """Return the first row of options that matches a type, or `None`."""
        return next((one for one in self.machines if one.provider == provider and one.is_of(type_)), None)

    def sold(self) -> Catalogue:
        """Return the catalogue without prices of markets in which a type is not sold; its note names them.

        Price lists name such prices all the same, and a plan must not rest on what cannot be bought.
        """

        def buyable(row: HostRow) -> HostRow:
            machine = self.machine(row.provider, row.type)
            missing = [] if machine is None else [one for one in row.prices if one not in machine.markets]
            if not missing:
                return row
            prices = {market: price for market, price in row.prices.items() if market not in missing}
            said = f"not sold as {', '.join(missing).replace('_', '-')}"
            note = row.note if said in row.note else f"{row.note}; {said}".removeprefix("; ")
            return dataclasses.replace(row, prices=prices, note=note)

        return dataclasses.replace(self, hosts=tuple(buyable(row) for row in self.hosts))

    def network_figure(self, provider: str, region: str, name: str) -> Figure:
        """A figure of `NetworkRow`; the dearest of the provider's other regions where the region's is
        unknown, so that what nobody looked up is not free; 0 where no region has it."""
        known = {n.region: getattr(n, name) for n in self.network if n.provider == provider}
        return _figure(region, known)

    def storage_figure(self, provider: str, region: str) -> Figure:
        """Return the price of the first volume type of a region, USD per GiB-month, found likewise."""
        known: dict[str, float | None] = {}
        for row in self.storage:
            if row.provider == provider:
                known.setdefault(row.region, row.usd_per_gib_month)
        return _figure(region, known)


def _figure(region: str, known: Mapping[str, float | None]) -> Figure:
    usd = {where: value for where, value in known.items() if value is not None}
    if region in usd:
        return Figure(usd[region], region)
    if not usd:
        return Figure(0.0, "")
    dearest = max(usd, key=lambda where: (usd[where], where))
    return Figure(usd[dearest], dearest)


def _merged(base: Iterable[HostRow], over: Iterable[HostRow]) -> Iterable[HostRow]:
    rows = {row.key: row for row in base}
    for row in over:
        if old := rows.get(row.key):
            row = dataclasses.replace(
                row,
                prices={**old.prices, **row.prices},
                kvm=row.kvm if row.kvm is not Kvm.UNKNOWN else old.kvm,
                ram_gib=row.ram_gib if row.ram_gib is not None else old.ram_gib,
                note=row.note or old.note,
                threads_per_core=row.threads_per_core or old.threads_per_core,
            )
        rows[row.key] = row
    return rows.values()


def _by(base: tuple[_Row, ...], over: tuple[_Row, ...], *names: str) -> tuple[_Row, ...]:
    rows = {tuple(getattr(row, name) for name in names): row for row in base}
    rows |= {tuple(getattr(row, name) for name in names): row for row in over}
    return tuple(rows.values())
