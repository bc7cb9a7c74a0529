"""Virtual machines seen from the host: memory by purpose, CPU time by thread, a floor of memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import meminfo_mib
from osgym_qemu.machine.records import VmRecord

HOST_FIELDS = ("MemAvailable", "Shmem", "PageTables", "Slab", "KernelStack", "AnonPages")
_SCHEDULER_CLOCK = 2
_GOLDEN = "/memfd:osgym-ram"
_LAST_LOOK_S = 0.25
_RAM_BYTES = 256 << 20
"""Size that no other mapping without a name reaches: that of the smallest guest's RAM."""


@dataclass(frozen=True)
class Memory:
    """Memory of one QEMU, in MiB.

    Attributes:
        own: Pages that are not shared: the cost of one more machine.
        pss: The same and its part of shared pages, the golden RAM above all.
        guest_ram: Part of `own`: pages of the golden RAM that it changed.
        code: Part of `own`: translated guest code (emulation only).
        golden: Pages of the golden RAM that it has mapped unchanged.
    """

    own: float
    pss: float
    guest_ram: float
    code: float
    golden: float

    @property
    def qemu(self) -> float:
        """Part of `own`: QEMU itself, with its tables of translated code."""
        return self.own - self.guest_ram - self.code

    def as_dict(self) -> dict[str, float]:
        return {
            "own": self.own,
            "pss": self.pss,
            "guest_ram": self.guest_ram,
            "code": self.code,
            "qemu": self.qemu,
            "golden": self.golden,
        }


def memory(pid: int) -> Memory:
    """Return the memory of a process by its mappings; all zero when it is gone."""
    own = pss = guest_ram = code = golden = 0
    kind = ""
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/smaps").open() as lines:
        for line in lines:
            words = line.split()
            if not words[0].endswith(":"):
                named = words[5] if len(words) > 5 else ""
                kind = _kind(words[0], words[1], named)
            elif words[0] == "Pss:":
                pss += int(words[1])
            elif words[0] == "Rss:" and kind == "ram":
                golden += int(words[1])
            elif words[0] == "Anonymous:":
                kib = int(words[1])
                own += kib
                if kind == "ram":
                    guest_ram += kib
                    golden -= kib
                elif kind == "code":
                    code += kib
    return Memory(own / 1024, pss / 1024, guest_ram / 1024, code / 1024, golden / 1024)


def _kind(addresses: str, rights: str, named: str) -> str:
    """Return the kind of a mapping: guest RAM, translated code, or other."""
    if named:
        return "ram" if named.startswith(_GOLDEN) else ""
    if "x" in rights:
        return "code"
    begin, end = addresses.split("-")
    return "ram" if int(end, 16) - int(begin, 16) >= _RAM_BYTES else ""


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process in nanosecond resolution; 0 when it is gone."""
    with contextlib.suppress(OSError):
        return time.clock_gettime((~pid << 3) | _SCHEDULER_CLOCK)
    return 0.0


@dataclass(frozen=True)
class Thread:
    """CPU seconds and voluntary switches of a thread so far."""

    role: str
    ran_s: float
    switches: int


def threads(pid: int) -> dict[int, Thread]:
    """Return the threads of a process by their numbers.

    QEMU gives its threads no names: the main loop has the process's number, the others are counted in the
    order of their start.
    """
    found = {}
    with contextlib.suppress(OSError):
        for place, task in enumerate(sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())):
            with contextlib.suppress(OSError, AttributeError):
                folder = Path(f"/proc/{pid}/task/{task}")
                ran_ns = int((folder / "schedstat").read_text().split()[0])
                switches = re.search(
                    r"^voluntary_ctxt_switches:\s+(\d+)", (folder / "status").read_text(), re.M
                )
                role = "main loop" if task == pid else f"thread {place}"
                found[task] = Thread(role, ran_ns / 1e9, int(switches[1]) if switches else 0)
    return found


def thread_shares(
    before: dict[int, Thread], after: dict[int, Thread], seconds: float
) -> dict[str, dict[str, float]]:
    """Return percent of a core and wakeups per second of each thread by its role; only those that ran."""
    shares: dict[str, dict[str, float]] = {}
    for task, now in after.items():
        was = before.get(task, Thread(now.role, 0.0, 0))
        if now.ran_s > was.ran_s:
            row = shares.setdefault(was.role, {"percent": 0.0, "wakeups_per_s": 0.0})
            row["percent"] += 100 * (now.ran_s - was.ran_s) / seconds
            row["wakeups_per_s"] += (now.switches - was.switches) / seconds
    return shares


def host_mib() -> dict[str, float]:
    """Return the host's memory, as far as virtual machines show in it."""
    found = meminfo_mib()
    return {name: found[name] for name in HOST_FIELDS}


def host_growth(before: dict[str, float]) -> dict[str, float]:
    """Return the host's loss of memory since, by kind; `lost` is MemAvailable."""
    now = host_mib()
    grown = {name: now[name] - before[name] for name in HOST_FIELDS if name != "MemAvailable"}
    return {"lost": before["MemAvailable"] - now["MemAvailable"], **grown}


def mean(rows: Iterable[dict[str, float]]) -> dict[str, float]:
    listed = list(rows)
    return {key: sum(row[key] for row in listed) / len(listed) for key in listed[0]} if listed else {}


class Floor:
    """Watches the host's available memory, so that a benchmark stops before other processes die."""

    def __init__(self, floor_mib: float) -> None:
        self.floor_mib = floor_mib
        self.lowest_mib = meminfo_mib()["MemAvailable"]

    @property
    def reached(self) -> bool:
        """Return whether less is left than the floor."""
        now = meminfo_mib()["MemAvailable"]
        self.lowest_mib = min(self.lowest_mib, now)
        return now < self.floor_mib

    @contextlib.asynccontextmanager
    async def guarded(self, machines: Callable[[], list[VmRecord]]) -> AsyncIterator[None]:
        """Kill machines, youngest first, when half of the floor is gone too, for the time of the block."""
        task = asyncio.create_task(self._guard(machines))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _guard(self, machines: Callable[[], list[VmRecord]]) -> None:
        while True:
            await asyncio.sleep(_LAST_LOOK_S)
            if self.reached and meminfo_mib()["MemAvailable"] < self.floor_mib / 2:
                kill(sorted(machines(), key=lambda record: record.start_ticks or 0)[-8:])


def kill(records: Iterable[VmRecord]) -> int:
    """Kill exactly these machines; a PID that another process has by now is left alone."""
    killed = 0
    for record in records:
        process = record.process
        if process is not None:
            with contextlib.suppress(OSError):
                pidfd = process.open()
                if pidfd is not None:
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    os.close(pidfd)
                    killed += 1
    return killed
