"""Everything the SDK raises.

OSGymError                     error_class   what happened
├─ ConfigError                 -             an argument or environment variable is wrong
├─ BadRequest                  -             the host refused an argument of the call
├─ ProtocolError               infra         the answer is not host API v1
│  └─ BadFrame                 infra         the image is not what the answer says of it; it was not decoded
├─ AuthError                   infra         the host refused token or address, or the token may not do that
├─ RateLimited                 infra         the token asked too often, until the deadline
├─ HostUnreachable             infra         no connection, or it broke and retries ran out
├─ HostError                   infra         the host answered with a fault of its own
├─ NoCapacity                  infra         no replica became free within ``wait_s``
├─ Unsupported                 -             the runtime of this host cannot do that (fork, checkpoint, clock)
├─ BranchFailed                infra         a fork or checkpoint failed; its episode goes on
├─ CheckpointNotFound          -             no host has that checkpoint (any more)
├─ Timeout (TimeoutError)      infra         a deadline of ours or of the host ran out
├─ EpisodeError
│  ├─ EpisodeLost              infra         the replica or its host failed; ``cause`` says how
│  │                           policy        what the policy did broke its desktop: ``evaluate`` gives a 0
│  ├─ EpisodeEnded             -             closed, done, or out of steps
│  ├─ StaleObservation         -             ``final()`` of a frame that a later step replaced
│  └─ ReachError               -             a reach into the desktop was refused, or could not be done there
│     ├─ ReachForbidden        -             the task forbids it
│     ├─ ReachBusy             -             too many at a time
│     ├─ ReachFailed           -             the desktop could not do it; the episode goes on
│     ├─ PathNotFound          -             no such file or folder
│     ├─ PathRefused           -             no right to it, a folder, a device, no room
│     ├─ TooLarge              -             more bytes than were asked for
│     ├─ CommandNotStarted     -             no such program, or it cannot be run
│     └─ PortClosed            -             nobody listens there in the desktop
├─ InvalidAction               model         refused; nothing was done
├─ ModelError                  infra         a model's API gave no answer that can be used
├─ TaskError                   task          the task file is wrong
│  ├─ TaskUnsupported          task          it names something this host does not have
│  └─ SetupFailed              task          one of its setup steps failed
├─ EvaluatorError              task          the check raised or ran out of time
└─ DatasetError                -             a data set cannot be written, or what is there cannot be read
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from osgym_protocol.codes import MEANINGS
from osgym_sdk.wire import ErrorClass, ErrorCode, ErrorInfo

if TYPE_CHECKING:
    from osgym_sdk._host_phase import HostPhase


_BY_CODE: dict[str, type[OSGymError]] = {}
"""Exceptions by the host's code; each class adds itself under its ``default_code``."""


class OSGymError(Exception):
    """Root of all errors of the SDK.

    Attributes:
        code: stable name of the condition, the host's own where the host raised it.
        details: what the host added.
        host: URL of the host concerned, or None.
        episode_id: the episode concerned, or None.
        error_class: whose fault it is; None where nobody's training run is concerned.
        phase: in what ``host_states`` gives: where the host stands in the fleet.
    """

    default_code = "error"
    error_class: ErrorClass | None = ErrorClass.INFRA
    phase: HostPhase | None = None

    def __init_subclass__(cls) -> None:
        """Take the party at fault from the protocol, for a class of a host's code."""
        meaning = MEANINGS.get(cls.__dict__.get("default_code", ""))
        if meaning is not None:
            cls.error_class = meaning.error_class
            _BY_CODE.setdefault(cls.default_code, cls)

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        details: Mapping[str, Any] | None = None,
        host: str | None = None,
        episode_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.details: dict[str, Any] = dict(details or {})
        self.host = host
        self.episode_id = episode_id

    def __str__(self) -> str:
        where = [f"episode {self.episode_id}"] if self.episode_id else []
        where += [self.host] if self.host else []
        return f"{self.message} ({', '.join(where)})" if where else self.message


class ConfigError(OSGymError, ValueError):
    default_code = "config"
    error_class = None


class BadRequest(OSGymError, ValueError):
    default_code = ErrorCode.BAD_REQUEST


class ProtocolError(OSGymError):
    default_code = "protocol"


class BadFrame(ProtocolError, ValueError):
    default_code = "bad_frame"


class AuthError(OSGymError):
    default_code = ErrorCode.UNAUTHORIZED


class RateLimited(OSGymError):
    """Calls wait and are sent again by themselves; this is raised when their deadline would not last."""

    default_code = ErrorCode.RATE_LIMITED

    @property
    def retry_after_s(self) -> float:
        """Seconds until the host takes the call."""
        given = self.details.get("retry_after_s")
        return min(float(given), 3600.0) if isinstance(given, int | float) and given >= 0 else 1.0


class HostUnreachable(OSGymError):
    """``maybe_sent`` is False when no attempt got as far as sending the request."""

    default_code = "host_unreachable"
    maybe_sent = True


class HostError(OSGymError):
    default_code = ErrorCode.INTERNAL


class NoCapacity(OSGymError):
    default_code = ErrorCode.NO_CAPACITY


class Unsupported(OSGymError):
    default_code = ErrorCode.UNSUPPORTED


class BranchFailed(OSGymError):
    default_code = ErrorCode.BRANCH_FAILED


class CheckpointNotFound(OSGymError):
    default_code = ErrorCode.UNKNOWN_CHECKPOINT


class Timeout(OSGymError, TimeoutError):
    default_code = ErrorCode.TIMEOUT


class EpisodeError(OSGymError):
    default_code = "episode"


class EpisodeLost(EpisodeError):
    """The episode is gone.

    With the class ``infra``, the policy is not at fault: run its task again on a fresh replica. With
    ``policy``, the policy broke its desktop: its reward is 0, and the task is not run again.
    """

    default_code = ErrorCode.EPISODE_LOST

    def __init__(self, message: str = "", **about: Any) -> None:
        super().__init__(message, **about)
        if self.details.get("error_class") == ErrorClass.POLICY.value:
            self.error_class = ErrorClass.POLICY

    @property
    def by_policy(self) -> bool:
        """True: the policy broke its desktop, so that the reward is 0."""
        return self.error_class is ErrorClass.POLICY

    @property
    def cause(self) -> str:
        """Cause of the loss: the host's (``details.cause``), or a code such as ``host_unreachable``."""
        return str(self.details.get("cause") or self.code)


class EpisodeEnded(EpisodeError):
    default_code = ErrorCode.EPISODE_ENDED


class StaleObservation(EpisodeError):
    default_code = "stale_observation"
    error_class = None


class ReachError(EpisodeError):
    """Something past the screen could not be done; the episode goes on."""

    default_code = "reach"
    error_class = None


class ReachForbidden(ReachError):
    default_code = ErrorCode.REACH_FORBIDDEN


class ReachBusy(ReachError):
    default_code = ErrorCode.REACH_BUSY


class ReachFailed(ReachError):
    default_code = ErrorCode.REACH_FAILED


class PathNotFound(ReachError):
    default_code = ErrorCode.PATH_NOT_FOUND


class PathRefused(ReachError):
    default_code = ErrorCode.PATH_REFUSED


class TooLarge(ReachError):
    default_code = ErrorCode.TOO_LARGE


class CommandNotStarted(ReachError):
    default_code = ErrorCode.COMMAND_NOT_STARTED


class PortClosed(ReachError):
    default_code = ErrorCode.PORT_CLOSED


class InvalidAction(OSGymError, ValueError):
    """``info``: what a policy that raises this wants kept, as the ``info`` of a :class:`Decision`."""

    default_code = ErrorCode.INVALID_ACTION
    info: Any = None


class ModelError(OSGymError):
    """An agent of :mod:`osgym_sdk.agents` got no usable answer; ``host`` is the base URL of the API."""

    UNAVAILABLE = "model_unavailable"
    """Not reached, not in time, overloaded: the same request may succeed later."""
    REFUSED = "model_refused"
    """The API refused the request: key, model, size; the same request will be refused again."""
    PROTOCOL = "model_protocol"
    """Code of an answer that is not one of the model's API."""
    SAFETY = "model_safety_check"
    """A call waits for safety checks to be acknowledged, and nobody does."""

    default_code = UNAVAILABLE


class TaskError(OSGymError):
    default_code = ErrorCode.TASK_INVALID


class TaskUnsupported(TaskError):
    default_code = ErrorCode.TASK_UNSUPPORTED


class SetupFailed(TaskError):
    default_code = ErrorCode.SETUP_FAILED


class EvaluatorError(OSGymError):
    default_code = ErrorCode.EVALUATOR_ERROR


class DatasetError(OSGymError):
    """``code``: ``dataset_io`` (the disk; ``__cause__`` says which) or ``dataset_format``."""

    default_code = "dataset_format"
    error_class = None


_BY_CODE |= {
    ErrorCode.FORBIDDEN: AuthError,
    ErrorCode.INSUFFICIENT_SCOPE: AuthError,
    ErrorCode.NOT_FOUND: ProtocolError,
    ErrorCode.BAD_SEQUENCE: ProtocolError,
    ErrorCode.UNKNOWN_EPISODE: EpisodeLost,
    ErrorCode.LEASE_EXPIRED: EpisodeLost,
    ErrorCode.LEASE_MISMATCH: ProtocolError,
    ErrorCode.CANCELLED: EpisodeEnded,
    ErrorCode.DRAINING: NoCapacity,
    ErrorCode.SHUTTING_DOWN: NoCapacity,
    ErrorCode.UNKNOWN_IMAGE: Unsupported,
}


def error_from_wire(
    info: ErrorInfo, *, status: int = 0, host: str | None = None, episode_id: str | None = None
) -> OSGymError:
    """Return the exception for an error answer; an unknown code is judged by its HTTP status."""
    kind = _BY_CODE.get(info.code)
    if kind is None:
        kind = AuthError if status in (401, 403) else HostError
    return kind(info.message, code=info.code, details=info.details, host=host, episode_id=episode_id)
