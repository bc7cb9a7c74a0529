"""Monitor that checks all virtual machines once a second by `rules`."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from osgym_host.addresses import GuestAddress
from osgym_host.guest_client.errors import GuestError
from osgym_host.guest_client.http import HttpClient
from osgym_qemu.health import rules
from osgym_qemu.health.rules import DeathCause, HealthOptions, Liveness

log = logging.getLogger(__name__)

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STAT_BYTES = 1024
_STOPPED_AGAIN_S = 0.3
"""Delay of the second look at a stopped process, before it counts as hung."""
_MAX_ANSWER_BYTES = 64 * 1024
_PROBES_AT_ONCE = 4


class MonitoredVm(Protocol):
    """Interface of a monitored replica. All of it is called on the event loop."""

    liveness: Liveness

    @property
    def pid(self) -> int: ...

    @property
    def guest(self) -> GuestAddress: ...

    @property
    def guest_token(self) -> str | None: ...

    @property
    def exempt(self) -> bool:
        """Whether it is dead, being destroyed, or paused by the host."""
        ...

    def kill_for(self, cause: DeathCause) -> None: ...


class HealthMonitor:
    def __init__(self, options: HealthOptions, watched: Callable[[], Iterable[MonitoredVm]]) -> None:
        self._options = options
        self._watched = watched
        self._task: asyncio.Task[None] | None = None
        self._probes: dict[MonitoredVm, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_PROBES_AT_ONCE)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="qemu:health monitor")

    async def stop(self) -> None:
        """Stop checking. Idempotent."""
        tasks = [*self._probes.values(), *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._options.interval_s)
            try:
                maybe_stopped = self.check(self._watched())
                if maybe_stopped:
                    await asyncio.sleep(_STOPPED_AGAIN_S)
                    self.check(maybe_stopped)
            except Exception:  # the top of a task: without it nobody would check any more
                log.exception("the check of the virtual machines failed")

    def check(self, machines: Iterable[MonitoredVm]) -> list[MonitoredVm]:
        """Check these machines once; return those that are found stopped for the first time."""
        maybe_stopped = []
        for machine in machines:
            if machine.exempt:
                continue
            stat = rules.parse_stat(_read_stat(machine.pid), time.monotonic(), _TICKS_PER_S)
            if stat is None:  # it ended; its pidfd says so
                continue
            machine.liveness = liveness = machine.liveness.updated(stat, self._options)
            if liveness.is_stopped():
                machine.kill_for(rules.STOPPED)
            elif liveness.stopped_since_s is not None:
                maybe_stopped.append(machine)
            elif machine not in self._probes and liveness.needs_probe(stat.at_s, self._options):
                self._probe_soon(machine)
        return maybe_stopped

    def _probe_soon(self, machine: MonitoredVm) -> None:
        task = asyncio.create_task(self._probe(machine))
        self._probes[machine] = task
        task.add_done_callback(lambda _task: self._probes.pop(machine, None))

    async def _probe(self, machine: MonitoredVm) -> None:
        """Ask a guest whether it is alive; kill it when it was silent for too long."""
        async with self._slots:
            began_s, waited_s = time.monotonic(), waited_for_cpu_s(machine.pid)
            error = await self._ask(machine)
            now_s = time.monotonic()
            if machine.exempt:
                return
            if not error:
                machine.liveness = machine.liveness.answered(now_s)
                return
            starved_s = waited_for_cpu_s(machine.pid) - waited_s
            machine.liveness = machine.liveness.unanswered(began_s, starved_s)
            failing_s = machine.liveness.failing_s(now_s)
            if failing_s >= self._options.hang_s:
                machine.kill_for(rules.silent(failing_s, error))

    async def _ask(self, machine: MonitoredVm) -> str:
        """Return the error of the probe, empty when the guest agent answered (with whatever)."""
        client = HttpClient(machine.guest, token=machine.guest_token, max_connections=1)
        try:
            await client.request(
                "GET",
                "/v1/health",
                timeout_s=self._options.probe_timeout_s,
                max_body=_MAX_ANSWER_BYTES,
            )
        except GuestError as exc:
            return str(exc)
        finally:
            client.close()
        return ""


def _read_stat(pid: int) -> bytes:
    """Return the content of `/proc/<pid>/stat`, empty when the process is gone. 8 µs."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, _STAT_BYTES)
    except OSError:
        return b""
    finally:
        os.close(fd)


def waited_for_cpu_s(pid: int) -> float:
    """Return the longest time in seconds that a thread of the process has waited for a processor.

    The threads wait at the same time. From `schedstat`; 0 where the kernel does not count it.
    """
    longest_ns = 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            fields = (task / "schedstat").read_text().split()
            longest_ns = max(longest_ns, int(fields[1]))
    except (OSError, ValueError, IndexError):
        return longest_ns / 1e9
    return longest_ns / 1e9
