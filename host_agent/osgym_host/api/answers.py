"""How the answers of v1 are documented in its OpenAPI description."""

from __future__ import annotations

from typing import Any

from osgym_sdk import wire

ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {"description": "An error: a stable code, a message, details.", "model": wire.ErrorInfo}
}
_RECORD_TEXT = (
    "A record: u32 length of the meta, u32 length of the image (big endian), the meta as JSON, the image."
)


def record_answer(model: type[wire.Message], text: str = _RECORD_TEXT) -> dict[int | str, dict[str, Any]]:
    """Documents a record answer; the schema is that of the meta."""
    meta = {"$ref": f"#/components/schemas/{model.__name__}"}
    schema = {"type": "string", "format": "binary", "x-meta": meta}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorInfo"}}}
    return {
        "default": {"description": ERRORS["default"]["description"], "content": error},
        200: {"description": text, "content": {wire.RECORDS_TYPE: {"schema": schema}}},
    }


def json_answer(model: type[wire.Message]) -> dict[int | str, dict[str, Any]]:
    """Documents a JSON answer."""
    return {**ERRORS, 200: {"description": "Done.", "model": model}}
