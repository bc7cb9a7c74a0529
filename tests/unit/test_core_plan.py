"""The pool plan, admission and backing off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from osgym_host.core.admission import (
    Admission,
    Budget,
    ImageLoad,
    Limit,
    MeasuredLoad,
    RestingLoad,
    admit,
    replica_ram_estimate,
)
from osgym_host.core.backoff import Backoff, BackoffPolicy, Circuit
from osgym_host.core.plan import Blocked, Plan, PoolSpec, PoolView
from osgym_host.core.plan import plan as plan_of_images

ROOM = Admission(1000, Limit.NONE, 100.0)
POLICY = BackoffPolicy(base_s=1, max_s=60, open_after=3)


@dataclass(frozen=True)
class OneImage:
    """The plan of a pool with one image."""

    start: int
    give_up: int
    blocked: Blocked
    wake_at: float | None


def plan(spec: PoolSpec, view: PoolView, admission: Admission, backoff: Backoff, now: float) -> OneImage:
    """Plan a pool with one image."""
    found = plan_of_images(spec, {"one": view}, {"one": spec.warm}, admission, {"one": backoff}, now)
    return OneImage(len(found.start), sum(found.give_up.values()), found.blocked, found.wake_at)


counts = st.integers(0, 50)
views = st.builds(
    PoolView,
    starting=counts,
    ready=counts,
    leased=counts,
    retiring=counts,
    waiting=counts,
    stopping=st.booleans(),
)
specs = st.builds(PoolSpec, warm=counts, max_starting=st.integers(1, 20))
admissions = st.builds(
    Admission, st.integers(0, 100), st.sampled_from([Limit.RAM, Limit.CPU, Limit.DISK]), st.just(100.0)
)
backoffs_of = st.builds(Backoff, st.integers(0, 10), st.floats(-100, 100))


def test_it_fills_up_to_the_warm_target_a_few_at_a_time() -> None:
    """Warm 5, two at a time: two now."""
    todo = plan(PoolSpec(warm=5, max_starting=2), PoolView(), ROOM, Backoff(), 0)
    assert (todo.start, todo.blocked) == (2, Blocked.CONCURRENCY)


def test_those_who_wait_come_on_top_of_the_warm_target() -> None:
    """Demand does not eat the stock for the next ones."""
    todo = plan(PoolSpec(2, 10), PoolView(ready=2, waiting=3), ROOM, Backoff(), 0)
    assert todo.start == 3


def test_surplus_is_given_up_only_when_nobody_waits() -> None:
    """A smaller target takes the extra ones away."""
    spec = PoolSpec(1, 2)
    assert plan(spec, PoolView(ready=3), ROOM, Backoff(), 0).give_up == 2
    assert plan(spec, PoolView(ready=3, waiting=1), ROOM, Backoff(), 0).give_up == 0


def test_it_says_what_blocks_it() -> None:
    """Operators see RAM, not a guess."""
    tight = Admission(1, Limit.RAM, 100.0)
    todo = plan(PoolSpec(5, 5), PoolView(), tight, Backoff(), 0)
    assert (todo.start, todo.blocked) == (1, Blocked.RAM)


def test_it_pauses_after_failures_and_then_probes_with_one() -> None:
    """Open circuit: nothing, and when to wake up; half open: a single try."""
    backoff = Backoff()
    for _ in range(3):
        backoff = backoff.failed(POLICY, 10.0)
    spec = PoolSpec(5, 5, POLICY)
    paused = plan(spec, PoolView(), ROOM, backoff, 10.0)
    assert (paused.start, paused.blocked, paused.wake_at) == (0, Blocked.BACKOFF, backoff.not_before)
    probing = plan(spec, PoolView(), ROOM, backoff, backoff.not_before)
    assert (probing.start, probing.blocked) == (1, Blocked.PROBING)
    assert plan(spec, PoolView(starting=1), ROOM, backoff, backoff.not_before).start == 0
    assert plan(spec, PoolView(), ROOM, backoff.succeeded(), 10.0).start == 5


@given(specs, views, admissions, backoffs_of, st.floats(-100, 100))
def test_no_plan_breaks_a_bound(
    spec: PoolSpec, view: PoolView, admission: Admission, backoff: Backoff, now: float
) -> None:
    """Never more than there is room for, than may start at once, or than is wanted."""
    todo = plan(spec, view, admission, backoff, now)
    assert 0 <= todo.start <= admission.room
    assert todo.start == 0 or todo.start + view.starting <= spec.max_starting
    assert todo.start <= max(0, spec.warm + view.waiting - view.ready - view.starting)
    assert 0 <= todo.give_up <= max(0, view.ready - spec.warm)
    assert not (todo.start and todo.give_up)
    if view.stopping or now < backoff.not_before:
        assert todo.start == 0


@given(specs, views, st.floats(-100, 100))
def test_demand_is_never_forgotten(spec: PoolSpec, view: PoolView, now: float) -> None:
    """With room and no failures: either enough are on the way, or it starts one, or says why not."""
    assume(not view.stopping)
    todo = plan(spec, view, ROOM, Backoff(), now)
    enough = view.ready + view.starting >= spec.warm + view.waiting
    assert enough or todo.start > 0 or todo.blocked is Blocked.CONCURRENCY


SPLIT = {"a": 2, "b": 2}


def plan_two(
    a: PoolView, b: PoolView, room: int = 100, backoffs: Mapping[str, Backoff] | None = None
) -> Plan:
    """Plan a pool of four warm replicas with two images."""
    admission = Admission(room, Limit.RAM, 100.0)
    return plan_of_images(PoolSpec(4, 4, POLICY), {"a": a, "b": b}, SPLIT, admission, backoffs or {}, 0.0)


def test_clients_who_wait_come_before_the_warm_targets() -> None:
    """One waits for b: its replica is started before those that nobody asks for."""
    assert plan_two(PoolView(), PoolView(ready=2, waiting=3)).start[0] == "b"
    assert Counter(plan_two(PoolView(), PoolView()).start) == {"a": 2, "b": 2}


def test_idle_replicas_are_retired_for_clients_of_another_image() -> None:
    """Only as many as lack, and not again while those retire."""
    idle, waiting = PoolView(ready=2), PoolView(leased=2, waiting=1)
    todo = plan_two(idle, waiting, room=0)
    assert (todo.start, dict(todo.give_up), todo.blocked) == ((), {"a": 1}, Blocked.RAM)
    assert not plan_two(PoolView(ready=1, retiring=1), waiting, room=0).give_up
    assert not plan_two(idle, PoolView(starting=1, waiting=1), room=0).give_up
    assert not plan_two(PoolView(ready=2, waiting=2), waiting, room=0).give_up


def test_an_image_that_cannot_be_started_does_not_stop_another() -> None:
    """Each image has a backoff of its own, and clients of a broken one take no room from others."""
    broken = Backoff()
    for _ in range(3):
        broken = broken.failed(POLICY, 0.0)
    todo = plan_two(PoolView(waiting=1), PoolView(), backoffs={"a": broken})
    assert (todo.start, todo.blocked, todo.wake_at) == (("b", "b"), Blocked.BACKOFF, broken.not_before)
    assert not plan_two(PoolView(waiting=1), PoolView(ready=2), room=0, backoffs={"a": broken}).give_up


@given(
    st.dictionaries(st.sampled_from("abcd"), views, min_size=1),
    st.integers(0, 50),
    st.integers(1, 20),
    admissions,
    st.data(),
)
def test_no_plan_of_several_images_breaks_a_bound(
    views: Mapping[str, PoolView], target: int, max_starting: int, admission: Admission, data: st.DataObject
) -> None:
    """The bounds of one image hold for all together; only idle replicas retire, for one of two causes."""
    backoffs = {name: data.draw(backoffs_of) for name in views}
    spec, targets = PoolSpec(target * len(views), max_starting), dict.fromkeys(views, target)
    todo = plan_of_images(spec, views, targets, admission, backoffs, 0.0)
    starting = sum(view.starting for view in views.values())
    assert len(todo.start) <= admission.room
    assert not todo.start or len(todo.start) + starting <= max_starting
    for name, count in Counter(todo.start).items():
        view = views[name]
        assert count <= target + view.waiting - view.ready - view.starting
        assert backoffs[name].not_before <= 0.0
    for name, count in todo.give_up.items():
        view = views[name]
        assert 0 < count <= view.ready
        assert not view.waiting
        others = sum(other.unserved for each, other in views.items() if each != name)
        assert count <= max(0, view.ready - target) + others
    if any(view.stopping for view in views.values()):
        assert not todo.start
        assert not todo.give_up


@given(st.lists(st.sampled_from("ab"), max_size=60), st.integers(1, 6), st.integers(1, 3))
def test_everyone_is_served_whatever_the_images(asks: list[str], most: int, episodes: int) -> None:
    """Two images compete for few places; each leased replica ends after some rounds, and all get theirs."""
    spec, budget = PoolSpec(2, 2, POLICY), Budget(most, ram_reserve_mib=0, ram_cap_mib=1, cpu_per_replica=0)
    waiting, leased = Counter(asks), Counter[str]()
    starting, ready, retiring = Counter[str](), Counter[str](), 0
    for turn in range(20 + 6 * episodes * len(asks)):
        for name in "ab":
            given = min(waiting[name], ready[name])
            waiting[name], ready[name], leased[name] = (
                waiting[name] - given,
                ready[name] - given,
                leased[name] + given,
            )
        seen = {n: PoolView(starting[n], ready[n], leased[n], 0, waiting[n]) for n in "ab"}
        seen["a"] = replace(seen["a"], retiring=retiring)
        existing = sum(view.existing for view in seen.values())
        assert existing <= most
        load = MeasuredLoad(1e6, 4, 1e6, pending=starting.total(), existing=existing)
        todo = plan_of_images(spec, seen, {"a": 1, "b": 1}, admit(budget, load), {}, 0.0)
        ready += starting
        starting = Counter(todo.start)
        ready -= Counter(todo.give_up)
        retiring = sum(todo.give_up.values())
        if turn % episodes == 0:
            retiring, leased = retiring + leased.total(), Counter[str]()
    assert not waiting.total()


@given(st.integers(1, 20))
def test_the_pause_grows_and_is_bounded(failures: int) -> None:
    """Doubling up to the maximum."""
    backoff = Backoff()
    for _ in range(failures):
        backoff = backoff.failed(POLICY, 0.0)
    assert backoff.not_before == min(60, 2 ** (failures - 1))
    assert backoff.circuit(POLICY, backoff.not_before - 0.5) is Circuit.OPEN


def test_before_a_measurement_the_cap_counts_afterwards_what_was_measured() -> None:
    """Few samples: the cap. Enough: mean and spread, never above the cap."""
    assert replica_ram_estimate([100, 100], 2048) == 2048
    assert replica_ram_estimate([100, 100, 100], 2048) == 100
    assert 100 < replica_ram_estimate([80, 100, 120], 2048) < 140
    assert replica_ram_estimate([4000] * 5, 2048) == 2048


def test_admission_charges_what_is_starting_and_what_may_still_grow() -> None:
    """10 GiB, 1 GiB reserved, replicas of 400 MiB: those at 100 have 300 to grow."""
    budget = Budget(max_replicas=1000, ram_reserve_mib=1024, ram_cap_mib=2048, cpu_per_replica=0)
    load = MeasuredLoad(
        10240, 2, 1e6, images=[ImageLoad([400.0] * 4, [400.0, 100.0, 100.0, 100.0])], existing=4
    )
    assert admit(budget, load) == Admission((10240 - 1024 - 900) // 400, Limit.RAM, 400.0)
    full = ImageLoad([400.0] * 4, [400.0] * 4)
    more = MeasuredLoad(10240, 2, 1e6, images=[full], pending=5, existing=9)
    assert admit(budget, more).room == (10240 - 1024) // 400 - 5


def test_each_image_is_estimated_by_its_own_replicas() -> None:
    """Small ones do not grow to the size of large ones, and one more is counted as a large one."""
    budget = Budget(max_replicas=1000, ram_reserve_mib=1024, ram_cap_mib=2048, cpu_per_replica=0)
    large, small = ImageLoad([300.0] * 4, [300.0] * 4), ImageLoad([40.0] * 4, [40.0] * 4)
    both = admit(budget, MeasuredLoad(10240, 2, 1e6, images=[large, small]))
    assert both == Admission((10240 - 1024) // 300, Limit.RAM, 300.0)
    unknown = ImageLoad([50.0], [50.0])
    three = admit(budget, MeasuredLoad(10240, 2, 1e6, images=[large, small, unknown]))
    assert three == Admission((10240 - 1024 - 250) // 300, Limit.RAM, 300.0)


def test_replicas_that_rest_count_with_what_they_occupy_at_rest() -> None:
    """Measured at 12 MiB at rest: room for those, less what may wake or starts, never beyond swap."""
    budget = Budget(max_replicas=9999, ram_reserve_mib=1024, ram_cap_mib=512, cpu_per_replica=0)

    def room(pending: int = 0, headroom_mib: float = 0, swap_free_mib: float = 1e6, samples: int = 3) -> int:
        resting = RestingLoad([12.0] * samples, headroom_mib, swap_free_mib)
        load = MeasuredLoad(
            10240, 2, 1e6, [ImageLoad([48.0] * 4, [48.0] * 4)], pending=pending, resting=resting
        )
        return admit(budget, load).room

    assert room() == (10240 - 1024) // 12
    assert room(headroom_mib=1200) == (10240 - 1024 - 1200) // 12
    assert room(pending=10) == (10240 - 1024 - 480) // 12
    assert room(swap_free_mib=4800, pending=10) == 90
    assert room(samples=2) == (10240 - 1024) // 48


@pytest.mark.parametrize(
    ("load", "limit"),
    [
        (MeasuredLoad(1e6, 64, 1e6, existing=98), Limit.MAX_REPLICAS),
        (MeasuredLoad(3000, 2, 1e6), Limit.RAM),
        (MeasuredLoad(1e6, 1, 1e6), Limit.CPU),
        (MeasuredLoad(1e6, 2, 2100), Limit.DISK),
    ],
)
def test_the_tightest_bound_is_named(load: MeasuredLoad, limit: Limit) -> None:
    """What an operator has to add more of."""
    budget = Budget(max_replicas=100, ram_reserve_mib=1024, ram_cap_mib=1000, cpu_per_replica=0.05)
    assert admit(budget, load).limit is limit


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(0, 100), st.integers(0, 100))
def test_room_is_never_negative(ram: float, disk: float, pending: int, existing: int) -> None:
    """Over-commitment means none, not a minus."""
    assert admit(Budget(10), MeasuredLoad(ram, 2, disk, pending=pending, existing=existing)).room >= 0


class PoolLife(RuleBasedStateMachine):
    """A pool that does what the plan says, in a world where anything fails at any time."""

    SPEC = PoolSpec(warm=2, max_starting=3, backoff=POLICY)
    BUDGET = Budget(max_replicas=6, ram_reserve_mib=0, ram_cap_mib=100, cpu_per_replica=0)

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.starting = self.ready = self.leased = self.retiring = self.waiting = 0
        self.backoff = Backoff()

    def view(self) -> PoolView:
        return PoolView(self.starting, self.ready, self.leased, self.retiring, self.waiting)

    def replan(self) -> None:
        while self.waiting and self.ready:
            self.waiting, self.ready, self.leased = self.waiting - 1, self.ready - 1, self.leased + 1
        view = self.view()
        load = MeasuredLoad(1e6, 4, 1e6, pending=self.starting, existing=view.existing)
        todo = plan(self.SPEC, view, admit(self.BUDGET, load), self.backoff, self.now)
        self.starting += todo.start
        self.ready -= todo.give_up
        self.retiring += todo.give_up
        self.blocked = todo.blocked

    @rule()
    def somebody_waits(self) -> None:
        self.waiting += 1
        self.replan()

    @rule()
    def somebody_gives_up(self) -> None:
        self.waiting = max(0, self.waiting - 1)
        self.replan()

    @rule(works=st.booleans())
    def a_start_ends(self, works: bool) -> None:
        if self.starting:
            self.starting -= 1
            if works:
                self.ready += 1
                self.backoff = self.backoff.succeeded()
            else:
                self.retiring += 1
                self.backoff = self.backoff.failed(POLICY, self.now)
        self.replan()

    @rule(which=st.sampled_from(["ready", "leased", "starting"]))
    def one_dies(self, which: str) -> None:
        if getattr(self, which):
            setattr(self, which, getattr(self, which) - 1)
            self.retiring += 1
        self.replan()

    @rule()
    def one_is_buried(self) -> None:
        self.retiring = max(0, self.retiring - 1)
        self.replan()

    @rule(seconds=st.floats(0, 100))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.replan()

    @invariant()
    def bounds_are_kept(self) -> None:
        assert self.view().existing <= self.BUDGET.max_replicas
        assert self.starting <= self.SPEC.max_starting
        assert self.ready <= self.SPEC.warm or self.waiting == 0

    def teardown(self) -> None:
        """When all goes well from now on, everyone is served and the pool is warm."""
        for _ in range(200):
            self.now += 100
            if self.starting:
                self.a_start_ends(works=True)
            self.retiring = 0
            self.leased = 0
            self.replan()
        assert self.waiting == 0
        assert self.ready == self.SPEC.warm


PoolLife.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestPoolLife = PoolLife.TestCase
