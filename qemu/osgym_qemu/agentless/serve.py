"""Small HTTP/1.1 server on one unix socket, by h11, for one guest without an agent.

Its only callers are this host agent's own calls, over a socket that nobody else may open; it is bounded
all the same. A listening socket costs nothing while nobody calls, so there is one for each machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h11

from osgym_host.addresses import listen_at
from osgym_host.errors import OsgymHostError
from osgym_protocol.codes import GuestErrorCode

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 << 20
MAX_CONNECTIONS = 32
BACKLOG = 64
READ_BYTES = WRITE_BYTES = 256 << 10
READ_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 60.0
IDLE_TIMEOUT_S = 600.0


class RefusedRequest(OsgymHostError):
    """Answer with an error status of 400 or more: `{"code", "message", "details"}`."""

    def __init__(
        self, status: int, code: GuestErrorCode, message: str, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.details = dict(details or {})

    def answer(self) -> ServedResponse:
        body = {"code": self.code, "message": self.message, "details": self.details}
        return ServedResponse.json(body, status=self.status)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """Whole request. `target` includes the query."""

    method: str
    target: str
    content_type: str = ""
    body: bytes = b""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def fields(self) -> dict[str, Any]:
        """Return the body as a JSON object, `{}` when it is empty.

        Raises:
            RefusedRequest: 400, the body is not a JSON object.
        """
        if not self.body:
            return {}
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError) as exc:
            raise RefusedRequest(400, GuestErrorCode.BAD_JSON, f"the body is not JSON: {exc}") from exc
        if not isinstance(value, dict):
            raise RefusedRequest(400, GuestErrorCode.BAD_JSON, "the body must be a JSON object")
        return value


@dataclass(frozen=True, slots=True)
class ServedResponse:
    """Answer; the parts of its body are sent one after the other."""

    status: int = 200
    content_type: str = "application/json"
    body: Sequence[bytes | bytearray | memoryview] = field(default=(), repr=False)

    @staticmethod
    def json(value: Any, *, status: int = 200) -> ServedResponse:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return ServedResponse(status, "application/json", (text.encode("utf-8", "replace"),))


Handler = Callable[[HttpRequest], Awaitable[ServedResponse]]


class UnixServer:
    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[Any]] = set()
        self._path: Path | None = None

    async def listen(self, path: Path) -> None:
        """Bind `path`, for this user only; a socket of a killed predecessor is replaced.

        Raises:
            OSError: The path cannot be bound.
        """
        sock = listen_at(path, BACKLOG)
        try:
            self._listener = await asyncio.start_unix_server(self._accept, sock=sock)
        except BaseException:
            sock.close()
            raise
        self._path = path

    async def close(self) -> None:
        """Stop listening, end pending requests, remove the socket. Idempotent."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
            self._path = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._talk(reader, writer)
        except (OSError, TimeoutError, h11.RemoteProtocolError):
            pass  # the caller is gone, or talks nonsense: nobody is left to tell
        finally:
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = h11.Connection(h11.SERVER)
        while True:
            head = await _event(protocol, reader, IDLE_TIMEOUT_S)
            if not isinstance(head, h11.Request):
                return
            answer = await self._answer(protocol, head, reader)
            await _write(protocol, writer, answer)
            if protocol.our_state is not h11.DONE or protocol.their_state is not h11.DONE:
                return
            protocol.start_next_cycle()

    async def _answer(
        self, protocol: h11.Connection, head: h11.Request, reader: asyncio.StreamReader
    ) -> ServedResponse:
        content_type = next((v for n, v in head.headers if n == b"content-type"), b"").decode("latin-1")
        try:
            body = await _body(protocol, reader)
            request = HttpRequest(head.method.decode(), head.target.decode("latin-1"), content_type, body)
            return await self._handler(request)
        except RefusedRequest as exc:
            return exc.answer()
        except (OSError, TimeoutError, h11.RemoteProtocolError):
            raise
        except Exception as exc:  # the top of a request: logged, and the server goes on
            log.exception("internal error while serving %s", head.target)
            return RefusedRequest(500, GuestErrorCode.INTERNAL, f"{type(exc).__name__}: {exc}").answer()


async def _event(protocol: h11.Connection, reader: asyncio.StreamReader, timeout_s: float) -> Any:
    while True:
        event = protocol.next_event()
        if event is not h11.NEED_DATA:
            return event
        async with asyncio.timeout(timeout_s):
            protocol.receive_data(await reader.read(READ_BYTES))


async def _body(protocol: h11.Connection, reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes | bytearray] = []
    length = 0
    while True:
        event = await _event(protocol, reader, READ_TIMEOUT_S)
        if isinstance(event, h11.EndOfMessage):
            return parts[0] if len(parts) == 1 and isinstance(parts[0], bytes) else b"".join(parts)
        if not isinstance(event, h11.Data):
            raise ConnectionResetError("the body is incomplete")
        length += len(event.data)
        if length > MAX_BODY_BYTES:
            raise RefusedRequest(
                413, GuestErrorCode.BODY_TOO_LARGE, f"the body must have at most {MAX_BODY_BYTES} bytes"
            )
        parts.append(event.data)


async def _write(protocol: h11.Connection, writer: asyncio.StreamWriter, answer: ServedResponse) -> None:
    headers = [
        ("Content-Type", answer.content_type),
        ("Content-Length", str(sum(len(part) for part in answer.body))),
    ]
    writer.write(_sent(protocol, h11.Response(status_code=answer.status, headers=headers)))
    async with asyncio.timeout(WRITE_TIMEOUT_S):
        for part in answer.body:
            for begin in range(0, len(part), WRITE_BYTES):
                writer.write(_sent(protocol, h11.Data(data=bytes(part[begin : begin + WRITE_BYTES]))))
                await writer.drain()
                await asyncio.sleep(0)  # `drain` waits only when the other side is slower
        writer.write(_sent(protocol, h11.EndOfMessage()))
        await writer.drain()


def _sent(protocol: h11.Connection, event: Any) -> bytes:
    return protocol.send(event) or b""
