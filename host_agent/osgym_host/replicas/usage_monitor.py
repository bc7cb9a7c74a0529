"""Measurement of replicas at intervals; those that wrote too much to disk end.

A file system has no cap for one folder that works everywhere, so the bound is kept by looking: at
each replica now and then, and at all of them at once when the disk shrinks fast. When little of the disk
is left, all are measured and the one that wrote the most ends, one after the other, until there is room.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from osgym_host.core.disk_pressure import DiskAccount, DiskRoom, Writer, biggest_writer
from osgym_host.core.reasons import Reason
from osgym_host.core.states import ReplicaState
from osgym_host.log_subject import about
from osgym_host.replicas.manager import ReplicaManager
from osgym_host.runtimes import base

log = logging.getLogger(__name__)

TICK_S = 1.0
MEASURE_TIMEOUT_S = 20.0
MEASURED_AT_ONCE = 4
"""Number of replicas measured at once, so that one with millions of files does not delay the others."""
IDLE_FACTOR = 8
"""Multiple of the interval for replicas without a lease."""
_MEASURED = (ReplicaState.READY, ReplicaState.LEASED)


@dataclass(frozen=True, slots=True)
class UsageOptions:
    """Interval of measurements, and disk bounds of replicas.

    Attributes:
        interval_s: Between two looks at a leased replica.
        disk_cap_mib: Disk space that a replica may write; None sets no bound.
        disk_reserve_mib: With less free disk than this the biggest writer ends; 0: never.
    """

    interval_s: float = 15.0
    disk_cap_mib: int | None = None
    disk_reserve_mib: int = 0


class UsageMonitor:
    def __init__(
        self,
        runtime: base.Runtime,
        managers: Callable[[], Sequence[ReplicaManager]],
        disk_room: Callable[[], DiskRoom],
        options: UsageOptions,
    ) -> None:
        self._runtime = runtime
        self._managers = managers
        self._disk_room = disk_room
        self._options = options
        self._most_room: DiskRoom | None = None
        self._account = DiskAccount()
        self._scarce_since: float | None = None
        self._hurry_at = -math.inf
        self._in_work: set[ReplicaManager] = set()
        self._slots = asyncio.Semaphore(MEASURED_AT_ONCE)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(min(TICK_S, self._options.interval_s))
                now = time.monotonic()
                room = self._read_room()
                if self._disk_shrinks_fast(room) | self._disk_is_scarce(room, now):
                    self._hurry_at = now  # also for those whose measurement began before
                for manager in self._managers():
                    if manager not in self._in_work and self._is_due(manager, now):
                        self._in_work.add(manager)
                        group.create_task(self._measure(manager))

    def _read_room(self) -> DiskRoom | None:
        try:
            return self._disk_room()
        except OSError:
            log.exception("the free disk space cannot be read")
            return None

    def _disk_shrinks_fast(self, room: DiskRoom | None) -> bool:
        """Return whether one replica may be near its bound, by the bytes written since the measurement."""
        cap_mib = self._options.disk_cap_mib
        if cap_mib is None or room is None:
            return False
        self._most_room = room.most(self._most_room or room)
        if room.used_since_mib(self._most_room) < cap_mib / 8:
            return False
        self._most_room = room
        return True

    def _disk_is_scarce(self, room: DiskRoom | None, now: float) -> bool:
        """Return whether all must be measured since the disk is nearly full; end the replica at fault."""
        if room is None:
            return False
        free_mib = room.free_mib
        managers = self._managers()
        live = [manager for manager in managers if manager.state in _MEASURED]
        leaving = any(manager.state is ReplicaState.RETIRING for manager in managers)
        if not leaving:  # what they had is neither free yet nor anybody's
            self._account.update(
                now,
                free_mib,
                (manager.overlay_mib or 0.0 for manager in live),
                hides=any(manager.fds_in_flight > 0 for manager in live),
            )
        if free_mib >= self._options.disk_reserve_mib:
            self._scarce_since = None
            return False
        if self._scarce_since is None:
            self._scarce_since = now
            return True
        since = self._scarce_since
        if leaving or self._in_work or any(not _measured_after(manager, since) for manager in live):
            return False
        self._scarce_since = now
        self._end_biggest_writer(live, free_mib)
        return True

    def _end_biggest_writer(self, live: Sequence[ReplicaManager], free_mib: float) -> None:
        writers = [
            Writer(m.replica_id, m.overlay_mib or 0.0, m.written_mib or 0.0, hides=m.fds_in_flight > 0)
            for m in live
        ]
        chosen = biggest_writer(writers, self._account.unaccounted_mib)
        if chosen is None:
            return
        reserve_mib, cap_mib = self._options.disk_reserve_mib, self._options.disk_cap_mib
        # The host must have room for every replica's disk limit, so the host is the cause of loss while a
        # replica is within its limit. Hidden space counts as this replica's only if it may hide files.
        hidden_mib = self._account.unaccounted_mib if chosen.hides else 0.0
        its_own = cap_mib is not None and chosen.overlay_mib + hidden_mib >= cap_mib
        detail = (
            f"{free_mib:.0f} MiB of the host's disk were free, fewer than disk_reserve_mib={reserve_mib}; "
            f"the replica used {chosen.overlay_mib:.0f} MiB and had written "
            f"{chosen.written_mib:.0f} MiB"
        )
        for manager in live:
            if manager.replica_id == chosen.replica_id:
                manager.retire(Reason.DISK if its_own else Reason.DISK_FULL, detail)

    def _is_due(self, manager: ReplicaManager, now: float) -> bool:
        if manager.state not in _MEASURED:
            return False
        if manager.measured_at is None or manager.measured_at < self._hurry_at:
            return True
        if not manager.awake:
            return False
        factor = 1 if manager.state is ReplicaState.LEASED else IDLE_FACTOR
        return now - manager.measured_at >= self._options.interval_s * factor

    async def _measure(self, manager: ReplicaManager) -> None:
        try:
            async with self._slots:
                if manager.clone is None:
                    return
                begun_at = time.monotonic()
                try:
                    async with asyncio.timeout(MEASURE_TIMEOUT_S):
                        usage = await self._runtime.usage(manager.clone)
                except (base.RuntimeFault, OSError, TimeoutError) as error:
                    with about(manager):
                        log.debug(
                            "the memory and disk use of replica %s could not be measured: %s",
                            manager.replica_id,
                            error,
                        )
                else:
                    self._judge(manager, usage)
                finally:
                    manager.measured_at = begun_at
        except Exception:  # the top of a task
            with about(manager):
                log.exception(
                    "the memory and disk use of replica %s could not be measured", manager.replica_id
                )
        finally:
            self._in_work.discard(manager)

    def _judge(self, manager: ReplicaManager, usage: base.Usage) -> None:
        if manager.awake:
            manager.pss_mib = usage.pss_mib if usage.pss_mib is not None else usage.charged_mib
            manager.peak_mib = max(manager.peak_mib, manager.pss_mib or 0.0)
        manager.cpu_s, manager.overlay_mib = usage.cpu_s, usage.overlay_mib
        manager.written_mib, manager.fds_in_flight = usage.written_mib, usage.fds_in_flight or 0
        cap_mib = self._options.disk_cap_mib
        if cap_mib is not None and (usage.overlay_mib or 0.0) > cap_mib:
            detail = (
                f"the replica wrote {usage.overlay_mib:.0f} MiB to disk; replica_disk_mib allows "
                f"{cap_mib} MiB"
            )
            manager.retire(Reason.DISK, detail)


def _measured_after(manager: ReplicaManager, since: float) -> bool:
    return manager.measured_at is not None and manager.measured_at >= since
