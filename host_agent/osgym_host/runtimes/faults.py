"""Errors of runtimes; `osgym_host.runtimes.base` says which call raises which."""

from __future__ import annotations

from osgym_host.errors import OsgymHostError


class RuntimeFault(OsgymHostError):
    """Base of all errors of runtimes."""

    def __init__(self, message: str, *, replica_id: str | None = None, log_tail: str = "") -> None:
        super().__init__(message)
        self.replica_id = replica_id
        self.log_tail = log_tail


class RuntimeUnsupported(RuntimeFault):
    """Lack of something on this host or in this runtime; `remedy` says what to do."""

    def __init__(self, message: str, *, remedy: str = "", replica_id: str | None = None) -> None:
        super().__init__(f"{message} {remedy}".strip(), replica_id=replica_id)
        self.remedy = remedy


class RuntimeNotRunning(RuntimeFault):
    """Call before `start`, after `stop`, or after the death of the runtime's supervisor."""


class ReplicaCreateFailed(RuntimeFault):
    """Failure to start a replica; nothing of it is left. `step` says where it failed."""

    def __init__(self, message: str, *, step: str, replica_id: str | None = None, log_tail: str = "") -> None:
        super().__init__(message, replica_id=replica_id, log_tail=log_tail)
        self.step = step


class ReplicaExists(RuntimeFault):
    """Conflict: a live replica has this id already."""


class ReplicaNotFound(RuntimeFault):
    """Absence of a replica, or another generation in its place."""


class ReplicaDestroyFailed(RuntimeFault):
    """Failure to remove all of a replica, such as a process that does not die."""


class PointFailed(RuntimeFault):
    """Failure to take, write or read a branch point; nothing of it is left."""


class PointNotFound(RuntimeFault):
    """Absence of a branch point."""


class DataDirBusy(RuntimeFault):
    """Conflict: another live host agent uses this instance's directory."""


class GuestTampered(RuntimeFault):
    """Change of a replica's guest agent, whose answers are worthless now. The message says in what."""


class GuestRestarted(GuestTampered):
    """Crash and restart of a guest agent that no program of the desktop can reach."""
