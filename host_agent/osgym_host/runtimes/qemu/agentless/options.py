"""The `settle` and `observe` objects of requests, checked as the guest agent checks them."""

from __future__ import annotations

from typing import Any, TypeVar

from osgym_guest.protocol import MAX_DURATION_MS
from osgym_host.runtimes.qemu.agentless.serve import Refused
from osgym_sdk.wire import Message, ObserveOptions, SettleOptions, SettlePolicy, WireFormatError

_M = TypeVar("_M", bound=Message)

MAX_IMAGE_SIDE_PX = 8192
MAX_QUIET_MS = 1000


def parse_settle(raw: Any) -> SettleOptions:
    """Read the `settle` object of a request.

    Raises:
        Refused: 400, it is malformed.
    """
    options = _message(SettleOptions, raw, "settle")
    _bounded(options.quiet_ms, "settle.quiet_ms", 0, MAX_QUIET_MS)
    _bounded(options.max_ms, "settle.max_ms", 0, MAX_DURATION_MS)
    _bounded(options.pause_ms, "settle.pause_ms", 0, MAX_DURATION_MS)
    if options.policy is SettlePolicy.FIXED and options.pause_ms is None:
        raise _bad("settle.policy fixed needs pause_ms")
    return options


def parse_observe(raw: Any, screen: tuple[int, int]) -> ObserveOptions:
    """Read the `observe` object of a request.

    Raises:
        Refused: 400, it is malformed or reaches outside the screen.
    """
    options = _message(ObserveOptions, raw, "observe")
    _bounded(options.quality, "observe.quality", 1, 100)
    for side in options.size or ():
        _bounded(side, "observe.size", 1, MAX_IMAGE_SIDE_PX)
    check_region(options, screen)
    return options


def check_region(options: ObserveOptions, screen: tuple[int, int]) -> None:
    """Check that the part of the screen that is asked for is on it.

    Raises:
        Refused: 400, it is not.
    """
    if options.region is None:
        return
    x, y, width, height = options.region
    if x < 0 or y < 0 or width < 1 or height < 1 or x + width > screen[0] or y + height > screen[1]:
        raise _bad("observe.region lies outside the screen")


def number(raw: Any, name: str, low: float, high: float) -> float:
    """Read a number.

    Raises:
        Refused: 400, it is none or out of bounds.
    """
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise _bad(f"{name} must be a number")
    _bounded(raw, name, low, high)
    return float(raw)


def sequence_number(raw: Any) -> int:
    """Read the number of a step.

    Raises:
        Refused: 400, it is none.
    """
    if isinstance(raw, bool) or not isinstance(raw, int) or raw < 1:
        raise _bad("seq must be a whole number from 1")
    return raw


def _message(kind: type[_M], raw: Any, name: str) -> _M:
    try:
        return kind.from_dict({} if raw is None else raw)
    except WireFormatError as exc:
        raise _bad(f"{name}: {exc}") from exc


def _bounded(value: float | None, name: str, low: float, high: float) -> None:
    if value is not None and not low <= value <= high:
        raise _bad(f"{name} must be a number from {low:g} to {high:g}")


def _bad(message: str) -> Refused:
    return Refused(400, "bad_request", message)
