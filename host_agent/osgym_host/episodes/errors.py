"""What a call on an episode can end with. Each has the code and the status that the API answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osgym_host.core.reasons import Reason, consequence
from osgym_host.errors import OsgymHostError
from osgym_host.replicas.asking import NoCapacity, PoolDraining, PoolStopping


class EpisodeError(OsgymHostError):
    """Base: a stable code, a message, details.

    Attributes:
        code: A member of `osgym_sdk.wire.ErrorCode`.
        status: The HTTP status.
        message: One sentence for people.
        details: More, for programs.
    """

    def __init__(
        self, code: str, status: int, message: str, details: Mapping[str, Any] | None = None
    ) -> None:
        """Keeps the fields."""
        super().__init__(f"{code}: {message}")
        self.code = code
        self.status = status
        self.message = message
        self.details = dict(details or {})


class EpisodeOver(EpisodeError):
    """The episode ended, for a reason of the table in `core.reasons`."""

    def __init__(self, reason: Reason, detail: str = "", episode_id: str = "") -> None:
        """Takes code and status from the table."""
        meaning = consequence(reason)
        details: dict[str, Any] = {"cause": reason.value}
        if episode_id:
            details["episode_id"] = episode_id
        if detail:
            details["detail"] = detail[:2000]
        super().__init__(meaning.code, meaning.status, meaning.message, details)
        self.reason = reason

    def again(self) -> EpisodeOver:
        """Returns an equal error to raise: one that is raised over and over would keep every trace."""
        copy = EpisodeOver(self.reason)
        copy.details = dict(self.details)
        return copy


def unknown_episode(episode_id: str) -> EpisodeError:
    """The id was never given out here, or the episode was forgotten."""
    return EpisodeError(
        "unknown_episode", 404, "There is no such episode on this host.", {"episode_id": episode_id[:100]}
    )


def bad_sequence(seq: int, last_seq: int) -> EpisodeError:
    """The step is neither the last one nor the next."""
    return EpisodeError(
        "bad_sequence",
        409,
        f"The step's seq is {seq}; only {last_seq} (again) or {last_seq + 1} (the next) can be.",
        {"seq": seq, "last_seq": last_seq},
    )


def already_done(done: str) -> EpisodeError:
    """The policy ended the episode, or it is out of steps: it can only be evaluated and closed."""
    return EpisodeError(
        "episode_ended", 409, f"The episode is over ({done}); evaluate or close it.", {"done": done}
    )


def no_capacity(error: NoCapacity) -> EpisodeError:
    """No replica, or no room for one, within the time that the client would wait."""
    details = {"waited_s": round(error.waited_s, 3), "blocked": error.blocked.value}
    return EpisodeError("no_capacity", 503, str(error), details)


def shutting_down(error: PoolStopping) -> EpisodeError:
    """The service is stopping, or the host will be taken away."""
    if isinstance(error, PoolDraining):
        return EpisodeError("draining", 503, str(error), {"notice": error.notice.to_dict()})
    return EpisodeError("shutting_down", 503, str(error))
