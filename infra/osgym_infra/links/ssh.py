"""Links over ssh: paramiko in threads, one connection for each host, host keys always checked."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import paramiko

from osgym_infra.links.access import SshAccess
from osgym_infra.links.errors import CommandTimedOut, ConnectionLost, Interrupted, LoginRefused
from osgym_infra.links.link import CollectedOutput, CompletedCommand, DataListener, OutputListener, guarded
from osgym_infra.links.ssh_login import CONNECT_S, SharedJump, jumps, logged_in, reason
from osgym_infra.links.sudo import grant

_POLL_S = 0.5
_CHUNK = 1 << 15

T = TypeVar("T")
V = TypeVar("V")

# paramiko writes tracebacks of its threads; what they say reaches us as exceptions too.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)


class SshLink:
    """Link to a host behind ssh: one connection."""

    def __init__(
        self,
        at: SshAccess,
        known_hosts: Path = Path("~/.ssh/known_hosts"),
        *,
        root: bool = True,
        connect_s: float = CONNECT_S,
    ) -> None:
        """Connect to nothing yet.

        Args:
            root: Whether commands run as root, by `sudo -n` where the login is somebody else's.
            connect_s: Deadline of each part of the login.
        """
        self._at = at
        self._known_hosts = known_hosts.expanduser()
        self._sudo = root and at.user != "root"
        self._connect_s = connect_s
        self._client: paramiko.SSHClient | None = None
        self._way: SharedJump | None = None

    @property
    def name(self) -> str:
        return self._at.name

    async def connect(self) -> None:
        """Open the connection.

        Raises:
            HostUnreachable: There is no ssh server at that address.
            HostKeyMismatch: The host shows another key than the known one, or none is known.
            LoginRefused: None of our keys is let in, or the user may not become root.
        """
        await self.close()
        self._client = await _in_thread(self.open_client)
        if self._sudo:
            done = await self.run(["true"], timeout_s=CONNECT_S)
            if done.exit_code != 0:
                problem = f"{self._at.user} may not run commands as root by `sudo -n`: {done.output.strip()}"
                problem += f"\nAdd this line to /etc/sudoers.d there (visudo): {grant(self._at.user)}"
                raise LoginRefused(self.name, problem)

    async def run(
        self,
        argv: list[str],
        *,
        timeout_s: float,
        stdin: bytes | Path | None = None,
        on_output: OutputListener | None = None,
        on_data: DataListener | None = None,
    ) -> CompletedCommand:
        whole = argv if stdin is not None else guarded(argv)
        if self._sudo:
            whole = ["sudo", "-n", *whole]
        stop = threading.Event()
        command = _Command(
            whole, timeout_s, stdin, CollectedOutput(_in_loop(on_output), _in_loop(on_data)), stop
        )
        try:
            return await _in_thread(lambda: self._run_blocking(command))
        finally:
            stop.set()  # also when we were cancelled: the thread ends within `_POLL_S`

    async def close(self) -> None:
        """Close the connection; idempotent."""
        client, self._client = self._client, None
        if client is not None or self._way is not None:
            await _in_thread(lambda: self.close_client(client))

    def open_client(self) -> paramiko.SSHClient:
        """Return a new connection, for callers that block; `close_client` leaves its jump host."""
        at = self._at
        if at.jump is None:
            return logged_in(at, self._known_hosts, connect_s=self._connect_s)
        self._way = jumps.through(at.jump, self._known_hosts, self.name, self._connect_s)
        return logged_in(at, self._known_hosts, self._way.to(at, self._connect_s), connect_s=self._connect_s)

    def close_client(self, client: paramiko.SSHClient | None) -> None:
        """Close such a connection; idempotent."""
        if client is not None:
            client.close()
        way, self._way = self._way, None
        if way is not None:
            way.leave()

    def _run_blocking(self, command: _Command) -> CompletedCommand:
        client = self._client
        transport = client.get_transport() if client is not None else None
        if transport is None or not transport.is_active():
            raise ConnectionLost(self.name, "the connection is closed", touched=True)
        try:
            channel = transport.open_session(timeout=CONNECT_S)
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise ConnectionLost(self.name, f"the connection broke: {reason(error)}", touched=True) from error
        try:
            channel.set_combine_stderr(True)
            channel.exec_command(shlex.join(command.argv))
            if command.stdin is not None:
                self._send(channel, command)
            return self._receive(channel, command)
        except TimeoutError as error:
            raise CommandTimedOut(
                self.name, f"{command.shown} took longer than {command.timeout_s:g} s"
            ) from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise ConnectionLost(self.name, f"the connection broke: {reason(error)}", touched=True) from error
        finally:
            channel.close()  # the guard on the host sees it, and stops what still runs

    def _send(self, channel: paramiko.Channel, command: _Command) -> None:
        def chunks() -> Iterator[bytes]:
            if isinstance(command.stdin, bytes):
                yield command.stdin
            elif command.stdin is not None:
                with command.stdin.open("rb") as file:
                    while data := file.read(_CHUNK):
                        yield data

        for data in chunks():
            view = memoryview(data)
            while view:
                if channel.exit_status_ready():
                    return  # it ended without reading all; its exit code says why
                self._still_wanted(command)
                channel.settimeout(_POLL_S)
                try:
                    view = view[channel.send(view) :]
                except TimeoutError:
                    continue
        channel.shutdown_write()

    def _receive(self, channel: paramiko.Channel, command: _Command) -> CompletedCommand:
        channel.settimeout(_POLL_S)
        while True:
            self._still_wanted(command)
            try:
                data = channel.recv(_CHUNK)
            except TimeoutError:
                continue
            if not data:
                break
            command.found.feed(data)
        while not channel.exit_status_ready() and channel.transport.is_active():
            self._still_wanted(command)
            channel.status_event.wait(_POLL_S)
        code = channel.exit_status
        if code < 0:  # none was sent: the host, or its sshd, ended first
            raise ConnectionLost(self.name, "the connection broke: the host closed it", touched=True)
        return CompletedCommand(code, command.found.text)

    def _still_wanted(self, command: _Command) -> None:
        if command.stop.is_set():
            raise Interrupted(self.name, f"{command.shown} was stopped", touched=True)
        if time.monotonic() > command.end_s:
            raise TimeoutError


class _Command:
    """Command in the form that its thread needs."""

    def __init__(
        self,
        argv: list[str],
        timeout_s: float,
        stdin: bytes | Path | None,
        found: CollectedOutput,
        stop: threading.Event,
    ) -> None:
        self.argv, self.timeout_s, self.stdin, self.found, self.stop = argv, timeout_s, stdin, found, stop
        self.end_s = time.monotonic() + timeout_s

    @property
    def shown(self) -> str:
        """Last words of the command, which identify it."""
        return f"`{' '.join(self.argv[-2:])}`"


async def _in_thread(work: Callable[[], T]) -> T:
    """Run what blocks in a daemon thread: neither a cancelled task nor the process's end waits for it.

    Their number is bounded by that of hosts that callers work on at the same moment, two for each.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            settle: Callable[[], None] = functools.partial(_settle, done, result=work())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            settle = functools.partial(_settle, done, error=error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=run, name="osgym-ssh", daemon=True).start()
    return await done


def _settle(done: asyncio.Future[Any], result: Any = None, error: BaseException | None = None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


def _in_loop(listener: Callable[[V], None] | None) -> Callable[[V], None] | None:
    """Return a listener that is called in the event loop, whichever thread calls it."""
    if listener is None:
        return None
    loop = asyncio.get_running_loop()

    def post(value: V) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            loop.call_soon_threadsafe(listener, value)

    return post
