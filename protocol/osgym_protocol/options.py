"""Options `settle` and `observe` of a request. Instances are within their bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from osgym_protocol.codec import OMIT, Message, WireFormatError, known_fields
from osgym_protocol.codes import ImageFormat, SettlePolicy
from osgym_protocol.limits import (
    MAX_DURATION_MS,
    MAX_HASH_CHARS,
    MAX_IMAGE_QUALITY,
    MAX_IMAGE_SIDE_PX,
    MAX_QUIET_MS,
    MAX_SCREEN_SIDE_PX,
)

_M = TypeVar("_M", bound=Message)


@dataclass(frozen=True, slots=True)
class SettleOptions(Message):
    """Wait for the screen after the actions; unset fields have the policy's values.

    Every policy but `fixed` ends after `max_ms`, 5,000 by default. `certain` reports in the observation's
    `final` whether it was sure by then.

    Raises:
        WireFormatError: A time is out of bounds, or `fixed` has no `pause_ms`.
    """

    policy: SettlePolicy = SettlePolicy.EXACT
    quiet_ms: float | None = field(default=None, metadata=OMIT)
    max_ms: float | None = field(default=None, metadata=OMIT)
    pause_ms: float | None = field(default=None, metadata=OMIT)

    def __post_init__(self) -> None:
        check_number(self.quiet_ms, "settle.quiet_ms", 0, MAX_QUIET_MS)
        check_number(self.max_ms, "settle.max_ms", 0, MAX_DURATION_MS)
        check_number(self.pause_ms, "settle.pause_ms", 0, MAX_DURATION_MS)
        if self.policy is SettlePolicy.FIXED and self.pause_ms is None:
            raise WireFormatError("settle.policy fixed needs pause_ms")


@dataclass(frozen=True, slots=True)
class ObserveOptions(Message):
    """Image to send; ``size`` is ``(width, height)``, ``region`` is ``(x, y, width, height)`` px.

    Raises:
        WireFormatError: A value is out of bounds.
    """

    format: ImageFormat = ImageFormat.PNG
    quality: int | None = field(default=None, metadata=OMIT)
    size: tuple[int, int] | None = field(default=None, metadata=OMIT)
    region: tuple[int, int, int, int] | None = field(default=None, metadata=OMIT)
    unless_hash: str | None = field(default=None, metadata=OMIT)

    def __post_init__(self) -> None:
        check_number(self.quality, "observe.quality", 1, MAX_IMAGE_QUALITY)
        for side in self.size or ():
            check_number(side, "observe.size", 1, MAX_IMAGE_SIDE_PX)
        if self.region is not None:
            for offset, side in zip(self.region[:2], self.region[2:], strict=True):
                check_number(offset, "observe.region", 0, MAX_SCREEN_SIDE_PX)
                check_number(side, "observe.region", 1, MAX_SCREEN_SIDE_PX)
        if self.unless_hash is not None and len(self.unless_hash) > MAX_HASH_CHARS:
            raise WireFormatError(f"observe.unless_hash has more than {MAX_HASH_CHARS} characters")

    def image_size(self, screen: tuple[int, int]) -> tuple[int, int]:
        """Return width and height of the image."""
        if self.size is not None:
            return self.size
        return screen if self.region is None else self.region[2:]

    def check_region(self, screen: tuple[int, int]) -> None:
        """Check that the region is on the screen.

        Raises:
            WireFormatError: A side of it lies outside the screen.
        """
        if self.region is not None:
            x, y, width, height = self.region
            if x + width > screen[0] or y + height > screen[1]:
                raise WireFormatError("observe.region lies outside the screen")


def parse_settle(raw: Any) -> SettleOptions:
    """Parse the `settle` object of a request.

    Raises:
        WireFormatError: It is malformed.
    """
    return _parse(SettleOptions, raw, "settle")


def parse_observe(raw: Any) -> ObserveOptions:
    """Parse the `observe` object of a request.

    Raises:
        WireFormatError: It is malformed.
    """
    return _parse(ObserveOptions, raw, "observe")


def check_number(value: float | None, name: str, low: float, high: float) -> None:
    """Check a number that may be left out.

    Raises:
        WireFormatError: The number is out of bounds or NaN.
    """
    if value is not None and not low <= value <= high:
        raise WireFormatError(f"{name} must be a number from {low:g} to {high:g}")


def _parse(kind: type[_M], raw: Any, name: str) -> _M:
    return kind.from_dict(known_fields({} if raw is None else raw, kind.field_names(), name))
