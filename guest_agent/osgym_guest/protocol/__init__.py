"""Guest protocol v1: the names and shapes that host and guest share. Light: imported by both.

Beside it `actions` (the grammar of what a step does) and `keysyms` (the names of keys), which whoever
serves this protocol reads by: the guest agent, and the host for guests without one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypedDict

RECORD_TYPE = "application/x-osgym-records"
RECORD_HEAD = struct.Struct(">II")
MAX_META_BYTES = 4 * 1024 * 1024
MAX_BLOB_BYTES = 64 * 1024 * 1024

EXIT_DISPLAY_GONE = 3
"""Exit code of the guest agent when the X server is gone."""

LISTEN_FD = 3
"""The inherited listening socket, when LISTEN_FDS is 1."""

DEFAULT_PORT = 5000
MAX_ACTIONS = 256
MAX_TEXT_CHARS = 100_000
MAX_DURATION_MS = 60_000
"""Of one `wait` or `hold`, of all of a step together, and of a settle."""


class _Text(str, Enum):
    """An enum whose members are strings (StrEnum needs Python 3.11)."""

    def __str__(self) -> str:
        return str(self.value)


class Op(_Text):
    """Names of the internal actions that a guest carries out."""

    CLICK = "click"
    MOVE = "move"
    DRAG = "drag"
    SCROLL = "scroll"
    TYPE = "type"
    KEY = "key"
    HOLD = "hold"
    KEY_DOWN = "key_down"
    KEY_UP = "key_up"
    BUTTON_DOWN = "button_down"
    BUTTON_UP = "button_up"
    WAIT = "wait"
    SCREENSHOT = "screenshot"


class SettlePolicy(_Text):
    """How the guest decides that the screen is final."""

    EXACT = "exact"
    FAST = "fast"
    FIXED = "fixed"


class SettleReason(_Text):
    """Why the guest answered when it did."""

    QUIET = "quiet"
    TIMEOUT = "timeout"
    UNCHANGED = "unchanged"
    FIXED = "fixed"


class ImageFormat(_Text):
    """Encodings of a frame."""

    PNG = "png"
    JPEG = "jpeg"
    WEBP = "webp"
    NONE = "none"


class GuestErrorCode(_Text):
    """Stable `code` of error answers and of failed actions. Open: accept others."""

    BAD_REQUEST = "bad_request"
    BAD_JSON = "bad_json"
    INVALID_ACTION = "invalid_action"
    UNAUTHORIZED = "unauthorized"
    BAD_SEQUENCE = "bad_sequence"
    ANSWER_LOST = "answer_lost"
    BUSY = "busy"
    NOT_READY = "not_ready"
    DISPLAY_GONE = "display_gone"
    INTERNAL = "internal"


class ActionError(TypedDict):
    """Why one action failed."""

    code: str
    message: str


class _ActionResultBase(TypedDict):
    ok: bool
    op: str


class ActionResult(_ActionResultBase, total=False):
    """What became of one action; actions after a failed one are absent."""

    error: ActionError


class SettleMeta(TypedDict):
    """How the wait ended. `last_change_ms` counts from the end of the input; None: nothing changed."""

    policy: str
    reason: str
    wait_ms: float
    last_change_ms: float | None


class FrameMeta(TypedDict):
    """The frame: `hash` is of the whole screen's RGB, `width` and `height` of the image sent."""

    hash: str
    format: str
    width: int
    height: int
    screen: list[int]
    unchanged: bool
    t_ms: float


class PreviousMeta(TypedDict):
    """What the watch saw of the previous step's frame; `changed_after_ms` is the first change."""

    seq: int
    final: bool
    changed_after_ms: float | None


class TimingMeta(TypedDict):
    """Where the time went."""

    input: float
    settle: float
    capture: float
    encode: float
    total: float


class _StepMetaBase(TypedDict):
    seq: int
    replayed: bool
    results: list[ActionResult]
    failed_index: int | None
    settle: SettleMeta | None
    frame: FrameMeta
    previous: PreviousMeta | None
    timing_ms: TimingMeta


class StepMeta(_StepMetaBase, total=False):
    """Meta of a step's record; `final` is there in the answers of `/v1/final`."""

    final: bool


class Health(TypedDict):
    """Answer of `/v1/health` and `/v1/ready`."""

    status: str
    version: str
    generation: str
    uptime_s: float
    desktop_ready: bool
    last_seq: int


def pack_record(meta: Mapping[str, Any], blob: bytes = b"") -> list[bytes]:
    """A record as buffers to be written one after the other: lengths and meta, then the blob."""
    text = json.dumps(meta, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    return [RECORD_HEAD.pack(len(text), len(blob)) + text, blob]


def unpack_record(data: bytes | Sequence[bytes]) -> tuple[dict[str, Any], bytes]:
    """Meta and blob of one whole record.

    Raises:
        ValueError: the bytes are not exactly one record.
    """
    whole = data if isinstance(data, bytes) else b"".join(data)
    if len(whole) < RECORD_HEAD.size:
        raise ValueError("a record has at least 8 bytes")
    meta_length, blob_length = RECORD_HEAD.unpack_from(whole)
    start = RECORD_HEAD.size + meta_length
    if meta_length > MAX_META_BYTES or blob_length > MAX_BLOB_BYTES or len(whole) != start + blob_length:
        raise ValueError("the record's lengths do not fit its bytes")
    meta = json.loads(whole[RECORD_HEAD.size : start])
    if not isinstance(meta, dict):
        raise ValueError("the record's meta is not an object")
    return meta, whole[start:]
