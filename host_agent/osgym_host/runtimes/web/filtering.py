"""Proxy for the setting `egress`: CONNECT and plain HTTP to allowed targets, bytes unchanged."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import h11

from osgym_host.runtimes.web import bodies, dial, heads
from osgym_host.runtimes.web.heads import Head, Refused, Target
from osgym_host.runtimes.web.judge import Judge
from osgym_host.runtimes.web.listener import ReplicaLimits
from osgym_host.runtimes.web.pages import CONNECTED
from osgym_host.runtimes.web.upstream import Upstream


@dataclass(frozen=True, slots=True)
class Filtering:
    """Server of replicas' connections; each carries one request, or one tunnel."""

    judge: Judge
    dialler: dial.Dialler

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: ReplicaLimits
    ) -> None:
        """Serve one connection to its end.

        Raises:
            Refused: The request is not carried out; nothing of an answer was sent.
            OSError, EOFError, TimeoutError: The connection broke or was silent for too long.
        """
        raw = await bodies.read_head(reader)
        if not raw:
            return
        head = heads.parse(raw)
        if head.target is None:
            raise Refused(400, "bad_request", "the request names no site")
        async with limits.lookups:
            found = await self.judge.addresses(head.target)
        async with limits.connecting:
            other = await self.dialler.connect(found, head.target.port)
        try:
            if head.method == "CONNECT":
                writer.write(CONNECTED)
                await dial.drain(writer)
                await dial.tunnel((reader, writer), other)
            else:
                await _pass_on(head, head.target, (reader, writer), Upstream(*other))
        finally:
            await dial.close(other[1])


async def _pass_on(
    head: Head, target: Target, client: tuple[asyncio.StreamReader, asyncio.StreamWriter], upstream: Upstream
) -> None:
    """Forward a plain request to the site that its URL names, and return the answer."""
    host = target.host if target.port == 80 else f"{target.host}:{target.port}"
    body = bodies.body_of(head, client[0])
    await upstream.send(head.method, head.path, host, head.headers, head.length, body)
    answer = await upstream.answer()
    writer = client[1]
    writer.write(_answer_head(answer))
    try:
        async for piece in upstream.pieces():
            writer.write(piece)
            await dial.drain(writer)
    except Refused as exc:
        raise EOFError(exc.message) from None  # the answer has begun: all that is left is to break it off


def _answer_head(answer: h11.Response) -> bytes:
    lines = [b"HTTP/1.1 %d %s" % (answer.status_code, answer.reason)]
    lines += [
        name + b": " + value
        for name, value in answer.headers.raw_items()
        if name.lower() not in heads.HOP_BY_HOP
    ]
    return b"\r\n".join((*lines, b"connection: close", b"", b""))
