"""Publication at an interval, in a thread, for as long as the process runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable

from osgym_host.scaling.publishers import Publisher, PublishFailed

log = logging.getLogger(__name__)

LIMIT_S = 30.0
"""Deadline of one call, with all its attempts and the fetch of credentials; a later call is abandoned."""


class PressurePublisher:
    """Reads the number in the event loop and publishes it in a thread: one at a time, and no step waits for
    it.

    Attributes:
        failures: Number of failures since the last success.
    """

    def __init__(self, publisher: Publisher, read: Callable[[], float | None], every_s: float) -> None:
        """Prepare; `start` publishes.

        Args:
            read: Returns the current number.
        """
        self._publisher = publisher
        self._read = read
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None
        self._thread: threading.Thread | None = None
        self.published = 0
        self.failures = 0
        self.why = ""

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="lease pressure")

    async def close(self) -> None:
        """Stop; a call that hangs is left to its deadlines. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._publish()
            await asyncio.sleep(self._every_s)

    async def _publish(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            self._failed("the previous call has not ended yet")
            return
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._in_thread(self._read())
        except PublishFailed as error:
            self._failed(str(error))
            return
        except TimeoutError:
            self._failed(f"no answer within {LIMIT_S:g} s")
            return
        except Exception as error:  # a library of others must not end the publishing
            log.debug("publishing failed", exc_info=True)
            self._failed(f"{type(error).__name__}: {error}")
            return
        if self.failures:
            log.warning("lease_pressure_percent is published to %s again", self._publisher.name)
        self.failures, self.why = 0, ""
        self.published += 1

    async def _in_thread(self, percent: float | None) -> None:
        """Call in a daemon thread, so that the end of the process never waits for a cloud."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def settle(error: Exception | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def run() -> None:
            failed: Exception | None = None
            try:
                self._publisher.put(percent)
            except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
                failed = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, failed)

        self._thread = threading.Thread(target=run, name="lease-pressure", daemon=True)
        self._thread.start()
        await done

    def _failed(self, why: str) -> None:
        self.failures += 1
        self.why = why
        if self.failures & (self.failures - 1) == 0:  # the 1st, 2nd, 4th, 8th …
            log.warning(
                "lease_pressure_percent could not be published to %s (failure %d): %s",
                self._publisher.name,
                self.failures,
                why,
            )
