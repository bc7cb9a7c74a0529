"""Process that the host agent starts for itself, and its channel (see `packets`)."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from osgym_host.runtimes import packets
from osgym_host.runtimes.packets import Packet

_BUFFER_BYTES = 1 << 20


class ChannelClosed(ConnectionError):
    """End of a channel: the process is gone, or this end was closed."""


def start_process(
    module: str, *args: str, fds: Sequence[int] = (), stdin: int = subprocess.DEVNULL
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start `python -I -m MODULE FD ARGS…`; FD is its end of a socket pair. Blocks for milliseconds.

    Args:
        fds: Further descriptors that the process inherits, under their numbers.

    Returns:
        The process, and this end of the channel, which does not block.

    Raises:
        OSError: It cannot be started.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with theirs:
            for side in (ours, theirs):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
            ours.setblocking(False)
            # A new session: Ctrl-C in a terminal is for the host agent, which then ends the process.
            process = subprocess.Popen(
                [sys.executable, "-I", "-m", module, str(theirs.fileno()), *args],
                stdin=stdin,
                pass_fds=(theirs.fileno(), *fds),
                start_new_session=True,
                env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"},
                cwd="/",
            )
    except BaseException:
        ours.close()
        raise
    return process, ours


class Channel:
    """This end of a channel: requests with their answers, and events that come unasked.

    Attributes:
        lost: Future that is done when the other side is gone, or after `close`.
    """

    def __init__(self, sock: socket.socket, on_event: Callable[[dict[str, Any]], None]) -> None:
        """Receive from now on, within a running loop.

        Args:
            sock: Socket that does not block; the channel closes it.
            on_event: Called with each message that is no answer.
        """
        self._sock = sock
        self._on_event = on_event
        self._loop = asyncio.get_running_loop()
        self._next_id = 0
        self._waiting: dict[int, asyncio.Future[Packet]] = {}
        self._sending = asyncio.Lock()
        self._woken = asyncio.Event()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(sock.fileno(), self._readable)

    async def request(self, fields: dict[str, Any], fds: Sequence[int] = (), *, timeout_s: float) -> Packet:
        """Send a request and return its answer. The caller closes the descriptors of the answer.

        Raises:
            ChannelClosed: The other side is gone.
            TimeoutError: No answer in time; when it comes, it is dropped.
            OSError: The request is too large.
        """
        self._next_id += 1
        number = self._next_id
        future: asyncio.Future[Packet] = self._loop.create_future()
        self._waiting[number] = future
        try:
            async with asyncio.timeout(timeout_s):
                await self.send({"id": number, **fields}, fds)
                return await future
        except BaseException:
            if future.done() and not future.cancelled() and future.exception() is None:
                _close_all(future.result()[1])  # it came just as nobody waited any more
            raise
        finally:
            self._waiting.pop(number, None)

    async def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a message that has no answer. The caller sets a deadline.

        Raises:
            ChannelClosed: The other side is gone.
            OSError: The message is too large.
        """
        async with self._sending:
            while not self.lost.done():
                try:
                    packets.send(self._sock, message, fds)
                    return
                except BlockingIOError:
                    await self._writable()
                except ConnectionError as exc:
                    raise ChannelClosed("the process is gone") from exc
        raise ChannelClosed("the process is gone")

    async def _writable(self) -> None:
        self._woken.clear()
        self._loop.add_writer(self._sock.fileno(), self._woken.set)
        try:
            await self._woken.wait()
        finally:
            if not self.lost.done():
                self._loop.remove_writer(self._sock.fileno())

    def close(self) -> None:
        """Close this end, which asks the process to end. Pending requests fail. Idempotent."""
        if self.lost.done():
            return
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        self._woken.set()
        self.lost.set_result(None)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ChannelClosed("the process is gone"))

    def _readable(self) -> None:
        found, open_still = packets.receive_all(self._sock)
        for message, fds in found:
            self._dispatch(message, fds)
        if not open_still:
            self.close()

    def _dispatch(self, message: dict[str, Any], fds: list[int]) -> None:
        future = self._waiting.get(message["id"]) if "id" in message else None
        if future is not None and not future.done():
            future.set_result((message, fds))
            return
        _close_all(fds)
        if "event" in message:
            self._on_event(message)


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
