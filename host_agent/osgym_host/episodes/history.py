"""Samples of the last hour of a host, for its dashboard."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from typing import Any

from osgym_host.core.window import WindowSummary
from osgym_host.episodes.host_status import HostStatus, memory_mib
from osgym_host.episodes.metrics import EpisodeMetrics

EVERY_S = 10.0
KEPT_S = 3600.0


class History:
    """Samples at intervals of `EVERY_S`, kept for `KEPT_S`. For one event loop."""

    def __init__(self, host: HostStatus, metrics: EpisodeMetrics, usd_per_hour: float = 0) -> None:
        self._host = host
        self._metrics = metrics
        self._usd_per_hour = usd_per_hour or None
        self._samples: deque[dict[str, Any]] = deque(maxlen=round(KEPT_S / EVERY_S))
        self._taken_at = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="history")

    async def close(self) -> None:
        """Stop to sample. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def to_dict(self, last: int | None = None) -> dict[str, Any]:
        """Return the answer of `GET /v1/history`, the oldest sample first; at most the `last` ones."""
        samples = list(self._samples)
        return {
            "every_s": EVERY_S,
            "samples": samples if last is None else samples[-last:],
            "retired": self._host.retired(),
            "usd_per_hour": self._usd_per_hour,
        }

    def sample(self) -> None:
        """Take a sample: counts since the sample before, and the state of the host."""
        now = time.monotonic()
        passed_s, self._taken_at = max(now - self._taken_at, 1e-3), now
        steps, opened = self._metrics.step_ms.take(), self._metrics.open_ms.take()
        late = self._metrics.not_final.take()
        pool, (total_mib, available_mib) = self._host.pool(), memory_mib()
        self._samples.append(
            {
                "time": round(time.time(), 1),
                **{name: pool[name] for name in ("ready", "starting", "leased", "waiting", "blocked")},
                "steps": steps.count,
                "steps_per_s": round(steps.count / passed_s, 2),
                "step_ms": _ranks(steps),
                "not_final": late.count,
                "scored": self._metrics.scored.take().count,
                "accepted": self._metrics.accepted.take().count,
                "opened": opened.count,
                "open_ms": _ranks(opened),
                "load1": round(os.getloadavg()[0], 2),
                "ram_used_mib": round(total_mib - available_mib),
            }
        )

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            self.sample()


def _ranks(found: WindowSummary) -> dict[str, float | None]:
    return {name: None if v is None else round(v, 1) for name, v in (("p50", found.p50), ("p95", found.p95))}
