"""Replica of the local runtime: its processes, its files and its end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
from pathlib import Path
from typing import Any

from osgym_host.addresses import GuestAddress, UnixAddress, short_unix_path
from osgym_host.runtimes.base import ExitInfo, ExitReason, Replica, ReplicaSpec
from osgym_host.runtimes.held_files import devices_of
from osgym_host.runtimes.local.agent_check import NoAgent, Tampered, TooBusy, identify
from osgym_host.runtimes.local.ranges import ReplicaIds
from osgym_host.runtimes.processes import processes_of
from osgym_host.runtimes.replica_cgroup import CgroupGroup, MemoryEnd, take_notice

EXIT_DISPLAY_LOST = 3
"""Exit code of the session when the X server is gone."""
_OOM_LOOK_S = 0.05
_OOM_LOOKS = 40
_PEER = struct.Struct("3i")
"""Layout of SO_PEERCRED: PID, user and group of the process that listens."""


class LocalReplica(Replica):
    """Replica made by `LocalRuntime.create`; only its runtime changes it.

    Attributes:
        disk_devices: Device numbers of its files, as seen by its processes and by the host; read once, before
            the guest can change its root.
        listening: Inode of the guest agent's listening socket.
        one_pid_namespace: True if the desktop's programs share the PID namespace of the guest agent, so that
            root in the desktop can reach the agent.
        agent: Identity of its guest agent (`agent_check`); empty where it has none.
    """

    def __init__(
        self, spec: ReplicaSpec, key: str, folder: Path, group: CgroupGroup, ids: ReplicaIds | None
    ) -> None:
        """Args:
        ids: Ids that it has alone; None: shared ones.
        """
        super().__init__(spec)
        self.key = key
        self.folder = folder
        self.group = group
        self.ids = ids
        self.disk_devices: set[int] = set()
        self.listening = 0
        self.one_pid_namespace = True
        self.agent: dict[str, Any] | None = None
        self._pid = 0
        self._pidfd = -1
        self._oom_fd = -1
        self._cap_noticed: bool | None = None
        self._session_oom_fd = -1
        self._session_cap_noticed: bool | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def guest(self) -> GuestAddress:
        return UnixAddress(self.folder / "agent.sock")

    @property
    def pid(self) -> int:
        return self._pid

    def agent_pid(self) -> int:
        """Return the PID of the process that listens at the guest agent's socket, from the kernel.

        For a clone the kernel names CRIU, so the processes are searched instead.
        """
        if self.spec.origin is not None:
            try:
                return int(identify(self.processes() or (), self.listening)["pid"])
            except (NoAgent, Tampered, TooBusy, OSError):
                return 0
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)  # where nobody accepts any more, the queue may be full
            try:
                with short_unix_path(str(self.folder / "agent.sock")) as path:
                    sock.connect(path)
                found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            except OSError:
                return 0
        return int(_PEER.unpack(found)[0])

    def processes(self) -> set[int] | None:
        """Return its processes; None when it is dead. Blocking."""
        if self.exit_info is not None:
            return None
        if not self.disk_devices:
            self.disk_devices = devices_of(f"/proc/{self.pid}/root", str(self.folder))
        return self.group.pids() or processes_of(self.pid)

    def console_tail(self, max_bytes: int = 8192) -> str:
        try:
            fd = os.open(self.folder / "console.log", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return ""
        with os.fdopen(fd, "rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - max_bytes))
            return log.read(max_bytes).decode("utf-8", "replace")

    # For the runtime only --------------------------------------------------------------------

    def runs(self, pid: int, pidfd: int) -> None:
        """Record its first process; `pidfd` belongs to the replica from now on."""
        self._pid = pid
        self._pidfd = pidfd
        oom_fd = self.group.oom_eventfd()
        if oom_fd is not None:
            self._oom_fd, self._cap_noticed = oom_fd, False
            self._loop.add_reader(oom_fd, self._memory_cap_reached)
        session_fd = None if self.group.session is None else self.group.session.oom_eventfd()
        if session_fd is not None:
            self._session_oom_fd, self._session_cap_noticed = session_fd, False

    def kill(self) -> None:
        """Kill its first process, and with it all others. Does nothing on a dead replica.

        Raises:
            PermissionError: Only the zygote may.
        """
        if self._pidfd >= 0 and not self._dead.done():
            try:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            except ProcessLookupError:
                return

    def ended(self, status: int) -> None:
        """Record the wait status of its first process, after which no process is left."""
        if not self._dead.done():
            self._dead.set_result(self._explain(status))

    def supervisor_lost(self) -> None:
        """Wait for the end of a replica whose zygote has ended: the kernel kills it."""
        if self._dead.done():
            return
        if self._pidfd < 0:
            self._supervisor_lost_and_dead()
            return
        self.kill()
        self._loop.add_reader(self._pidfd, self._supervisor_lost_and_dead)

    def close(self) -> None:
        """Close descriptors. Idempotent."""
        for fd in (self._pidfd, self._oom_fd, self._session_oom_fd):
            if fd >= 0:
                self._loop.remove_reader(fd)
                os.close(fd)
        self._pidfd = self._oom_fd = self._session_oom_fd = -1

    def _supervisor_lost_and_dead(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
        reason = ExitReason.DESTROYED if self.destroying else ExitReason.RUNTIME_LOST
        self.mark_dead(self._info(reason, "the supervisor of replicas died, which ended the replica"))

    def _memory_cap_reached(self) -> None:
        """Kill the replica once the kernel has killed one process at the whole replica's cap (version 1).

        The session has a smaller cap of its own. At the replica's cap it is therefore the harness that used
        the memory, for instance for pictures that programs keep in the X server. The kernel does not say
        which process of the harness it killed.
        """
        self._cap_noticed = take_notice(self._oom_fd) or self._cap_noticed
        self._look_for_oom_kill(_OOM_LOOKS)

    def _look_for_oom_kill(self, looks_left: int) -> None:
        if self._oom_fd < 0 or self._dead.done():
            return
        in_session = 0 if self.group.session is None else self.group.session.oom_kills()
        if self.group.oom_kills() + in_session > 0:
            self._loop.remove_reader(self._oom_fd)
            self.kill()
        elif looks_left > 0:
            self._loop.call_later(_OOM_LOOK_S, self._look_for_oom_kill, looks_left - 1)

    def _explain(self, status: int) -> ExitInfo:
        code = os.waitstatus_to_exitcode(status)
        memory = self._memory_end()
        if self.destroying:
            return self._info(ExitReason.DESTROYED, "the replica was destroyed", code)
        if memory is MemoryEnd.HOST:
            return self._info(ExitReason.HOST_OUT_OF_MEMORY, "the host had no memory left", code)
        if memory is MemoryEnd.CAP:
            cap = self._spec.ram_mib
            return self._info(
                ExitReason.OUT_OF_MEMORY, f"the replica used more memory than its cap of {cap} MiB", code
            )
        if code < 0:
            name = signal.strsignal(-code) or "unknown"
            # The first process handles no signals, so only SIGKILL reaches it from outside, and none from
            # inside. Any other signal is a crash, or reboot(2) inside, which shows as SIGHUP or SIGINT.
            reason = ExitReason.KILLED if code == -signal.SIGKILL else ExitReason.SESSION_ENDED
            return self._info(
                reason, f"the replica's first process was ended by signal {-code} ({name})", code
            )
        if code == EXIT_DISPLAY_LOST:
            return self._info(ExitReason.DISPLAY_LOST, "the X server died", code)
        return self._info(
            ExitReason.SESSION_ENDED, f"the replica's session ended with exit code {code}", code
        )

    def _memory_end(self) -> MemoryEnd:
        if self._oom_fd >= 0:
            self._cap_noticed = take_notice(self._oom_fd) or self._cap_noticed
        if self._session_oom_fd >= 0:
            self._session_cap_noticed = take_notice(self._session_oom_fd) or self._session_cap_noticed
        return self.group.memory_end(noticed=self._cap_noticed, session_noticed=self._session_cap_noticed)

    def _info(self, reason: ExitReason, detail: str, code: int | None = None) -> ExitInfo:
        return ExitInfo(
            reason,
            detail,
            exit_code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            log_tail=self.console_tail(),
        )
