"""Errors of calls on episodes, each with its code and HTTP status."""

from __future__ import annotations

from typing import Any, assert_never

from osgym_host.core.loss import LossEvidence, whose_loss
from osgym_host.core.reasons import Reason, consequence
from osgym_host.errors import ServiceError
from osgym_host.guest_client import GuestRefused
from osgym_host.replicas.pool_errors import PoolDraining, PoolExhausted, PoolStopping
from osgym_protocol.codes import ErrorClass, ErrorCode, GuestErrorCode


class EpisodeOver(ServiceError):
    """The episode ended for a reason of the table in `core.reasons`.

    Attributes:
        error_class: Party at fault, by `core.loss`; None for a planned end.
    """

    def __init__(
        self, reason: Reason, detail: str = "", episode_id: str = "", *, policy_acted: bool = False
    ) -> None:
        """Take code and message from `core.reasons`, and the party at fault from `core.loss`."""
        meaning = consequence(reason)
        details: dict[str, Any] = {"cause": reason.value}
        self.error_class = whose_loss(LossEvidence(reason, policy_acted))
        if self.error_class is not None:
            details["error_class"] = self.error_class.value
        if episode_id:
            details["episode_id"] = episode_id
        if detail:
            details["detail"] = detail[:2000]
        super().__init__(meaning.code, meaning.message, details)
        self.reason = reason

    @property
    def by_policy(self) -> bool:
        """True if the loss is the policy's, so that the reward is 0."""
        return self.error_class is ErrorClass.POLICY

    def copy(self, episode_id: str = "") -> EpisodeOver:
        """Return an equal error to raise, since each raise of the same object would add to its traceback."""
        return EpisodeOver(
            self.reason,
            str(self.details.get("detail", "")),
            episode_id or str(self.details.get("episode_id", "")),
            policy_acted=self.by_policy,
        )


def disk_refuses(error: OSError) -> ServiceError:
    text = f"The host cannot keep the episode's files: {error.strerror}. Free disk space in data_dir."
    return ServiceError(ErrorCode.NO_CAPACITY, text, {"setting": "disk_reserve_mib"})


def unknown_episode(episode_id: str) -> ServiceError:
    """Return the error for an id that was never given out here, or was forgotten."""
    return ServiceError(
        ErrorCode.UNKNOWN_EPISODE, "This host does not have the episode.", {"episode_id": episode_id[:100]}
    )


def bad_sequence(seq: int, last_seq: int) -> ServiceError:
    """Return the error for a step that is neither the last one nor the next."""
    return ServiceError(
        ErrorCode.BAD_SEQUENCE,
        f"The step's seq is {seq}; it must be {last_seq} (to repeat the last step) or "
        f"{last_seq + 1} (the next step).",
        {"seq": seq, "last_seq": last_seq},
    )


def already_done(done: str) -> ServiceError:
    """Return the error for a step after the ending or `max_steps`: only evaluation and close can follow."""
    return ServiceError(
        ErrorCode.EPISODE_ENDED, f"The episode has ended ({done}); evaluate or close it.", {"done": done}
    )


def already_scored() -> ServiceError:
    """Return the error for a call after the check began, since a check may change the desktop."""
    text = "The episode was evaluated, which ended it; evaluate it again to get the same answer, or close it."
    return ServiceError(ErrorCode.EPISODE_ENDED, text, {"evaluated": True})


def no_capacity(error: PoolExhausted) -> ServiceError:
    """Return the error for a wait without a replica or space for one."""
    details: dict[str, Any] = {"waited_s": round(error.waited_s, 3), "blocked": error.blocked.value}
    if error.setting is not None:
        details |= {"setting": error.setting.name, "value": error.setting.value}
    return ServiceError(ErrorCode.NO_CAPACITY, str(error), details)


def shutting_down(error: PoolStopping) -> ServiceError:
    if isinstance(error, PoolDraining):
        return ServiceError(ErrorCode.DRAINING, str(error), {"notice": error.notice.to_dict()})
    return ServiceError(ErrorCode.SHUTTING_DOWN, str(error))


def refused_by_guest(error: GuestRefused) -> ServiceError:
    return ServiceError(_host_code(error.code), error.message, {**error.details, "guest_code": error.code})


def nothing_was_done(error: GuestRefused) -> bool:
    """Return whether the guest did nothing of a refused step, and can take the next one."""
    return error.code in (GuestErrorCode.INVALID_ACTION, GuestErrorCode.BAD_REQUEST, GuestErrorCode.BUSY)


def _host_code(guest_code: str) -> ErrorCode:
    """Return the host's code for a guest's code; only errors of the client stay the client's."""
    try:
        code = GuestErrorCode(guest_code)
    except ValueError:
        return ErrorCode.INTERNAL
    match code:
        case GuestErrorCode.INVALID_ACTION:
            return ErrorCode.INVALID_ACTION
        case GuestErrorCode.BAD_REQUEST:
            return ErrorCode.BAD_REQUEST
        case GuestErrorCode.BAD_SEQUENCE:
            return ErrorCode.BAD_SEQUENCE
        case GuestErrorCode.NOT_AVAILABLE:
            return ErrorCode.UNSUPPORTED
        case (
            GuestErrorCode.BUSY
            | GuestErrorCode.NOT_READY
            | GuestErrorCode.DISPLAY_GONE
            | GuestErrorCode.DEADLINE
            | GuestErrorCode.TOO_MANY_CONNECTIONS
            | GuestErrorCode.GUEST_FAILED
        ):
            return ErrorCode.TIMEOUT
        case (
            GuestErrorCode.ANSWER_LOST
            | GuestErrorCode.BAD_JSON
            | GuestErrorCode.BAD_FORM
            | GuestErrorCode.UNAUTHORIZED
            | GuestErrorCode.NOT_FOUND
            | GuestErrorCode.NO_SUCH_FILE
            | GuestErrorCode.METHOD_NOT_ALLOWED
            | GuestErrorCode.LENGTH_REQUIRED
            | GuestErrorCode.BODY_TOO_LARGE
            | GuestErrorCode.HEADERS_TOO_LARGE
            | GuestErrorCode.STALE_IDENTITY
            | GuestErrorCode.NO_IDENTITY_HELPER
            | GuestErrorCode.ANSWER_TOO_LARGE
            | GuestErrorCode.PATH_REFUSED
            | GuestErrorCode.TOO_LARGE
            | GuestErrorCode.CANNOT_START
            | GuestErrorCode.PORT_CLOSED
            | GuestErrorCode.INTERNAL
        ):
            return ErrorCode.INTERNAL
        case _ as never:
            assert_never(never)
