"""Large images leave the host in pieces that join to what came."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

import pytest

from osgym_host.api.osgym import BASE64_BYTES, _with_screenshot
from osgym_host.api.raw import PIECE_BYTES, WHOLE_BYTES, ImageResponse, RecordResponse
from osgym_protocol.records import Record, decode_record

SIZES = [0, 1, PIECE_BYTES, WHOLE_BYTES, WHOLE_BYTES + 1, WHOLE_BYTES + PIECE_BYTES, 3 * WHOLE_BYTES + 7]


async def sent_by(response: Any) -> tuple[dict[bytes, bytes], list[bytes]]:
    """Headers and the parts of the body."""
    messages: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
    await response(scope, receive, send)
    assert [m.get("more_body", False) for m in messages[1:]] == [True] * (len(messages) - 2) + [False]
    return dict(messages[0]["headers"]), [bytes(m["body"]) for m in messages[1:]]


@pytest.mark.parametrize("size", SIZES)
async def test_a_record_is_sent_in_pieces(size: int) -> None:
    """Head and image, with their length; no piece is so large that copying it takes long."""
    image = memoryview(os.urandom(size))
    headers, parts = await sent_by(RecordResponse(Record({"a": 1}, image)))
    whole = b"".join(parts)
    record = decode_record(whole)
    assert (record.meta, record.blob) == ({"a": 1}, bytes(image))
    assert headers[b"content-length"] == str(len(whole)).encode()
    assert max(len(part) for part in parts) <= (WHOLE_BYTES if size <= WHOLE_BYTES else PIECE_BYTES)


@pytest.mark.parametrize("size", SIZES)
async def test_an_image_is_sent_in_pieces(size: int) -> None:
    """As it came."""
    image = os.urandom(size)
    headers, parts = await sent_by(ImageResponse(image))
    assert b"".join(parts) == image
    assert headers[b"content-length"] == str(size).encode()


@pytest.mark.parametrize("size", [0, 1, BASE64_BYTES - 1, BASE64_BYTES, 2 * BASE64_BYTES + 2])
async def test_a_screenshot_of_the_osgym_api_is_one_json_object(size: int) -> None:
    """Encoded in pieces that join."""
    image = memoryview(os.urandom(size))
    headers, parts = await sent_by(await _with_screenshot(image, {"problem": 'a "b" ü', "vm_id": 3}))
    body = b"".join(part for part in parts)
    found = json.loads(body)
    assert base64.b64decode(found.pop("screenshot")) == bytes(image)
    assert found == {"problem": 'a "b" ü', "vm_id": 3}
    assert headers[b"content-length"] == str(len(body)).encode()
