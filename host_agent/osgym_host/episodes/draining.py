"""Draining: no new episodes; running ones see a notice, and end as lost at the deadline.

A host that drains goes on to serve: it answers questions, scores and closes episodes, exports checkpoints.
When all is over it waits to be switched off, since a service that ended would answer nobody why, and a
notice can be taken back (an operator's, or that of a machine that was only stopped or hibernated).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from osgym_host.core.draining import OPERATOR, DrainNotices
from osgym_host.core.reasons import Reason
from osgym_host.episodes.service import EpisodeService
from osgym_host.errors import ServiceError
from osgym_host.replicas.pool import Pool
from osgym_host.replicas.pool_errors import PoolDraining
from osgym_protocol.codes import ErrorCode
from osgym_protocol.host_api import Notice

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Interval of checks of the wall clock before a deadline, since the wall clock may be set."""


class DrainController:
    """Drains this host while a notice says so. For one event loop."""

    def __init__(
        self, *, pool: Pool, episodes: EpisodeService, margin_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._pool = pool
        self._episodes = episodes
        self._margin_s = margin_s
        self._clock = clock
        self._drain = DrainNotices()
        self._ended = False
        self._closed = False
        self._kick = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def notice(self) -> Notice | None:
        """Notice that clients see; None while the host serves."""
        return self._drain.notice

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="draining")

    def stop(self) -> None:
        """Ignore later notices, since the service stops. Idempotent."""
        self._closed = True

    async def close(self) -> None:
        """End the watch for the deadline. Idempotent."""
        self.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def update(self, source: str, notice: Notice | None, by: str | None = None) -> None:
        """Replace the notice of a source; None takes it back.

        Args:
            by: Name of the token of the request, for the event.
        """
        before, self._drain = self.notice, self._drain.updated(source, notice)
        now = self._episodes.notice = self.notice
        if now == before or self._closed:
            return
        if now is None:
            log.warning("the notice was withdrawn: the host accepts episodes again")
            self._ended = False
            self._pool.resume()
        else:
            log.warning("this host will be reclaimed (%s, %s) and drains", now.kind, self._until(now))
            self._pool.stop_leasing(partial(PoolDraining, now))
        who = {} if by is None else {"by": by}
        self._episodes.events.add("drain", notice=now.to_dict() if now is not None else None, **who)
        self._kick.set()

    def request(self, deadline_s: float | None, by: str | None = None) -> None:
        """Drain for an operator, until a deadline or until all episodes are over.

        A second request replaces the deadline.
        """
        deadline = None if deadline_s is None else round(self._clock() + deadline_s, 3)
        self.update(OPERATOR, Notice(OPERATOR, deadline), by)

    def cancel(self, by: str | None = None) -> None:
        """Take the operator's request back. Idempotent.

        Raises:
            ServiceError: `draining` (409): another source takes the host away.
        """
        if self._drain.is_final:
            assert self.notice is not None
            text = (
                f"The host drains because the cloud reclaims it ({self.notice.kind}); only its notice can "
                "end the drain."
            )
            raise ServiceError(ErrorCode.DRAINING, text, {"notice": self.notice.to_dict()}, status=409)
        self.update(OPERATOR, None, by)

    def _until(self, notice: Notice) -> str:
        if notice.deadline is None:
            return "no deadline"
        return f"in {notice.deadline - self._clock():.0f} s"

    async def _run(self) -> None:
        while True:
            self._kick.clear()
            ends_at = self._drain.ends_at(self._margin_s)
            pause_s: float | None = None
            if ends_at is not None and not self._ended:
                pause_s = min(LOOK_S, ends_at - self._clock())
                if pause_s <= 0:
                    await self._end_all()
                    continue
            try:
                async with asyncio.timeout(pause_s):
                    await self._kick.wait()
            except TimeoutError:
                continue

    async def _end_all(self) -> None:
        """End all episodes, including those being made, so that clients get an answer in time."""
        self._ended = True
        ended = self._episodes.end_all(Reason.HOST_GOING)
        self._pool.replicas.retire_all(Reason.HOST_GOING)
        log.warning("the host will be taken away: %d open episodes were ended", ended)
        if not await asyncio.to_thread(self._episodes.recorder.flush):
            log.error("trajectories could not be written to disk in time")
