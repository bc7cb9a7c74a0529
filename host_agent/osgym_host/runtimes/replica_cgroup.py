"""Control groups of one replica, one per hierarchy: caps, usage, and the cause of memory ends.

The session, which is all that the desktop's user starts, may have child groups with smaller caps. A program
that takes all memory is then killed alone, and the harness (X server, guest agent) goes on.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_CPU_PERIOD_US = 100_000
_MIB = 1024 * 1024
_SOCKETS_SHARE = 4
"""Divisor of a replica's memory that bounds what waits in its sockets."""
HARNESS_RAM_MIB = 128
"""Memory reserved for the harness, which used 62 MiB: measured with a terminal open at 1920x1080."""
HARNESS_PIDS = 64
"""Number of processes and threads reserved for the harness, which had 7 on the same desktop."""
_HARNESS_DIVISOR = 4
"""Divisor of a small cap that bounds the reservation: at most a quarter is reserved."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Caps of one group. None: no cap."""

    ram_mib: int | None = None
    cpus: float | None = None
    pids: int | None = None

    def for_session(self) -> Caps:
        """Return the caps of the session: these minus the reservation of the harness."""
        return Caps(
            ram_mib=None if self.ram_mib is None else _reduced(self.ram_mib, HARNESS_RAM_MIB),
            pids=None if self.pids is None else _reduced(self.pids, HARNESS_PIDS),
        )


def _reduced(cap: int, reserved: int) -> int:
    return cap - min(reserved, cap // _HARNESS_DIVISOR)


class MemoryEnd(enum.Enum):
    """Owner of the memory that ran out when a process ended: the replica's cap, or the host."""

    NONE = enum.auto()  # nobody's
    CAP = enum.auto()  # its own: the kernel killed it at its cap
    HOST = enum.auto()  # the host's: the kernel killed it below its cap


class CgroupGroup:
    """Control groups of one replica, one folder per hierarchy.

    Attributes:
        session: Child groups of the session; None without them.
    """

    def __init__(
        self,
        folders: Mapping[str, Path],
        version: Mapping[str, int],
        *,
        session: CgroupGroup | None = None,
        processes: Mapping[str, Path] | None = None,
    ) -> None:
        """Args:
        folders: Folders by controller; `""` is the version 2 folder, if any.
        processes: Folders for processes, by controller, where those of `folders` may hold none.
        """
        self.session = session
        self._folders = dict(folders)
        self._version = dict(version)
        self._processes = {**folders, **(processes or {})}

    @property
    def procs_files(self) -> list[str]:
        """Files to which a PID is written to move a process in."""
        return [str(folder / "cgroup.procs") for folder in dict.fromkeys(self._processes.values())]

    def pids(self) -> set[int]:
        found: set[int] = set()
        for folder in set(self._folders.values()):
            for group in _with_children(folder):
                with contextlib.suppress(OSError):
                    found.update(int(pid) for pid in (group / "cgroup.procs").read_text().split())
        return found - {0}

    def kill(self) -> int:
        """Kill every process inside; return their number."""
        pids = self.pids()
        unified = self._folders.get("")
        if unified is not None:
            with contextlib.suppress(OSError):
                (unified / "cgroup.kill").write_text("1")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def remove(self, timeout_s: float = 5.0) -> None:
        """Remove the groups, after waiting for dying processes. Blocking, bounded.

        Raises:
            OSError: A group could not be removed in time (EBUSY: a process lives in it).
        """
        deadline = time.monotonic() + timeout_s
        for folder in set(self._folders.values()):
            for group in sorted(_with_children(folder), reverse=True):
                remove_folder(group, deadline)

    @property
    def can_freeze(self) -> bool:
        """Whether the kernel can stop all processes of the group at once (version 2, Linux 5.2)."""
        folder = self._folders.get("")
        return folder is not None and (folder / "cgroup.freeze").exists()

    @property
    def can_reclaim(self) -> bool:
        """Whether the kernel moves the memory of this group to swap on request."""
        folder = self._folders.get("memory")
        return folder is not None and (folder / self._reclaim_file).exists()

    @property
    def _reclaim_file(self) -> str:
        return "memory.reclaim" if self._version.get("memory") == 2 else "memory.force_empty"

    def set_frozen(self, frozen: bool) -> None:
        """Stop or continue all processes. A stopped one can still be killed. Idempotent.

        Raises:
            OSError: The kernel refused, or cannot freeze this group.
        """
        folder = self._folders.get("")
        if folder is None:
            raise OSError(errno.ENOTSUP, "no control group of version 2")
        (folder / "cgroup.freeze").write_text(str(int(frozen)))

    def reclaim(self) -> None:
        """Move as much memory as possible to swap, shared memory too. Blocking: 17 µs for each page.

        To be called within `swap_allowed`.

        Raises:
            OSError: The kernel cannot reclaim on request.
        """
        folder = self._folders.get("memory")
        if folder is None:
            raise OSError(errno.ENOTSUP, "no control group for memory")
        if self._version["memory"] == 1:
            # Reading it brings the counters up to date by which the kernel looks for pages; with old ones it
            # finds none on a second pass (seen on Linux 6.18).
            (folder / "memory.stat").read_text()
            (folder / self._reclaim_file).write_text("0")
            return
        try:
            (folder / self._reclaim_file).write_text((folder / "memory.current").read_text())
        except OSError as exc:
            if exc.errno != errno.EAGAIN:  # it reclaimed less than all
                raise

    @contextlib.contextmanager
    def swap_allowed(self) -> Iterator[None]:
        """Lift the cap on swap, which version 2 counts separately.

        A replica whose programs run may not use more memory than its cap by means of swap.

        Raises:
            OSError: The kernel refused.
        """
        folder = self._folders.get("memory")
        groups = [] if folder is None or self._version["memory"] == 1 else _with_children(folder)
        parts = [group / "memory.swap.max" for group in groups if (group / "memory.swap.max").exists()]
        try:
            for part in parts:
                part.write_text("max")
            yield
        finally:
            for part in parts:
                with contextlib.suppress(OSError):
                    part.write_text("0")

    def swapped_mib(self) -> float | None:
        """Return the amount of memory in swap, before its compression."""
        if self._version.get("memory") == 2:
            value = self._read_int("memory", "memory.swap.current")
        else:
            value, resident = (
                self._read_int("memory", f"memory.{name}usage_in_bytes") for name in ("memsw.", "")
            )
            value = None if value is None or resident is None else max(0, value - resident)
        return None if value is None else value / _MIB

    def charged_mib(self) -> float | None:
        name = "memory.current" if self._version.get("memory") == 2 else "memory.usage_in_bytes"
        value = self._read_int("memory", name)
        return None if value is None else value / _MIB

    def cpu_s(self) -> float | None:
        """Return the CPU time used by all processes that ever were inside."""
        folder = self._folders.get("")
        if folder is not None:
            with contextlib.suppress(OSError, ValueError, KeyError):
                return int(read_pairs(folder / "cpu.stat")["usage_usec"]) / 1e6
        value = self._read_int("cpuacct", "cpuacct.usage")
        return None if value is None else value / 1e9

    def set_cpu_weight(self, weight: int) -> None:
        """Set the share of the processors beside other groups, in the scale of version 2 (100: normal).

        Raises:
            OSError: The kernel refused.
        """
        folder = self._folders.get("cpu")
        if folder is None:
            return
        if self._version["cpu"] == 2:
            (folder / "cpu.weight").write_text(str(weight))
        else:  # 1,024 is normal, 2 the least
            (folder / "cpu.shares").write_text(str(max(2, weight * 1024 // 100)))

    def oom_kills(self) -> int:
        """Return the number of processes killed here by the kernel, at a cap or since the host lacked memory.

        Version 2 includes kills in child groups, version 1 does not.
        """
        folder = self._folders.get("memory")
        if folder is None:
            return 0
        name = "memory.events" if self._version["memory"] == 2 else "memory.oom_control"
        with contextlib.suppress(OSError, ValueError, KeyError):
            return int(read_pairs(folder / name)["oom_kill"])
        return 0

    def memory_end(self, *, noticed: bool | None = None, session_noticed: bool | None = None) -> MemoryEnd:
        """Return whose memory ran out when the replica ended.

        Kills at the session's own cap end one program, and so are not why the replica ended.

        Args:
            noticed: Whether `oom_eventfd` has signalled; None if there is no such descriptor.
            session_noticed: Whether that of `session` has signalled; None likewise.
        """
        of_session = self.session.oom_kills() if self.session is not None else 0
        kills = self.oom_kills()
        of_harness = kills - of_session if self._version.get("memory") == 2 else kills
        if of_harness + of_session == 0:
            return MemoryEnd.NONE
        if self.memory_cap_reached(noticed=noticed):
            return MemoryEnd.CAP
        session = self.session if of_harness == 0 else None
        if session is not None and session.memory_cap_reached(noticed=session_noticed):
            return MemoryEnd.NONE
        return MemoryEnd.HOST

    def memory_cap_reached(self, *, noticed: bool | None = None) -> bool:
        """Return whether this group ever reached its own memory cap; otherwise the host caused the kills.

        Args:
            noticed: Whether `oom_eventfd` has signalled; None if there is no such descriptor. It is needed
                since the highest usage of version 1 includes the page cache, which fills the whole cap in
                normal operation.
        """
        folder = self._folders.get("memory")
        if folder is None:
            return False
        with contextlib.suppress(OSError, ValueError, KeyError):
            if self._version["memory"] == 2:
                return int(read_pairs(_own_events(folder))["oom"]) > 0
            highest, cap = (
                int((folder / f"memory.{name}_in_bytes").read_text()) for name in ("max_usage", "limit")
            )
            return highest >= cap - _MIB and noticed is not False  # `memory.failcnt` stays 0 on newer kernels
        return noticed is not False

    def oom_eventfd(self) -> int | None:
        """Open a descriptor that becomes readable when the cap is reached (version 1 only).

        It signals this group's own cap, not the caps of child groups. With version 2 the kernel kills the
        whole group by itself (`memory.oom.group`). The caller closes it.
        """
        folder = self._folders.get("memory")
        if folder is None or self._version["memory"] == 2:
            return None
        eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            control = os.open(folder / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
            try:
                (folder / "cgroup.event_control").write_text(f"{eventfd} {control}")
            finally:
                os.close(control)
        except OSError:
            os.close(eventfd)
            return None
        return eventfd

    def set_caps(self, caps: Caps, *, end_together: bool = True) -> None:
        """Write the caps.

        Args:
            end_together: True: at the memory cap the kernel kills all processes, not just one (version 2).

        Raises:
            OSError: The kernel refused.
        """
        if caps.ram_mib is not None and "memory" in self._folders:
            self._cap_memory(self._folders["memory"], caps.ram_mib * _MIB, end_together)
        if caps.cpus is not None and "cpu" in self._folders:
            quota = max(1000, round(caps.cpus * _CPU_PERIOD_US))
            if self._version["cpu"] == 2:
                (self._folders["cpu"] / "cpu.max").write_text(f"{quota} {_CPU_PERIOD_US}")
            else:
                (self._folders["cpu"] / "cpu.cfs_period_us").write_text(str(_CPU_PERIOD_US))
                (self._folders["cpu"] / "cpu.cfs_quota_us").write_text(str(quota))
        if caps.pids is not None and "pids" in self._folders:
            (self._folders["pids"] / "pids.max").write_text(str(caps.pids))

    def _cap_memory(self, folder: Path, limit: int, end_together: bool) -> None:
        if self._version["memory"] == 2:
            (folder / "memory.max").write_text(str(limit))
            for name, value in (("memory.swap.max", "0"), ("memory.oom.group", str(int(end_together)))):
                with contextlib.suppress(FileNotFoundError):
                    (folder / name).write_text(value)
            return
        with_swap = folder / "memory.memsw.limit_in_bytes"  # only there when swap is accounted
        # It may never be the lower one of the two: raising begins with it, lowering ends with it.
        with contextlib.suppress(OSError):
            with_swap.write_text(str(limit))
        (folder / "memory.limit_in_bytes").write_text(str(limit))
        with contextlib.suppress(OSError):
            with_swap.write_text(str(limit))
        # Version 2 counts what sockets hold as memory; here it has a cap of its own, or else none at all.
        with contextlib.suppress(OSError):
            (folder / "memory.kmem.tcp.limit_in_bytes").write_text(str(limit // _SOCKETS_SHARE))

    def _read_int(self, controller: str, name: str) -> int | None:
        folder = self._folders.get(controller)
        if folder is None:
            return None
        try:
            return int((folder / name).read_text())
        except (OSError, ValueError):
            return None


def _own_events(folder: Path) -> Path:
    """Return the file of events without those of child groups, or with them on Linux older than 5.2."""
    own = folder / "memory.events.local"
    return own if own.exists() else folder / "memory.events"


def take_notice(oom_fd: int) -> bool:
    """Return whether a descriptor of `CgroupGroup.oom_eventfd` has signalled since the last read."""
    try:
        return bool(os.read(oom_fd, 8))
    except BlockingIOError:
        return False


def _with_children(folder: Path) -> list[Path]:
    return [folder, *(Path(found) for found, _dirs, _files in os.walk(folder) if Path(found) != folder)]


def remove_folder(folder: Path, deadline: float) -> None:
    """Remove an empty group, after waiting for dying processes. Idempotent. Blocking.

    Args:
        deadline: On the monotonic clock, in seconds.

    Raises:
        OSError: It could not be removed in time (EBUSY: a process lives in it).
    """
    while True:
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError as exc:
            if exc.errno != errno.EBUSY or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
        else:
            return


def read_pairs(path: Path) -> dict[str, str]:
    """Read a file of `key value` lines."""
    pairs = (line.split(None, 1) for line in path.read_text().splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
