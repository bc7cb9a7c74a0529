"""QMP, the control socket of one QEMU: commands with deadlines, bounded events, passed descriptors.

Thin over `qemu.qmp`. What that library leaves open is closed here: its event history grows for as
long as a guest likes to make events, it has no deadlines, and it formats every message for a log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qemu.qmp import ConnectError, ExecuteError, QMPClient, Runstate
from qemu.qmp import QMPError as LibraryError
from qemu.qmp.message import Message

from osgym_host.addresses import short_unix_path
from osgym_host.errors import OsgymHostError

DEFAULT_TIMEOUT_S = 15.0
MAX_EVENTS = 256
"""Number of events that one subscription keeps; older ones are dropped, and counted."""
_CLOSE_TIMEOUT_S = 2.0
_RETRY_S = 0.005

_QUIET = logging.getLogger(f"{__name__}.protocol")
_QUIET.setLevel(logging.CRITICAL + 1)  # a QEMU that ends is an event for us, not an error of the library


class QmpError(OsgymHostError):
    """Refusal of a command by QEMU.

    Attributes:
        error_class: `GenericError`, `CommandNotFound`, `DeviceNotFound`, …
    """

    def __init__(self, command: str, error_class: str, desc: str) -> None:
        super().__init__(f"{command}: {desc}" + (f" ({error_class})" if error_class else ""))
        self.command = command
        self.error_class = error_class
        self.desc = desc


class QmpClosed(QmpError):
    """End of the connection: QEMU ended, or `close` was called. The command may have been carried out."""

    def __init__(self, command: str, desc: str = "the connection is closed") -> None:
        super().__init__(command, "", desc)


class QmpTimeout(QmpError):
    """Timeout of a command, which may still be carried out."""

    def __init__(self, command: str, timeout_s: float) -> None:
        super().__init__(command, "", f"no answer in {timeout_s:.1f} s")


@dataclass(frozen=True, slots=True)
class Event:
    """Event that QEMU reports.

    Attributes:
        name: Name in QEMU's documentation: `STOP`, `RESET`, `SHUTDOWN`, `BLOCK_IO_ERROR`, …
    """

    name: str
    data: dict[str, Any]
    time_s: float


class EventStream:
    """Bounded subscription, from `Qmp.subscribe`. Iteration ends when the connection does."""

    def __init__(self, names: frozenset[str]) -> None:
        """Args:
        names: Names of events; empty for all.
        """
        self._names = names
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._news = asyncio.Event()
        self._ended = False
        self.dropped = 0

    def put(self, event: Event) -> None:
        """Add an event, if the subscription has its name."""
        if self._names and event.name not in self._names:
            return
        self.dropped += len(self._events) == MAX_EVENTS
        self._events.append(event)
        self._news.set()

    def end(self) -> None:
        """End the iteration after the events added so far."""
        self._ended = True
        self._news.set()

    async def next(self, timeout_s: float | None = None) -> Event:
        """Wait for the next event.

        Raises:
            TimeoutError: None came in time.
            QmpClosed: The connection is closed.
        """
        async with asyncio.timeout(timeout_s):
            while not self._events:
                if self._ended:
                    raise QmpClosed("event")
                self._news.clear()
                await self._news.wait()
            return self._events.popleft()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            try:
                event = await self.next()
            except QmpClosed:
                return
            yield event


class _QmpClient(QMPClient):
    """Client of the library with bounded memory and without formatting for a log."""

    logger = _QUIET

    def __init__(self) -> None:
        super().__init__()
        self.logger = _QUIET
        self.streams: list[EventStream] = []

    def _cb_outbound(self, msg: Message) -> Message:
        return msg

    def _cb_inbound(self, msg: Message) -> Message:
        return msg

    async def _event_dispatch(self, msg: Message) -> None:
        event = _event(msg)
        if event is not None:
            for stream in self.streams:
                stream.put(event)


class Qmp:
    """Connection to a QEMU. Simultaneous commands are carried out in order."""

    def __init__(self, client: _QmpClient) -> None:
        self._client = client
        self._turn = asyncio.Lock()
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = asyncio.Event()
        self._watch = asyncio.create_task(self._wait_for_end(), name="qmp-end")

    @classmethod
    async def connect(cls, path: Path, timeout_s: float = DEFAULT_TIMEOUT_S) -> Qmp:
        """Connect as soon as QEMU listens at `path`, and wait for the greeting.

        Raises:
            QmpTimeout: No greeting came in time (QEMU serves one client at a time).
            QmpClosed: QEMU hung up.
        """
        try:
            async with asyncio.timeout(timeout_s):
                return await cls.over(await _connected(path))
        except TimeoutError as exc:
            raise QmpTimeout("connect", timeout_s) from exc

    @classmethod
    async def over(cls, sock: socket.socket) -> Qmp:
        """Use a connected socket whose greeting is still to come. Has no deadline of its own.

        Raises:
            QmpClosed: QEMU hung up.
        """
        client = _QmpClient()
        try:
            await client.connect(sock)
        except BaseException as exc:
            sock.close()
            if isinstance(exc, ConnectError):
                raise QmpClosed("connect", str(exc)) from exc
            raise
        return cls(client)

    @property
    def closed(self) -> bool:
        return self._closed.is_set() or self._client.runstate is not Runstate.RUNNING

    async def execute(
        self,
        command: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        **more: object,
    ) -> Any:
        """Carry out a command; in the names of keyword arguments `_` stands for `-`.

        Returns:
            Return value of the command, `{}` for most.

        Raises:
            QmpError: QEMU refused.
            QmpTimeout: No answer in time, waiting for earlier commands included.
            QmpClosed: The connection is gone.
        """
        given = {**(arguments or {}), **{name.replace("_", "-"): value for name, value in more.items()}}
        with _named_errors(command, timeout_s):
            async with asyncio.timeout(timeout_s):
                async with self._turn:
                    self._under_way += 1
                    self._idle.clear()
                try:
                    return await self._send(command, given)
                finally:
                    self._under_way -= 1
                    if not self._under_way:
                        self._idle.set()

    async def query(
        self,
        command: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        **more: object,
    ) -> dict[str, Any]:
        """Execute a command that returns an object.

        Raises:
            QmpError: Something else was returned; also as `execute`.
        """
        answer = await self.execute(command, arguments, timeout_s=timeout_s, **more)
        if not isinstance(answer, dict):
            raise QmpError(command, "", f"an object was expected, not {type(answer).__name__}")
        return answer

    async def send_fd(self, fd: int, name: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Send QEMU a copy of a descriptor, which commands may then use by this name (`fd:name`).

        The descriptor stays open on this side. QEMU closes a former descriptor of this name.

        Raises:
            QmpError: As `execute`.
        """
        await self._with_fd(fd, "getfd", {"fdname": name}, timeout_s)

    async def add_fd(self, fd: int, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> str:
        """Send QEMU a copy of a descriptor that commands may open like a file, repeatedly.

        Returns:
            File name (`/dev/fdset/<n>`), valid until the connection ends and nothing has it open.

        Raises:
            QmpError: As `execute`.
        """
        answer = await self._with_fd(fd, "add-fd", {}, timeout_s)
        number = answer.get("fdset-id") if isinstance(answer, dict) else None
        if not isinstance(number, int):
            raise QmpError("add-fd", "", "the number of a set of descriptors was expected")
        return f"/dev/fdset/{number}"

    async def _with_fd(self, fd: int, command: str, arguments: dict[str, object], timeout_s: float) -> Any:
        with _named_errors(command, timeout_s):
            async with asyncio.timeout(timeout_s), self._turn:
                # Nothing else may be under way, so that the descriptor arrives with its own command.
                await self._idle.wait()
                self._check_open(command)
                self._client.send_fd_scm(fd)
                return await self._send(command, arguments)

    async def hmp(self, line: str, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> str:
        """Run a command of the human monitor, for functions that QMP lacks.

        Raises:
            QmpError: As `execute`. Errors of the human monitor are in its text.
        """
        text = await self.execute("human-monitor-command", timeout_s=timeout_s, command_line=line)
        if not isinstance(text, str):
            raise QmpError("human-monitor-command", "", "text was expected")
        return text

    @contextlib.contextmanager
    def subscribe(self, *names: str) -> Iterator[EventStream]:
        """Context that collects the events of these names, or all without names."""
        stream = EventStream(frozenset(names))
        if self._closed.is_set():
            stream.end()
        self._client.streams.append(stream)
        try:
            yield stream
        finally:
            self._client.streams.remove(stream)

    async def close(self) -> None:
        """Close the connection; QEMU goes on. Idempotent, bounded."""
        if self._client.runstate is not Runstate.IDLE and not self._closed.is_set():
            self._client._schedule_disconnect()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._watch), _CLOSE_TIMEOUT_S)

    def _check_open(self, command: str) -> None:
        if self.closed:
            raise QmpClosed(command)

    async def _send(self, command: str, arguments: Mapping[str, object]) -> object:
        self._check_open(command)
        message: dict[str, object] = {"execute": command}
        if arguments:
            message["arguments"] = arguments
        return await self._client.execute_msg(Message(message))

    async def _wait_for_end(self) -> None:
        while self._client.runstate is Runstate.RUNNING:
            await self._client.runstate_changed()
        # The library wants to be asked for the reason of the end; the reason is of no interest.
        with contextlib.suppress(LibraryError, OSError, EOFError, asyncio.IncompleteReadError):
            await self._client.disconnect()
        self._closed.set()
        for stream in self._client.streams:
            stream.end()


@contextlib.contextmanager
def _named_errors(command: str, timeout_s: float) -> Iterator[None]:
    try:
        yield
    except ExecuteError as exc:
        raise QmpError(command, exc.error.error.class_, exc.error.error.desc) from exc
    except TimeoutError as exc:
        raise QmpTimeout(command, timeout_s) from exc
    except (LibraryError, OSError) as exc:
        raise QmpClosed(command) from exc


async def _connected(path: Path) -> socket.socket:
    loop = asyncio.get_running_loop()
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            with short_unix_path(str(path)) as name:
                await loop.sock_connect(sock, name)
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            sock.close()
            await asyncio.sleep(_RETRY_S)
        except BaseException:
            sock.close()
            raise
        else:
            return sock


def _event(message: Message) -> Event | None:
    """Return the event in a message, None for a malformed one."""
    name, data, stamp = message.get("event"), message.get("data", {}), message.get("timestamp")
    if not isinstance(name, str) or not isinstance(data, dict) or not isinstance(stamp, dict):
        return None
    seconds, micros = stamp.get("seconds"), stamp.get("microseconds")
    if not isinstance(seconds, int) or not isinstance(micros, int):
        return None
    return Event(name, data, seconds + micros / 1e6)
