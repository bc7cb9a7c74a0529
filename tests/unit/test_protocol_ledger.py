"""The ledger of steps: what it answers to any number at any time."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from osgym_protocol.codes import GuestErrorCode
from osgym_protocol.ledger import StepLedger, StepRefused


def refusal(ledger: StepLedger[str], seq: int) -> GuestErrorCode:
    """The code with which a number is refused."""
    with pytest.raises(StepRefused) as caught:
        ledger.find(seq)
    return caught.value.code


def done(ledger: StepLedger[str], seq: int, step: str) -> None:
    """Do a step."""
    assert ledger.find(seq) is None
    ledger.start(seq, step)
    ledger.take(seq)
    ledger.end(answered=True)


def test_a_step_is_found_while_it_runs_and_when_it_is_done() -> None:
    """Until the next one takes its number."""
    ledger: StepLedger[str] = StepLedger()
    ledger.start(1, "first")
    assert (ledger.find(1), ledger.running) == ("first", "first")
    ledger.take(1)
    ledger.end(answered=True)
    assert (ledger.find(1), ledger.running, ledger.last_seq) == ("first", None, 1)
    ledger.start(2, "second")
    ledger.take(2)
    ledger.end(answered=True)
    assert (ledger.find(2), refusal(ledger, 1)) == ("second", GuestErrorCode.BAD_SEQUENCE)


def test_while_a_step_runs_other_numbers_are_told_to_wait() -> None:
    """The last one too: its answer goes when the new step takes its number."""
    ledger: StepLedger[str] = StepLedger()
    done(ledger, 1, "first")
    ledger.start(2, "second")
    assert {refusal(ledger, seq) for seq in (1, 3, 99)} == {GuestErrorCode.BUSY}


def test_a_step_that_ends_before_it_took_its_number_changes_nothing() -> None:
    """The number is free, and the last answer is still there."""
    ledger: StepLedger[str] = StepLedger()
    done(ledger, 1, "first")
    ledger.start(2, "refused")
    ledger.end(answered=False)
    assert (ledger.find(1), ledger.find(2), ledger.last_seq) == ("first", None, 1)


def test_the_answer_of_a_step_that_failed_in_the_middle_is_lost() -> None:
    """As that of a step before a restart: it may have acted, so it is not done again."""
    ledger: StepLedger[str] = StepLedger(last_seq=7)
    assert refusal(ledger, 7) is GuestErrorCode.ANSWER_LOST
    ledger.start(8, "failed")
    ledger.take(8)
    ledger.end(answered=False)
    assert refusal(ledger, 8) is GuestErrorCode.ANSWER_LOST
    assert ledger.find(9) is None


def test_only_the_last_step_can_become_final() -> None:
    """And only when it is over."""
    ledger: StepLedger[str] = StepLedger()
    ledger.require_last(0)
    done(ledger, 1, "first")
    ledger.require_last(1)
    with pytest.raises(StepRefused) as caught:
        ledger.require_last(2)
    assert caught.value.details == {"last_seq": 1}
    ledger.start(2, "second")
    with pytest.raises(StepRefused):
        ledger.require_last(1)


class LedgerMachine(RuleBasedStateMachine):
    """Any order of calls against a plain model: the taken numbers, and which of them has an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger: StepLedger[int] = StepLedger()
        self.taken: list[int] = []
        self.answered: set[int] = set()
        self.current: int | None = None

    @precondition(lambda self: self.current is None)
    @rule()
    def start(self) -> None:
        self.current = len(self.taken) + 1
        assert self.ledger.find(self.current) is None
        self.ledger.start(self.current, self.current)

    @precondition(lambda self: self.current is not None and self.current not in self.taken)
    @rule()
    def take(self) -> None:
        assert self.current is not None
        self.ledger.take(self.current)
        self.taken.append(self.current)

    @precondition(lambda self: self.current is not None)
    @rule(answered=st.booleans())
    def end(self, answered: bool) -> None:
        assert self.current is not None
        self.ledger.end(answered=answered)
        if answered and self.current in self.taken:
            self.answered.add(self.current)
        self.current = None

    @rule(seq=st.integers(0, 30))
    def ask(self, seq: int) -> None:
        try:
            found = self.ledger.find(seq)
        except StepRefused as exc:
            if exc.code is GuestErrorCode.BUSY:
                assert self.current not in (None, seq)
            elif exc.code is GuestErrorCode.ANSWER_LOST:
                assert 0 < seq == len(self.taken) and seq not in self.answered
            else:
                assert seq == 0 or seq not in (len(self.taken), len(self.taken) + 1)
        else:
            if found is None:
                assert self.current is None and seq == len(self.taken) + 1
            else:
                assert found == seq and (seq == self.current or seq in self.answered)

    @invariant()
    def numbers_are_never_taken_twice(self) -> None:
        assert self.taken == list(range(1, len(self.taken) + 1))
        assert self.ledger.last_seq == len(self.taken)


TestLedger = LedgerMachine.TestCase
