"""What a guest agent answers, read as hostile input: typed and plain, or one typed error.

Text that cannot be encoded and numbers that are not finite (JSON's escapes and Python's parser let them
through) would fail much later, where the host passes them on; they end here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from osgym_host.guest_client.http import GuestError, GuestProtocolError, HttpResponse
from osgym_protocol.observation import Observation, ObservedFrame
from osgym_protocol.records import decode_record

_T = TypeVar("_T")

MAX_ERROR_CHARS = 2000
MAX_ERROR_BYTES = 64 * 1024
"""Of a longer error body the details are left out: they are kept and shown to clients."""
MAX_DIGITS = 18


class GuestRefused(GuestError):
    """The guest answered with an error status.

    Attributes:
        status: HTTP status.
        code: Stable code (`not_ready`, `bad_sequence`, …); `error` where the guest gave none.
        details: What the guest said besides.
    """

    def __init__(self, status: int, code: str, message: str, details: Mapping[str, Any]) -> None:
        """Keep the fields beside the message."""
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.details = dict(details)


@dataclass(frozen=True, slots=True)
class GuestHealth:
    """Answer of `/v1/health` and `/v1/ready`. A smaller `uptime_s` than before means a restart."""

    status: str
    version: str
    generation: str
    uptime_s: float
    desktop_ready: bool
    last_seq: int


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command in the guest printed, and how it ended."""

    output: str
    error: str
    returncode: int


def text_of(answer: HttpResponse) -> str:
    """Return the body as text; what is not UTF-8 is replaced."""
    return bytes(answer.body).decode("utf-8", "replace")


def json_object(answer: HttpResponse) -> dict[str, Any]:
    """Return the body as a JSON object of finite numbers and text that can be encoded.

    Raises:
        GuestProtocolError: The body is not such an object.
    """
    try:
        # As text: given bytes, Python's parser takes surrogates in UTF-8.
        value = json.loads(
            str(answer.body, "utf-8"), parse_float=_finite, parse_int=_whole, parse_constant=_refuse_constant
        )
        if b"\\u" in answer.body:
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as exc:
        raise GuestProtocolError(f"the answer is not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise GuestProtocolError("the answer is not a JSON object")
    return value


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:20]} is too large")
    return number


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"{digits[:20]} is too large")
    return int(digits)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def frame(path: str, answer: HttpResponse) -> ObservedFrame:
    """Read a record with an observation; `path` is for the message.

    Raises:
        GuestProtocolError: The body is not such a record.
    """
    try:
        record = decode_record(memoryview(answer.body))
        return ObservedFrame(Observation.from_dict(record.meta), record.blob)
    except (ValueError, OverflowError) as exc:
        raise GuestProtocolError(f"{path}: {exc}") from exc


def refusal(answer: HttpResponse) -> GuestRefused:
    """Read an error body: ours, OSWorld's `{"status","message"}`, or plain text."""
    code, details = "error", {}
    message = text_of(answer)[:MAX_ERROR_CHARS]
    try:
        value = json_object(answer)
    except GuestProtocolError:
        value = {}
    if isinstance(value.get("message"), str):
        message = value["message"][:MAX_ERROR_CHARS]
    if isinstance(value.get("code"), str):
        code = value["code"][:100]
    if isinstance(value.get("details"), dict) and len(answer.body) <= MAX_ERROR_BYTES:
        details = value["details"]
    return GuestRefused(answer.status, code, message, details)


def typed(value: Mapping[str, Any], name: str, kind: type[_T]) -> _T:
    """Return a field of that type.

    Raises:
        GuestProtocolError: The field is missing, or of another type.
    """
    found = value.get(name)
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise GuestProtocolError(f"{name} is missing or not {kind.__name__}")
    return found


def health(value: Mapping[str, Any]) -> GuestHealth:
    """Read the answer of `/v1/health` and `/v1/ready`."""
    uptime = value.get("uptime_s")
    if isinstance(uptime, bool) or not isinstance(uptime, (int, float)):
        raise GuestProtocolError("uptime_s is missing or not a number")
    return GuestHealth(
        status=typed(value, "status", str),
        version=typed(value, "version", str),
        generation=str(value.get("generation", "")),
        uptime_s=float(uptime),
        desktop_ready=typed(value, "desktop_ready", bool),
        last_seq=typed(value, "last_seq", int),
    )


def command_result(value: Mapping[str, Any]) -> CommandResult:
    """Read the answer of `/execute` and its like."""
    code = value.get("returncode", value.get("return_code"))
    if isinstance(code, bool) or not isinstance(code, int):
        raise GuestProtocolError("returncode is missing or not a number")
    return CommandResult(str(value.get("output") or ""), str(value.get("error") or ""), code)
