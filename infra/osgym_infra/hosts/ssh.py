"""A host behind ssh: paramiko in bounded threads, one connection for each host, host keys always checked."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import paramiko

from osgym_infra.hosts.errors import (
    CommandTimedOut,
    ConnectionLost,
    FleetHostUnreachable,
    HostKeyMismatch,
    Interrupted,
    LoginRefused,
)
from osgym_infra.hosts.output import CollectedOutput
from osgym_infra.hosts.transport import GUARD, CompletedCommand, OutputListener

MOST_THREADS = 256
"""Hosts that are worked on at the same moment; `pulumi up -p` asks for as many calls at most."""

CONNECT_S = 20.0
KEEPALIVE_S = 15
"""A connection whose other end is gone without a word is noticed after about this long."""
_POLL_S = 0.5
_CHUNK = 1 << 15

T = TypeVar("T")

# paramiko writes tracebacks of its threads; what they say reaches us as exceptions too.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)

threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="osgym-ssh")


@dataclass(frozen=True, slots=True)
class SshAddress:
    """How a host is reached.

    Attributes:
        host_key: `ssh-ed25519 AAAA…`; empty: the user's known_hosts must have it.
        key_file: private key; empty: the user's agent and default keys.
    """

    address: str
    port: int = 22
    user: str = "root"
    host_key: str = ""
    key_file: str = ""

    @property
    def name(self) -> str:
        """As users know it."""
        return f"{self.user}@{self.address}" + ("" if self.port == 22 else f":{self.port}")


class SshTransport:
    """One connection to one host."""

    def __init__(self, at: SshAddress, known_hosts: Path = Path("~/.ssh/known_hosts")) -> None:
        self._at = at
        self._known_hosts = known_hosts.expanduser()
        self._client: paramiko.SSHClient | None = None

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
        if client is not None:
            await _in_thread(client.close)

    def _connect_blocking(self) -> paramiko.SSHClient:
        at = self._at
        client = paramiko.SSHClient()
        self._know(client)
        try:
            client.connect(
                at.address,
                at.port,
                at.user,
                key_filename=str(Path(at.key_file).expanduser()) if at.key_file else None,
                allow_agent=not at.key_file,
                look_for_keys=not at.key_file,
                timeout=CONNECT_S,
                banner_timeout=CONNECT_S,
                auth_timeout=CONNECT_S,
                channel_timeout=CONNECT_S,
            )
            transport = client.get_transport()
            assert transport is not None
            transport.set_keepalive(KEEPALIVE_S)
            return client
        except paramiko.BadHostKeyException as error:
            client.close()
            problem = (
                f"it shows the host key {_shown(error.key)}, but {_shown(error.expected_key)} is known. "
                "Somebody may be in between, or the machine was installed anew; nothing was sent to it. "
                f"If that is right, {self._how_to_know(error.key)}"
            )
            raise HostKeyMismatch(self.name, problem) from error
        except _UnknownKey as error:
            client.close()
            problem = (
                f"its host key is not known; it shows {_shown(error.key)}. Nothing was sent to it. "
                f"If that is right, {self._how_to_know(error.key)}"
            )
            raise HostKeyMismatch(self.name, problem) from error
        except (paramiko.AuthenticationException, paramiko.PasswordRequiredException) as error:
            client.close()
            keys = at.key_file or "the ssh agent's and the default keys"
            raise LoginRefused(self.name, f"it does not let us in with {keys}: {error}") from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            client.close()
            raise FleetHostUnreachable(self.name, f"cannot be reached: {_reason(error)}") from error

    def _know(self, client: paramiko.SSHClient) -> None:
        """Tell the client which key is right; nothing else is ever accepted."""
        client.set_missing_host_key_policy(_Refuse())
        if self._at.host_key:
            kind, data = self._at.host_key.split()[:2]
            name = self._at.address if self._at.port == 22 else f"[{self._at.address}]:{self._at.port}"
            key = paramiko.PKey.from_type_string(kind, base64.b64decode(data))
            client.get_host_keys().add(name, kind, key)
        elif self._known_hosts.exists():
            client.load_system_host_keys(str(self._known_hosts))

    def _how_to_know(self, key: paramiko.PKey) -> str:
        line = f"{key.get_name()} {key.get_base64()}"
        if self._at.host_key:
            return f"set its host_key in osgym:hosts to: {line}"
        return f"set its host_key in osgym:hosts to: {line} (or bring {self._known_hosts} up to date)"

    def _run_blocking(self, command: _Command) -> CompletedCommand:
        client = self._client
        transport = client.get_transport() if client is not None else None
        if transport is None or not transport.is_active():
            raise ConnectionLost(self.name, "the connection is closed", touched=True)
        try:
            channel = transport.open_session(timeout=CONNECT_S)
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise ConnectionLost(
                self.name, f"the connection broke: {_reason(error)}", touched=True
            ) from error
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
            raise ConnectionLost(
                self.name, f"the connection broke: {_reason(error)}", touched=True
            ) from error
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


class _UnknownKey(Exception):
    """No key of that host is known."""

    def __init__(self, key: paramiko.PKey) -> None:
        self.key = key
        super().__init__("unknown host key")


class _Refuse:
    """Never takes a key it does not know, and says which one was shown."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise _UnknownKey(key)


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


def _shown(key: paramiko.PKey) -> str:
    digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
    return f"{key.get_name()} SHA256:{digest}"


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        return "; ".join(sorted({str(one.strerror or one) for one in error.errors.values()}))
    return str(error) or type(error).__name__
