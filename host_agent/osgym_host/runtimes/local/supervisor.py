"""The host agent's side of the zygote: start it, talk to it, notice its end."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from osgym_host.images.idmap import IdMap
from osgym_host.runtimes.base import ReplicaCreateFailed, RuntimeFault, RuntimeNotRunning, RuntimeUnsupported
from osgym_host.runtimes.local import protocol

_START_TIMEOUT_S = 15.0
_SOCKET_BUFFER_BYTES = 1 << 20

ExitCallback = Callable[[str, int], None]


class RequestFailed(RuntimeFault):
    """The zygote could not do what it was asked for; `step` is where it failed."""

    def __init__(self, step: str, error: str) -> None:
        """Keep the step beside the message."""
        super().__init__(f"{step}: {error}")
        self.step = step


class Supervisor:
    """One zygote process. Use `start`."""

    def __init__(
        self, starter: subprocess.Popen[bytes], control: socket.socket, on_exit: ExitCallback
    ) -> None:
        """Use `start`; `starter` makes the zygote as a child of this process and ends."""
        self._starter = starter
        self._pid = 0
        self._control = control
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._next_id = 0
        self._waiting: dict[int, asyncio.Future[tuple[dict[str, Any], list[int]]]] = {}
        self._hello: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        """Done when the zygote is gone, for whatever reason."""
        self._loop.add_reader(control.fileno(), self._readable)

    @property
    def pid(self) -> int:
        """PID of the zygote."""
        return self._pid

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
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            for side in (ours, theirs):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER_BYTES)
            ours.setblocking(False)
            mode = "root" if os.geteuid() == 0 else "user"
            module = "osgym_host.runtimes.local.zygote"
            # A new session: Ctrl-C in a terminal is for the host agent, which then ends the zygote.
            process = subprocess.Popen(  # noqa: ASYNC220 (milliseconds, once)
                [sys.executable, "-I", "-m", module, str(theirs.fileno()), mode, *map(str, lock_fds)],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *lock_fds),
                start_new_session=True,
                env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"},
                cwd="/",
            )
        supervisor = cls(process, ours, on_exit)
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
                    protocol.send(self._control, {"op": "mapped"})
                case "failed":
                    raise RuntimeUnsupported(
                        f"user namespaces do not work here: {message['error']}.",
                        remedy="`osgym doctor` says what to change.",
                    )
                case _:
                    raise RuntimeFault("the zygote ended while it started")

    async def request(
        self, op: str, fields: dict[str, Any], fds: Sequence[int] = (), *, timeout_s: float
    ) -> tuple[dict[str, Any], list[int]]:
        """Send a request and wait for its answer. The caller closes the descriptors of the answer.

        Raises:
            RequestFailed: The zygote says so.
            RuntimeNotRunning: The zygote is gone.
            RuntimeFault: No answer in time; when it comes, it is dropped.
        """
        if self.lost.done():
            raise RuntimeNotRunning("the supervisor of replicas is not running")
        self._next_id += 1
        number = self._next_id
        future: asyncio.Future[tuple[dict[str, Any], list[int]]] = self._loop.create_future()
        self._waiting[number] = future
        try:
            async with asyncio.timeout(timeout_s):
                await self._send({"id": number, "op": op, **fields}, fds)
                answer, received = await future
        except TimeoutError as exc:
            raise RuntimeFault(f"the supervisor of replicas did not answer {op} in {timeout_s:g} s") from exc
        finally:
            self._waiting.pop(number, None)
        if not answer["ok"]:
            raise RequestFailed(answer["step"], answer["error"])
        return answer, received

    async def _send(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        while True:
            try:
                protocol.send(self._control, message, fds)
                return
            except BlockingIOError:
                writable: asyncio.Future[None] = self._loop.create_future()
                self._loop.add_writer(self._control.fileno(), _resolve, writable)
                try:
                    await writable
                finally:
                    self._loop.remove_writer(self._control.fileno())
            except OSError as exc:
                if isinstance(exc, ConnectionError):
                    raise RuntimeNotRunning("the supervisor of replicas is gone") from exc
                raise ReplicaCreateFailed(f"request too large: {exc}", step="request") from exc

    def _readable(self) -> None:
        while not self.lost.done():
            try:
                received = protocol.receive(self._control)
            except BlockingIOError:
                return
            except OSError:
                received = None
            if received is None:
                self._set_lost()
                return
            self._dispatch(*received)

    def _dispatch(self, message: dict[str, Any], fds: list[int]) -> None:
        future = self._waiting.get(message["id"]) if "id" in message else None
        if future is not None and not future.done():
            future.set_result((message, fds))
            return
        for fd in fds:
            os.close(fd)
        if message.get("event") == "exit":
            self._on_exit(message["key"], message["status"])
        elif "event" in message:
            self._hello.put_nowait(message)

    def _set_lost(self) -> None:
        if self.lost.done():
            return
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        self.lost.set_result(None)
        self._hello.put_nowait({"event": "lost"})
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RuntimeNotRunning("the supervisor of replicas is gone"))

    async def close(self, timeout_s: float = 15.0) -> None:
        """Let the zygote kill what it still has and end; kill it when it does not. Idempotent."""
        if not self.lost.done():
            self._set_lost()  # closing our end is the request to end
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


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def map_all_ids(pid: int, idmap: IdMap) -> None:
    """Map 0 to this user and 1.. to the whole range of `idmap` in the user namespace of `pid`.

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
                f"{tool}: {done.stderr.strip()}.", remedy="See /etc/subuid and /etc/subgid."
            )
