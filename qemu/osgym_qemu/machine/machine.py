"""Virtual machine: a QEMU process and the QMP connection to it."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from osgym_host.addresses import listen_at
from osgym_host.errors import OsgymHostError
from osgym_host.runtimes.replica_cgroup import Caps
from osgym_qemu.machine import argv as arguments
from osgym_qemu.machine.argv import Launch, Shape
from osgym_qemu.machine.launcher import Launcher, LaunchRequest, ProcessEnd, VmProcess
from osgym_qemu.machine.namespace import AnyNamespace
from osgym_qemu.machine.qmp import Qmp, QmpClosed, QmpError, QmpTimeout

START_TIMEOUT_S = 30.0
STATE_TIMEOUT_S = 30.0
QMP_SOCKET = "qmp.sock"
SCREEN_SOCKET = "screen.sock"
"""File name of a second QMP server, for screen and input of guests without our agent."""
_END_NOTICED_S = 1.0
_STATE_FD_NAME = "state"
_FORWARD = re.compile(r"TCP\[HOST_FORWARD\]\s+\d+\s+127\.0\.0\.1\s+(\d+)\s")
_CAPABILITIES = ("x-ignore-shared", "events")
_PARAMETERS = {"announce-rounds": 1}
"""After a migration QEMU tells the network where the guest is now, five times in a second; a clone's network
is new. Not 0: where the guest takes part in it, QEMU 7.2 frees the timer then, and crashes when the guest
resets its card."""


class MachineFailed(OsgymHostError):
    """Failure to start a machine, or of a machine to carry out a command.

    Attributes:
        argv: Argument vector, empty for an adopted machine.
        end: End of the process, None when it did not end by itself.
        said: Last output of QEMU on stderr.
    """

    def __init__(
        self, message: str, *, argv: Sequence[str] = (), end: ProcessEnd | None = None, said: str = ""
    ) -> None:
        detail = f": {said.strip().splitlines()[-1]}" if said.strip() else ""
        super().__init__(message + detail)
        self.argv = tuple(argv)
        self.end = end
        self.said = said


class Machine:
    """Live QEMU. After `close` it runs on, for another host agent to attach to."""

    def __init__(self, process: VmProcess, qmp: Qmp, argv: Sequence[str] = ()) -> None:
        self.process = process
        self.qmp = qmp
        self.argv = tuple(argv)
        self._prepared = False

    @classmethod
    async def start(
        cls,
        launcher: Launcher,
        shape: Shape,
        launch: Launch,
        *,
        folder: Path,
        fds: Mapping[int, int] | None = None,
        reads: Sequence[Path] = (),
        caps: Caps | None = None,
        max_file_mib: int | None = None,
        namespace: AnyNamespace | None = None,
        guest_listener: int | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = START_TIMEOUT_S,
    ) -> Machine:
        """Start a QEMU and wait until its QMP answers.

        Its QMP socket is `qmp.sock` in `folder`, that of its second server `screen.sock`; both are bound
        before it starts. `launch.qmp` must be `QMP_FD`, `launch.screen_qmp` `SCREEN_QMP_FD` or None.
        On failure, also when cancelled, nothing is left but the folder.

        Args:
            fds: More descriptors by their number in QEMU: `{RAM_FD: ram.fd}`, a tap device.
            reads: Files besides those in `folder` that QEMU reads (`LaunchRequest.reads`).
            namespace, guest_listener: `LaunchRequest` says.

        Raises:
            LaunchFailed: The process could not be started.
            MachineFailed: QEMU ended, or did not answer in time.
            OSError: The socket could not be made.
        """
        command = arguments.to_argv(shape, launch)
        path = folder / QMP_SOCKET
        with contextlib.ExitStack() as stack:
            given = {arguments.QMP_FD: stack.enter_context(listen_at(path)).fileno(), **(fds or {})}
            if launch.screen_qmp is not None:
                screen = stack.enter_context(listen_at(folder / SCREEN_SOCKET))
                given[arguments.SCREEN_QMP_FD] = screen.fileno()
            request = LaunchRequest(
                launch.name,
                command,
                folder=folder,
                reads=tuple(reads),
                fds=given,
                caps=caps or Caps(),
                max_file_mib=max_file_mib,
                namespace=namespace,
                guest_listener=guest_listener,
                env=env or {},
            )
            process = await launcher.launch(request)
        try:
            return await cls.attach(process, path, argv=command, timeout_s=timeout_s)
        except BaseException:
            await asyncio.shield(process.remove())
            raise

    @classmethod
    async def attach(
        cls, process: VmProcess, qmp: Path, *, argv: Sequence[str] = (), timeout_s: float = START_TIMEOUT_S
    ) -> Machine:
        """Connect to a running QEMU.

        Raises:
            MachineFailed: It ended or does not answer in time; it is unchanged.
        """
        try:
            return cls(process, await _connect_or_end(process, qmp, timeout_s), argv)
        except QmpError as exc:
            with contextlib.suppress(TimeoutError):  # its end may be noticed after that of its connection
                await asyncio.wait_for(process.wait(), _END_NOTICED_S)
            end = process.end
            how = "QEMU ended" if end is not None else str(exc)
            said = end.output if end is not None else process.output_tail()
            raise MachineFailed(how, argv=argv, end=end, said=said) from exc

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def end(self) -> ProcessEnd | None:
        """End of the process; None while it lives."""
        return self.process.end

    async def wait_dead(self) -> ProcessEnd:
        """Wait for the end of the process, without a deadline. Any number of tasks may wait."""
        return await self.process.wait()

    async def remove(self, *, timeout_s: float = 10.0) -> None:
        """Kill QEMU and remove its container and control groups, but not its folder. Idempotent.

        Raises:
            RuntimeFault: Something is left; calling again tries again.
        """
        await self.qmp.close()
        await self.process.remove(timeout_s=timeout_s)

    async def close(self) -> None:
        """Close the connection; QEMU runs on. Idempotent."""
        await self.qmp.close()

    async def prepare(self, *, timeout_s: float = STATE_TIMEOUT_S) -> None:
        """Set the migration parameters for saving and loading states, while a process is parked."""
        wanted = [{"capability": name, "state": True} for name in _CAPABILITIES]
        await self.qmp.execute("migrate-set-capabilities", capabilities=wanted, timeout_s=timeout_s)
        await self.qmp.execute("migrate-set-parameters", _PARAMETERS, timeout_s=timeout_s)
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
        await self.qmp.execute("cont", timeout_s=timeout_s)

    async def stop(self, *, timeout_s: float = STATE_TIMEOUT_S) -> None:
        await self.qmp.execute("stop", timeout_s=timeout_s)

    async def status(self, *, timeout_s: float = STATE_TIMEOUT_S) -> str:
        """Return QEMU's run state: `running`, `paused`, `io-error`, `guest-panicked`, `shutdown`, …

        Raises:
            QmpError: QEMU does not answer.
        """
        status = (await self.qmp.query("query-status", timeout_s=timeout_s)).get("status")
        if not isinstance(status, str):
            raise QmpError("query-status", "", "no status")
        return status

    async def host_port(self, *, timeout_s: float = STATE_TIMEOUT_S) -> int:
        """Return the port on 127.0.0.1 that leads to the guest agent (user networking).

        Raises:
            MachineFailed: QEMU forwards no such port.
        """
        found = _FORWARD.search(await self.qmp.hmp("info usernet", timeout_s=timeout_s))
        if found is None:
            raise MachineFailed("no port is forwarded to the guest", argv=self.argv)
        return int(found.group(1))

    async def read_console(self, max_bytes: int = 65536, *, timeout_s: float = STATE_TIMEOUT_S) -> bytes:
        """Return the output of a ring console since the last call.

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
        """Save or load a state through a descriptor, and wait for the end."""
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
            raise self._failed(f"{command}: not finished within {timeout_s:.0f} s") from exc
        except QmpError as exc:
            if isinstance(exc, QmpClosed):
                await self._wait_a_little()
            raise self._failed(f"{command}: {exc}") from exc
        await self._wait_a_little()
        raise self._failed(f"{command}: QEMU ended")

    async def _wait_a_little(self) -> None:
        """Give QEMU time to end after its connection has closed."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.wait_dead(), _END_NOTICED_S)

    def _failed(self, message: str) -> MachineFailed:
        said = self.end.output if self.end is not None else self.process.output_tail()
        return MachineFailed(message, argv=self.argv, end=self.end, said=said)


async def _connect_or_end(process: VmProcess, path: Path, timeout_s: float) -> Qmp:
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
