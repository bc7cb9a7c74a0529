"""Which replicas are paused and reclaimed, and in which order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from osgym_host.core.rest import (
    IDLE_CPU,
    RestPlan,
    RestStage,
    RestTerms,
    RestView,
    expected_rest_s,
    mean_pause_s,
    plan_rest,
)

TERMS = RestTerms(pause_after_s=2, reclaim_after_s=30, awake=32, keep_ready=1)


def view(key: str, **more: object) -> RestView:
    given = {"stage": RestStage.AWAKE, "idle_s": 5.0, "expected_s": 10.0, "cpu": 0.0} | more
    return RestView(key, **given)  # type: ignore[arg-type]  # fields by name


def test_an_idle_replica_is_paused() -> None:
    """A replica is paused after `pause_after_s` if its programs are known to be idle."""
    views = [
        view("idle"),
        view("early", idle_s=1.9),
        view("busy", cpu=IDLE_CPU * 2),
        view("unknown", cpu=None),
    ]
    assert plan_rest(TERMS, views, 0, 32).pause == ("idle",)


def test_replicas_are_paused_sooner_when_memory_is_short() -> None:
    """Others wait for their memory."""
    assert plan_rest(TERMS, [view("a", idle_s=0.6)], 0, 32).pause == ()
    assert plan_rest(TERMS, [view("a", idle_s=0.6)], 1, 32) == RestPlan(("a",), ("a",))


def test_memory_is_reclaimed_as_far_as_it_is_missing() -> None:
    """Those with the longest expected rest go first, no more than needed."""
    views = [view(str(s), stage=RestStage.PAUSED, expected_s=float(s)) for s in (5, 50, 20, 40)]
    assert plan_rest(TERMS, views, 60, 32).reclaim == ("50", "40")
    assert plan_rest(TERMS, views, 0, 32).reclaim == ()
    assert plan_rest(TERMS, views, 1e6, 32).reclaim == ("50", "40", "20", "5")


def test_a_long_rest_is_reclaimed_even_if_memory_is_enough() -> None:
    """After its time the memory goes back to the host."""
    views = [
        view("long", stage=RestStage.PAUSED, idle_s=31),
        view("short", stage=RestStage.PAUSED, idle_s=29),
    ]
    assert plan_rest(TERMS, views, -1000, 32).reclaim == ("long",)


def test_ready_replicas_rest_before_leased_ones_and_the_next_one_stays() -> None:
    """Whoever is leased last rests first; the next one to be leased keeps its memory."""
    ready = [view(f"ready{turn}", stage=RestStage.PAUSED, turn=turn) for turn in range(3)]
    leased = view("leased", stage=RestStage.PAUSED, expected_s=100)
    assert plan_rest(TERMS, [*ready, leased], 1e6, 32).reclaim == ("ready2", "ready1", "leased")


def test_reclaiming_can_be_switched_off() -> None:
    """Without a time to reclaim, the memory stays."""
    views = [view("a"), view("b", stage=RestStage.PAUSED, idle_s=1000)]
    only_paused = plan_rest(RestTerms(reclaim_after_s=0), views, 1e6, 32)
    assert (only_paused.pause, only_paused.reclaim) == (("a",), ())


@given(
    st.lists(
        st.builds(
            RestView,
            key=st.uuids().map(str),
            stage=st.sampled_from(RestStage),
            idle_s=st.floats(0, 1e5),
            expected_s=st.floats(0, 1e5),
            cpu=st.none() | st.floats(0, 2),
            turn=st.none() | st.integers(0, 50),
        ),
        max_size=30,
    ),
    st.floats(-1e4, 1e5),
    st.floats(1, 500),
)
def test_nothing_is_reclaimed_that_runs(views: list[RestView], short_mib: float, each_mib: float) -> None:
    """Only what is paused, or is about to be, gives up its memory; nobody does twice."""
    plan = plan_rest(TERMS, views, short_mib, each_mib)
    by_key = {found.key: found for found in views}
    assert len(set(plan.reclaim)) == len(plan.reclaim)
    assert all(by_key[key].stage is RestStage.AWAKE for key in plan.pause)
    for key in plan.reclaim:
        assert by_key[key].stage is RestStage.PAUSED or key in plan.pause
    if short_mib <= 0:
        assert all(by_key[key].idle_s >= TERMS.reclaim_after_s for key in plan.reclaim)


def test_expected_rest_follows_the_pauses() -> None:
    """The rest of the mean while it lasts; a longer pause is expected to last as long again."""
    assert expected_rest_s(None, 7) == 7
    assert expected_rest_s(60, 10) == 50
    assert expected_rest_s(60, 90) == 90
    assert mean_pause_s(None, 20) == 20
    assert 20 < mean_pause_s(20, 40) < 40
