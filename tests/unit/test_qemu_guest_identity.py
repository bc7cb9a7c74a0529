"""How a clone is told who it is: once it is acknowledged, whatever is lost on the way."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from osgym_host.addresses import TcpAddress
from osgym_host.guest_client.http import HttpResponse
from osgym_qemu.cloning.guest_identity import (
    SEED_BYTES,
    IdentityRefused,
    acknowledged,
    assign,
    new_identity,
)

APPLIED = {"seed": True, "hostname": True, "machine_id": True, "boot_id": True, "time": True}


class Guest:
    """A guest agent that knows identities, and loses answers when it is told to."""

    def __init__(self, loses: int = 0) -> None:
        self.token, self.loses = "golden", loses
        self.taken: list[dict[str, Any]] = []
        self.tokens: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = json.loads(await reader.readexactly(int(fields["Content-Length"])))
        token = fields["Authorization"].removeprefix("Bearer ")
        self.tokens.append(token)
        status, answer = 401, {"code": "unauthorized"}
        if token == self.token:
            self.taken.append(body)
            self.token = body["token"]
            status, answer = 200, {"generation": str(body["generation"]), "applied": APPLIED}
        if self.loses:
            self.loses -= 1
        else:
            text = json.dumps(answer).encode()
            writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(text)) + text)
        writer.close()


@contextlib.asynccontextmanager
async def serving(guest: Guest) -> AsyncIterator[TcpAddress]:
    server = await asyncio.start_server(guest.serve, "127.0.0.1", 0)
    try:
        yield TcpAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()


async def test_it_is_told_once_and_everything() -> None:
    """Token, names, seed and the time now; authorised by the token it was frozen with."""
    guest, made = Guest(), new_identity(7, "fresh")
    async with serving(guest) as address:
        answer = await assign(address, "golden", made, timeout_s=5)
    (told,) = guest.taken
    assert answer["applied"] == APPLIED
    assert (told["generation"], told["token"], told["hostname"]) == (7, "fresh", "desktop")
    assert len(base64.b64decode(told["seed"])) == SEED_BYTES
    assert told["time_ns"] > 1_700_000_000_000_000_000
    assert "fresh" not in repr(made)


async def test_a_lost_answer_is_asked_for_with_the_new_token() -> None:
    """The guest has taken it by then, and knows the old token no more."""
    guest = Guest(loses=1)
    async with serving(guest) as address:
        await assign(address, "golden", new_identity(7, "fresh"), timeout_s=5)
    assert guest.tokens == ["golden", "golden", "fresh"]


async def test_a_guest_that_knows_neither_token_is_refused() -> None:
    """It is another machine than we think."""
    guest = Guest()
    guest.token = "other"
    async with serving(guest) as address:
        with pytest.raises(IdentityRefused, match="401"):
            await assign(address, "golden", new_identity(7, "fresh"), timeout_s=5)


async def test_nobody_there_is_a_refusal_in_time() -> None:
    """The wait is bounded."""
    async with serving(Guest()) as address:
        pass
    with pytest.raises(IdentityRefused, match=r"within 0\.2 s"):
        await assign(address, "golden", new_identity(7, "fresh"), timeout_s=0.2)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"[" * 60_000,
        b'{"generation": "6", "applied": {"seed": true}}',
        b'{"generation": "7"}',
        b'{"generation": "7", "applied": {"seed": false}}',
        b'{"generation": "7", "applied": {"seed": true, "machine_id": false}}',
        b'{"generation": "7", "applied": {"seed": "true"}}',
    ],
)
def test_what_is_no_acknowledgement(answer: bytes) -> None:
    """Hostile, wrong or partial answers make no clone."""
    with pytest.raises(IdentityRefused):
        acknowledged(HttpResponse(200, {}, answer), new_identity(7, "fresh"))


def test_no_two_clones_are_the_same() -> None:
    """Random parts differ; the host name shows in each prompt, and tells no two apart."""
    made = [new_identity(n, "t") for n in range(50)]
    assert len({one.seed for one in made}) == len({one.machine_id for one in made}) == 50
    assert len({one.boot_id for one in made}) == 50
    assert {one.hostname for one in made} == {"desktop"}
