"""Classification of what a check gets from a replica: a usable result, an unusable one, or a broken replica.

The policy decides what is in its replica. If files or windows that it left there could end a check without a
reward, it could turn any 0 into a failure of ours. An error of the guest agent about a file, a command or a
window is therefore `ResultUnusable`, which scores 0 with the reason. There are two exceptions: the agent does
not work (`AGENT_FAULTS`), or it does not answer at all, which loses the replica as in any call. A policy can
cause some faults of the first kind as well (`BREAKABLE`); for these `osgym_host.episodes.untouched` finds out
whether the policy or the host is at fault.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from osgym_host.guest_client import (
    GuestAnswerTooLarge,
    GuestClient,
    GuestError,
    GuestRefused,
    GuestTimeout,
    GuestUnreachable,
)
from osgym_host.tasks.errors import DeadlineExceeded, EvaluatorError, ResultUnusable
from osgym_protocol.codes import GuestErrorCode

T = TypeVar("T")

PROBE_S = 10.0
"""Deadline for the answer of a guest agent that works."""
FAIR_S = 20.0
"""A call that was given at least this was given enough: that it did not end is the replica's doing."""

AGENT_FAULTS: frozenset[str] = frozenset(
    {
        GuestErrorCode.BAD_REQUEST,
        GuestErrorCode.BAD_JSON,
        GuestErrorCode.BAD_FORM,
        GuestErrorCode.UNAUTHORIZED,
        GuestErrorCode.NOT_FOUND,
        GuestErrorCode.METHOD_NOT_ALLOWED,
        GuestErrorCode.LENGTH_REQUIRED,
        GuestErrorCode.BODY_TOO_LARGE,
        GuestErrorCode.HEADERS_TOO_LARGE,
        GuestErrorCode.TOO_MANY_CONNECTIONS,
        GuestErrorCode.BUSY,
        GuestErrorCode.NOT_READY,
        GuestErrorCode.NOT_AVAILABLE,
        GuestErrorCode.STALE_IDENTITY,
        GuestErrorCode.NO_IDENTITY_HELPER,
        GuestErrorCode.GUEST_FAILED,
        GuestErrorCode.DISPLAY_GONE,
        GuestErrorCode.INTERNAL,
        "display",
    }
)
"""Codes by which the agent says that it does not do the call, or cannot, whatever is in the replica."""
BREAKABLE: frozenset[str] = frozenset(
    {
        GuestErrorCode.TOO_MANY_CONNECTIONS,
        GuestErrorCode.BUSY,
        GuestErrorCode.NOT_READY,
        GuestErrorCode.GUEST_FAILED,
        GuestErrorCode.DISPLAY_GONE,
        GuestErrorCode.INTERNAL,
        "display",
    }
)
"""Codes of `AGENT_FAULTS` that programs inside can cause, for instance by taking rights away."""
OUT_OF_TIME: frozenset[str] = frozenset({GuestErrorCode.DEADLINE, "timeout"})


def is_ours(error: GuestRefused) -> bool:
    """Return whether a refusal shows a fault of the guest agent, not of the replica's content."""
    return error.code in AGENT_FAULTS


@dataclass(slots=True)
class ReplicaTime:
    """Time that a check waited for its replica: a slow replica cannot end a check without a reward.

    Attributes:
        total_s: What the whole evaluation was given.
    """

    total_s: float
    used_s: float = 0.0

    async def of(self, guest: GuestClient, deadline: float, what: str, work: Awaitable[T]) -> T:
        """Await a call to the replica.

        Args:
            deadline: In ``loop.time()``, of the whole evaluation.
            what: For the reason: what is asked for.

        Raises:
            ResultUnusable: The replica has nothing that can be scored.
            EvaluatorError, DeadlineExceeded: It cannot be told whether it has.
            GuestError: The guest agent does not answer (any more).
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            return await work
        except GuestRefused as error:
            if is_ours(error):
                raise EvaluatorError(
                    f"{what} could not be read: {error}", {"guest_code": error.code}
                ) from error
            if error.code in OUT_OF_TIME and deadline - began < FAIR_S:
                raise self._too_late(what, clock() - began) from error
            raise ResultUnusable(f"{what}: {error.message or error.code}") from error
        except GuestAnswerTooLarge as error:
            raise ResultUnusable(f"{what}: {error}") from error
        except (GuestTimeout, GuestUnreachable) as error:
            if not error.delivered:
                raise
            await self._probe(guest, error)
            if deadline - began < FAIR_S:
                raise self._too_late(what, clock() - began) from error
            raise ResultUnusable(f"{what} cannot be read to its end: {error}") from error
        except DeadlineExceeded as error:
            raise self._too_late(what, clock() - began) from error
        finally:
            self.used_s += clock() - began

    async def _probe(self, guest: GuestClient, error: GuestError) -> None:
        """Raise the error of a call again unless the agent answers a health check."""
        try:
            await guest.health(timeout_s=PROBE_S)
        except GuestError:
            raise error from None

    def _too_late(self, what: str, just_s: float) -> Exception:
        """Return the error of a passed deadline: the replica's fault if it took most of the time."""
        if self.used_s + just_s >= self.total_s / 2:
            waited = f"the replica took {self.used_s + just_s:.0f} of {self.total_s:.0f} s"
            return ResultUnusable(f"{what} did not arrive in time: {waited}")
        return DeadlineExceeded(f"no time left for {what}", {"what": what})
