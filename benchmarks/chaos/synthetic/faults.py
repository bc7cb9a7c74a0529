"""Faults of the episodes over stand-ins, their moments, and the expected ends. Pure.

The classes are written out here and not read from the host agent's tables: the run compares the two.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

RETRIES = 3
"""Number of retries of a trajectory where the infrastructure failed."""
EXCUSED = 2
"""Number of a sound guest agent's faults in one task that count as the host's (docs/security.md)."""


class Fault(enum.StrEnum):
    NONE = "nothing"
    HELD = "held"
    """No fault: the replica waits at a moment, where a fault of the host meets it."""
    # How a replica ends, as its runtime tells it.
    SESSION_ENDED = "session ended"
    DISPLAY_LOST = "X server died"
    GUEST_SHUTDOWN = "guest switched off"
    OUT_OF_MEMORY = "own memory cap reached"
    DISK_CAP = "own disk cap reached"
    HUNG = "guest's processors stand still"
    GUEST_PANIC = "guest's kernel gave up"
    GUEST_REBOOTED = "guest rebooted"
    HOST_OUT_OF_MEMORY = "host out of memory"
    KILLED = "replica killed from outside"
    STOPPED = "replica stopped from outside"
    RUNTIME_LOST = "supervisor died"
    HOST_DISK_FULL = "host's disk took no more"
    IO_ERROR = "replica's disk failed"
    EMULATOR_FAILED = "emulator crashed"
    # What a guest agent does.
    NONSENSE = "agent talks nonsense"
    GONE = "agent gone"
    FROZEN = "agent frozen"
    STOPPED_OUTSIDE = "all of the replica stopped (SIGSTOP)"
    STARVED = "agent gets no processor for others"
    STARVED_BY_ITSELF = "agent gets no processor for its own desktop"
    REFUSES = "agent refuses a step"
    SOUND_INTERNAL = "sound agent fails inside"
    SOUND_UNAUTHORIZED = "sound agent does not know the host"
    SOUND_DISPLAY_GONE = "sound agent has no display"
    RESTARTED = "agent started again"
    ANSWER_LOST = "one answer lost"
    CONNECTIONS_CUT = "connections cut"
    TAMPERED = "agent tampered with"
    CRASHED = "agent crashed, started again"
    CHECK_REFUSED = "check fails on this desktop"
    CHECK_BROKEN = "check fails on every desktop"
    # What is wrong with a task.
    SETUP_FAILS = "set-up step fails"
    TASK_INVALID = "task is wrong"
    TASK_UNSUPPORTED = "task names an unknown metric"
    # What a client does.
    NOT_CALLED = "client does not call"
    GIVEN_UP = "client gives up its create"
    CLOSED = "client closes without a score"
    MADE_WAY = "worker asks for more than there is"
    # What happens to the host, and with it to every episode.
    AGENT_KILLED = "host agent killed (kill -9)"
    AGENT_STOPPED = "host agent stopped (SIGTERM)"
    HOST_GOES = "host is taken away"
    NO_DESCRIPTORS = "host agent has no descriptors left"


class Moment(enum.StrEnum):
    NEVER = "–"
    SETUP = "in its set-up"
    EVERY_SETUP = "in every try of its set-up"
    UNTOUCHED = "before the first action"
    UNTOUCHED_CHECK = "in the check, without any action"
    BETWEEN = "between two steps"
    STEP = "before a step acts"
    ANSWER = "after a step acted"
    CHECK = "in the check"
    SCORED = "after the score"
    LOST = "after the policy's loss"


class Class(enum.StrEnum):
    """Party whose loss the end of an attempt is."""

    POLICY = "policy"
    INFRA = "infra"
    TASK = "task"
    NOBODY = "nobody"


BY_POLICY = {
    Fault.SESSION_ENDED: "guest_dead",
    Fault.DISPLAY_LOST: "guest_dead",
    Fault.GUEST_SHUTDOWN: "guest_dead",
    Fault.OUT_OF_MEMORY: "out_of_memory",
    Fault.DISK_CAP: "disk",
    Fault.HUNG: "guest_hung",
    Fault.GUEST_PANIC: "guest_panic",
    Fault.GUEST_REBOOTED: "guest_rebooted",
    Fault.NONSENSE: "guest_protocol",
    Fault.GONE: "guest_dead",
    Fault.FROZEN: "guest_hung",
    Fault.STARVED_BY_ITSELF: "guest_hung",
    Fault.REFUSES: "guest_protocol",
    Fault.SOUND_DISPLAY_GONE: "guest_protocol",
}
"""Faults that a policy may have caused, with the cause that clients are told."""
BY_HOST = {
    Fault.HOST_OUT_OF_MEMORY: "host_out_of_memory",
    Fault.KILLED: "killed",
    Fault.STOPPED: "stopped",
    Fault.RUNTIME_LOST: "runtime_lost",
    Fault.HOST_DISK_FULL: "disk_full",
    Fault.IO_ERROR: "io_error",
    Fault.EMULATOR_FAILED: "emulator_failed",
    Fault.STOPPED_OUTSIDE: "stopped",
    Fault.STARVED: "guest_slow",
    Fault.SOUND_INTERNAL: "guest_failed",
    Fault.SOUND_UNAUTHORIZED: "guest_failed",
    Fault.AGENT_KILLED: "host_restarted",
    Fault.AGENT_STOPPED: "shutdown",
    Fault.HOST_GOES: "host_going",
    Fault.NO_DESCRIPTORS: "internal",
}
"""Faults that no policy can cause, with the cause that clients are told."""
EXITS = {
    Fault.SESSION_ENDED: "session_ended",
    Fault.DISPLAY_LOST: "display_lost",
    Fault.GUEST_SHUTDOWN: "guest_shutdown",
    Fault.OUT_OF_MEMORY: "out_of_memory",
    Fault.DISK_CAP: "disk_full",
    Fault.HUNG: "hung",
    Fault.GUEST_PANIC: "guest_panic",
    Fault.GUEST_REBOOTED: "guest_rebooted",
    Fault.HOST_OUT_OF_MEMORY: "host_out_of_memory",
    Fault.KILLED: "killed",
    Fault.STOPPED: "stopped",
    Fault.RUNTIME_LOST: "runtime_lost",
    Fault.HOST_DISK_FULL: "host_disk_full",
    Fault.IO_ERROR: "io_error",
    Fault.EMULATOR_FAILED: "emulator_failed",
}
"""Faults that end a replica, with the `ExitReason` of each."""
HARMLESS = frozenset((Fault.NONE, Fault.RESTARTED, Fault.ANSWER_LOST, Fault.CONNECTIONS_CUT))
"""Faults that an episode survives."""
TASK_FAULTS = frozenset((Fault.SETUP_FAILS, Fault.TASK_INVALID, Fault.TASK_UNSUPPORTED))
OF_CHECKS = frozenset((Fault.TAMPERED, Fault.CRASHED, Fault.CHECK_REFUSED, Fault.CHECK_BROKEN))
OF_CLIENTS = {
    Fault.NOT_CALLED: "lease_expired",
    Fault.GIVEN_UP: "client_gone",
    Fault.CLOSED: "closed",
    Fault.MADE_WAY: "made_way",
}
"""Planned ends of an episode without a reward, with the cause that the host agent records."""
OF_HOST = frozenset((Fault.AGENT_KILLED, Fault.AGENT_STOPPED, Fault.HOST_GOES))
"""Faults that meet every episode at once."""
NOTICED = frozenset((Fault.NONSENSE, Fault.FROZEN, Fault.STOPPED_OUTSIDE))
"""Faults that the host agent finds without a call of the client, by asking guest agents for their health."""
UNTOUCHED_MOMENTS = frozenset((Moment.UNTOUCHED, Moment.UNTOUCHED_CHECK, Moment.EVERY_SETUP))


@dataclass(frozen=True, slots=True)
class Strike:
    fault: Fault = Fault.NONE
    moment: Moment = Moment.NEVER

    def __str__(self) -> str:
        return self.fault.value if self.moment is Moment.NEVER else f"{self.fault.value}, {self.moment.value}"


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """End of an attempt.

    Attributes:
        cause: Cause of a loss that clients are told; empty where there is none, or where the check gave the
            class.
    """

    error_class: Class
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected trajectory: the ends of its attempts, and its reward (None: a failure)."""

    ends: tuple[AttemptEnd, ...]
    reward: float | None


SCORED = AttemptEnd(Class.NOBODY)


def end_of(strike: Strike, excused: int = 0, *, disk_is_full: bool = False) -> AttemptEnd:
    """Return the expected end of an attempt that a fault meets.

    Args:
        excused: Faults of sound guest agents so far in this task.
        disk_is_full: The host's disk is full as well.
    """
    fault, moment = strike.fault, strike.moment
    if fault in TASK_FAULTS:
        return AttemptEnd(Class.TASK)
    if fault in OF_CLIENTS:
        told = fault not in (Fault.CLOSED, Fault.GIVEN_UP)
        return AttemptEnd(Class.NOBODY, OF_CLIENTS[fault] if told else "")
    if fault in HARMLESS or moment in (Moment.SETUP, Moment.SCORED):
        return AttemptEnd(Class.INFRA) if disk_is_full else SCORED
    if moment is Moment.LOST:
        return AttemptEnd(Class.POLICY, BY_POLICY[Fault.SESSION_ENDED])
    untouched = moment in UNTOUCHED_MOMENTS
    if fault in OF_CHECKS:
        ours = untouched or fault is Fault.CHECK_BROKEN or (fault is Fault.CRASHED and excused < EXCUSED)
        return AttemptEnd(Class.INFRA if ours else Class.POLICY)
    if fault is Fault.SOUND_INTERNAL and excused >= EXCUSED and not untouched:
        return AttemptEnd(Class.POLICY, "guest_protocol")
    if fault in BY_HOST:
        return AttemptEnd(Class.INFRA, BY_HOST[fault])
    if untouched:
        return AttemptEnd(Class.INFRA, BY_POLICY[fault])
    if disk_is_full and fault is not Fault.DISK_CAP:
        return AttemptEnd(Class.INFRA, "disk_full")
    return AttemptEnd(Class.POLICY, BY_POLICY[fault])


def expected(strikes: Sequence[Strike], *, tries: int = RETRIES + 1, disk_is_full: bool = False) -> Expected:
    """Return the expected trajectory whose attempts these faults meet, one each.

    Args:
        tries: Most attempts that its client makes.
        disk_is_full: The host's disk is full during the first attempt.
    """
    ends: list[AttemptEnd] = []
    excused = 0
    for number in range(tries):
        strike = strikes[number] if number < len(strikes) else Strike()
        end = end_of(strike, excused, disk_is_full=disk_is_full and number == 0)
        excused += strike.fault in (Fault.SOUND_INTERNAL, Fault.CRASHED)
        ends.append(end)
        if end.error_class is not Class.INFRA:
            break
    reward = {Class.POLICY: 0.0, Class.NOBODY: 1.0}.get(ends[-1].error_class)
    if any(strike.fault in OF_CLIENTS for strike in strikes):
        reward = None
    return Expected(tuple(ends), reward)


@dataclass(frozen=True, slots=True)
class Case:
    """Faults of one trajectory, one for each of its attempts; those after the last meet none.

    Attributes:
        disk_is_full: The host's disk is full while its first attempt runs.
        tries: Most attempts that its client makes.
    """

    number: int
    strikes: tuple[Strike, ...] = ()
    disk_is_full: bool = False
    tries: int = RETRIES + 1

    @property
    def row(self) -> str:
        """Return the row of the table that it belongs to."""
        met = " · then ".join(map(str, self.strikes)) or "nothing"
        return f"{met}, host's disk full" if self.disk_is_full else met

    def expected(self) -> Expected:
        return expected(self.strikes, tries=self.tries, disk_is_full=self.disk_is_full)


def cases_by_batch() -> tuple[tuple[Strike, ...], ...]:
    """Return every sequence of faults that is played with others at the same time."""
    found: list[tuple[Strike, ...]] = [()]
    in_attempts = (Moment.UNTOUCHED, Moment.BETWEEN, Moment.STEP, Moment.ANSWER, Moment.CHECK)
    found += [
        (Strike(fault, moment),)
        for fault in EXITS
        for moment in (Moment.SETUP, Moment.EVERY_SETUP, *in_attempts)
    ]
    for fault, moments in {
        Fault.NONSENSE: (Moment.UNTOUCHED, Moment.BETWEEN, Moment.CHECK),
        Fault.GONE: (Moment.BETWEEN, Moment.CHECK),
        Fault.FROZEN: (Moment.UNTOUCHED, Moment.BETWEEN, Moment.CHECK),
        Fault.STOPPED_OUTSIDE: (Moment.UNTOUCHED, Moment.BETWEEN, Moment.CHECK),
        Fault.REFUSES: (Moment.BETWEEN,),
        Fault.SOUND_INTERNAL: (Moment.BETWEEN,),
        Fault.SOUND_UNAUTHORIZED: (Moment.BETWEEN,),
        Fault.SOUND_DISPLAY_GONE: (Moment.BETWEEN,),
        Fault.RESTARTED: (Moment.BETWEEN,),
        Fault.ANSWER_LOST: (Moment.BETWEEN,),
        Fault.CONNECTIONS_CUT: (Moment.BETWEEN, Moment.STEP),
        Fault.TAMPERED: (Moment.UNTOUCHED_CHECK, Moment.CHECK),
        Fault.CRASHED: (Moment.UNTOUCHED_CHECK, Moment.CHECK),
        Fault.CHECK_REFUSED: (Moment.UNTOUCHED_CHECK, Moment.CHECK),
    }.items():
        found += [(Strike(fault, moment),) for moment in moments]
    found += [(Strike(fault, Moment.SETUP),) for fault in sorted(TASK_FAULTS)]
    found.append((Strike(Fault.CHECK_BROKEN, Moment.CHECK),) * (RETRIES + 1))
    for fault, moment in ((Fault.SOUND_INTERNAL, Moment.BETWEEN), (Fault.CRASHED, Moment.CHECK)):
        found.append((Strike(fault, moment),) * (EXCUSED + 1))
    killed, died = Strike(Fault.KILLED, Moment.BETWEEN), Strike(Fault.SESSION_ENDED, Moment.BETWEEN)
    found += [(killed, died), (killed, killed, died), (killed,) * (RETRIES + 1)]
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Turn:
    """Trajectories that are played together and with no others, all of them number 0 yet."""

    members: tuple[Case, ...]
    times: int = 1

    @property
    def first(self) -> Strike:
        """Return the fault of the first of them."""
        return self.members[0].strikes[0]


def turns() -> tuple[Turn, ...]:
    """Return the trajectories that a fault of the host meets together, and those of odd clients."""
    moments = (Moment.UNTOUCHED, Moment.BETWEEN, Moment.STEP, Moment.CHECK, Moment.LOST)
    found = [
        Turn(_alike(*(Strike(fault, moment) for moment in moments)) * 8)
        for fault in (Fault.AGENT_KILLED, Fault.AGENT_STOPPED, Fault.HOST_GOES)
    ]
    full = [Strike(Fault.NONE, Moment.BETWEEN), Strike(Fault.SESSION_ENDED, Moment.UNTOUCHED)]
    full += [Strike(fault, Moment.BETWEEN) for fault in EXITS]
    found.append(Turn(tuple(Case(0, (strike,), disk_is_full=True) for strike in full) * 4, times=2))
    found.append(Turn((Case(0, (Strike(Fault.NO_DESCRIPTORS, Moment.BETWEEN),), tries=1),) * 10))
    found.append(
        Turn(_alike(Strike(Fault.STARVED, Moment.STEP), Strike(Fault.STARVED_BY_ITSELF, Moment.STEP)) * 16)
    )
    clients = [Strike(fault, Moment.SCORED) for fault in EXITS]
    clients += [Strike(fault) for fault in (Fault.NOT_CALLED, Fault.GIVEN_UP, Fault.CLOSED)]
    found += [Turn(_alike(*clients) * 8), Turn(_alike(Strike(Fault.MADE_WAY)) * 10)]
    return tuple(found)


def _alike(*strikes: Strike) -> tuple[Case, ...]:
    return tuple(Case(0, (strike,)) for strike in strikes)


def plan(seed: int, episodes: int) -> Iterator[Case]:
    """Yield trajectories: every sequence of faults as often as any other, in an order that the seed gives."""
    random = Random(f"synthetic:{seed}")
    deck: list[tuple[Strike, ...]] = []
    for number in range(1, episodes + 1):
        if not deck:
            deck = list(cases_by_batch())
            random.shuffle(deck)
        yield Case(number, deck.pop())
