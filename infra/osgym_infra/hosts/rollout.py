"""Decisions of an update: how many hosts may be away at once, and when it stops. No host is involved.

The engine updates resources side by side, as many as `-p` says, and knows nothing of a fleet. So all hosts
that one provider process works on share a `Rollout`, and each takes its `Turn` before its agent is restarted:

- the first host goes alone; only when it serves again do `max_unavailable` go at a time;
- when one does not come back as it shall be, no other begins: those that wait stay as they were, and serve.
"""

from __future__ import annotations

import asyncio

from osgym_infra.links.errors import FleetHostError, Interrupted

REMEDY = (
    "\nThe update stops here: no other host is changed, and hosts that serve continue. Correct the problem "
    "above, or undo the change (image, agent or settings), and run `pulumi up` again: it continues with this "
    "host and the remaining ones."
)


class UpdateStopped(FleetHostError):
    """This host was left as it was, since the update of another host failed. It serves as before."""


class Rollout:
    """Update of a fleet's hosts, for one event loop."""

    def __init__(self) -> None:
        self._away: set[Turn] = set()
        self._proved = False
        self._failed_on = ""
        self._changed = asyncio.Condition()

    def turn(self, host: str, most_away: int) -> Turn:
        """Return a host's turn, not yet taken; at most `most_away` hosts are away at once."""
        return Turn(self, host, most_away)

    @property
    def away(self) -> int:
        """Number of hosts that are away now."""
        return len(self._away)

    def may_go(self, most_away: int) -> bool:
        """Whether one more serving host may be taken out."""
        return len(self._away) < (most_away if self._proved else 1)

    async def enter(self, turn: Turn, *, serves: bool) -> None:
        """Wait until the host may be worked on; a host that does not serve counts but need not wait.

        Raises:
            UpdateStopped: Another one did not come back.
        """
        async with self._changed:
            if serves:
                await self._changed.wait_for(lambda: bool(self._failed_on) or self.may_go(turn.most_away))
                if self._failed_on:
                    raise UpdateStopped(
                        turn.host,
                        "this host was not updated and still serves: the update stopped at host "
                        f"{self._failed_on}, which did not become ready; its message has the reason",
                    )
            self._away.add(turn)

    async def leave(self, turn: Turn, error: BaseException | None) -> None:
        """Record how a host's turn ended: serving (None), failed, or interrupted."""
        async with self._changed:
            self._away.discard(turn)
            if error is None:
                self._proved = True
            elif isinstance(error, FleetHostError) and not isinstance(error, Interrupted):
                self._failed_on = self._failed_on or turn.host
            self._changed.notify_all()


class Turn:
    """Part of one host in an update: taken at most once, even across reconnects, and ended once."""

    def __init__(self, rollout: Rollout, host: str, most_away: int) -> None:
        self.host, self.most_away = host, most_away
        self._rollout = rollout
        self.is_taken = False

    async def take(self, *, serves: bool) -> None:
        """Wait for the turn; does nothing when it is taken already.

        Args:
            serves: The host serves now, so that taking it out leaves the fleet with one less.

        Raises:
            UpdateStopped: Another host did not come back; this one is not to be touched.
        """
        if not self.is_taken:
            await self._rollout.enter(self, serves=serves)
            self.is_taken = True

    async def end(self, error: BaseException | None = None) -> None:
        """End the turn, successfully or not. Idempotent, also for a turn that was never taken."""
        if self.is_taken:
            self.is_taken = False
            await self._rollout.leave(self, error)
