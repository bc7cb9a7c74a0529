"""Collection of the counters of a stall: a period in which a desktop has not answered a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from osgym_host.core.slowness import Stall
from osgym_host.runtimes import base
from osgym_host.runtimes.processes import (
    cpu_waits_s,
    disk_io_mib,
    host_io_stalled_s,
    host_reclaims,
    process_state,
    processes_of,
)


@dataclass(frozen=True, slots=True)
class _DiskCounters:
    """Counters of waits for disks and memory at the time when the agent was first seen to wait."""

    reclaims: int
    io_stalled_s: float
    own_io_mib: float | None

    @staticmethod
    def read(pid: int) -> _DiskCounters:
        return _DiskCounters(host_reclaims(), host_io_stalled_s(), disk_io_mib(processes_of(pid)))

    def since(self, before: _DiskCounters) -> _DiskCounters:
        now_mib, before_mib = self.own_io_mib, before.own_io_mib
        own_io_mib = None if now_mib is None or before_mib is None else now_mib - before_mib
        return _DiskCounters(
            self.reclaims - before.reclaims, self.io_stalled_s - before.io_stalled_s, own_io_mib
        )


@dataclass(slots=True)
class StallWatch:
    """Counters of one stall since it was first seen. All methods block for some milliseconds.

    Attributes:
        used_cpu_s: Returns the CPU time that the replica has used so far (`Runtime.used_cpu_s`).
        look_s: Interval at which `look` is to be called. A longer one means that the host agent was late.
        waited_s: Time that the answer had been late already when the watch began.
    """

    clone: base.Replica
    used_cpu_s: Callable[[base.Replica], float | None]
    look_s: float
    waited_s: float = 0.0
    agent_pid: int = field(init=False)
    _began_s: float = field(init=False)
    _looked_s: float = field(init=False)
    _waits_s: Mapping[int, float] = field(init=False)
    _cpu_s: float | None = field(init=False)
    _disk: _DiskCounters | None = None
    _blocked_s: float = 0.0
    _unwatched_s: float = 0.0

    def __post_init__(self) -> None:
        self.agent_pid = self.clone.agent_pid()
        self._waits_s, self._cpu_s = cpu_waits_s(self.agent_pid), self._read_cpu_s()
        self._began_s = self._looked_s = time.monotonic()
        self._unwatched_s = max(0.0, self.waited_s)

    def look(self) -> None:
        """Record the present state of the guest agent; call it every `look_s`."""
        now_s = time.monotonic()
        passed_s, self._looked_s = now_s - self._looked_s, now_s
        self._unwatched_s += max(0.0, passed_s - 2 * self.look_s)
        if process_state(self.agent_pid) != "D":
            return
        self._blocked_s += min(passed_s, 2 * self.look_s)
        if self._disk is None:
            self._disk = _DiskCounters.read(self.clone.pid)

    def measure(self, cpu_lowered: bool) -> Stall:
        """Return the counters from the beginning of the stall until now.

        Args:
            cpu_lowered: True if the replica has a lower CPU weight, since it has used up its CPU credit.
        """
        self.look()
        cpu_s, now = self._read_cpu_s(), cpu_waits_s(self.agent_pid)
        disk = _DiskCounters(0, 0.0, None)
        if self._disk is not None:
            disk = _DiskCounters.read(self.clone.pid).since(self._disk)
        return Stall(
            passed_s=self._looked_s - self._began_s + max(0.0, self.waited_s),
            unwatched_s=self._unwatched_s,
            starved_s=max((now[tid] - self._waits_s.get(tid, 0.0) for tid in now), default=0.0),
            own_cpu_s=None if cpu_s is None or self._cpu_s is None else cpu_s - self._cpu_s,
            cpu_lowered=cpu_lowered,
            cpu_cap=self.clone.spec.cpus,
            blocked_s=self._blocked_s,
            reclaims=disk.reclaims,
            io_stalled_s=disk.io_stalled_s,
            own_io_mib=disk.own_io_mib,
        )

    def _read_cpu_s(self) -> float | None:
        try:
            return self.used_cpu_s(self.clone)
        except (base.RuntimeFault, OSError):
            return None
