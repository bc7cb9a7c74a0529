"""Why a replica or an episode ended, and what follows from it: one total table.

Nothing else in the host decides what a failure means. The pool reads `recovery`, the API reads
`code` and `status`, clients and trajectories see `termination` and `error_class`, and the metrics
count by the reason itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, assert_never


class Reason(StrEnum):
    """Why a replica retires or an episode ends."""

    CLOSED = "closed"
    LEASE_EXPIRED = "lease_expired"
    CLIENT_GONE = "client_gone"
    SURPLUS = "surplus"
    SHUTDOWN = "shutdown"
    HOST_RESTARTED = "host_restarted"
    HOST_GOING = "host_going"
    CREATE_FAILED = "create_failed"
    NO_RESOURCES = "no_resources"
    BOOT_FAILED = "boot_failed"
    BOOT_TIMEOUT = "boot_timeout"
    GUEST_DEAD = "guest_dead"
    GUEST_HUNG = "guest_hung"
    GUEST_PROTOCOL = "guest_protocol"
    OUT_OF_MEMORY = "out_of_memory"
    DISK = "disk"
    IO_ERROR = "io_error"
    GUEST_PANIC = "guest_panic"
    GUEST_REBOOTED = "guest_rebooted"
    EMULATOR_FAILED = "emulator_failed"
    SETUP_FAILED = "setup_failed"
    TASK_INVALID = "task_invalid"
    TASK_UNSUPPORTED = "task_unsupported"
    INTERNAL = "internal"


class Recovery(StrEnum):
    """What the pool does after a replica retired for a reason."""

    REPLACE = "replace"
    """Make another one as the plan demands; nothing went wrong with the replica."""
    REPLACE_AND_COUNT = "replace_and_count"
    """The replica was good and broke in use: replace it, count the fault, do not slow down."""
    BACK_OFF = "back_off"
    """A replica could not be made: wait before the next one, and open the circuit when it repeats."""
    DISCARD = "discard"
    """It was not wanted any more; the plan decides whether another one is."""


ErrorClass = Literal["model", "task", "infra"]


@dataclass(frozen=True, slots=True)
class Consequence:
    """What a reason means.

    Attributes:
        recovery: What the pool does.
        code: The stable error code that a client sees when it calls an episode that ended so.
        status: The HTTP status that goes with the code.
        termination: What the episode's `termination_reason` becomes.
        error_class: Whose fault it is, None when nobody's. `infra` is never a reward of 0.
        message: One sentence for people.
    """

    recovery: Recovery
    code: str
    status: int
    termination: str
    error_class: ErrorClass | None
    message: str


def consequence(reason: Reason) -> Consequence:
    """Returns what `reason` means; total over the enum (checked by the type checker)."""
    match reason:
        case Reason.CLOSED:
            return _planned("episode_ended", 409, "closed", "The episode was closed.")
        case Reason.LEASE_EXPIRED:
            return _planned(
                "lease_expired", 410, "lease_expired", "Nobody called within the lease's time to live."
            )
        case Reason.CLIENT_GONE:
            return _planned("cancelled", 409, "cancelled", "The client gave up before it had the episode.")
        case Reason.SURPLUS:
            return _lost(Recovery.DISCARD, "The pool was made smaller.")
        case Reason.SHUTDOWN:
            return _lost(Recovery.DISCARD, "The host agent stopped.", "host_lost")
        case Reason.HOST_RESTARTED:
            return _lost(
                Recovery.DISCARD, "The host agent was restarted, and the replica is gone.", "host_lost"
            )
        case Reason.HOST_GOING:
            return _lost(Recovery.DISCARD, "The host is taken away.", "host_lost")
        case Reason.CREATE_FAILED:
            return _lost(Recovery.BACK_OFF, "The replica could not be created.")
        case Reason.NO_RESOURCES:
            return _lost(Recovery.BACK_OFF, "The host had no room for the replica.")
        case Reason.BOOT_FAILED:
            return _lost(Recovery.BACK_OFF, "The replica's session ended while it started.")
        case Reason.BOOT_TIMEOUT:
            return _lost(Recovery.BACK_OFF, "The replica's desktop was not ready in time.")
        case Reason.GUEST_DEAD:
            return _lost(Recovery.REPLACE_AND_COUNT, "The replica died.")
        case Reason.GUEST_HUNG:
            return _lost(Recovery.REPLACE_AND_COUNT, "The replica did not answer in time.")
        case Reason.GUEST_PROTOCOL:
            return _lost(Recovery.REPLACE_AND_COUNT, "The replica's answer made no sense.")
        case Reason.OUT_OF_MEMORY:
            return _lost(Recovery.REPLACE_AND_COUNT, "The replica ran out of memory.")
        case Reason.DISK:
            return _lost(Recovery.REPLACE_AND_COUNT, "The replica wrote more to disk than it may.")
        case Reason.IO_ERROR:
            return _lost(Recovery.REPLACE_AND_COUNT, "The replica's disk failed.")
        case Reason.GUEST_PANIC:
            return _lost(Recovery.REPLACE_AND_COUNT, "The kernel of the replica's guest gave up.")
        case Reason.GUEST_REBOOTED:
            return _lost(Recovery.REPLACE_AND_COUNT, "The replica's guest restarted itself.")
        case Reason.EMULATOR_FAILED:
            return _lost(Recovery.REPLACE_AND_COUNT, "The replica's virtual machine monitor failed.")
        case Reason.SETUP_FAILED:
            return Consequence(
                Recovery.REPLACE, "setup_failed", 424, "setup_failed", "task", "A setup step failed."
            )
        case Reason.TASK_INVALID:
            return Consequence(
                Recovery.REPLACE, "task_invalid", 422, "task_invalid", "task", "The task is wrong."
            )
        case Reason.TASK_UNSUPPORTED:
            return Consequence(
                Recovery.REPLACE,
                "task_unsupported",
                422,
                "task_invalid",
                "task",
                "The task names something this host does not have.",
            )
        case Reason.INTERNAL:
            return Consequence(
                Recovery.REPLACE_AND_COUNT,
                "internal",
                500,
                "internal",
                "infra",
                "A fault in the host agent ended the episode.",
            )
        case _ as never:
            assert_never(never)


def _planned(code: str, status: int, termination: str, message: str) -> Consequence:
    return Consequence(Recovery.REPLACE, code, status, termination, None, message)


def _lost(recovery: Recovery, message: str, termination: str = "replica_lost") -> Consequence:
    return Consequence(recovery, "episode_lost", 410, termination, "infra", message)
