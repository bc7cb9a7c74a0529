"""What an answer says of what it leaves out: dearer markets, missing prices, frames, what is assumed."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from tests.support.fleet_configs import shipped_catalogue

from osgym_infra.catalogue.rows import Catalogue, HostRow, NetworkRow, Price, PriceSource, StorageRow
from osgym_infra.catalogue.shapes import Kvm, Market
from osgym_infra.cost.model import ReplicaNeeds
from osgym_infra.cost.planner import FleetPlan, PlanRequest, plan_fleet
from osgym_infra.cost.price import CostAssumptions, FramesTo, Interruptions
from osgym_infra.errors import CannotMeet

SOURCE = PriceSource("a list", date(2026, 11, 1))
REPLICA = ReplicaNeeds(1.0, idle_cores=0.1, think_s=10, frame_mb=0.5)
GB_A_DAY = 86400 / 10 * 0.5 / 1000


def host(kind: str, on_demand: float | None, spot: float | None, region: str = "us-east-1") -> HostRow:
    """A type of 32 cores with the prices that are given."""
    prices = {
        market: Price(usd, usd, SOURCE)
        for market, usd in ((Market.ON_DEMAND, on_demand), (Market.SPOT, spot))
        if usd is not None
    }
    return HostRow("aws", region, kind, 32, 256, 0, Kvm.NESTED, prices, threads_per_core=1)


# As it was: the small type has no spot price, so a plan for spot takes the large one.
HOSTS = Catalogue(hosts=(host("small", 1.5, None), host("large", 6.7, 2.5)))


def plan(catalogue: Catalogue = HOSTS, **wanted: object) -> FleetPlan:
    """A plan of 100 replicas."""
    return plan_fleet(PlanRequest(**{"replicas": 100, "replica": REPLICA, **wanted}), catalogue)


def test_spot_that_is_dearer_than_on_demand_is_said_with_both_prices() -> None:
    """The market that was asked for is planned, the cheaper one is named with its hosts and its price."""
    found = plan(markets=(Market.SPOT,))
    assert found.best.market is Market.SPOT
    assert [fleet.market for fleet in found.compared] == [Market.ON_DEMAND, Market.SPOT]
    assert len(found.warnings) == 1
    for words in ("spot is dearer than on-demand", "1 × large", "1 × small", "61.25", "market on-demand"):
        assert words in found.warnings[0], found.warnings[0]


def test_nothing_is_warned_about_where_the_market_is_the_cheapest() -> None:
    """Neither when it was asked for nor when any would do; the comparison is there all the same."""
    cheap = Catalogue(hosts=(host("small", 1.5, 0.5), host("large", 6.7, 2.5)))
    for markets in ((Market.SPOT,), ()):
        found = plan(cheap, markets=markets)
        assert found.warnings == ()
        assert {fleet.market for fleet in found.compared} == {Market.ON_DEMAND, Market.SPOT}


def test_a_budget_that_is_missed_names_the_market_that_would_do() -> None:
    """Spot costs 61 a day, the budget is 40, on-demand is 36."""
    with pytest.raises(CannotMeet) as refused:
        plan(markets=(Market.SPOT,), budget_usd_per_day=40.0)
    assert "on-demand there costs 36." in refused.value.fits


def test_types_without_a_price_are_named() -> None:
    """One of two has no spot price, and it is said whatever market was asked for."""
    for markets in ((Market.SPOT,), (Market.ON_DEMAND,), ()):
        notes = plan(markets=markets).notes
        assert any("aws us-east-1: no spot price is known of 1 of 2 types (small)" in n for n in notes), notes
    assert not any("no on-demand price" in note for note in plan().notes)


def test_a_market_that_a_type_is_not_sold_in_is_no_missing_price() -> None:
    """C3 metal has no spot at Google Cloud: nobody has to look its price up."""
    request = PlanRequest(replicas=64, replica=REPLICA, providers=("gcp",))
    assert not any("no spot price" in note for note in plan_fleet(request, shipped_catalogue()).notes)
    spot = PlanRequest(replicas=64, replica=REPLICA, providers=("aws",), regions=("us-east-1",))
    assert any("no spot price is known of" in note for note in plan_fleet(spot, shipped_catalogue()).notes)


NETWORK = NetworkRow("aws", "us-east-1", SOURCE, 0.09, 0.005, 0.02)
PRICED = replace(HOSTS, network=(NETWORK,))


@pytest.mark.parametrize(
    ("frames_to", "usd_per_gb"),
    [(FramesTo.ZONE, 0.0), (FramesTo.REGION, 0.02), (FramesTo.INTERNET, 0.09)],
)
def test_frames_cost_what_their_way_costs(frames_to: FramesTo, usd_per_gb: float) -> None:
    """Nothing in the zone over private addresses, both ends in the region, 9 cents to the internet."""
    free = plan(terms=CostAssumptions(private=True, frames_to=FramesTo.ZONE), catalogue=PRICED)
    found = plan(terms=CostAssumptions(private=True, frames_to=frames_to), catalogue=PRICED)
    added = found.best.usd_per_replica_day - free.best.usd_per_replica_day
    assert added == pytest.approx(GB_A_DAY * usd_per_gb / 0.99)
    assert any(f"{GB_A_DAY * usd_per_gb:.3f} USD per replica-day" in note for note in found.notes)


def test_a_private_host_pays_for_no_address() -> None:
    """0.12 USD a day for each host that has one."""
    terms = CostAssumptions(frames_to=FramesTo.ZONE)
    public, private = (plan(PRICED, terms=replace(terms, private=value)) for value in (False, True))
    assert public.best.mix.usd_per_day - private.best.mix.usd_per_day == pytest.approx(0.12)


def test_what_nobody_looked_up_is_not_free() -> None:
    """A region without figures of its own takes the provider's dearest, and the answer says whose."""
    cheap = NetworkRow("aws", "us-east-2", SOURCE, 0.05, 0.004, 0.01)
    west = Catalogue(
        hosts=(host("small", 1.5, 0.5, "us-west-2"),), network=(NETWORK, cheap),
        storage=(StorageRow("aws", "us-east-1", "gp3", 0.08, SOURCE),),
    )  # fmt: skip
    own = plan(replace(west, network=(replace(NETWORK, region="us-west-2"),)))
    found = plan(west)
    assert found.best.usd_per_replica_day == pytest.approx(own.best.usd_per_replica_day)
    for what in ("traffic within a region", "a public address", "a volume"):
        assert any(f"{what} is unknown and taken from us-east-1" in note for note in found.notes), found.notes
    nothing = plan(replace(west, network=(), storage=()))
    assert any("zone: unknown USD" in n and "to the internet unknown" in n for n in nothing.notes), (
        nothing.notes
    )
    assert any("a volume is unknown and counted as 0" in note for note in nothing.notes)


def test_what_is_assumed_is_said() -> None:
    """Interruptions and the time to rebuild with spot, threads where two make a core."""
    threads = replace(HOSTS, hosts=tuple(replace(row, threads_per_core=None) for row in HOSTS.hosts))
    notes = " ".join(plan(threads, markets=(Market.SPOT,)).notes)
    assert "back after 0.25 h (assumed, not measured)" in notes
    assert "counts as 0.6 of one (assumed)" in notes
    measured = CostAssumptions(spot=Interruptions(1.0, 0.25, 0.1, "a trial of 2026-11-22"))
    notes = " ".join(plan(markets=(Market.SPOT,), terms=measured).notes)
    assert "0.10 h (measured: a trial of 2026-11-22)" in notes
    assert "counts as" not in notes
    assert "back after" not in " ".join(plan(markets=(Market.ON_DEMAND,)).notes)


def test_a_longer_rebuild_costs_more() -> None:
    """λ·(lost + rebuild)/24 of the price is paid for nothing."""
    short, long = (
        plan(markets=(Market.SPOT,), terms=CostAssumptions(spot=Interruptions(1.0, 0.25, hours)))
        for hours in (0.25, 1.25)
    )
    assert long.best.mix.usd_per_day - short.best.mix.usd_per_day == pytest.approx(24 * 2.5 / 24)
