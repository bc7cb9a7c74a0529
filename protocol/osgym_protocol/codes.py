"""Enums of both protocols: codes and their meanings, classes, reasons, policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn


class TextEnum(str, Enum):
    """Enum whose members are strings (`StrEnum` needs Python 3.11)."""

    def __str__(self) -> str:
        """Return the value that is sent on the wire."""
        return str(self.value)


def assert_never(value: NoReturn) -> NoReturn:
    """Mark unreachable code for the type checker (`typing` has it from Python 3.11 on)."""
    raise AssertionError(f"unexpected {value!r}")


class ErrorCode(TextEnum):
    """Stable codes of ``{"code", "message", "details"}``. Open: a client must accept others."""

    BAD_REQUEST = "bad_request"  # 400, 408, 413, 422, 431: the request is not what v1 says
    UNAUTHORIZED = "unauthorized"  # 401: token missing or wrong
    FORBIDDEN = "forbidden"  # 403: address not allowed
    INSUFFICIENT_SCOPE = "insufficient_scope"  # 403: the token may do less; details say which is needed
    RATE_LIMITED = "rate_limited"  # 429: asked or guessed too often; nothing was done, Retry-After says when
    NOT_FOUND = "not_found"  # 404: no such path or replica
    INVALID_ACTION = "invalid_action"  # 400, 422: cannot be parsed, or refused; nothing was done
    BAD_SEQUENCE = "bad_sequence"  # 409: seq is neither the last nor the next
    UNKNOWN_EPISODE = "unknown_episode"  # 404: never existed here, or forgotten
    EPISODE_ENDED = "episode_ended"  # 409: closed, done, evaluated or out of steps
    EPISODE_LOST = "episode_lost"  # 410: details.cause says why, details.error_class whose fault it is
    LEASE_EXPIRED = "lease_expired"  # 410: nobody called within lease_ttl_s
    LEASE_MISMATCH = "lease_mismatch"  # 403: not the lease of this episode
    CANCELLED = "cancelled"  # 409: this request_id was cancelled
    TASK_INVALID = "task_invalid"  # 422: the task file is wrong
    TASK_UNSUPPORTED = "task_unsupported"  # 422: names a step, getter or metric that is not there
    SETUP_FAILED = "setup_failed"  # 424: a setup step of the task failed
    EVALUATOR_ERROR = "evaluator_error"  # 424: the check raised or ran out of time
    NO_CAPACITY = "no_capacity"  # 503: no replica within wait_s, or no room for checkpoints
    UNKNOWN_IMAGE = "unknown_image"  # 404: this host does not serve it; details name those it does
    UNKNOWN_CHECKPOINT = "unknown_checkpoint"  # 404: never was here, deleted, or its time was over
    UNSUPPORTED = "unsupported"  # 501: this host's runtime cannot do that; the message says which can
    BRANCH_FAILED = "branch_failed"  # 503: a fork or checkpoint failed; the episode is not affected
    DRAINING = "draining"  # 503: the host will be taken away; it takes no new episodes
    SHUTTING_DOWN = "shutting_down"  # 503: the host agent stops; it takes no new episodes
    REACH_FORBIDDEN = "reach_forbidden"  # 403: the task forbids this reach into its desktop
    REACH_BUSY = "reach_busy"  # 429: too many reaches into this desktop at a time
    REACH_FAILED = "reach_failed"  # 502: the desktop could not do it; the episode goes on
    PATH_NOT_FOUND = "path_not_found"  # 404: no such file or folder in the desktop
    PATH_REFUSED = "path_refused"  # 409: no right to it, a folder, a device, no room
    TOO_LARGE = "too_large"  # 413: more bytes than were asked for, or may be
    COMMAND_NOT_STARTED = "command_not_started"  # 422: no such program, or it cannot be run
    PORT_CLOSED = "port_closed"  # 409: nobody listens at that port in the desktop
    TIMEOUT = "timeout"  # 504: the guest did not answer within the step's deadline
    INTERNAL = "internal"  # 500: a fault of the host


class TokenScope(TextEnum):
    """Permissions of a token; each scope includes those before it."""

    OBSERVE = "observe"  # look: state, frames, events, metrics, what was recorded
    RUN = "run"  # what a training script needs: episodes, and their desktops from inside
    ADMIN = "admin"  # what operators do: drain, act on others' desktops

    def includes(self, other: TokenScope) -> bool:
        order = list(TokenScope)
        return order.index(self) >= order.index(other)


class ErrorClass(TextEnum):
    """Party at fault for a failure."""

    MODEL = "model"  # the policy gave no action, or failed itself: no reward
    POLICY = "policy"  # what the policy did in its desktop ended the episode: a valid 0, not retried
    TASK = "task"  # the task file is wrong: no reward
    INFRA = "infra"  # the host, its network or its evaluator failed: no reward, tried again


class Evidence(TextEnum):
    """Source of the evidence that a task's check uses."""

    HOST = "host"  # files and rules alone: no program of the desktop is asked
    GUEST = "guest"  # answers of the desktop's programs, which a policy can replace or imitate


@dataclass(frozen=True, slots=True)
class ErrorMeaning:
    """Consequences of an error code.

    Attributes:
        status: HTTP status, where the answer has no more exact one.
        error_class: Party at fault; None where no training run is affected.
    """

    status: int
    error_class: ErrorClass | None = ErrorClass.INFRA


MEANINGS: Mapping[ErrorCode, ErrorMeaning] = {
    ErrorCode.BAD_REQUEST: ErrorMeaning(400, None),
    ErrorCode.UNAUTHORIZED: ErrorMeaning(401),
    ErrorCode.FORBIDDEN: ErrorMeaning(403),
    ErrorCode.INSUFFICIENT_SCOPE: ErrorMeaning(403),
    ErrorCode.RATE_LIMITED: ErrorMeaning(429),
    ErrorCode.NOT_FOUND: ErrorMeaning(404),
    ErrorCode.INVALID_ACTION: ErrorMeaning(400, ErrorClass.MODEL),
    ErrorCode.BAD_SEQUENCE: ErrorMeaning(409),
    ErrorCode.UNKNOWN_EPISODE: ErrorMeaning(404),
    ErrorCode.EPISODE_ENDED: ErrorMeaning(409, None),
    ErrorCode.EPISODE_LOST: ErrorMeaning(410),
    ErrorCode.LEASE_EXPIRED: ErrorMeaning(410),
    ErrorCode.LEASE_MISMATCH: ErrorMeaning(403),
    ErrorCode.CANCELLED: ErrorMeaning(409, None),
    ErrorCode.TASK_INVALID: ErrorMeaning(422, ErrorClass.TASK),
    ErrorCode.TASK_UNSUPPORTED: ErrorMeaning(422, ErrorClass.TASK),
    ErrorCode.SETUP_FAILED: ErrorMeaning(424, ErrorClass.TASK),
    ErrorCode.EVALUATOR_ERROR: ErrorMeaning(424, ErrorClass.TASK),
    ErrorCode.NO_CAPACITY: ErrorMeaning(503),
    ErrorCode.UNKNOWN_IMAGE: ErrorMeaning(404, None),
    ErrorCode.UNKNOWN_CHECKPOINT: ErrorMeaning(404, None),
    ErrorCode.UNSUPPORTED: ErrorMeaning(501, None),
    ErrorCode.BRANCH_FAILED: ErrorMeaning(503),
    ErrorCode.DRAINING: ErrorMeaning(503),
    ErrorCode.SHUTTING_DOWN: ErrorMeaning(503),
    ErrorCode.REACH_FORBIDDEN: ErrorMeaning(403, None),
    ErrorCode.REACH_BUSY: ErrorMeaning(429, None),
    ErrorCode.REACH_FAILED: ErrorMeaning(502, None),
    ErrorCode.PATH_NOT_FOUND: ErrorMeaning(404, None),
    ErrorCode.PATH_REFUSED: ErrorMeaning(409, None),
    ErrorCode.TOO_LARGE: ErrorMeaning(413, None),
    ErrorCode.COMMAND_NOT_STARTED: ErrorMeaning(422, None),
    ErrorCode.PORT_CLOSED: ErrorMeaning(409, None),
    ErrorCode.TIMEOUT: ErrorMeaning(504),
    ErrorCode.INTERNAL: ErrorMeaning(500),
}
"""Meaning of every code of host API v1. The SDK maps each code to its exception."""


class TerminationReason(TextEnum):
    """Reason for the end of an episode. Open: a client must accept others."""

    DONE = "done"
    FAIL = "fail"
    MAX_STEPS = "max_steps"
    CLOSED = "closed"
    SUSPENDED = "suspended"
    POLICY_STOPPED = "policy_stopped"
    POLICY_ERROR = "policy_error"
    INVALID_ACTION = "invalid_action"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    LEASE_EXPIRED = "lease_expired"
    REPLICA_LOST = "replica_lost"
    HOST_LOST = "host_lost"
    NO_CAPACITY = "no_capacity"
    TASK_INVALID = "task_invalid"
    SETUP_FAILED = "setup_failed"
    EVALUATOR_ERROR = "evaluator_error"
    INTERNAL = "internal"


class DropReason(TextEnum):
    """Reason for a missing part of a recorded step (`dropped` in a trajectory). Open: accept others."""

    QUEUE = "queue"  # the disk could not keep up
    EPISODE = "episode"  # the episode recorded as much as one may
    GONE = "gone"  # it was recorded, and is not there any more


class Done(TextEnum):
    """Reason for which a step was the last one."""

    DONE = "done"
    FAIL = "fail"
    MAX_STEPS = "max_steps"


class ThinkMode(TextEnum):
    """What a desktop does between the answer of a call and the next call."""

    LIVE = "live"  # it goes on
    PAUSED = "paused"  # it stands still, its clocks included


class ThinkCharge(TextEnum):
    """Time by which the clocks of a paused desktop move with a thought that names none."""

    NOTHING = "nothing"
    REAL = "real"  # the time that the thought took


class SettlePolicy(TextEnum):
    """Rule by which the guest decides that the screen is final."""

    EXACT = "exact"
    FAST = "fast"
    CERTAIN = "certain"  # by the rule of the watch, as `final`
    FIXED = "fixed"


class SettleReason(TextEnum):
    """Reason for which the guest answered."""

    QUIET = "quiet"
    TIMEOUT = "timeout"
    UNCHANGED = "unchanged"
    FIXED = "fixed"


class ImageFormat(TextEnum):
    """Encodings of a frame."""

    PNG = "png"
    JPEG = "jpeg"
    WEBP = "webp"
    NONE = "none"


class GuestErrorCode(TextEnum):
    """Stable `code` of a guest's error answers and of failed actions. Open: accept others."""

    BAD_REQUEST = "bad_request"
    BAD_JSON = "bad_json"
    BAD_FORM = "bad_form"
    INVALID_ACTION = "invalid_action"
    UNAUTHORIZED = "unauthorized"
    NOT_FOUND = "not_found"
    NO_SUCH_FILE = "no_such_file"
    PATH_REFUSED = "path_refused"
    TOO_LARGE = "too_large"
    CANNOT_START = "cannot_start"
    PORT_CLOSED = "port_closed"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    LENGTH_REQUIRED = "length_required"
    BODY_TOO_LARGE = "body_too_large"
    HEADERS_TOO_LARGE = "headers_too_large"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    BAD_SEQUENCE = "bad_sequence"
    ANSWER_LOST = "answer_lost"
    BUSY = "busy"
    NOT_READY = "not_ready"
    NOT_AVAILABLE = "not_available"
    STALE_IDENTITY = "stale_identity"
    NO_IDENTITY_HELPER = "no_identity_helper"
    DISPLAY_GONE = "display_gone"
    DEADLINE = "deadline"
    ANSWER_TOO_LARGE = (
        "answer_too_large"  # said by the host itself, and by its server for guests without agent
    )
    GUEST_FAILED = "guest_failed"  # said by that server
    INTERNAL = "internal"
