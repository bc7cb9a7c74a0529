"""Processes of this host as `/proc` shows them: their identity and their usage. Blocking."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PR_SET_THP_DISABLE = 41


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identity of a process: PID and start time."""

    pid: int
    start_ticks: int

    @staticmethod
    def of(pid: int) -> ProcessIdentity | None:
        """Return the identity of a live process, None when it is gone."""
        ticks = start_time_ticks(pid)
        return None if ticks is None else ProcessIdentity(pid, ticks)

    def open(self) -> int | None:
        """Return a pidfd of the process, None when it is gone. The caller closes it."""
        try:
            pidfd = os.pidfd_open(self.pid)
        except OSError:
            return None
        # The identity is read after the descriptor was opened, so it is that of the descriptor.
        if ProcessIdentity.of(self.pid) == self:
            return pidfd
        os.close(pidfd)
        return None

    def kill(self, timeout_s: float = 5.0) -> bool:
        """Kill the process and wait for its end; return whether it was there.

        Raises:
            PermissionError: It belongs to another user.
        """
        pidfd = self.open()
        if pidfd is None:
            return False
        try:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            poller = select.poll()
            poller.register(pidfd, select.POLLIN)
            poller.poll(timeout_s * 1000)
            return True
        finally:
            os.close(pidfd)


def stat_fields(pid: int | str) -> list[str]:
    """Return the fields of `/proc/<pid>/stat` (proc(5)) from the third on, the state.

    Raises:
        OSError: The process is gone.
    """
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def start_time_ticks(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None when it is gone."""
    try:
        return int(stat_fields(pid)[19])
    except (OSError, IndexError):
        return None


def process_state(pid: int) -> str:
    """Return the letter of a process's state (proc(5): R, S, D, T, …), empty when it is gone."""
    try:
        return stat_fields(pid)[0]
    except (OSError, IndexError):
        return ""


def cpu_waits_s(pid: int) -> dict[int, float]:
    """Return for each thread of a process the time in seconds that it waited for a processor.

    Counted since the thread began, from `schedstat`; reading takes 10 µs for each thread. Empty when the
    process is gone or the kernel does not count it.
    """
    waits: dict[int, float] = {}
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                waits[int(thread.name)] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return waits


def processes_of(init_pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int(stat_fields(entry.name)[1])
        except (OSError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    if not Path(f"/proc/{init_pid}").exists():
        return set()
    found = {init_pid}
    todo = [init_pid]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in found:
                found.add(child)
                todo.append(child)
    return found


def pss_mib(pids: Iterable[int]) -> float:
    """Return the sum of the proportional set sizes; processes that end meanwhile count nothing."""
    total_kib = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        for line in text.splitlines():
            if line.startswith("Pss:"):
                total_kib += int(line.split()[1])
                break
    return total_kib / 1024


def cpu_s(pids: Iterable[int]) -> float:
    """Return the CPU time of processes and of their reaped children, in seconds."""
    ticks = 0
    for pid in pids:
        try:
            fields = stat_fields(pid)
        except OSError:
            continue
        ticks += sum(int(field) for field in fields[11:15])
    return ticks / _TICKS_PER_S


def disk_io_mib(pids: Iterable[int]) -> float | None:
    """Return the MiB that processes and their reaped children read from and wrote to disks; None if
    forbidden.
    """
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        except PermissionError:
            return None
        except OSError:
            continue
        found = dict(line.split(": ") for line in lines)
        total += int(found.get("read_bytes", 0)) + int(found.get("write_bytes", 0))
    return total / 2**20


def host_reclaims() -> int:
    """Return the number of direct reclaims: allocations that had to free memory of the host first.

    Reclaims of a control group at its own limit are not counted.
    """
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/vmstat").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("allocstall"))
    return 0


def host_io_stalled_s() -> float:
    """Return the seconds in which some process of this host waited for a disk; 0 without PSI counters."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/pressure/io").read_text().split("total=")[1].split()[0]) / 1e6
    return 0.0


def switch_huge_pages_off() -> None:
    """Switch transparent huge pages off for this process and its future children.

    QEMU asks for them for its cache of translated code, which makes 2 MB of each small piece that is
    used (measured: 20 MB more for an idle clone). The host agent itself has no use for them.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
