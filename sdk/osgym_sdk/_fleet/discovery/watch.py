"""Looks at a source of hosts for as long as the client lives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from osgym_sdk._config import ClientConfig
from osgym_sdk.host_sources import HostSource, Listing, SourceFailed

_LOG = logging.getLogger("osgym.sdk")
_JITTER = (0.9, 1.1)
"""Factor on each pause, so that clients that started together do not ask together."""


class HostWatch:
    """Asks one source again and again. What goes wrong there is said once and changes no host."""

    def __init__(
        self,
        source: HostSource,
        config: ClientConfig,
        apply: Callable[[Listing], None],
        failed: Callable[[str], None],
        pause_s: float | None,
    ) -> None:
        """Look nowhere yet.

        Args:
            apply: takes what the source names.
            failed: is told why it names nothing; empty: it does again.
            pause_s: between two looks; None: the source's own.
        """
        self.source = source
        self._config = config
        self._apply = apply
        self._failed = failed
        self._pause_s = source.pause_s if pause_s is None else pause_s
        self._task: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()

    def start(self) -> None:
        """Begin, in the running event loop. Idempotent."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"osgym-watch {self.source.name}")

    async def looked(self, timeout_s: float) -> None:
        """Wait until the source was asked once, whatever it said, at most so long."""
        self.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._looked.wait()

    async def aclose(self) -> None:
        """Look no more. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        failures = 0
        while True:
            why = await self._look()
            if why and not failures:
                _LOG.warning(
                    "hosts could not be discovered from %s: %s; the known hosts stay in use",
                    self.source.name,
                    why,
                )
            elif failures and not why:
                _LOG.warning("hosts are discovered from %s again", self.source.name)
            self._failed(why)
            self._looked.set()
            failures = failures + 1 if why else 0
            most_s = max(self._pause_s, self.source.most_pause_s)
            pause_s = min(most_s, self._pause_s * 2 ** min(failures, 16))
            await asyncio.sleep(pause_s * self._config.rng.uniform(*_JITTER))

    async def _look(self) -> str:
        """Look once; return why that failed, else nothing."""
        source = self.source
        try:
            async with asyncio.timeout(source.limit_s):
                listing = await source.look()
        except SourceFailed as exc:
            return str(exc) or type(exc).__name__
        except TimeoutError:
            return f"no answer within {source.limit_s:g} s"
        except Exception as exc:  # noqa: BLE001 - top of a task; a library of others must not end the watch
            _LOG.debug("discovering hosts from %s failed", source.name, exc_info=True)
            return f"{type(exc).__name__}: {exc}"
        if listing is not None:
            self._apply(listing)
        return ""
