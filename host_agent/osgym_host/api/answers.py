"""Descriptions of v1's answers for OpenAPI, and the encoder of long JSON lists."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from fastapi import Response

from osgym_protocol.codec import Message
from osgym_protocol.observation import ErrorInfo
from osgym_protocol.records import RECORDS_TYPE

ROWS_AT_ONCE = 20
"""Number of rows that are written, in less than a millisecond, before other tasks run."""
ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {"description": "An error: a stable code, a message, details.", "model": ErrorInfo}
}
_RECORD_TEXT = (
    "A record: u32 length of the meta, u32 length of the image (big endian), the meta as JSON, the image."
)


def record_answer(model: type[Message], text: str = _RECORD_TEXT) -> dict[int | str, dict[str, Any]]:
    """Describe a record answer by the schema of its meta."""
    meta = {"$ref": f"#/components/schemas/{model.__name__}"}
    schema = {"type": "string", "format": "binary", "x-meta": meta}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorInfo"}}}
    return {
        "default": {"description": ERRORS["default"]["description"], "content": error},
        200: {"description": text, "content": {RECORDS_TYPE: {"schema": schema}}},
    }


def json_answer(model: type[Message]) -> dict[int | str, dict[str, Any]]:
    return {**ERRORS, 200: {"description": "Done.", "model": model}}


async def rows_response(rows: Iterable[dict[str, Any]]) -> Response:
    """Return a JSON list, encoded in pieces between which other calls are answered.

    Args:
        rows: May be an iterator that makes each row when it is due.
    """
    pieces: list[str] = []
    for number, row in enumerate(rows, 1):
        pieces.append(json.dumps(row, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
        if number % ROWS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return Response("[" + ",".join(pieces) + "]", media_type="application/json")
