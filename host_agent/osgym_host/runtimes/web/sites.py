"""Sites answered by the proxy: it ends TLS itself and answers from an archive, which it may fill first."""

from __future__ import annotations

import asyncio
import datetime
import logging
import ssl
import time
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from osgym_host.runtimes.web import bodies, dial, har, heads
from osgym_host.runtimes.web.archive import Archive, Recording, Stored
from osgym_host.runtimes.web.certificates import Certificates
from osgym_host.runtimes.web.har import MAX_BODY_BYTES, Answer, ArchiveError
from osgym_host.runtimes.web.heads import Head, Headers, Refused, Target
from osgym_host.runtimes.web.judge import Judge
from osgym_host.runtimes.web.listener import ReplicaLimits
from osgym_host.runtimes.web.pages import CONNECTED, page
from osgym_host.runtimes.web.upstream import Upstream

KEEP_S = 60.0
"""Time that a connection waits for its next request."""
_HANDSHAKE_S = 10.0
_FETCH_S = 120.0
MOST_ASKED = 16
"""Number of simultaneous requests to sites of all replicas while recording; their answers are in memory."""
_MAX_DROPPED_BODY = 1 << 20
_NOT_ASKED = frozenset((b"accept-encoding", b"authorization", b"cookie", b"range"))
"""Headers that are not sent on, besides `if-…`: recorded answers are those for a first visit."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Client:
    """Connection of a replica, with the replica's limits."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    limits: ReplicaLimits


class Source(Protocol):
    @property
    def archive(self) -> Archive:
        """Archive that has the answers after `find`."""
        ...

    async def find(self, head: Head, scheme: str, target: Target, url: str, limits: ReplicaLimits) -> Stored:
        """Return the place of the answer to GET in `archive`.

        Raises:
            Refused: It has no answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Sites:
    """Server of replicas' connections from a source of answers."""

    certificates: Certificates
    source: Source

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: ReplicaLimits
    ) -> None:
        """Serve one connection to its end.

        Raises:
            Refused: The request is malformed; nothing of an answer was sent.
            OSError, EOFError, TimeoutError: The connection broke.
        """
        raw = await bodies.read_head(reader)
        if not raw:
            return
        head = heads.parse(raw)
        if head.method != "CONNECT":
            await self._requests(head, None, "http", _Client(reader, writer, limits))
            return
        assert head.target is not None
        writer.write(CONNECTED)
        await dial.drain(writer)
        scheme = "http" if head.target.port == 80 else "https"
        if scheme == "https":
            context = self.certificates.context(head.target.host)
            await writer.start_tls(context, ssl_handshake_timeout=_HANDSHAKE_S)
            # asyncio's own bound is half a MiB, which a client that does not read would cost us.
            writer.transport.set_write_buffer_limits(high=dial.PIECE_BYTES)
        raw = await bodies.read_head(reader, wait_s=KEEP_S)
        if raw:
            await self._requests(heads.parse(raw), head.target, scheme, _Client(reader, writer, limits))

    async def _requests(self, head: Head, site: Target | None, scheme: str, client: _Client) -> None:
        """Answer a request and those that follow it.

        Args:
            site: Target of the connection; None: each request names its own.
        """
        while True:
            await self._answer(head, site, scheme, client)
            await dial.drain(client.writer)
            if not head.keeps:
                return
            raw = await bodies.read_head(client.reader, wait_s=KEEP_S)
            if not raw:
                return
            head = heads.parse(raw)

    async def _answer(self, head: Head, site: Target | None, scheme: str, client: _Client) -> None:
        target = site or head.target
        if target is None or head.method == "CONNECT" or (site is not None and head.target is not None):
            raise Refused(
                400, "bad_request", "the request names no site, or another site than its connection"
            )
        url = har.url_of(scheme, target, head.path)
        await _drop_body(head, client.reader)
        try:
            if head.method not in ("GET", "HEAD"):
                raise Refused(504, "web_not_recorded", f"{head.method} is not recorded, only GET and HEAD")
            stored = await self.source.find(head, scheme, target, url, client.limits)
        except Refused as exc:
            client.writer.write(page(exc, url, closes=not head.keeps, body=head.method != "HEAD"))
            return
        end = b"\r\n" if head.keeps else b"connection: close\r\n\r\n"
        client.writer.write(self.source.archive.head(stored) + end)
        if head.method != "HEAD":
            for piece in self.source.archive.body(stored, dial.PIECE_BYTES):
                client.writer.write(piece)
                await dial.drain(client.writer)


@dataclass(frozen=True, slots=True)
class Replay:
    """Recorded answers only, without a network."""

    archive: Archive

    async def find(self, head: Head, scheme: str, target: Target, url: str, limits: ReplicaLimits) -> Stored:
        stored = self.archive.find(url)
        if stored is None:
            raise Refused(504, "web_not_recorded", "the archive that this host replays does not have the URL")
        return stored


class Record:
    """Answers of the sites themselves, each requested once."""

    def __init__(
        self,
        archive: Archive,
        recording: Recording,
        judge: Judge,
        dialler: dial.Dialler,
        trust: ssl.SSLContext,
    ) -> None:
        """Add answers to a recording that its archive lacks.

        Args:
            trust: TLS context that verifies sites.
        """
        self.archive = archive
        self._recording = recording
        self._judge = judge
        self._dialler = dialler
        self._trust = trust
        self._asked: dict[str, asyncio.Task[Stored]] = {}
        self._at_once = asyncio.Semaphore(MOST_ASKED)
        self._writing = asyncio.Lock()

    async def find(self, head: Head, scheme: str, target: Target, url: str, limits: ReplicaLimits) -> Stored:
        """Return the recorded answer, or request it from the site; simultaneous callers share one request."""
        stored = self.archive.find(url)
        if stored is not None:
            return stored
        async with limits.connecting:
            return await self._asking(head, scheme, target, url)

    async def _asking(self, head: Head, scheme: str, target: Target, url: str) -> Stored:
        task = self._asked.get(url)
        if task is None:
            task = self._asked[url] = asyncio.ensure_future(self._ask(head, scheme, target, url))
            task.add_done_callback(lambda done: self._answered(url, done))
        return await asyncio.shield(task)

    def _answered(self, url: str, done: asyncio.Task[Stored]) -> None:
        self._asked.pop(url, None)
        if not done.cancelled():
            done.exception()  # who asked may be gone

    async def _ask(self, head: Head, scheme: str, target: Target, url: str) -> Stored:
        async with self._at_once:
            return await self._ask_now(head, scheme, target, url)

    async def _ask_now(self, head: Head, scheme: str, target: Target, url: str) -> Stored:
        asked = tuple(
            (name, value)
            for name, value in head.headers
            if name not in _NOT_ASKED and not name.startswith(b"if-")
        )
        started, began = datetime.datetime.now(datetime.UTC).isoformat(), time.monotonic()
        try:
            async with asyncio.timeout(_FETCH_S):
                answer = await self._fetch(head.path, scheme, target, asked)
        except TimeoutError:
            raise Refused(
                502, "unreachable", f"the site did not send its whole answer within {_FETCH_S:g} s"
            ) from None
        if answer.status >= 500 or answer.status == 429:  # a replay would repeat the failure
            raise Refused(
                502, "unreachable", f"the site answered with {answer.status}, which is not recorded"
            )
        took_ms = round((time.monotonic() - began) * 1000, 1)
        line = har.write_entry(url, asked, answer, started, took_ms)
        async with self._writing:
            try:
                self.archive.require_room(url)
                await asyncio.to_thread(self._recording.add, line)
            except (OSError, ArchiveError) as exc:
                _log.error("the archive cannot be written: %s", exc)
                raise Refused(502, "web_not_recordable", f"the archive cannot be written: {exc}") from None
        return self.archive.add(url, answer)

    async def _fetch(self, path: str, scheme: str, target: Target, asked: Headers) -> Answer:
        found = await self._judge.addresses(target)
        reader, writer = await self._dialler.connect(found, target.port)
        try:
            if scheme == "https":
                try:
                    await writer.start_tls(
                        self._trust, server_hostname=target.host, ssl_handshake_timeout=_HANDSHAKE_S
                    )
                except (OSError, EOFError) as exc:
                    raise Refused(
                        502, "unreachable", f"a TLS connection to {target.host} failed: {exc}"
                    ) from None
            site = Upstream(reader, writer)
            host = har.url_of(scheme, target, "").partition("://")[2]
            plain = (*asked, (b"accept-encoding", b"identity"))
            await site.send("GET", path, host, plain, 0, _nothing())
            answer = await site.answer()
            return await _whole(answer.status_code, tuple(answer.headers.raw_items()), site)
        finally:
            await dial.close(writer)


async def _whole(status: int, headers: Headers, site: Upstream) -> Answer:
    body = bytearray()
    async for piece in site.pieces():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise Refused(502, "web_not_recordable", f"the answer is larger than {MAX_BODY_BYTES >> 20} MiB")
    if len(headers) > har.MAX_HEADERS:
        raise Refused(502, "web_not_recordable", f"the answer has more than {har.MAX_HEADERS} headers")
    codings = [value.lower() for name, value in headers if name.lower() == b"content-encoding"]
    return Answer(status, har.kept_headers(headers), decoded(bytes(body), codings))


def decoded(body: bytes, codings: list[bytes]) -> bytes:
    """Decode the body of a site that ignores which codings its client accepts."""
    if not body or codings in ([], [b"identity"]):
        return body
    if codings not in ([b"gzip"], [b"x-gzip"], [b"deflate"]):
        raise Refused(
            502, "web_not_recordable", f"the answer is encoded by {b', '.join(codings).decode('latin-1')}"
        )
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        found = decoder.decompress(body, MAX_BODY_BYTES)
    except zlib.error:
        raise Refused(502, "unreachable", "the answer's content encoding is malformed") from None
    if decoder.unconsumed_tail:
        raise Refused(502, "web_not_recordable", f"the answer is larger than {MAX_BODY_BYTES >> 20} MiB")
    if not decoder.eof or decoder.unused_data:  # a replay would repeat the truncation
        raise Refused(502, "unreachable", "the answer's content encoding is malformed")
    return found


async def _drop_body(head: Head, reader: asyncio.StreamReader) -> None:
    dropped = 0
    async for piece in bodies.body_of(head, reader):
        dropped += len(piece)
        if dropped > _MAX_DROPPED_BODY:
            raise Refused(413, "bad_request", "the request's body is too large")


async def _nothing() -> AsyncIterator[bytes]:
    """Return the empty body of a request."""
    no_pieces: tuple[bytes, ...] = ()
    for piece in no_pieces:
        yield piece
