"""Measures replicas again and again, and ends those that wrote more to disk than they may.

A file system has no cap for one folder that works everywhere, so the bound is kept by looking: at
each replica now and then, and at all of them at once when the disk shrinks fast.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from osgym_host.core.reasons import Reason
from osgym_host.core.states import ReplicaState
from osgym_host.replicas.manager import ReplicaManager
from osgym_host.runtimes import base

log = logging.getLogger(__name__)

TICK_S = 1.0
MEASURE_TIMEOUT_S = 20.0
IDLE_FACTOR = 8
"""How much more seldom a replica is measured that nobody uses."""


@dataclass(frozen=True, slots=True)
class UsageOptions:
    """How often replicas are measured, and what each may write.

    Attributes:
        interval_s: Between two looks at a leased replica.
        disk_cap_mib: What a replica may write to disk; None: no bound.
    """

    interval_s: float = 15.0
    disk_cap_mib: int | None = None


class UsageMonitor:
    """Measures the replicas of a pool."""

    def __init__(
        self,
        runtime: base.Runtime,
        managers: Callable[[], Sequence[ReplicaManager]],
        disk_free_mib: Callable[[], float],
        options: UsageOptions,
    ) -> None:
        """Nothing happens before `run`."""
        self._runtime = runtime
        self._managers = managers
        self._disk_free_mib = disk_free_mib
        self._options = options
        self._free_mib: float | None = None

    async def run(self) -> None:
        """Measure until it is cancelled."""
        while True:
            await asyncio.sleep(min(TICK_S, self._options.interval_s))
            hurry = self._disk_shrinks_fast()
            now = time.monotonic()
            for manager in self._managers():
                if self._is_due(manager, now, hurry):
                    await self._measure(manager)

    def _disk_shrinks_fast(self) -> bool:
        """Whether so much was written since all were measured that one replica may be near its bound."""
        cap_mib = self._options.disk_cap_mib
        if cap_mib is None:
            return False
        try:
            free_mib = self._disk_free_mib()
        except OSError:
            log.exception("cannot read the free disk space")
            return False
        if self._free_mib is None or free_mib > self._free_mib:
            self._free_mib = free_mib
        if self._free_mib - free_mib < cap_mib / 8:
            return False
        self._free_mib = free_mib
        return True

    def _is_due(self, manager: ReplicaManager, now: float, hurry: bool) -> bool:
        if manager.state not in (ReplicaState.READY, ReplicaState.LEASED):
            return False
        if manager.measured_at is None or hurry:
            return True
        factor = 1 if manager.state is ReplicaState.LEASED else IDLE_FACTOR
        return now - manager.measured_at >= self._options.interval_s * factor

    async def _measure(self, manager: ReplicaManager) -> None:
        if manager.clone is None:
            return
        manager.measured_at = time.monotonic()
        try:
            async with asyncio.timeout(MEASURE_TIMEOUT_S):
                usage = await self._runtime.usage(manager.clone)
        except (base.RuntimeFault, OSError, TimeoutError) as error:
            log.debug("replica %s: not measured: %s", manager.replica_id, error)
            return
        manager.pss_mib = usage.pss_mib if usage.pss_mib is not None else usage.charged_mib
        manager.peak_mib = max(manager.peak_mib, manager.pss_mib or 0.0)
        manager.cpu_s, manager.overlay_mib = usage.cpu_s, usage.overlay_mib
        cap_mib = self._options.disk_cap_mib
        if cap_mib is not None and (usage.overlay_mib or 0.0) > cap_mib:
            detail = f"it wrote {usage.overlay_mib:.0f} MiB to disk; {cap_mib} MiB are allowed"
            manager.retire(Reason.DISK, detail)
