"""The bound on the bodies of requests, as middleware."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from osgym_host.http import bodies
from osgym_host.http.bodies import BoundedBodies
from osgym_protocol.limits import MAX_BODY_BYTES

Headers = Sequence[tuple[bytes, bytes]]
CHUNKED: Headers = ((b"transfer-encoding", b"chunked"),)


class Call:
    """One request through the middleware."""

    def __init__(self, path: str, headers: Headers, parts: Sequence[bytes | None]) -> None:
        self.scope = {"type": "http", "path": path, "headers": list(headers), "method": "POST"}
        self.parts = list(parts)
        self.seen: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.called = False

    async def receive(self) -> dict[str, Any]:
        if not self.parts:
            await asyncio.Event().wait()
        part = self.parts.pop(0)
        if part is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": bool(self.parts)}

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        self.called = True
        self.seen.append(await receive())
        while self.seen[-1].get("more_body"):
            self.seen.append(await receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def run(self) -> int | None:
        """The status that was answered."""
        await BoundedBodies(self.app)(self.scope, self.receive, self.send)
        return self.sent[0]["status"] if self.sent else None


async def test_a_body_is_passed_on_whole() -> None:
    """In one piece, whatever pieces it came in."""
    call = Call("/v1/drain", CHUNKED, [b"a", b"b", b"c"])
    assert await call.run() == 200
    assert call.seen == [{"type": "http.request", "body": b"abc", "more_body": False}]


async def test_a_request_without_a_body_is_left_alone() -> None:
    """Nothing is waited for."""
    call = Call("/v1/health", (), [b""])
    assert await call.run() == 200


@pytest.mark.parametrize("path", ["/v1/drain", "/v1/steps", "/anything"])
async def test_too_much_is_refused_before_it_is_used(path: str) -> None:
    """By the length that is announced, or when it has come."""
    announced = Call(path, ((b"content-length", str(MAX_BODY_BYTES + 1).encode()),), [b"x"])
    streamed = Call(path, CHUNKED, [b"x" * 2**20] * 17 + [b""])
    for call in (announced, streamed):
        assert await call.run() == 413
        assert not call.called
        assert json.loads(call.sent[1]["body"])["code"] == "bad_request"
    assert announced.parts == [b"x"]


async def test_a_client_that_goes_away_is_not_served() -> None:
    """Half a body is no request."""
    call = Call("/v1/drain", CHUNKED, [b"a", None])
    assert await call.run() is None
    assert not call.called


async def test_a_body_that_stops_coming_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while without a byte, whether it is read whole or streamed."""
    monkeypatch.setattr(bodies, "IDLE_S", 0.05)

    class Stops(Call):
        async def receive(self) -> dict[str, Any]:
            if len(self.parts) == 1:
                await asyncio.Event().wait()
            return await super().receive()

    call = Stops("/v1/drain", CHUNKED, [b"a", b"never"])
    assert await call.run() == 408
    streamed = Stops("/v1/checkpoints/import", CHUNKED, [b"a", b"never"])
    await streamed.run()
    assert streamed.seen[-1] == {"type": "http.disconnect"}


async def test_a_body_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not extend it."""
    monkeypatch.setattr(bodies, "BODY_S", 0.1)

    class Trickles(Call):
        async def receive(self) -> dict[str, Any]:
            await asyncio.sleep(0.02)
            return {"type": "http.request", "body": b"x", "more_body": True}

    assert await Trickles("/v1/drain", CHUNKED, []).run() == 408


async def test_a_stream_is_not_bounded_here() -> None:
    """Whoever takes it in bounds it."""
    parts = [b"x" * 2**20] * 20
    call = Call("/v1/checkpoints/import", CHUNKED, parts)
    assert await call.run() == 200
    assert len(call.seen) == 20
