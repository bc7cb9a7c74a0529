"""Reasons of the ends of replicas and episodes, and their consequences, in one total table.

Nothing else in the host decides what a failure means. The pool reads `recovery`, the API reads
`code`, clients and trajectories see `termination` and `error_class`, and the metrics
count by the reason itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from osgym_protocol.codes import ErrorClass, ErrorCode, TerminationReason


class Reason(StrEnum):
    """Reason for which a replica retires or an episode ends."""

    CLOSED = "closed"
    SUSPENDED = "suspended"
    LEASE_EXPIRED = "lease_expired"
    MADE_WAY = "made_way"
    CLIENT_GONE = "client_gone"
    SURPLUS = "surplus"
    SHUTDOWN = "shutdown"
    HOST_RESTARTED = "host_restarted"
    HOST_GOING = "host_going"
    CREATE_FAILED = "create_failed"
    BOOT_FAILED = "boot_failed"
    BOOT_TIMEOUT = "boot_timeout"
    GUEST_DEAD = "guest_dead"
    GUEST_HUNG = "guest_hung"
    GUEST_SLOW = "guest_slow"
    GUEST_PROTOCOL = "guest_protocol"
    GUEST_FAILED = "guest_failed"
    OUT_OF_MEMORY = "out_of_memory"
    HOST_OUT_OF_MEMORY = "host_out_of_memory"
    KILLED = "killed"
    STOPPED = "stopped"
    RUNTIME_LOST = "runtime_lost"
    DISK = "disk"
    DISK_FULL = "disk_full"
    IO_ERROR = "io_error"
    GUEST_PANIC = "guest_panic"
    GUEST_REBOOTED = "guest_rebooted"
    EMULATOR_FAILED = "emulator_failed"
    SETUP_FAILED = "setup_failed"
    TASK_INVALID = "task_invalid"
    TASK_UNSUPPORTED = "task_unsupported"
    INTERNAL = "internal"


class Recovery(StrEnum):
    """Action of the pool after a replica retired."""

    REPLACE = "replace"
    """Make another replica as the plan demands; the replica had no fault."""
    REPLACE_AND_COUNT = "replace_and_count"
    """Replace a replica that broke in use, and count the fault without a delay."""
    BACK_OFF = "back_off"
    """Wait before the next attempt to make a replica, and open the circuit if it fails again."""
    DISCARD = "discard"
    """Leave the replacement of an unwanted replica to the plan."""


@dataclass(frozen=True, slots=True)
class Consequence:
    """Consequences of a reason.

    Attributes:
        recovery: Action of the pool.
        code: Error code of calls on an episode that ended so.
        termination: Value of the episode's `termination_reason`.
        error_class: Party at fault; None for a planned end. `infra` is never a reward of 0.
        caused_inside: True if programs of the desktop can cause it; `core.loss` then decides who is at fault.
    """

    recovery: Recovery
    code: ErrorCode
    termination: TerminationReason
    error_class: ErrorClass | None
    message: str
    caused_inside: bool = False


def _planned(code: ErrorCode, termination: TerminationReason, message: str) -> Consequence:
    return Consequence(Recovery.REPLACE, code, termination, None, message)


def _lost(
    recovery: Recovery, message: str, termination: TerminationReason = TerminationReason.REPLICA_LOST
) -> Consequence:
    return Consequence(recovery, ErrorCode.EPISODE_LOST, termination, ErrorClass.INFRA, message)


def _lost_inside(message: str) -> Consequence:
    return Consequence(
        Recovery.REPLACE_AND_COUNT,
        ErrorCode.EPISODE_LOST,
        TerminationReason.REPLICA_LOST,
        ErrorClass.INFRA,
        message,
        caused_inside=True,
    )


def _task_fault(code: ErrorCode, termination: TerminationReason, message: str) -> Consequence:
    return Consequence(Recovery.REPLACE, code, termination, ErrorClass.TASK, message)


_BROKE = Recovery.REPLACE_AND_COUNT
_CONSEQUENCES: Mapping[Reason, Consequence] = {
    Reason.CLOSED: _planned(ErrorCode.EPISODE_ENDED, TerminationReason.CLOSED, "The episode was closed."),
    Reason.SUSPENDED: _planned(
        ErrorCode.EPISODE_ENDED,
        TerminationReason.SUSPENDED,
        "The episode was suspended: restore its checkpoint to go on.",
    ),
    Reason.LEASE_EXPIRED: _planned(
        ErrorCode.LEASE_EXPIRED,
        TerminationReason.LEASE_EXPIRED,
        "No call or renewal arrived within the lease's time to live.",
    ),
    Reason.MADE_WAY: _planned(
        ErrorCode.LEASE_EXPIRED,
        TerminationReason.LEASE_EXPIRED,
        "The VM was idle and was ended, because a /reset of the same worker found no free replica.",
    ),
    Reason.CLIENT_GONE: _planned(
        ErrorCode.CANCELLED,
        TerminationReason.CANCELLED,
        "The client cancelled the call before it got the episode.",
    ),
    Reason.SURPLUS: _lost(Recovery.DISCARD, "The pool was made smaller."),
    Reason.SHUTDOWN: _lost(Recovery.DISCARD, "The host agent stopped.", TerminationReason.HOST_LOST),
    Reason.HOST_RESTARTED: _lost(
        Recovery.DISCARD,
        "The host agent was restarted, and the replica did not survive.",
        TerminationReason.HOST_LOST,
    ),
    Reason.HOST_GOING: _lost(
        Recovery.DISCARD, "The host is being reclaimed or drained.", TerminationReason.HOST_LOST
    ),
    Reason.CREATE_FAILED: _lost(Recovery.BACK_OFF, "The replica could not be created."),
    Reason.BOOT_FAILED: _lost(Recovery.BACK_OFF, "The replica's session ended while it started."),
    Reason.BOOT_TIMEOUT: _lost(Recovery.BACK_OFF, "The replica's desktop was not ready in time."),
    Reason.GUEST_DEAD: _lost_inside("The replica died."),
    Reason.GUEST_HUNG: _lost_inside("The replica did not answer in time."),
    Reason.GUEST_SLOW: _lost(_BROKE, "The host's load kept the replica from answering in time."),
    Reason.GUEST_PROTOCOL: _lost_inside("The replica's answer was malformed."),
    Reason.GUEST_FAILED: _lost(_BROKE, "The replica's guest agent failed by itself."),
    Reason.OUT_OF_MEMORY: _lost_inside("The replica ran out of memory."),
    Reason.HOST_OUT_OF_MEMORY: _lost(_BROKE, "The host ran out of memory, and its kernel ended the replica."),
    Reason.KILLED: _lost(_BROKE, "Something on the host killed the replica."),
    Reason.STOPPED: _lost(_BROKE, "Something on the host stopped the replica."),
    Reason.RUNTIME_LOST: _lost(_BROKE, "The process that supervises replicas died."),
    Reason.DISK: _lost_inside("The replica exceeded its cap of disk space (replica_disk_mib)."),
    Reason.DISK_FULL: _lost(_BROKE, "The host's disk was nearly full, and the replica had written the most."),
    Reason.IO_ERROR: _lost(_BROKE, "The replica's disk failed."),
    Reason.GUEST_PANIC: _lost_inside("The kernel of the replica's guest panicked."),
    Reason.GUEST_REBOOTED: _lost_inside("The replica's guest restarted itself."),
    Reason.EMULATOR_FAILED: _lost(_BROKE, "The replica's virtual machine monitor failed."),
    Reason.SETUP_FAILED: _task_fault(
        ErrorCode.SETUP_FAILED, TerminationReason.SETUP_FAILED, "A setup step failed."
    ),
    Reason.TASK_INVALID: _task_fault(
        ErrorCode.TASK_INVALID, TerminationReason.TASK_INVALID, "The task file is invalid."
    ),
    Reason.TASK_UNSUPPORTED: _task_fault(
        ErrorCode.TASK_UNSUPPORTED,
        TerminationReason.TASK_INVALID,
        "The task needs something that this host does not have.",
    ),
    Reason.INTERNAL: Consequence(
        _BROKE,
        ErrorCode.INTERNAL,
        TerminationReason.INTERNAL,
        ErrorClass.INFRA,
        "An internal error of the host agent ended the episode.",
    ),
}


def consequence(reason: Reason) -> Consequence:
    """Return the consequences of `reason`; total over the enum (a test checks that)."""
    return _CONSEQUENCES[reason]
