"""Sentences beside an answer: other markets, types without a price, borrowed figures. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from osgym_infra.catalogue.rows import Catalogue, Figure, HostRow
from osgym_infra.catalogue.shapes import Market
from osgym_infra.cost.mix import Mix
from osgym_infra.cost.model import ReplicaNeeds
from osgym_infra.cost.price import CostAssumptions, FramesTo

RENTED = (Market.ON_DEMAND, Market.SPOT)
FIGURES = {"region_usd_per_gb": "traffic within a region", "egress_usd_per_gb": "traffic to the internet",
           "ip_usd_per_hour": "a public address"}  # fmt: skip
NAMED = 4
"""So many types without a price are named; of more the number is said."""


@dataclass(frozen=True, slots=True)
class MixedFleet:
    """Cheapest fleet of one provider's region and market, of any types."""

    provider: str
    region: str
    market: Market
    mix: Mix
    usd_per_replica_day: float

    @property
    def hosts(self) -> str:
        """Hosts by number and type, as in `2 × r8i.24xlarge + 1 × c8i.8xlarge`."""
        return " + ".join(f"{count} × {name.split('/')[2]}" for name, count in sorted(self.mix.hosts.items()))


def shown(market: Market) -> str:
    """Return a market as people and configurations write it."""
    return market.value.replace("_", "-")


def same_place(best: MixedFleet, fleets: Iterable[MixedFleet]) -> tuple[MixedFleet, ...]:
    """Return the fleets of all markets in the best fleet's region, cheapest first."""
    here = (fleet for fleet in fleets if (fleet.provider, fleet.region) == (best.provider, best.region))
    return tuple(sorted(here, key=lambda fleet: (fleet.usd_per_replica_day, fleet.market)))


def dearer_than_need_be(best: MixedFleet, compared: Sequence[MixedFleet]) -> list[str]:
    """Return a sentence when another market of the same region costs less than the requested one."""
    cheapest = compared[0] if compared else best
    if cheapest.mix.usd_per_day >= best.mix.usd_per_day:
        return []
    return [
        f"{shown(best.market)} is dearer than {shown(cheapest.market)} in {best.provider} {best.region}: "
        f"{best.mix.usd_per_day:,.2f} USD a day ({best.hosts}) against {cheapest.mix.usd_per_day:,.2f} "
        f"({cheapest.hosts}); market {shown(cheapest.market)} takes the cheaper"
    ]


def without_a_price(rows: Iterable[HostRow], catalogue: Catalogue) -> list[str]:
    """Return a sentence for each region and market in which sold types have no known price."""
    there: dict[tuple[str, str, Market], list[str]] = {}
    counted: dict[tuple[str, str], int] = {}
    for row in rows:
        if not any(market in row.prices for market in RENTED):
            continue
        counted[row.provider, row.region] = counted.get((row.provider, row.region), 0) + 1
        machine = catalogue.machine(row.provider, row.type)
        for market in RENTED:
            if market not in row.prices and (machine is None or market in machine.markets):
                there.setdefault((row.provider, row.region, market), []).append(row.type)
    return [
        f"{provider} {region}: no {shown(market)} price is known of {len(types)} of "
        f"{counted[provider, region]} types ({_some(types)}); they are left out there"
        for (provider, region, market), types in sorted(there.items())
    ]


def _some(types: Sequence[str]) -> str:
    rest = len(types) - NAMED
    return ", ".join(sorted(types)[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def borrowed(
    places: Iterable[tuple[str, str]], catalogue: Catalogue, terms: CostAssumptions, with_volumes: bool
) -> list[str]:
    """Return a sentence for each figure that is of another region or of none."""
    said: dict[tuple[str, str, str], list[str]] = {}

    def look(provider: str, region: str, what: str, figure: Figure) -> None:
        if figure.of != region:
            said.setdefault((provider, what, figure.of), []).append(region)

    for provider, region in places:
        for name, what in FIGURES.items():
            if _needed(name, terms):
                look(provider, region, what, catalogue.network_figure(provider, region, name))
        if with_volumes:
            look(provider, region, "a volume", catalogue.storage_figure(provider, region))
    return [
        f"{provider} {', '.join(sorted(set(regions)))}: the price of {what} is unknown and "
        + (f"taken from {of}" if of else "counted as 0")
        for (provider, what, of), regions in sorted(said.items())
    ]


def _needed(name: str, terms: CostAssumptions) -> bool:
    match name:
        case "region_usd_per_gb":
            return terms.frames_to is FramesTo.REGION
        case "egress_usd_per_gb":
            return terms.frames_to is FramesTo.INTERNET
        case _:
            return not terms.private


def frames_usd_per_gb(catalogue: Catalogue, provider: str, region: str, terms: CostAssumptions) -> float:
    """Return p, the price of a GB of frames on its way to the trainer."""
    match terms.frames_to:
        case FramesTo.ZONE:
            return 0.0
        case FramesTo.REGION:
            return catalogue.network_figure(provider, region, "region_usd_per_gb").usd
        case FramesTo.INTERNET:
            return catalogue.network_figure(provider, region, "egress_usd_per_gb").usd


def on_frames(
    replica: ReplicaNeeds, best: MixedFleet, catalogue: Catalogue, terms: CostAssumptions
) -> list[str]:
    """Return sentences about the price of frames, for the chosen destination and others."""
    gb = replica.egress_gb_per_day
    if not gb or best.market is Market.DEDICATED:
        return []
    usd = {
        to: gb * frames_usd_per_gb(catalogue, best.provider, best.region, replace(terms, frames_to=to))
        for to in FramesTo
    }
    ways = {
        FramesTo.ZONE: "to private addresses in the same zone",
        FramesTo.REGION: "in the region to public addresses or another zone",
        FramesTo.INTERNET: "to the internet",
    }
    said = {to: f"{usd[to]:.3f}" if _known(catalogue, best, to) else "unknown" for to in FramesTo}
    others = ", ".join(f"{ways[to]} {said[to]}" for to in FramesTo if to is not terms.frames_to)
    return [
        f"frames ({gb:.2f} GB per replica-day) go {ways[terms.frames_to]}: "
        f"{said[terms.frames_to]} USD per replica-day ({best.provider} {best.region}); {others}"
    ]


def _known(catalogue: Catalogue, best: MixedFleet, to: FramesTo) -> bool:
    name = {FramesTo.REGION: "region_usd_per_gb", FramesTo.INTERNET: "egress_usd_per_gb"}.get(to)
    return name is None or catalogue.network_figure(best.provider, best.region, name).of != ""


def on_interruptions(best: MixedFleet, terms: CostAssumptions) -> list[str]:
    """Return a sentence about the source of the time until a lost spot host is replaced."""
    if best.market is not Market.SPOT or not terms.spot.per_host_day:
        return []
    hours, source = terms.spot.rebuild_h, terms.spot.rebuild_measured
    how = f"measured: {source}" if source else "assumed, not measured"
    return [
        f"a spot host is taken to be lost {terms.spot.per_host_day:g} times a day (assumed) and to be back "
        f"after {hours:.2f} h ({how})"
    ]


def on_threads(rows: Iterable[HostRow], efficiency: float) -> list[str]:
    """Return a sentence that vCPUs are hardware threads, with the assumed efficiency of each."""
    if efficiency == 1 or all((row.threads_per_core or 2) == 1 for row in rows):
        return []
    return [f"a vCPU that is one of two threads of a core counts as {efficiency:g} of one (assumed)"]
