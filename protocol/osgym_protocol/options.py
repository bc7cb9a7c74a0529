"""Options `settle` and `observe` of a request. Instances are within their bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, TypeVar

from osgym_protocol.bounds import Bounds, DurationMs
from osgym_protocol.codec import OMIT, Message, Request, WireFormatError, known_fields
from osgym_protocol.codes import ImageFormat, SettlePolicy
from osgym_protocol.limits import (
    MAX_HASH_CHARS,
    MAX_IMAGE_QUALITY,
    MAX_IMAGE_SIDE_PX,
    MAX_QUIET_MS,
    MAX_SCREEN_SIDE_PX,
)

_M = TypeVar("_M", bound=Message)
FrameHash = Annotated[str, Bounds(min_length=1, max_length=MAX_HASH_CHARS)]
"""``frame.hash`` of an observation."""
_ImageSide = Annotated[int, Bounds(ge=1, le=MAX_IMAGE_SIDE_PX)]
_ScreenSide = Annotated[int, Bounds(ge=1, le=MAX_SCREEN_SIDE_PX)]
_ScreenOffset = Annotated[int, Bounds(ge=0, le=MAX_SCREEN_SIDE_PX)]


@dataclass(frozen=True, slots=True)
class SettleOptions(Request):
    """Wait for the screen after the actions; unset fields have the policy's values.

    Every policy but `fixed` ends after `max_ms`, 5,000 by default. `certain` reports in the observation's
    `final` whether it was sure by then.

    Raises:
        WireFormatError: A time is out of bounds, or `fixed` has no `pause_ms`.
    """

    policy: SettlePolicy = SettlePolicy.EXACT
    quiet_ms: Annotated[float, Bounds(ge=0, le=MAX_QUIET_MS)] | None = field(default=None, metadata=OMIT)
    max_ms: DurationMs | None = field(default=None, metadata=OMIT)
    pause_ms: DurationMs | None = field(default=None, metadata=OMIT)

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {
        "extra": "forbid",
        "json_schema_extra": {
            "if": {"properties": {"policy": {"const": "fixed"}}, "required": ["policy"]},
            "then": {"properties": {"pause_ms": {"type": "number"}}, "required": ["pause_ms"]},
        },
    }

    def __post_init__(self) -> None:
        self.check_bounds()
        if self.policy is SettlePolicy.FIXED and self.pause_ms is None:
            raise WireFormatError("settle.policy fixed needs pause_ms")


@dataclass(frozen=True, slots=True)
class ObserveOptions(Request):
    """Image to send; ``size`` is ``(width, height)``, ``region`` is ``(x, y, width, height)`` px.

    Raises:
        WireFormatError: A value is out of bounds.
    """

    format: ImageFormat = ImageFormat.PNG
    quality: Annotated[int, Bounds(ge=1, le=MAX_IMAGE_QUALITY)] | None = field(default=None, metadata=OMIT)
    size: tuple[_ImageSide, _ImageSide] | None = field(default=None, metadata=OMIT)
    region: tuple[_ScreenOffset, _ScreenOffset, _ScreenSide, _ScreenSide] | None = field(
        default=None, metadata=OMIT
    )
    unless_hash: Annotated[str, Bounds(max_length=MAX_HASH_CHARS)] | None = field(default=None, metadata=OMIT)

    def __post_init__(self) -> None:
        self.check_bounds()

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
    """Parse the `settle` object of a request. Raises WireFormatError if it is malformed."""
    return _parse(SettleOptions, raw, "settle")


def parse_observe(raw: Any) -> ObserveOptions:
    """Parse the `observe` object of a request. Raises WireFormatError if it is malformed."""
    return _parse(ObserveOptions, raw, "observe")


def parse_expects(raw: Any) -> str | None:
    """Parse the `expects` of a step: the hash of a frame. Raises WireFormatError if it is none."""
    if raw is not None and not (isinstance(raw, str) and 0 < len(raw) <= MAX_HASH_CHARS):
        raise WireFormatError(f"expects must be the hash of a frame, of at most {MAX_HASH_CHARS} characters")
    return raw


def _parse(kind: type[_M], raw: Any, name: str) -> _M:
    return kind.from_dict(known_fields({} if raw is None else raw, kind.field_names(), name))
