"""The catalogue's rows, how two catalogues are laid over each other, and how old they are. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import TypeVar

from osgym_infra.cost.model import GIB_PER_GB, HostShape, Kvm
from osgym_infra.cost.price import HOURS_PER_MONTH, Market
from osgym_infra.errors import BadInput

_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True)
class PriceSource:
    """Where figures come from. `as_of` is `None` when the source says nothing about its date."""

    title: str
    as_of: date | None
    url: str = ""


@dataclass(frozen=True, slots=True)
class Price:
    """A price per hour, as a range where it moves; `low == high` where it does not.

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
    `prices` has no known price.
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

    @property
    def key(self) -> tuple[str, str, str]:
        """Provider, region, type: what makes a row the same row."""
        return (self.provider, self.region, self.type)

    def shape(self) -> HostShape | None:
        """What the model needs of it; `None` when the RAM is not known."""
        if self.ram_gib is None:
            return None
        disk = self.nvme_gb * GIB_PER_GB if self.nvme_gb else None
        return HostShape(self.type, self.vcpu, self.ram_gib, self.kvm, disk)


@dataclass(frozen=True, slots=True)
class StorageRow:
    """A network volume of a provider's region, USD per month."""

    provider: str
    region: str
    name: str
    usd_per_gib_month: float
    source: PriceSource


@dataclass(frozen=True, slots=True)
class NetworkRow:
    """What traffic to the internet and a public IPv4 address cost; `None` where unknown."""

    provider: str
    region: str
    source: PriceSource
    egress_usd_per_gb: float | None = None
    ip_usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class ReferenceRow:
    """A figure to compare with, not a host that could be bought."""

    name: str
    usd_per_replica_day: float
    source: PriceSource
    note: str = ""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All rows. `files` says what was read, in the order it was laid over each other."""

    hosts: tuple[HostRow, ...] = ()
    storage: tuple[StorageRow, ...] = ()
    network: tuple[NetworkRow, ...] = ()
    references: tuple[ReferenceRow, ...] = ()
    files: tuple[str, ...] = ()

    def over(self, base: Catalogue) -> Catalogue:
        """Lay this catalogue over `base`: same rows are replaced, prices of other markets stay."""
        return Catalogue(
            hosts=tuple(_merged(base.hosts, self.hosts)),
            storage=_by(base.storage, self.storage, "provider", "region", "name"),
            network=_by(base.network, self.network, "provider", "region"),
            references=_by(base.references, self.references, "name"),
            files=base.files + self.files,
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

    def network_of(self, provider: str, region: str) -> NetworkRow | None:
        """The row for traffic and addresses, or `None`."""
        return next((n for n in self.network if (n.provider, n.region) == (provider, region)), None)

    def storage_of(self, provider: str, region: str) -> StorageRow | None:
        """The first volume type of a region, or `None`."""
        return next((s for s in self.storage if (s.provider, s.region) == (provider, region)), None)


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
            )
        rows[row.key] = row
    return rows.values()


def _by(base: tuple[_Row, ...], over: tuple[_Row, ...], *names: str) -> tuple[_Row, ...]:
    rows = {tuple(getattr(row, name) for name in names): row for row in base}
    rows |= {tuple(getattr(row, name) for name in names): row for row in over}
    return tuple(rows.values())
