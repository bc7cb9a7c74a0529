"""Connection to a port inside a replica through its guest agent: bytes both ways."""

from __future__ import annotations

import asyncio
import json
import socket

from osgym_host.guest_client.answers import refusal
from osgym_host.guest_client.errors import GuestProtocolError, GuestTimeout, unreachable
from osgym_host.guest_client.http import MAX_HEAD_BYTES, HttpClient, HttpResponse, content_length, parse_head
from osgym_host.guest_client.wake_lock import WakeLock

PATH = "/v1/reach/tunnel"
MAX_REFUSAL_BYTES = 16 * 1024
PIECE_BYTES = 64 * 1024
_SWITCHED = b"HTTP/1.1 101 "


class GuestTunnel:
    """An open connection. One task may receive and one send at a time."""

    def __init__(self, sock: socket.socket, ahead: bytes, wake_lock: WakeLock | None = None) -> None:
        """Args:
        wake_lock: Lock that is held, and released by `close`.
        """
        self._wake_lock = wake_lock
        self._sock = sock
        self._ahead = ahead
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(cls, http: HttpClient, port: int, *, timeout_s: float) -> GuestTunnel:
        """Connect to a port of the guest's own loopback.

        Raises:
            GuestUnreachable, GuestTimeout, GuestProtocolError: As any call.
            GuestRefused: 409 `port_closed` when nobody listens there; 503 `busy`.
        """
        sock: socket.socket | None = None
        if http.wake_lock is not None:
            await http.wake_lock.acquire()
        try:
            async with asyncio.timeout(timeout_s):
                sock = await http.connect()
                request = http.head("POST", PATH, body := json.dumps({"port": port}).encode())
                await asyncio.get_running_loop().sock_sendall(sock, request + body)
                return cls(sock, await _switched(sock), http.wake_lock)
        except BaseException as exc:
            if sock is not None:
                sock.close()
            if http.wake_lock is not None:
                http.wake_lock.release()
            if isinstance(exc, TimeoutError):
                text = f"POST {PATH}: no answer within {timeout_s:g} s"
                raise GuestTimeout(text, delivered=sock is not None, timeout_s=timeout_s) from exc
            if isinstance(exc, OSError):
                raise unreachable(f"POST {PATH}", exc, delivered=sock is not None) from exc
            raise

    async def receive(self) -> bytes:
        """Return the next bytes, at most `PIECE_BYTES`; empty at the end.

        Raises:
            OSError: The connection broke.
        """
        if self._ahead:
            ahead, self._ahead = self._ahead, b""
            return ahead
        # What is there already is taken without waiting: others get their turn all the same.
        await asyncio.sleep(0)
        return await self._loop.sock_recv(self._sock, PIECE_BYTES)

    async def send(self, data: bytes) -> None:
        """Send bytes; returns once the guest's side has taken them.

        Raises:
            OSError: The connection broke.
        """
        await self._loop.sock_sendall(self._sock, data)

    def send_end(self) -> None:
        self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._sock.close()
        wake_lock, self._wake_lock = self._wake_lock, None
        if wake_lock is not None:
            wake_lock.release()


async def _switched(sock: socket.socket) -> bytes:
    """Read the answer to the request; return the bytes after it.

    Raises:
        GuestRefused: The answer is an error.
        GuestProtocolError: The answer is malformed.
        OSError: The connection broke.
    """
    loop = asyncio.get_running_loop()
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        if len(data) > MAX_HEAD_BYTES:
            raise GuestProtocolError(f"{PATH}: the head of the answer is too large")
        piece = await loop.sock_recv(sock, 4096)
        if not piece:
            raise ConnectionResetError("the guest closed the connection")
        data += piece
        await asyncio.sleep(0)
    head, rest = data[:end], data[end + 4 :]
    if head.startswith(_SWITCHED):
        return rest
    _, status, headers = parse_head(head)
    if status < 300:
        raise GuestProtocolError(f"{PATH}: answered with {status}, and not as a tunnel")
    length = content_length(headers.get("content-length", "0"), MAX_REFUSAL_BYTES)
    while len(rest) < length:
        piece = await loop.sock_recv(sock, length - len(rest))
        if not piece:
            raise ConnectionResetError("the guest closed the connection")
        rest += piece
    raise refusal(HttpResponse(status, headers, rest[:length]))
