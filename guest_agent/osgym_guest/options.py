"""The `settle` and `observe` objects of requests, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osgym_guest.http import HttpError
from osgym_guest.policy import DEFAULT_MAX_MS
from osgym_guest.protocol import MAX_DURATION_MS, ImageFormat, SettlePolicy

MAX_IMAGE_SIDE = 8192
DEFAULT_QUALITY = 85


@dataclass(frozen=True)
class SettleOptions:
    """How to wait after the actions."""

    policy: str = SettlePolicy.EXACT.value
    quiet_ms: float | None = None
    max_ms: float = DEFAULT_MAX_MS
    pause_ms: float | None = None


@dataclass(frozen=True)
class ObserveOptions:
    """What image to send."""

    format: str = ImageFormat.PNG.value
    quality: int = DEFAULT_QUALITY
    size: tuple[int, int] | None = None
    region: tuple[int, int, int, int] | None = None
    unless_hash: str | None = None


def bad(message: str) -> HttpError:
    """400 with a message."""
    return HttpError(400, "bad_request", message)


def _object(raw: Any, name: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    if raw is None:
        return {}
    if not isinstance(raw, dict):
        raise bad(f"{name} must be an object")
    for key in raw:
        if key not in known:
            raise bad(f"{name} has no field {key!r}")
    return raw


def number(raw: Any, name: str, low: float, high: float) -> float:
    """A checked number.

    Raises:
        HttpError: 400.
    """
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not low <= raw <= high:
        raise bad(f"{name} must be a number from {low:g} to {high:g}")
    return float(raw)


def parse_settle(raw: Any) -> SettleOptions:
    """The `settle` object of a request.

    Raises:
        HttpError: 400 when it is malformed.
    """
    fields = _object(raw, "settle", ("policy", "quiet_ms", "max_ms", "pause_ms"))
    policy = fields.get("policy", SettlePolicy.EXACT.value)
    if policy not in [p.value for p in SettlePolicy]:
        raise bad(f"settle.policy must be exact, fast or fixed, not {policy!r}")
    quiet, longest, pause = fields.get("quiet_ms"), fields.get("max_ms"), fields.get("pause_ms")
    if policy == SettlePolicy.FIXED.value and pause is None:
        raise bad("settle.policy fixed needs pause_ms")
    return SettleOptions(
        policy=policy,
        quiet_ms=None if quiet is None else number(quiet, "settle.quiet_ms", 0, 1000),
        max_ms=DEFAULT_MAX_MS if longest is None else number(longest, "settle.max_ms", 0, MAX_DURATION_MS),
        pause_ms=None
        if pause is None or policy != SettlePolicy.FIXED.value
        else number(pause, "settle.pause_ms", 0, MAX_DURATION_MS),
    )


def _whole_numbers(raw: Any, name: str, count: int) -> list[int]:
    if not isinstance(raw, (list, tuple)) or len(raw) != count:
        raise bad(f"{name} must be a list of {count} whole numbers")
    for value in raw:
        if isinstance(value, bool) or not isinstance(value, int):
            raise bad(f"{name} must be a list of {count} whole numbers")
    return list(raw)


def parse_observe(raw: Any, screen: tuple[int, int]) -> ObserveOptions:
    """The `observe` object of a request.

    Raises:
        HttpError: 400 when it is malformed or reaches outside the screen.
    """
    fields = _object(raw, "observe", ("format", "quality", "size", "region", "unless_hash"))
    image_format = fields.get("format") or ImageFormat.PNG.value
    if image_format not in [f.value for f in ImageFormat]:
        raise bad(f"observe.format must be png, jpeg, webp or none, not {image_format!r}")
    quality = fields.get("quality")
    size: tuple[int, int] | None = None
    if fields.get("size") is not None:
        width, height = _whole_numbers(fields["size"], "observe.size", 2)
        if not (1 <= width <= MAX_IMAGE_SIDE and 1 <= height <= MAX_IMAGE_SIDE):
            raise bad(f"observe.size is from 1 to {MAX_IMAGE_SIDE} pixels a side")
        size = (width, height)
    region: tuple[int, int, int, int] | None = None
    if fields.get("region") is not None:
        x, y, w, h = _whole_numbers(fields["region"], "observe.region", 4)
        if x < 0 or y < 0 or w < 1 or h < 1 or x + w > screen[0] or y + h > screen[1]:
            raise bad("observe.region lies outside the screen")
        region = (x, y, w, h)
    unless = fields.get("unless_hash")
    if unless is not None and not isinstance(unless, str):
        raise bad("observe.unless_hash must be a string")
    return ObserveOptions(
        format=image_format,
        quality=DEFAULT_QUALITY if quality is None else int(number(quality, "observe.quality", 1, 100)),
        size=size,
        region=region,
        unless_hash=unless,
    )
