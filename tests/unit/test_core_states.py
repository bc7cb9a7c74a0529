"""The life of a replica: total, monotone, and nobody waits for ever."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from osgym_host.core import states
from osgym_host.core.reasons import Reason, Recovery, consequence
from osgym_host.core.states import ReplicaState, ReplicaStatus, transition
from osgym_protocol.codes import MEANINGS, ErrorCode, TerminationReason

ORDER = list(ReplicaState)

reasons = st.sampled_from(list(Reason))
leases = st.sampled_from(["a", "b"])
events = st.one_of(
    st.builds(states.CloneCreated),
    st.builds(states.Booted),
    st.builds(states.LeaseRequested, leases),
    st.builds(states.ReturnedUnused, leases),
    st.builds(states.Retire, reasons),
    st.builds(states.Destroyed),
)


def run(*given_events: states.Event) -> tuple[ReplicaStatus, list[states.Effect]]:
    """Feeds events to a fresh replica."""
    replica, done = ReplicaStatus(), []
    for event in given_events:
        replica, effects = transition(replica, event)
        done.extend(effects)
    return replica, done


READY = (states.CloneCreated(), states.Booted())


def test_the_way_of_a_good_replica() -> None:
    """CloneCreated, booted, leased, retired, gone: each step has its effect."""
    replica, effects = run(
        *READY, states.LeaseRequested("a"), states.Retire(Reason.CLOSED), states.Destroyed()
    )
    assert replica.state is ReplicaState.GONE
    assert effects == [
        states.AwaitBoot(),
        states.Offer(),
        states.GrantLease("a"),
        states.Revoke("a", Reason.CLOSED),
        states.Destroy(),
        states.Forget(Reason.CLOSED),
    ]


def test_a_ready_replica_that_dies_is_withdrawn_first() -> None:
    """Nobody can be given a replica that is being destroyed."""
    _, effects = run(*READY, states.Retire(Reason.GUEST_DEAD))
    assert effects[-2:] == [states.Withdraw(), states.Destroy()]


def test_a_result_that_comes_late_changes_nothing() -> None:
    """A creation that finishes after the replica was given up does not boot it."""
    replica, effects = run(states.Retire(Reason.SHUTDOWN), states.CloneCreated(), states.Booted())
    assert replica.state is ReplicaState.RETIRING
    assert effects == [states.Destroy()]


def test_an_untouched_replica_can_come_back_but_not_under_another_lease() -> None:
    """Only the one who has the lease can return it."""
    replica, _ = run(*READY, states.LeaseRequested("a"), states.ReturnedUnused("b"))
    assert replica.state is ReplicaState.LEASED
    replica, effects = transition(replica, states.ReturnedUnused("a"))
    assert replica.state is ReplicaState.READY
    assert effects == (states.Offer(),)


@given(st.lists(events, max_size=30))
def test_whatever_happens_it_is_legal(given_events: list[states.Event]) -> None:
    """Never backwards (but READY after an unused lease), destroyed once, every asker answered once."""
    replica = ReplicaStatus()
    asked = answered = destroys = forgotten = 0
    for event in given_events:
        before = replica
        replica, effects = transition(before, event)
        unused = isinstance(event, states.ReturnedUnused)
        assert ORDER.index(replica.state) >= ORDER.index(before.state) or unused
        assert (replica.lease_id is not None) == (replica.state is ReplicaState.LEASED)
        assert (replica.reason is not None) == (replica.state in (ReplicaState.RETIRING, ReplicaState.GONE))
        asked += isinstance(event, states.LeaseRequested)
        answered += sum(isinstance(e, states.GrantLease | states.RefuseLease) for e in effects)
        destroys += sum(isinstance(e, states.Destroy) for e in effects)
        forgotten += sum(isinstance(e, states.Forget) for e in effects)
        assert not (forgotten and destroys == 0)
    assert asked == answered
    assert destroys <= 1
    assert forgotten <= 1


class ReplicaLife(RuleBasedStateMachine):
    """A manager's world: effects are carried out, in any order, possibly late."""

    def __init__(self) -> None:
        super().__init__()
        self.replica = ReplicaStatus()
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
            elif isinstance(effect, states.AwaitBoot | states.Destroy):
                self.pending.append(effect)

    @rule()
    def created(self) -> None:
        self.feed(states.CloneCreated())

    @rule(index=st.integers(0, 3))
    def work_ends(self, index: int) -> None:
        if self.pending:
            effect = self.pending.pop(index % len(self.pending))
            if isinstance(effect, states.AwaitBoot):
                self.feed(states.Booted())
            else:
                self.running = False
                self.feed(states.Destroyed())

    @rule()
    def somebody_asks(self) -> None:
        self.next_lease += 1
        self.feed(states.LeaseRequested(str(self.next_lease)))

    @rule()
    def holder_returns_it(self) -> None:
        if self.holder is not None:
            self.feed(states.ReturnedUnused(self.holder))

    @rule(reason=reasons)
    def something_ends_it(self, reason: Reason) -> None:
        self.feed(states.Retire(reason))

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
    assert 400 <= MEANINGS[meaning.code].status < 600
    assert meaning.message.endswith(".")


@pytest.mark.parametrize("reason", [r for r in Reason if consequence(r).recovery is Recovery.BACK_OFF])
def test_a_failure_to_make_a_replica_is_the_hosts(reason: Reason) -> None:
    """What the pool backs off from is never blamed on model or task."""
    assert consequence(reason).error_class == "infra"
