"""Host agent's side of the zygote: start, requests, end."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Collection, Sequence
from typing import Any

from osgym_host.images.idmap import IdMap
from osgym_host.runtimes.base import ReplicaCreateFailed, RuntimeFault, RuntimeNotRunning, RuntimeUnsupported
from osgym_host.runtimes.held_files import HeldFiles
from osgym_host.runtimes.local import protocol
from osgym_host.runtimes.local.replica import LocalReplica
from osgym_host.runtimes.own_process import Channel, ChannelClosed, start_process
from osgym_host.runtimes.packets import Packet

_START_TIMEOUT_S = 15.0
_MODULE = "osgym_host.runtimes.local.zygote"

ExitCallback = Callable[[str, int], None]
_MEASURE_TIMEOUT_S = 30.0


class RequestFailed(RuntimeFault):
    """Error answer of the zygote; `step` says where it failed."""

    def __init__(self, step: str, error: str) -> None:
        super().__init__(f"{step}: {error}")
        self.step = step


class Supervisor:
    """One zygote process, made by `start`."""

    def __init__(
        self, starter: subprocess.Popen[bytes], control: socket.socket, on_exit: ExitCallback
    ) -> None:
        """Args:
        starter: Process that makes the zygote as a child of this one, and ends.
        """
        self._starter = starter
        self._pid = 0
        self._on_exit = on_exit
        self._hello: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._channel = Channel(control, self._heard)
        self._channel.lost.add_done_callback(lambda _: self._hello.put_nowait({"event": "lost"}))

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def lost(self) -> asyncio.Future[None]:
        """Future that is done when the zygote has ended."""
        return self._channel.lost

    @classmethod
    async def start(cls, idmap: IdMap, lock_fds: Sequence[int], on_exit: ExitCallback) -> Supervisor:
        """Start a zygote that can make replicas with the ids of `idmap`.

        Args:
            lock_fds: Descriptors that the zygote keeps open for as long as it lives.
            on_exit: Called with key and wait status when a replica's first process has ended.

        Raises:
            RuntimeUnsupported: User namespaces do not work here.
            RuntimeFault: It did not start in time.
        """
        mode = "root" if os.geteuid() == 0 else "user"
        started = start_process(_MODULE, mode, *map(str, lock_fds), fds=lock_fds)
        supervisor = cls(*started, on_exit)
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await supervisor._handshake(idmap)
        except TimeoutError as exc:
            await supervisor.close()
            raise RuntimeFault(f"the zygote did not start within {_START_TIMEOUT_S:g} s") from exc
        except BaseException:
            await supervisor.close()
            raise
        return supervisor

    async def _handshake(self, idmap: IdMap) -> None:
        while True:
            message = await self._hello.get()
            match message["event"]:
                case "serving":
                    self._pid = message["pid"]
                    await asyncio.to_thread(self._starter.wait)
                    return
                case "unshared":
                    await asyncio.to_thread(map_all_ids, message["pid"], idmap)
                    await self._channel.send({"op": "mapped"})
                case "failed":
                    raise RuntimeUnsupported(
                        f"user namespaces do not work here: {message['error']}.",
                        remedy="Run `osgym doctor` to see what to change.",
                    )
                case _:
                    raise RuntimeFault("the zygote ended while it started")

    async def request(
        self, op: str, fields: dict[str, Any], fds: Sequence[int] = (), *, timeout_s: float
    ) -> Packet:
        """Send a request and return its answer. The caller closes the descriptors of the answer.

        Raises:
            RequestFailed: The zygote could not do it.
            RuntimeNotRunning: The zygote is gone.
            RuntimeFault: No answer in time; when it comes, it is dropped.
        """
        try:
            answer, received = await self._channel.request({"op": op, **fields}, fds, timeout_s=timeout_s)
        except ChannelClosed as exc:
            raise RuntimeNotRunning("the supervisor of replicas has ended") from exc
        except TimeoutError as exc:
            raise RuntimeFault(f"the supervisor of replicas did not answer {op} in {timeout_s:g} s") from exc
        except OSError as exc:
            raise ReplicaCreateFailed(f"request too large: {exc}", step="request") from exc
        if not answer["ok"]:
            raise RequestFailed(answer["step"], answer["error"])
        return answer, received

    def _heard(self, message: dict[str, Any]) -> None:
        if message["event"] == "exit":
            self._on_exit(message["key"], message["status"])
        else:
            self._hello.put_nowait(message)

    async def close(self, timeout_s: float = 15.0) -> None:
        """Let the zygote kill its replicas and end; kill it when it does not. Idempotent."""
        self._channel.close()
        await asyncio.shield(asyncio.to_thread(self._bury, timeout_s))

    def _bury(self, timeout_s: float) -> None:
        if not self._pid:
            self._starter.kill()
        self._starter.wait()
        pid, self._pid = self._pid, 0
        if not pid:
            return
        pidfd = os.pidfd_open(pid)
        try:
            poller = select.poll()
            poller.register(pidfd, select.POLLIN)
            if not poller.poll(timeout_s * 1000):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.waitpid(pid, 0)
        finally:
            os.close(pidfd)


def map_all_ids(pid: int, idmap: IdMap) -> None:
    """Map 0 to this user, and 1 and up to the whole range of `idmap`, in the user namespace of `pid`.

    Raises:
        RuntimeUnsupported: newuidmap refused.
    """
    for tool, own, base in (
        ("newuidmap", os.getuid(), idmap.uid_base),
        ("newgidmap", os.getgid(), idmap.gid_base),
    ):
        argv = [tool, str(pid), "0", str(own), "1", "1", str(base), str(idmap.count)]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise RuntimeUnsupported(f"{tool} cannot be run: {exc}.", remedy="Install uidmap.") from exc
        if done.returncode != 0:
            raise RuntimeUnsupported(
                f"{tool}: {done.stderr.strip()}.", remedy="Check the ranges in /etc/subuid and /etc/subgid."
            )


async def measure_disk(
    supervisor: Supervisor, replicas_fd: int, replica: LocalReplica, pids: Collection[int] | None
) -> tuple[float | None, HeldFiles | None]:
    """Have the zygote, which alone may read a replica's folder, measure the disk space of a replica.

    Args:
        replicas_fd: Descriptor of the folder that holds the replica's folder.

    Returns:
        The overlay's size in MiB, and deleted files that processes hold open. None for both where
        the zygote does not answer; the next measurement will.
    """
    fields = {
        "name": replica.folder.name,
        "pids": sorted(pids or ())[: protocol.MAX_PIDS],
        "devices": list(replica.disk_devices),
    }
    try:
        answer, _ = await supervisor.request("measure", fields, [replicas_fd], timeout_s=_MEASURE_TIMEOUT_S)
    except RuntimeFault:
        return None, None
    used, deleted, in_flight, written = map(int, answer["result"].split())
    return used / (1 << 20), HeldFiles(deleted, in_flight, written if written >= 0 else None)
