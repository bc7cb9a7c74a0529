"""The life of a replica: total, monotone, and nobody waits for ever."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from osgym_host.core import states
from osgym_host.core.reasons import Reason, Recovery, consequence
from osgym_host.core.states import Replica, ReplicaState, transition
from osgym_sdk.wire import ErrorCode, TerminationReason

GEN = 7
ORDER = list(ReplicaState)

reasons = st.sampled_from(list(Reason))
generations = st.sampled_from([GEN, GEN, GEN, GEN - 1])
leases = st.sampled_from(["a", "b"])
events = st.one_of(
    st.builds(states.Created, generations),
    st.builds(states.Booted, generations),
    st.builds(states.LeaseAsked, generations, leases),
    st.builds(states.Returned, generations, leases),
    st.builds(states.Retire, generations, reasons),
    st.builds(states.Destroyed, generations),
)


def run(*given_events: states.Event) -> tuple[Replica, list[states.Effect]]:
    """Feeds events to a fresh replica."""
    replica, done = Replica("r", GEN), []
    for event in given_events:
        replica, effects = transition(replica, event)
        done.extend(effects)
    return replica, done


READY = (states.Created(GEN), states.Booted(GEN))


def test_the_way_of_a_good_replica() -> None:
    """Created, booted, leased, retired, gone: each step has its effect."""
    replica, effects = run(
        *READY, states.LeaseAsked(GEN, "a"), states.Retire(GEN, Reason.CLOSED), states.Destroyed(GEN)
    )
    assert replica.state is ReplicaState.GONE
    assert effects == [
        states.Boot(GEN),
        states.Offer(GEN),
        states.GrantLease(GEN, "a"),
        states.Revoke(GEN, "a", Reason.CLOSED),
        states.Destroy(GEN),
        states.Bury(GEN, Reason.CLOSED),
    ]


def test_a_ready_replica_that_dies_is_withdrawn_first() -> None:
    """Nobody can be given a replica that is being destroyed."""
    _, effects = run(*READY, states.Retire(GEN, Reason.GUEST_DEAD))
    assert effects[-2:] == [states.Withdraw(GEN), states.Destroy(GEN)]


def test_a_result_that_comes_late_changes_nothing() -> None:
    """A creation that finishes after the replica was given up does not boot it."""
    replica, effects = run(states.Retire(GEN, Reason.SHUTDOWN), states.Created(GEN), states.Booted(GEN))
    assert replica.state is ReplicaState.RETIRING
    assert effects == [states.Destroy(GEN)]


def test_an_untouched_replica_can_come_back_but_not_under_another_lease() -> None:
    """Only the one who has the lease can return it."""
    replica, _ = run(*READY, states.LeaseAsked(GEN, "a"), states.Returned(GEN, "b"))
    assert replica.state is ReplicaState.LEASED
    replica, effects = transition(replica, states.Returned(GEN, "a"))
    assert replica.state is ReplicaState.READY
    assert effects == (states.Offer(GEN),)


@given(st.lists(events, max_size=30))
def test_whatever_happens_it_is_legal(given_events: list[states.Event]) -> None:
    """Never backwards (but READY after an unused lease), destroyed once, every asker answered once."""
    replica = Replica("r", GEN)
    asked = answered = destroys = buried = 0
    for event in given_events:
        before = replica
        replica, effects = transition(before, event)
        if event.generation != GEN:
            assert replica == before
            assert all(isinstance(e, states.RefuseLease) for e in effects)
        unused = isinstance(event, states.Returned)
        assert ORDER.index(replica.state) >= ORDER.index(before.state) or unused
        assert (replica.lease_id is not None) == (replica.state is ReplicaState.LEASED)
        assert (replica.reason is not None) == (replica.state in (ReplicaState.RETIRING, ReplicaState.GONE))
        asked += isinstance(event, states.LeaseAsked)
        answered += sum(isinstance(e, states.GrantLease | states.RefuseLease) for e in effects)
        destroys += sum(isinstance(e, states.Destroy) for e in effects)
        buried += sum(isinstance(e, states.Bury) for e in effects)
        assert not (buried and destroys == 0)
    assert asked == answered
    assert destroys <= 1
    assert buried <= 1


class ReplicaLife(RuleBasedStateMachine):
    """A manager's world: effects are carried out, in any order, possibly late."""

    def __init__(self) -> None:
        super().__init__()
        self.replica = Replica("r", GEN)
        self.pending: list[states.Effect] = []
        self.running = True
        self.free = False
        self.holder: str | None = None
        self.next_lease = 0

    def feed(self, event: states.Event) -> None:
        self.replica, effects = transition(self.replica, event)
        for effect in effects:
            if isinstance(effect, states.Offer):
                self.free, self.holder = True, None
            elif isinstance(effect, states.GrantLease):
                assert self.free, "granted what was not free"
                self.free, self.holder = False, effect.lease_id
            elif isinstance(effect, states.Withdraw):
                self.free = False
            elif isinstance(effect, states.Revoke):
                assert self.holder == effect.lease_id
                self.holder = None
            elif isinstance(effect, states.Boot | states.Destroy):
                self.pending.append(effect)

    @rule()
    def created(self) -> None:
        self.feed(states.Created(GEN))

    @rule(index=st.integers(0, 3))
    def work_ends(self, index: int) -> None:
        if self.pending:
            effect = self.pending.pop(index % len(self.pending))
            if isinstance(effect, states.Boot):
                self.feed(states.Booted(GEN))
            else:
                self.running = False
                self.feed(states.Destroyed(GEN))

    @rule()
    def somebody_asks(self) -> None:
        self.next_lease += 1
        self.feed(states.LeaseAsked(GEN, str(self.next_lease)))

    @rule()
    def holder_returns_it(self) -> None:
        if self.holder is not None:
            self.feed(states.Returned(GEN, self.holder))

    @rule(reason=reasons)
    def something_ends_it(self, reason: Reason) -> None:
        self.feed(states.Retire(GEN, reason))

    @invariant()
    def one_holder_and_no_ghost(self) -> None:
        state = self.replica.state
        assert (self.holder is not None) == (state is ReplicaState.LEASED)
        assert self.free == (state is ReplicaState.READY)
        if state is ReplicaState.GONE:
            assert not self.running
        if not self.running:
            assert state is ReplicaState.GONE


ReplicaLife.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestReplicaLife = ReplicaLife.TestCase


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_consequence_in_the_words_of_the_wire(reason: Reason) -> None:
    """The table is total, and its codes are ones that clients know."""
    meaning = consequence(reason)
    assert meaning.code in set(ErrorCode)
    assert meaning.termination in set(TerminationReason)
    assert 400 <= meaning.status < 600
    assert meaning.message.endswith(".")


@pytest.mark.parametrize("reason", [r for r in Reason if consequence(r).recovery is Recovery.BACK_OFF])
def test_a_failure_to_make_a_replica_is_the_hosts(reason: Reason) -> None:
    """What the pool backs off from is never blamed on model or task."""
    assert consequence(reason).error_class == "infra"
