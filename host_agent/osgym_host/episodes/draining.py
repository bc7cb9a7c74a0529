"""Coming to an end with grace: no new episodes, running ones are told, at the deadline they end as lost.

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

from osgym_host.core.draining import OPERATOR, Drain
from osgym_host.core.reasons import Reason
from osgym_host.episodes.errors import EpisodeError
from osgym_host.episodes.recorder import Recorder
from osgym_host.episodes.service import EpisodeService
from osgym_host.replicas.asking import PoolDraining
from osgym_host.replicas.events import EventLog
from osgym_host.replicas.pool import Pool
from osgym_sdk.wire import Notice

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""How often the clock is looked at before a deadline: it is the wall clock, which may be set."""


class Draining:
    """Whether this host drains, and what follows from it. For one event loop."""

    def __init__(
        self,
        *,
        pool: Pool,
        episodes: EpisodeService,
        events: EventLog,
        recorder: Recorder,
        margin_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is done before `start`; `clock` is Unix time."""
        self._pool = pool
        self._episodes = episodes
        self._events = events
        self._recorder = recorder
        self._margin_s = margin_s
        self._clock = clock
        self._drain = Drain()
        self._ended = False
        self._closed = False
        self._kick = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def notice(self) -> Notice | None:
        """What clients are told; None while the host serves."""
        return self._drain.notice

    def start(self) -> None:
        """Begins to watch for the deadline."""
        self._task = asyncio.create_task(self._run(), name="draining")

    def stop(self) -> None:
        """Changes nothing any more: the service stops. Idempotent."""
        self._closed = True

    async def close(self) -> None:
        """Ends the watch for the deadline. Idempotent."""
        self.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def tell(self, source: str, notice: Notice | None) -> None:
        """A source says what it knows; None: it knows of nothing, or takes its notice back."""
        before, self._drain = self.notice, self._drain.told(source, notice)
        now = self.notice
        if now == before or self._closed:
            return
        if now is None:
            log.warning("the host is not taken away after all: it serves again")
            self._ended = False
            self._pool.resume()
        else:
            log.warning("this host will be taken away (%s, %s): draining", now.kind, self._until(now))
            self._pool.stop_handing_out(partial(PoolDraining, now))
        self._events.add("drain", notice=now.to_dict() if now is not None else None)
        self._kick.set()

    def ask(self, deadline_s: float | None) -> None:
        """An operator wants the host empty within so many seconds, or whenever all episodes are over.

        Asking again replaces the deadline.
        """
        deadline = None if deadline_s is None else round(self._clock() + deadline_s, 3)
        self.tell(OPERATOR, Notice(OPERATOR, deadline))

    def undo(self) -> None:
        """The operator takes it back. Idempotent.

        Raises:
            EpisodeError: `draining` (409): somebody else takes the host away.
        """
        if self._drain.is_final:
            assert self.notice is not None
            text = f"The host is taken away ({self.notice.kind}); that cannot be undone here."
            raise EpisodeError("draining", 409, text, {"notice": self.notice.to_dict()})
        self.tell(OPERATOR, None)

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
        """Ends what is still open, also what is being made: an honest answer instead of a dead host."""
        self._ended = True
        ended = self._episodes.end_all(Reason.HOST_GOING)
        for manager in self._pool.managers():
            manager.retire(Reason.HOST_GOING)
        log.warning("the host goes: %d open episodes were ended", ended)
        if not await asyncio.to_thread(self._recorder.flush):
            log.error("trajectories are not yet on disk")
