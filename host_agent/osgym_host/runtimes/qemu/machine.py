"""One virtual machine: a QEMU process and the QMP connection to it."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from osgym_host.errors import OsgymHostError
from osgym_host.runtimes.processes import ProcessIdentity
from osgym_host.runtimes.qemu import argv as arguments
from osgym_host.runtimes.qemu.argv import Launch, Shape
from osgym_host.runtimes.qemu.process import Exit, Process, SpawnFailed, spawn
from osgym_host.runtimes.qemu.qmp import Qmp, QmpClosed, QmpError, QmpTimeout
from osgym_host.runtimes.sockets import short_unix_path

START_TIMEOUT_S = 30.0
STATE_TIMEOUT_S = 30.0
QMP_SOCKET = "qmp.sock"
_KILL_TIMEOUT_S = 10.0
_STATE_FD_NAME = "state"
_FORWARD = re.compile(r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s")
_CAPABILITIES = ("x-ignore-shared", "events")


class MachineFailed(OsgymHostError):
    """A machine could not be started, or did not do what it was told.

    Attributes:
        argv: What was started, empty where it was not us.
        exit: How it ended, None when it did not end (by itself).
        said: The end of what QEMU said on stderr.
    """

    def __init__(
        self, message: str, *, argv: Sequence[str] = (), exit: Exit | None = None, said: str = ""
    ) -> None:
        """Keep the fields beside the message."""
        detail = f": {said.strip().splitlines()[-1]}" if said.strip() else ""
        super().__init__(message + detail)
        self.argv = tuple(argv)
        self.exit = exit
        self.said = said


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """What another host agent needs to take a machine over."""

    process: ProcessIdentity
    qmp: Path


class Machine:
    """A live QEMU. `close` lets go of it; it then runs on, for another host agent to attach to."""

    def __init__(self, process: Process, qmp: Qmp, record: MachineRecord, argv: Sequence[str]) -> None:
        """Use `spawn` or `attach`."""
        self._process = process
        self._prepared = False
        self.qmp = qmp
        self.record = record
        self.argv = tuple(argv)

    @classmethod
    async def spawn(
        cls,
        shape: Shape,
        launch: Launch,
        *,
        folder: Path,
        fds: Mapping[int, int] | None = None,
        groups: Sequence[str] = (),
        started: Callable[[ProcessIdentity], None] | None = None,
        timeout_s: float = START_TIMEOUT_S,
    ) -> Machine:
        """Start a QEMU as a child of this process and wait until its QMP answers.

        Its QMP socket is `qmp.sock` in `folder`, bound before it starts; `launch.qmp` must be
        `QMP_FD`. Cancelled, it leaves no process.

        Args:
            fds: More descriptors by their number in QEMU: `{RAM_FD: ram.fd}`, a tap device.
            groups: `cgroup.procs` files (`CgroupGroup.procs_files`).
            started: Called with the process's identity before it may do anything.

        Raises:
            MachineFailed: QEMU ended, or did not answer in time; no process is left.
            OSError: The socket could not be made.
        """
        command = arguments.to_argv(shape, launch)
        record_path = folder / QMP_SOCKET
        with _listening(record_path) as listener:
            try:
                process = spawn(
                    command,
                    fds={arguments.QMP_FD: listener.fileno(), **(fds or {})},
                    groups=groups,
                    started=started,
                )
            except SpawnFailed as exc:
                raise MachineFailed(str(exc), argv=command) from exc
        return await cls._meet(process, MachineRecord(process.identity, record_path), command, timeout_s)

    @classmethod
    async def attach(cls, record: MachineRecord, *, timeout_s: float = START_TIMEOUT_S) -> Machine:
        """Take over a QEMU that somebody else started: a former host agent, a container.

        Raises:
            MachineFailed: It is gone, or does not answer in time; it is not touched.
        """
        process = Process.adopt(record.process)
        if process is None:
            raise MachineFailed(f"process {record.process.pid} is gone")
        return await cls._meet(process, record, (), timeout_s)

    @classmethod
    async def _meet(
        cls, process: Process, record: MachineRecord, command: Sequence[str], timeout_s: float
    ) -> Machine:
        """Connect to QMP; on failure end what we started ourselves."""
        try:
            return cls(process, await _connect_or_end(process, record.qmp, timeout_s), record, command)
        except BaseException as exc:
            ended = process.exit
            if command:
                process.kill()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(asyncio.shield(process.wait()), _KILL_TIMEOUT_S)
            said = process.said()
            process.close()
            if isinstance(exc, QmpError):
                how = str(ended) if ended else str(exc)
                raise MachineFailed(
                    f"QEMU did not start: {how}", argv=command, exit=ended, said=said
                ) from exc
            raise

    @property
    def pid(self) -> int:
        """Host PID of QEMU."""
        return self._process.pid

    @property
    def start_ticks(self) -> int:
        """When it started, in clock ticks since boot: with the PID its identity."""
        return self._process.identity.start_ticks

    @property
    def exit(self) -> Exit | None:
        """How it ended, None while it lives."""
        return self._process.exit

    async def wait_dead(self) -> Exit:
        """Wait, without a deadline, until the process is gone. Any number of tasks may wait."""
        return await self._process.wait()

    def kill(self) -> None:
        """Kill QEMU. No effect when it is dead."""
        self._process.kill()

    async def end(self, timeout_s: float = _KILL_TIMEOUT_S) -> Exit:
        """Kill QEMU, wait for its end and close. Idempotent.

        Raises:
            TimeoutError: It does not die (it hangs in the kernel).
        """
        self.kill()
        ended = await asyncio.wait_for(self.wait_dead(), timeout_s)
        await self.close()
        return ended

    async def close(self) -> None:
        """Let go of process and connection; QEMU runs on. Idempotent."""
        await self.qmp.close()
        self._process.close()

    def said(self) -> str:
        """Return the end of what QEMU said on stderr: for people only."""
        return self._process.said()

    async def prepare(self, *, timeout_s: float = STATE_TIMEOUT_S) -> None:
        """Set what saving and loading a state needs; for a parked process, while nobody waits."""
        wanted = [{"capability": name, "state": True} for name in _CAPABILITIES]
        await self.qmp.execute("migrate-set-capabilities", capabilities=wanted, timeout_s=timeout_s)
        self._prepared = True

    async def load_state(self, state: Path | int, *, timeout_s: float = STATE_TIMEOUT_S) -> None:
        """Load a device state from a file into a machine that waits for it; it stays paused.

        Raises:
            MachineFailed: The state does not fit; QEMU is dead or must be killed.
            OSError: The file cannot be opened.
        """
        fd = state if isinstance(state, int) else os.open(state, os.O_RDONLY | os.O_CLOEXEC)
        try:
            await self._migrate("migrate-incoming", fd, timeout_s)
        finally:
            if not isinstance(state, int):
                os.close(fd)

    async def save_state(self, target: Path, *, timeout_s: float = STATE_TIMEOUT_S) -> None:
        """Save everything but the shared RAM of a stopped machine to a new file.

        Raises:
            MachineFailed: It could not be saved.
            OSError: The file is there already, or cannot be made.
        """
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            await self._migrate("migrate", fd, timeout_s)
        finally:
            os.close(fd)

    async def cont(self, *, timeout_s: float = STATE_TIMEOUT_S) -> None:
        """Let the guest run."""
        await self.qmp.execute("cont", timeout_s=timeout_s)

    async def stop(self, *, timeout_s: float = STATE_TIMEOUT_S) -> None:
        """Let the guest stand still."""
        await self.qmp.execute("stop", timeout_s=timeout_s)

    async def status(self, *, timeout_s: float = STATE_TIMEOUT_S) -> str:
        """Return QEMU's run state: `running`, `paused`, `io-error`, `guest-panicked`, `shutdown`, …

        Raises:
            QmpError: QEMU does not say.
        """
        status = (await self.qmp.query("query-status", timeout_s=timeout_s)).get("status")
        if not isinstance(status, str):
            raise QmpError("query-status", "", "no status")
        return status

    async def host_port(self, *, timeout_s: float = STATE_TIMEOUT_S) -> int:
        """Return the port on 127.0.0.1 that leads to the guest agent (user networking).

        Raises:
            MachineFailed: There is none.
        """
        found = _FORWARD.search(await self.qmp.hmp("info usernet", timeout_s=timeout_s))
        if found is None:
            raise MachineFailed("no port is forwarded to the guest", argv=self.argv)
        return int(found.group(1))

    async def read_console(self, max_bytes: int = 65536, *, timeout_s: float = STATE_TIMEOUT_S) -> bytes:
        """Take what the guest wrote to its serial console since the last call, where it is a ring.

        Hostile: show it, never interpret it.
        """
        text = await self.qmp.execute(
            "ringbuf-read", device=arguments.CONSOLE, size=max_bytes, format="base64", timeout_s=timeout_s
        )
        try:
            return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
        except binascii.Error:
            return b""

    async def _migrate(self, command: str, fd: int, timeout_s: float) -> None:
        """Let a state run through a descriptor, in either direction, and wait for its end."""
        try:
            async with asyncio.timeout(timeout_s):
                if not self._prepared:
                    await self.prepare(timeout_s=timeout_s)
                with self.qmp.subscribe("MIGRATION") as events:
                    await self.qmp.send_fd(fd, _STATE_FD_NAME, timeout_s=timeout_s)
                    await self.qmp.execute(command, uri=f"fd:{_STATE_FD_NAME}", timeout_s=timeout_s)
                    async for event in events:
                        status = event.data.get("status")
                        if status == "completed":
                            return
                        if status in ("failed", "cancelled"):
                            raise self._failed(f"{command}: {status}")
        except (TimeoutError, QmpTimeout) as exc:
            raise self._failed(f"{command}: not done in {timeout_s:.0f} s") from exc
        except QmpError as exc:
            if isinstance(exc, QmpClosed):
                await self._wait_a_little()
            raise self._failed(f"{command}: {exc}") from exc
        await self._wait_a_little()
        raise self._failed(f"{command}: QEMU ended")

    async def _wait_a_little(self) -> None:
        """After its connection is gone, give QEMU the time to say why it ends."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.wait_dead(), 1.0)

    def _failed(self, message: str) -> MachineFailed:
        return MachineFailed(message, argv=self.argv, exit=self.exit, said=self.said())


async def _connect_or_end(process: Process, path: Path, timeout_s: float) -> Qmp:
    """Connect to QMP, unless the process ends first.

    Raises:
        QmpError: It ended or did not answer.
    """
    connecting = asyncio.create_task(Qmp.connect(path, timeout_s))
    ending = asyncio.create_task(process.wait())
    try:
        await asyncio.wait((connecting, ending), return_when=asyncio.FIRST_COMPLETED)
        if connecting.done():
            return await connecting
        raise QmpClosed("connect", "QEMU ended")
    finally:
        ending.cancel()
        if not connecting.done():
            connecting.cancel()
        await asyncio.wait((connecting, ending))
        if connecting.done() and not connecting.cancelled():
            connecting.exception()


@contextlib.contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """Listen at a path for the time until QEMU has inherited the socket; the path stays."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as sock:
        with short_unix_path(str(path)) as name:
            sock.bind(name)
        path.chmod(0o600)
        sock.listen(1)
        yield sock


__all__ = ["QMP_SOCKET", "Machine", "MachineFailed", "MachineRecord"]
