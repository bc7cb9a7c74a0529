"""The enums of host API v1: codes, classes, reasons, policies. Standard library only."""

from __future__ import annotations

from enum import StrEnum


class ErrorCode(StrEnum):
    """Stable codes of ``{"code", "message", "details"}``. Open: a client must accept others."""

    BAD_REQUEST = "bad_request"  # 400, 422: the body is not what v1 says
    UNAUTHORIZED = "unauthorized"  # 401: token missing or wrong
    FORBIDDEN = "forbidden"  # 403: address not allowed
    NOT_FOUND = "not_found"  # 404: no such path or replica
    INVALID_ACTION = "invalid_action"  # 400: cannot be parsed, or refused; nothing was done
    BAD_SEQUENCE = "bad_sequence"  # 409: seq is neither the last nor the next
    UNKNOWN_EPISODE = "unknown_episode"  # 404: never existed here, or forgotten
    EPISODE_ENDED = "episode_ended"  # 409: closed, done or out of steps
    EPISODE_LOST = "episode_lost"  # 410: details.cause says which failure took the replica
    LEASE_EXPIRED = "lease_expired"  # 410: nobody called within lease_ttl_s
    LEASE_MISMATCH = "lease_mismatch"  # 403: not the lease of this episode
    CANCELLED = "cancelled"  # 409: this request_id was cancelled
    TASK_INVALID = "task_invalid"  # 422: the task file is wrong
    TASK_UNSUPPORTED = "task_unsupported"  # 422: names a step, getter or metric that is not there
    SETUP_FAILED = "setup_failed"  # 424: a setup step of the task failed
    EVALUATOR_ERROR = "evaluator_error"  # 424: the check raised or ran out of time
    NO_CAPACITY = "no_capacity"  # 503: no replica within wait_s, or no room for checkpoints
    UNKNOWN_CHECKPOINT = "unknown_checkpoint"  # 404: never was here, deleted, or its time was over
    UNSUPPORTED = "unsupported"  # 501: this host's runtime cannot do that; the message says which can
    BRANCH_FAILED = "branch_failed"  # 503: a fork or checkpoint failed; the episode goes on unharmed
    DRAINING = "draining"  # 503: the host will be taken away; it takes no new episodes
    SHUTTING_DOWN = "shutting_down"  # 503: the host agent stops; it takes no new episodes
    TIMEOUT = "timeout"  # 504: the guest did not answer within the step's deadline
    INTERNAL = "internal"  # 500: a fault of the host


class ErrorClass(StrEnum):
    """Whose fault a failure is: the policy's, the task file's, or ours."""

    MODEL = "model"
    TASK = "task"
    INFRA = "infra"


class TerminationReason(StrEnum):
    """Why an episode ended. Open: a client must accept others."""

    DONE = "done"
    FAIL = "fail"
    MAX_STEPS = "max_steps"
    CLOSED = "closed"
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


class Done(StrEnum):
    """Why a step was the last one."""

    DONE = "done"
    FAIL = "fail"
    MAX_STEPS = "max_steps"


class SettlePolicy(StrEnum):
    EXACT = "exact"
    FAST = "fast"
    FIXED = "fixed"


class SettleReason(StrEnum):
    QUIET = "quiet"
    TIMEOUT = "timeout"
    UNCHANGED = "unchanged"
    FIXED = "fixed"


class ImageFormat(StrEnum):
    PNG = "png"
    JPEG = "jpeg"
    WEBP = "webp"
    NONE = "none"
