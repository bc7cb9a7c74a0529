"""Watch of the sources of notices for as long as the service runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from osgym_host.notices.sources import NoticeSource, SourceFailed
from osgym_protocol.host_api import Notice

log = logging.getLogger(__name__)

MOST_PAUSE_S = 15.0
"""Longest pause of a source that fails: a notice may give two minutes only."""

Tell = Callable[[str, Notice | None], None]


class Watcher:
    """Polls one source over and over and reports its notices. A failure changes nothing.

    Attributes:
        failures: Number of failures since the last success.
        why: Last failure, empty while nothing fails.
    """

    def __init__(self, source: NoticeSource, tell: Tell) -> None:
        """Prepare; `tell` gets the source's name and its notice after each successful poll."""
        self._source = source
        self._tell = tell
        self.failures = 0
        self.why = ""

    async def run(self) -> None:
        try:
            while True:
                pause_s = await self.poll()
                await asyncio.sleep(pause_s)
        finally:
            await self._source.aclose()

    async def poll(self) -> float:
        """Poll once; return the pause until the next poll (s)."""
        source = self._source
        try:
            async with asyncio.timeout(source.limit_s):
                notice = await source.poll()
            self._tell(source.name, notice)
        except (SourceFailed, TimeoutError) as error:
            return self._failed(str(error) or f"no answer within {source.limit_s:g} s")
        except Exception as error:  # whatever it is, the service goes on, and so does the watch
            log.exception("internal error while asking for notices")
            return self._failed(type(error).__name__)
        if self.failures:
            log.warning("notices from %s can be read again", source.name)
        self.failures, self.why = 0, ""
        return source.pause_s

    def _failed(self, why: str) -> float:
        self.failures += 1
        self.why = why
        if self.failures & (self.failures - 1) == 0:  # the 1st, 2nd, 4th, 8th …
            log.warning(
                "notices from %s cannot be read (failure %d): %s", self._source.name, self.failures, why
            )
        return min(MOST_PAUSE_S, 2.0 ** min(self.failures - 1, 10))


class NoticeWatch:
    def __init__(self, sources: Sequence[NoticeSource], tell: Tell) -> None:
        self.watchers = [Watcher(source, tell) for source in sources]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(w.run(), name="notices") for w in self.watchers]

    async def close(self) -> None:
        """Stop polling. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def state(self) -> str:
        """State of the watch: `off`, `watching` or `failing`."""
        if not self.watchers:
            return "off"
        return "failing" if any(watcher.failures for watcher in self.watchers) else "watching"
