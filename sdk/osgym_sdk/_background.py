"""Work that must go on when its caller was cancelled: closing what was opened."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

_LOG = logging.getLogger("osgym.sdk")


class BackgroundTasks:
    """Tasks with an owner: they are kept, their errors are logged, and ``drain`` waits for them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def spawn(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]:
        """Start the work; it ends by itself."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    async def finish(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Wait for the work; when the waiting is cancelled the work goes on."""
        await asyncio.shield(self.spawn(work, name))

    async def drain(self, timeout_s: float) -> None:
        """Wait for all work, then cancel what is left."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _finished(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.warning("%s: %s", task.get_name(), error)
