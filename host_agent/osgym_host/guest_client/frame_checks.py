"""Checks that a guest's description of a frame can be true, before the frame is passed on."""

from __future__ import annotations

from dataclasses import dataclass

from osgym_host.guest_client.body import Body
from osgym_protocol.codes import ImageFormat
from osgym_protocol.limits import (
    IMAGE_FILE_BYTES,
    MAX_ACTIONS,
    MAX_BYTES_PER_PIXEL,
    MAX_HASH_CHARS,
    MAX_SCREEN_PIXELS,
    MAX_SCREEN_SIDE_PX,
    MAX_TIMINGS,
)
from osgym_protocol.observation import FrameInfo, Observation

_PNG_HEAD = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
_JPEG_HEAD = b"\xff\xd8\xff"


@dataclass(frozen=True, slots=True)
class AskedImage:
    """The image that a call asked for: its encoding, and its size if that differs from the screen's.

    Attributes:
        unless_hash: Hash of the frame for which no image is needed; None: an image is always needed.
    """

    format: ImageFormat = ImageFormat.PNG
    size: tuple[int, int] | None = None
    unless_hash: str | None = None


class InvalidFrame(ValueError):
    """The description of a frame contradicts itself, its image, or the request."""


def check_observation(seen: Observation, image: Body, asked: AskedImage | None) -> None:
    """Check an observation, and the first bytes of its image, which is not decoded.

    Args:
        asked: Image of the request; None if unknown. A replayed answer may be of another request.

    Raises:
        InvalidFrame: A number is out of range, the image is none of that kind, or not of that size.
    """
    if len(seen.results) > MAX_ACTIONS or len(seen.timing_ms) > MAX_TIMINGS:
        raise InvalidFrame(f"more than {MAX_ACTIONS} results, or more than {MAX_TIMINGS} times")
    if seen.failed_index is not None and not 0 <= seen.failed_index < MAX_ACTIONS:
        raise InvalidFrame("failed_index is out of range")
    frame = seen.frame
    _check_numbers(frame)
    if seen.replayed:
        asked = None
    if asked is not None and frame.format is not asked.format:
        raise InvalidFrame(f"the frame has the format {frame.format.value} instead of {asked.format.value}")
    if frame.unchanged and asked is not None and frame.hash != asked.unless_hash:
        raise InvalidFrame("the frame claims to equal a frame that the request did not name")
    if frame.unchanged or frame.format is ImageFormat.NONE:
        if len(image):
            raise InvalidFrame("an image was sent that is unchanged or was not requested")
        return
    size, pixels = (frame.width, frame.height), frame.width * frame.height
    if asked is not None and asked.size is not None:
        if size != asked.size:
            raise InvalidFrame(f"the image has the size {size} instead of {asked.size}")
    elif pixels > MAX_SCREEN_PIXELS:
        raise InvalidFrame(f"an image of {frame.width}x{frame.height} is larger than any screen")
    if len(image) > pixels * MAX_BYTES_PER_PIXEL + IMAGE_FILE_BYTES:
        raise InvalidFrame(f"{len(image)} bytes for an image of {frame.width}x{frame.height}")
    _check_head(frame, bytes(image[:24]))


def _check_numbers(frame: FrameInfo) -> None:
    for side in (frame.width, frame.height, *frame.screen):
        if not 1 <= side <= MAX_SCREEN_SIDE_PX:
            raise InvalidFrame(f"a side of {side} pixels is out of bounds")
    if not 1 <= len(frame.hash) <= MAX_HASH_CHARS or not frame.hash.isascii() or not frame.hash.isprintable():
        raise InvalidFrame("the hash is not 1 to 128 visible characters")


def _check_head(frame: FrameInfo, head: bytes) -> None:
    match frame.format:
        case ImageFormat.PNG:
            sides = frame.width.to_bytes(4, "big") + frame.height.to_bytes(4, "big")
            good = head == _PNG_HEAD + sides
        case ImageFormat.JPEG:
            good = head.startswith(_JPEG_HEAD)
        case ImageFormat.WEBP:
            good = head[:4] == b"RIFF" and head[8:12] == b"WEBP"
        case ImageFormat.NONE:
            good = True
    if not good:
        raise InvalidFrame(
            f"the data is not a {frame.format.value} image of {frame.width}x{frame.height}: {head!r}"
        )
