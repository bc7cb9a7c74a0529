"""State machine of one client connection, called by the event loop.

No streams, transports or tasks stand between the socket and a handler: a cloned machine would run their code,
and an emulator translate it, before the first answer. Input is read into one buffer, and a handler that
answers at once is answered in the same call.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum

from osgym_guest.caller_watch import CallerWatch
from osgym_guest.http import Body, HttpError, Request, Response, Route, failure_response
from osgym_guest.http1 import (
    CONTINUE,
    END_OF_HEAD,
    MAX_HEADER_BYTES,
    FileBody,
    RequestBody,
    answer_head,
    body_length,
    may_have_body,
    parse_head,
    unsent,
)
from osgym_guest.urlencoded import split_query
from osgym_protocol.codes import GuestErrorCode

IDLE_TIMEOUT_S = 600.0
READ_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 60.0
CHUNK_BYTES = 256 * 1024
DRAIN_CHUNKS, DRAIN_TIMEOUT_S = 64, 0.5
_MAX_BUFFERS = 64


class ConnectionPhase(Enum):
    """Event that a connection waits for."""

    HEAD = "a request"
    BODY = "the rest of its body"
    RUN = "its handler"
    WRITE = "the peer to take the answer"
    DRAIN = "the peer to notice the answer to what is not read"
    CLOSED = "nothing"


HEAD, BODY, RUN, WRITE, DRAIN, CLOSED = ConnectionPhase


FindRoute = Callable[[str, str, Mapping[str, str]], Route]
"""Function from method, path and headers to the endpoint. Raises `HttpError` if it is refused."""


class Connection:
    """One connection and the socket that it owns."""

    def __init__(self, fd: int, find_route: FindRoute, on_ended: Callable[[Connection], None]) -> None:
        """Take ownership of a socket.

        Args:
            fd: Non-blocking socket.
            find_route: Finds the endpoint of a request.
            on_ended: Called when the connection is closed and no handler runs for it.
        """
        self._fd = fd
        self._find_route = find_route
        self._on_ended = on_ended
        self._loop = asyncio.get_running_loop()
        self._phase = HEAD
        self._received = b""
        self._head_began = False
        self._peer_ended = False
        self._reading = self._writing = False
        self._keep_alive = self._unread = self._is_http10 = False
        self._incoming: RequestBody | None = None
        self._complete: Callable[[Body], None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._late = self._ends_with_caller = False
        self._watch: CallerWatch | None = None
        self._out: list[bytes | memoryview] = []
        self._file: FileBody | None = None
        self._take_over: Callable[[int, bytes], None] | None = None
        self._drained = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, ahead: bytes = b"") -> None:
        """Start to serve, beginning with bytes that were received already."""
        self._received = ahead
        self.on_readable()

    def refuse(self, error: HttpError) -> None:
        """Send an error without reading the request, and close when the peer has noticed."""
        self._keep_alive, self._unread = False, True
        self._answer(error.response())
        self._advance()

    def close(self) -> None:
        """Close the socket. A running handler continues. Idempotent."""
        if self._phase is CLOSED:
            return
        self._phase = CLOSED
        self._read_on(False)
        self._write_on(False)
        os.close(self._fd)
        if self._file is not None:
            self._file.close()
        if self._incoming is not None:
            self._incoming.close()
        if self._timer is not None and self._task is None:
            self._timer.cancel()
        self._end_watch()
        self._out = []
        if self._task is None:
            self._on_ended(self)

    def abort(self) -> asyncio.Task[None] | None:
        """Close the socket, cancel the running handler and return its task."""
        self.close()
        if self._task is not None:
            self._task.cancel()
        return self._task

    # ---- what the event loop calls ----

    def on_readable(self) -> None:
        """Receive what the socket has and process it."""
        try:
            data = os.read(self._fd, CHUNK_BYTES if self._phase is BODY else MAX_HEADER_BYTES)
        except BlockingIOError:  # a new connection on which nothing has come yet
            self._advance()
            return
        except OSError:
            self._on_gone()
            return
        if not data:
            self._peer_ended = True
            self._read_on(False)
            self._watch_caller()
            if self._phase is BODY or self._phase is DRAIN:
                self.close()
        elif self._phase is BODY:
            self._take(data)
        elif self._phase is DRAIN:
            self._drained += 1
            self._expect(DRAIN_TIMEOUT_S)
            if self._drained >= DRAIN_CHUNKS:
                self.close()
        else:
            self._received += data
            if self._phase is not HEAD and len(self._received) > MAX_HEADER_BYTES:
                self._read_on(False)  # who sends ahead waits with the rest
        self._advance()

    def _on_writable(self) -> None:
        self._flush()
        self._advance()

    def _on_time(self) -> None:
        """Handle the deadline of the current phase, unless it was moved meanwhile."""
        self._timer = None
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due, self._on_time)
        elif self._task is not None:
            self._late = True
            self._task.cancel()
        else:
            self.close()  # the peer is too slow: nobody is left to tell

    # ---- from request to answer ----

    def _advance(self) -> None:
        """Process the received bytes, request by request, until the connection must wait."""
        while self._phase is HEAD and self._received:
            end = self._received.find(END_OF_HEAD, 0, MAX_HEADER_BYTES)
            if end < 0:
                if len(self._received) < MAX_HEADER_BYTES:
                    break
                self._keep_alive, self._unread = False, True
                message = f"the headers must not exceed {MAX_HEADER_BYTES} bytes"
                self._answer(HttpError(431, GuestErrorCode.HEADERS_TOO_LARGE, message).response())
                break
            head, self._received = self._received[:end], self._received[end + len(END_OF_HEAD) :]
            self._head_began = False
            self._begin(head)
        if self._phase is not HEAD:
            return
        if self._peer_ended:
            self.close()
            return
        if not self._received:
            self._expect(IDLE_TIMEOUT_S)
        elif not self._head_began:
            self._head_began = True
            self._expect(READ_TIMEOUT_S)
        self._read_on(True)

    def _begin(self, head: bytes) -> None:
        self._keep_alive, self._unread = False, True
        try:
            method, target, headers = parse_head(head)
            self._is_http10 = head.partition(b"\r\n")[0].endswith(b" HTTP/1.0")
            last = headers.get("connection", "").lower() == "close"
            self._keep_alive = not last and not may_have_body(headers)
            path, query = split_query(target)
            route = self._find_route(method, path, headers)
            length = body_length(headers, route.max_body)
        except HttpError as exc:
            self._answer(exc.response())
            return
        self._keep_alive = not last
        if headers.get("expect", "").lower() == "100-continue":
            self._out.append(CONTINUE)
            self._flush()

        def run(body: Body) -> None:
            self._run(route, Request(method, path, query, headers, body))

        if length <= len(self._received):
            body, self._received = self._received[:length], self._received[length:]
            run(body)
            return
        self._incoming, self._complete = RequestBody(length), run
        self._phase = BODY
        self._expect(READ_TIMEOUT_S)
        self._read_on(True)
        data, self._received = self._received, b""
        self._take(data)

    def _take(self, data: bytes) -> None:
        """Append to a body, and run the handler when the body is complete."""
        assert self._incoming is not None and self._complete is not None
        try:
            self._received = self._incoming.take(data)
            if self._incoming.left:
                if self._incoming.spooled:
                    self._expect(READ_TIMEOUT_S)
                return
            body = self._incoming.body()
        except OSError as exc:  # no room for it
            self._keep_alive = False
            self._answer(HttpError(500, GuestErrorCode.INTERNAL, f"{type(exc).__name__}: {exc}").response())
            return
        complete, self._incoming, self._complete = self._complete, None, None
        complete(body)

    def _run(self, route: Route, request: Request) -> None:
        self._unread = False
        try:
            answer = route.handler(request)
            if not isinstance(answer, Response):
                self._phase, self._late = RUN, False
                self._expect(route.deadline_s)
                self._task = self._loop.create_task(self._wait(answer, route.deadline_s))
                self._ends_with_caller = route.ends_with_caller
                if self._ends_with_caller and not self._peer_ended:
                    self._read_on(True)
                self._watch_caller()
                return
        except Exception as exc:  # noqa: BLE001  # top of a request: logged, and the agent serves on
            answer = failure_response(exc)
        self._answer(answer)

    async def _wait(self, pending: Awaitable[Response], deadline_s: float) -> None:
        """Await a handler and send its answer; `_on_time` cancels the handler at its deadline."""
        try:
            answer = await pending
        except asyncio.CancelledError:
            if not self._late:
                raise
            answer = HttpError(504, GuestErrorCode.DEADLINE, f"no answer within {deadline_s:g} s").response()
        except Exception as exc:  # noqa: BLE001  # as in `_run`
            answer = failure_response(exc)
        finally:
            self._task, self._ends_with_caller = None, False
            self._end_watch()
            if self._phase is CLOSED:
                if self._timer is not None:
                    self._timer.cancel()
                self._on_ended(self)
        if self._phase is RUN:
            self._answer(answer)
            self._advance()

    def _answer(self, response: Response) -> None:
        parts = [response.body] if isinstance(response.body, bytes) else list(response.body)
        length = sum(map(len, parts))
        if response.file is not None:
            try:
                self._file = FileBody(response.file)
            except OSError as exc:
                error = HttpError(404, GuestErrorCode.NO_SUCH_FILE, f"{response.file}: {exc.strerror}")
                self._answer(error.response())
                return
            parts, length = [], self._file.left
        self._phase, self._take_over = WRITE, response.take_over
        self._out += [answer_head(response, length, self._keep_alive), *parts]
        self._flush()
        if response.then is not None:
            response.then()

    def _flush(self) -> None:
        """Write as much as the peer accepts, at most one chunk of a file, and then start the next phase."""
        if self._out:
            try:
                self._out = unsent(self._out, os.writev(self._fd, self._out[:_MAX_BUFFERS]))
            except BlockingIOError:
                pass
            except OSError:
                self.close()
                return
        if not self._out and self._file is not None:
            try:
                self._out = self._file.next_chunk(CHUNK_BYTES)
            except OSError:  # it cannot be read, or became shorter: no way to tell
                self.close()
                return
            if not self._out:
                self._file = None
        if self._out:
            self._expect(WRITE_TIMEOUT_S)
            self._write_on(True)
            return
        self._write_on(False)
        if self._phase is not WRITE:  # told to go on with its body
            return
        if self._take_over is not None:
            self._hand_over(self._take_over)
        elif self._keep_alive:
            self._phase = HEAD
        elif self._unread and not self._peer_ended:
            self._phase, self._drained = DRAIN, 0
            self._expect(DRAIN_TIMEOUT_S)
            self._read_on(True)
        else:
            self.close()

    def _hand_over(self, take_over: Callable[[int, bytes], None]) -> None:
        """Pass the socket, and the bytes that were received ahead, to a handler; this connection ends."""
        self._phase = CLOSED
        self._read_on(False)
        if self._timer is not None:
            self._timer.cancel()
        self._on_ended(self)
        take_over(self._fd, self._received)

    # ---- a caller that left ----

    def _watch_caller(self) -> None:
        """Watch a caller that sends no more, if its handler ends with it."""
        if self._peer_ended and self._ends_with_caller and self._phase is RUN and self._watch is None:
            self._watch = CallerWatch(self._fd, not self._is_http10 and not self._out, self._on_gone)

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.end()
            self._watch = None

    def _on_gone(self) -> None:
        """Close the connection, and cancel the handler if it ends with its caller."""
        if self._ends_with_caller:
            self.abort()
        else:
            self.close()

    # ---- descriptors and time ----

    def _read_on(self, on: bool) -> None:
        if on is not self._reading:
            self._reading = on
            if on:
                self._loop.add_reader(self._fd, self.on_readable)
            else:
                self._loop.remove_reader(self._fd)

    def _write_on(self, on: bool) -> None:
        if on is not self._writing:
            self._writing = on
            if on:
                self._loop.add_writer(self._fd, self._on_writable)
            else:
                self._loop.remove_writer(self._fd)

    def _expect(self, within_s: float) -> None:
        """Schedule `_on_time`, replacing the deadline before. Moving it later costs nothing."""
        self._due = self._loop.time() + within_s
        if self._timer is not None:
            if self._timer.when() <= self._due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due, self._on_time)
