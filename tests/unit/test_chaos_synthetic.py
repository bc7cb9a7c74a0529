"""The pure parts of the chaos run over stand-ins: what must come of a fault, and what counts as wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from benchmarks.chaos.synthetic.faults import (
    BY_HOST,
    BY_POLICY,
    EXITS,
    OF_CLIENTS,
    RETRIES,
    AttemptEnd,
    Case,
    Class,
    Fault,
    Moment,
    Strike,
    expected,
    plan,
    turns,
)
from benchmarks.chaos.synthetic.verdicts import (
    Outcome,
    SeenEnd,
    judge,
    rare,
    table_of_faults,
    table_of_reasons,
)

from osgym_host.core.reasons import Reason
from osgym_host.runtimes.base import ExitReason

DIED = Strike(Fault.SESSION_ENDED, Moment.BETWEEN)
KILLED = Strike(Fault.KILLED, Moment.BETWEEN)
BY_ITSELF = AttemptEnd(Class.POLICY, "guest_dead")
OURS = AttemptEnd(Class.INFRA, "killed")
SCORED = AttemptEnd(Class.NOBODY)


def test_every_end_of_a_replica_and_every_reason_of_an_episode_is_played() -> None:
    """But the end that the host asked for, the reasons of replicas that no client has ever had, and that of
    suspended episodes, since these replicas cannot be saved."""
    assert set(EXITS.values()) == {exit.value for exit in ExitReason} - {"destroyed"}
    told = {*BY_POLICY.values(), *BY_HOST.values(), *OF_CLIENTS.values()}
    without_client = {Reason.SURPLUS, Reason.CREATE_FAILED, Reason.BOOT_FAILED, Reason.BOOT_TIMEOUT}
    of_tasks = {Reason.SETUP_FAILED, Reason.TASK_INVALID, Reason.TASK_UNSUPPORTED}
    others = without_client | of_tasks | {Reason.SUSPENDED}
    assert told == {reason.value for reason in set(Reason) - others}
    met = {strike.fault for case in plan(1, 200) for strike in case.strikes}
    met |= {strike.fault for turn in turns() for case in turn.members for strike in case.strikes}
    assert set(Fault) - met == {Fault.HELD}


def test_a_seed_gives_the_same_trajectories_and_all_kinds_come() -> None:
    """Each as often as any other."""
    cases = list(plan(7, 2000))
    assert cases == list(plan(7, 2000)) != list(plan(8, 2000))
    counts = Counter(case.row for case in cases)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert [case.number for case in cases] == list(range(1, 2001))


@pytest.mark.parametrize(
    ("strikes", "ends", "reward"),
    [
        ((), (SCORED,), 1.0),
        ((DIED,), (BY_ITSELF,), 0.0),
        ((KILLED,), (OURS, SCORED), 1.0),
        ((KILLED, DIED), (OURS, BY_ITSELF), 0.0),
        ((KILLED,) * 9, (OURS,) * (RETRIES + 1), None),
        ((replace(DIED, moment=Moment.UNTOUCHED),), (AttemptEnd(Class.INFRA, "guest_dead"), SCORED), 1.0),
        ((replace(DIED, moment=Moment.SETUP),), (SCORED,), 1.0),
        ((replace(DIED, moment=Moment.SCORED),), (SCORED,), 1.0),
        ((Strike(Fault.AGENT_KILLED, Moment.LOST),), (BY_ITSELF,), 0.0),
        ((Strike(Fault.SETUP_FAILS, Moment.SETUP),), (AttemptEnd(Class.TASK),), None),
        ((Strike(Fault.CLOSED),), (SCORED,), None),
        (
            (Strike(Fault.SOUND_INTERNAL, Moment.BETWEEN),) * 3,
            (AttemptEnd(Class.INFRA, "guest_failed"),) * 2 + (AttemptEnd(Class.POLICY, "guest_protocol"),),
            0.0,
        ),
    ],
)
def test_what_must_come_of_faults(
    strikes: tuple[Strike, ...], ends: tuple[AttemptEnd, ...], reward: float | None
) -> None:
    """Whose doing it can have been, when, and what was tried before."""
    wanted = Case(1, strikes).expected()
    assert (wanted.ends, wanted.reward) == (ends, reward)


def test_a_full_disk_of_the_host_excuses_all_but_who_filled_it() -> None:
    """A replica that wrote all that it may did that itself; a score is not believed."""
    for fault, cause, error_class in (
        (Fault.SESSION_ENDED, "disk_full", Class.INFRA),
        (Fault.KILLED, "killed", Class.INFRA),
        (Fault.DISK_CAP, "disk", Class.POLICY),
        (Fault.NONE, "", Class.INFRA),
    ):
        first = expected((Strike(fault, Moment.BETWEEN),), disk_is_full=True).ends[0]
        assert first == AttemptEnd(error_class, cause)


LOST = Outcome(1, "r", 1, (SeenEnd("policy", "guest_dead"),), 0.0, None, True, True, "guest_dead")
TRIED_AGAIN = Outcome(2, "s", 2, (SeenEnd("infra", "killed"), SeenEnd()), 1.0, None, False, True)


def test_what_is_as_it_must_be_is_not_wrong() -> None:
    """A policy's loss, and a trajectory that was tried again, also one that saw one desktop only."""
    assert judge(LOST, expected((DIED,))).wrong == ()
    assert judge(TRIED_AGAIN, expected((KILLED,))).wrong == ()
    unseen = replace(TRIED_AGAIN, ends=(SeenEnd(),))
    assert judge(unseen, expected((replace(KILLED, moment=Moment.EVERY_SETUP),))).wrong == ()


@pytest.mark.parametrize(
    ("outcome", "strike", "why"),
    [
        (LOST, KILLED, "1 attempts, not 2"),
        (LOST, KILLED, "the policy's loss"),
        (TRIED_AGAIN, DIED, "2 attempts, not 1"),
        (TRIED_AGAIN, DIED, "the host agent says infra (killed), not policy (guest_dead)"),
        (TRIED_AGAIN, DIED, "not the policy's loss"),
        (replace(LOST, ends=(SeenEnd("policy", "guest_hung"),)), DIED, "policy (guest_hung)"),
        (replace(LOST, ends=(SeenEnd(forgotten=True),)), DIED, "forgotten"),
        (replace(LOST, reward=1.0), DIED, "reward 1.0, not 0.0"),
        (replace(LOST, reward=None, failure_class="infra"), DIED, "a failure of the class infra, not None"),
        (replace(LOST, valid=False), DIED, "not valid for training"),
        (replace(TRIED_AGAIN, ends=(SeenEnd("infra", "killed"), SeenEnd("infra", "x"))), KILLED, "scored"),
    ],
)
def test_whatever_is_not_as_it_must_be_is_named(outcome: Outcome, strike: Strike, why: str) -> None:
    """In both directions: a policy that gets another try, and one that pays for what the host did."""
    assert any(why in line for line in judge(outcome, expected((strike,))).wrong)


def test_the_tables_count_kinds_and_reasons() -> None:
    """What broke with the classes that must come of it, and what the host agent said."""
    verdicts = [judge(LOST, expected((DIED,))), judge(TRIED_AGAIN, expected((KILLED,)))]
    verdicts.append(judge(replace(LOST, valid=False), expected((DIED,))))
    assert "| r | policy | 2 | 1 |" in table_of_faults(verdicts)
    assert "| s | infra, nobody | 1 | 0 |" in table_of_faults(verdicts)
    reasons = table_of_reasons(verdicts)
    for row in ("| guest_dead | policy | 2 |", "| killed | infra | 1 |", "| scored | nobody | 1 |"):
        assert row in reasons
    assert rare(verdicts, 2) == ["s: 1"]
