"""Parsing of a guest agent's answers as hostile input, to typed values or one typed error.

Parsing takes a bounded time: small answers are parsed in one call, large ones in pieces. Text that cannot be
encoded and numbers that are not finite are refused here, since they would fail later, where the host passes
them on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from osgym_host.guest_client.errors import GuestAnswerTooLarge, GuestError, GuestProtocolError
from osgym_host.guest_client.frame_checks import AskedImage, check_observation
from osgym_host.guest_client.http import HttpResponse
from osgym_host.guest_client.json_pieces import AnswerTooLarge, parse_long_texts, put_back
from osgym_host.logs import escape_controls, escape_lines
from osgym_protocol.limits import MAX_GUEST_META_BYTES, MAX_GUEST_META_PARTS, MAX_JSON_DEPTH
from osgym_protocol.observation import Observation, ObservedFrame
from osgym_protocol.records import split_record

_T = TypeVar("_T")

MAX_ERROR_CHARS = 2000
MAX_SMALL_JSON_BYTES = 32 * 1024
"""Bytes parsed in one call: 4 ms if they are all brackets. Longer errors lose their details."""
MAX_DIGITS = 18


class GuestRefused(GuestError):
    """The guest answered with an error status.

    Attributes:
        code: Stable code (`not_ready`, `bad_sequence`, …); `error` where the guest gave none.
        details: Other fields of the guest's answer.
    """

    def __init__(self, status: int, code: str, message: str, details: Mapping[str, Any]) -> None:
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
    """Output and exit status of a command in the guest."""

    output: str
    error: str
    returncode: int


def text_of(answer: HttpResponse) -> str:
    """Return the body as text; what is not UTF-8 is replaced."""
    return bytes(answer.body).decode("utf-8", "replace")


def json_object(answer: HttpResponse) -> dict[str, Any]:
    """Return a small body as a JSON object of finite numbers and text that can be encoded.

    Raises:
        GuestAnswerTooLarge: The body has more than `MAX_SMALL_JSON_BYTES`.
        GuestProtocolError: The body is not such an object.
    """
    if len(answer.body) > MAX_SMALL_JSON_BYTES:
        raise GuestAnswerTooLarge(
            f"{len(answer.body)} bytes of JSON; at most {MAX_SMALL_JSON_BYTES} are allowed"
        )
    return _parsed(bytes(answer.body))


async def large_json_object(answer: HttpResponse) -> dict[str, Any]:
    """Return a body with a few long texts as `json_object` does, parsed in pieces.

    Raises:
        GuestAnswerTooLarge: The body is large apart from its long texts.
        GuestProtocolError: The body is not such an object.
    """
    if len(answer.body) <= MAX_SMALL_JSON_BYTES:
        return json_object(answer)
    try:
        skeleton, texts = await parse_long_texts(answer.body)
        found: dict[str, Any] = put_back(_parsed(skeleton), texts)
    except AnswerTooLarge as exc:
        raise GuestAnswerTooLarge(str(exc)) from exc
    except ValueError as exc:
        raise GuestProtocolError(f"the answer is not JSON: {exc}") from exc
    return found


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        # As text: given bytes, Python's parser takes surrogates in UTF-8.
        text = body.decode()
        value = json.loads(text, parse_float=_finite, parse_int=_whole, parse_constant=_refuse_constant)
        if body.count(b"[") + body.count(b"{") > MAX_JSON_DEPTH:
            _check_depth(value)
        if b"\\u" in body:
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as exc:
        raise GuestProtocolError(f"the answer is not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise GuestProtocolError("the answer is not a JSON object")
    return value


def _check_depth(value: Any) -> None:
    """Refuse a value that is nested too deep to be encoded again."""
    level = [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        level = [
            item
            for outer in level
            if isinstance(outer, (dict, list))
            for item in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise ValueError(f"nested more than {MAX_JSON_DEPTH} levels deep")


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


def frame(path: str, answer: HttpResponse, asked: AskedImage | None = None) -> ObservedFrame:
    """Read a record with an observation; `path` names the call in messages, `asked` is the expected image.

    The image is not copied: it stays where it was read.

    Raises:
        GuestProtocolError: The body is not such a record, or its frame is invalid.
    """
    try:
        meta, image = split_record(answer.body, MAX_GUEST_META_BYTES, MAX_GUEST_META_PARTS)
        seen = Observation.from_dict(meta)
        check_observation(seen, image, asked)
    except (ValueError, OverflowError, RecursionError) as exc:
        raise GuestProtocolError(escape_controls(f"{path}: {exc}"[:MAX_ERROR_CHARS])) from exc
    return ObservedFrame(seen, image)


def refusal(answer: HttpResponse) -> GuestRefused:
    """Read an error body: ours, OSWorld's `{"status","message"}`, or plain text."""
    code, details = "error", {}
    message = bytes(answer.body[: 4 * MAX_ERROR_CHARS]).decode("utf-8", "replace")[:MAX_ERROR_CHARS]
    try:
        value = json_object(answer)
    except GuestProtocolError:
        value = {}
    if isinstance(value.get("message"), str):
        message = value["message"][:MAX_ERROR_CHARS]
    if isinstance(value.get("code"), str):
        code = value["code"][:100]
    if isinstance(value.get("details"), dict):
        details = value["details"]
    return GuestRefused(answer.status, escape_controls(code), escape_lines(message), details)


def typed(value: Mapping[str, Any], name: str, kind: type[_T]) -> _T:
    """Return a field of the given type.

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
    """Read the answer of `/execute` and similar calls."""
    code = value.get("returncode", value.get("return_code"))
    if isinstance(code, bool) or not isinstance(code, int):
        raise GuestProtocolError("returncode is missing or not a number")
    return CommandResult(str(value.get("output") or ""), str(value.get("error") or ""), code)
