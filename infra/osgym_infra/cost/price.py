"""Price of a replica-day. Pure.

    USD per replica-day = ([24·P·(1 + w) + disk + IP] / K + G·p) / A

P host price in USD/h, w the part of paid hours lost to interruptions, disk and IP in USD per host-day, K
replicas on the host, G GB of frames per replica-day at p USD/GB, A the part of time a replica is usable.
The formula is the OSGym paper's cost per replica with interruptions, frames and availability added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from osgym_infra.catalogue.shapes import HOURS_PER_MONTH, Market
from osgym_infra.errors import BadInput

DAYS_PER_MONTH = HOURS_PER_MONTH / 24


class FramesTo(StrEnum):
    """Destination of frames, which decides the price of a GB of them.

    `ZONE`: to private addresses in the same zone, for nothing. `REGION`: within the region, but to public
    addresses or to another zone, which clouds count as traffic. `INTERNET`: out of the provider's network.
    """

    ZONE = "zone"
    REGION = "region"
    INTERNET = "internet"


@dataclass(frozen=True, slots=True)
class Interruptions:
    """Interruptions of spot hosts by the provider.

    Attributes:
        per_host_day: λ, interruptions of one host per day.
        lost_h: Work of the host that is lost with each, hours (half an episode and what was not told).
        rebuild_h: Until a new host serves, hours (start, image, first replicas).
        rebuild_measured: Source of a measured `rebuild_h`; empty: it is assumed, and the answer says so.
    """

    per_host_day: float = 0.0
    lost_h: float = 0.25
    rebuild_h: float = 0.25
    rebuild_measured: str = ""

    @property
    def waste(self) -> float:
        """w = λ·(lost + rebuild)/24: paid hours without use per useful hour."""
        return self.per_host_day * (self.lost_h + self.rebuild_h) / 24


@dataclass(frozen=True, slots=True)
class CostAssumptions:
    """Assumptions beside list prices; all of them can be set, none is measured.

    `spot` assumes that each spot host is taken back once a day, which is pessimistic for most types.
    `availability` 0.99 allows for a quarter of an hour a day of a host that is being replaced or updated.
    `private`: hosts have no public IPv4 address of their own, which costs as well.
    `frames_to`: where trainers are; as a fleet is made by default, in the region but behind public addresses.
    """

    spot: Interruptions = field(default_factory=lambda: Interruptions(per_host_day=1.0))
    availability: float = 0.99
    private: bool = False
    frames_to: FramesTo = FramesTo.REGION

    def __post_init__(self) -> None:
        if not 0 < self.availability <= 1:
            raise BadInput("availability", f"{self.availability} is not a part of time", "0 < value ≤ 1")
        for part in ("per_host_day", "lost_h", "rebuild_h"):
            if getattr(self.spot, part) < 0:
                raise BadInput(f"spot.{part}", "below zero", "0 or more")


@dataclass(frozen=True, slots=True)
class HostDay:
    """Price of one host for a day, USD: the parts of the formula before the division by K."""

    host: float
    waste: float
    disk: float
    ip: float

    @property
    def total(self) -> float:
        """24·P·(1 + w) + disk + IP, USD."""
        return self.host + self.waste + self.disk + self.ip


def host_day(
    usd_per_hour: float,
    market: Market,
    terms: CostAssumptions,
    disk_usd_per_day: float = 0.0,
    ip_usd_per_hour: float = 0.0,
) -> HostDay:
    """Return 24·P, 24·P·w, disk and IP of one host, USD per day; w is 0 off the spot market."""
    base = 24 * usd_per_hour
    waste = base * terms.spot.waste if market is Market.SPOT else 0.0
    return HostDay(base, waste, disk_usd_per_day, 0.0 if terms.private else 24 * ip_usd_per_hour)


def replica_day(host_day_usd: float, replicas: float, egress_usd: float, availability: float) -> float:
    """Return USD per replica-day from the parts: (host/K + egress)/A."""
    return (host_day_usd / replicas + egress_usd) / availability


def per_thousand_trajectories(usd_per_replica_day: float, trajectory_s: float) -> float:
    """Return 1000 · USD per replica-day · T / 86,400 s for trajectories of T seconds, reset included."""
    return 1000 * usd_per_replica_day * trajectory_s / 86400
