"""What a runtime raises; which call raises what is said in `osgym_host.runtimes.base`."""

from __future__ import annotations

from osgym_host.errors import OsgymHostError


class RuntimeFault(OsgymHostError):
    """Base of what a runtime raises."""

    def __init__(self, message: str, *, replica_id: str | None = None, log_tail: str = "") -> None:
        """Keep the fields beside the message."""
        super().__init__(message)
        self.replica_id = replica_id
        self.log_tail = log_tail


class RuntimeUnsupported(RuntimeFault):
    """This host cannot run this runtime (or this policy); `remedy` says how it could."""

    def __init__(self, message: str, *, remedy: str = "", replica_id: str | None = None) -> None:
        """Keep the remedy beside the message."""
        super().__init__(f"{message} {remedy}".strip(), replica_id=replica_id)
        self.remedy = remedy


class RuntimeNotRunning(RuntimeFault):
    """`start` was not called, `stop` was, or the runtime's supervisor is dead."""


class ReplicaCreateFailed(RuntimeFault):
    """The replica could not be started; nothing of it is left. `step` is where it failed."""

    def __init__(self, message: str, *, step: str, replica_id: str | None = None, log_tail: str = "") -> None:
        """Keep the failed step beside the message."""
        super().__init__(message, replica_id=replica_id, log_tail=log_tail)
        self.step = step


class ReplicaExists(RuntimeFault):
    """A live replica has this id already."""


class ReplicaNotFound(RuntimeFault):
    """No such replica, or another generation of it."""


class ReplicaDestroyFailed(RuntimeFault):
    """Something of the replica is left (a process that cannot die, files that cannot go)."""


class PointFailed(RuntimeFault):
    """A branch point could not be taken, written or read; nothing of it is left."""


class PointNotFound(RuntimeFault):
    """There is no such branch point (any more)."""


class DataDirBusy(RuntimeFault):
    """Another live host agent uses this instance's directory."""


class GuestTampered(RuntimeFault):
    """A replica's guest agent is not what it was: what it answers says nothing. The message says in what."""


class GuestRestarted(GuestTampered):
    """The guest agent, which no program of the desktop can reach, crashed and was started again."""
