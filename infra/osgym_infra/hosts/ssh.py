"""A host behind ssh: paramiko in bounded threads, one connection for each host, host keys always checked."""

from __future__ import annotations

import asyncio
import logging
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import paramiko

from osgym_infra.hosts.errors import (
    CommandTimedOut,
    ConnectionLost,
    Interrupted,
    LoginRefused,
)
from osgym_infra.hosts.output import CollectedOutput
from osgym_infra.hosts.ssh_login import CONNECT_S, SharedJump, SshAddress, jumps, logged_in
from osgym_infra.hosts.sudo import grant
from osgym_infra.hosts.transport import GUARD, CompletedCommand, OutputListener
from osgym_infra.ssh_words import reason

MOST_THREADS = 512
"""Two for each host that is worked on at the same moment, as many as `pulumi up -p 256` asks for: while one
holds it drained, another does the work."""
_POLL_S = 0.5
_CHUNK = 1 << 15

T = TypeVar("T")

# paramiko writes tracebacks of its threads; what they say reaches us as exceptions too.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)

threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="osgym-ssh")


class SshTransport:
    """One connection to one host."""

    def __init__(self, at: SshAddress, known_hosts: Path = Path("~/.ssh/known_hosts")) -> None:
        self._at = at
        self._known_hosts = known_hosts.expanduser()
        self._client: paramiko.SSHClient | None = None
        self._way: SharedJump | None = None

    @property
    def name(self) -> str:
        """As users know it."""
        return self._at.name

    async def connect(self) -> None:
        """Open the connection.

        Raises:
            HostUnreachable: there is no ssh server at that address.
            HostKeyMismatch: the host shows another key than the known one, or none is known.
            LoginRefused: none of our keys is let in, or the user may not become root.
        """
        await self.close()
        self._client = await _in_thread(self._connect_blocking)
        if self._at.user != "root":
            done = await self.run(["true"], timeout_s=CONNECT_S)
            if done.exit_code != 0:
                problem = f"{self._at.user} may not run commands as root by `sudo -n`: {done.output.strip()}"
                problem += f"\nwhat lets them, in /etc/sudoers.d there (visudo): {grant(self._at.user)}"
                raise LoginRefused(self.name, problem)

    async def run(
        self,
        argv: list[str],
        *,
        timeout_s: float,
        stdin: bytes | Path | None = None,
        on_output: OutputListener | None = None,
    ) -> CompletedCommand:
        """See `Transport.run`."""
        whole = argv if stdin is not None else ["sh", "-c", GUARD, "guard", *argv]
        if self._at.user != "root":
            whole = ["sudo", "-n", *whole]
        stop = threading.Event()
        command = _Command(whole, timeout_s, stdin, CollectedOutput(_in_loop(on_output)), stop)
        try:
            return await _in_thread(lambda: self._run_blocking(command))
        finally:
            stop.set()  # also when we were cancelled: the thread ends within `_POLL_S`

    async def close(self) -> None:
        """Close the connection; idempotent."""
        client, self._client = self._client, None
        if client is not None or self._way is not None:
            await _in_thread(lambda: self._close_blocking(client))

    def _connect_blocking(self) -> paramiko.SSHClient:
        at = self._at
        if at.jump is None:
            return logged_in(at, self._known_hosts)
        self._way = jumps.through(at.jump, self._known_hosts, self.name)
        return logged_in(at, self._known_hosts, self._way.to(at))

    def _close_blocking(self, client: paramiko.SSHClient | None) -> None:
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
    """One command, as its thread needs it."""

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
        """Its last words, which say what it is."""
        return f"`{' '.join(self.argv[-2:])}`"


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads, work)


def _in_loop(on_output: OutputListener | None) -> OutputListener | None:
    """Bring lines from the thread to the loop."""
    if on_output is None:
        return None
    loop = asyncio.get_running_loop()
    return lambda line: _post(loop, on_output, line)


def _post(loop: asyncio.AbstractEventLoop, on_output: OutputListener, line: str) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(on_output, line)
