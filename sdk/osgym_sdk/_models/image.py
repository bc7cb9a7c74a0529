"""Decoding the image of a frame, which a hostile guest may have made: one kind, one size, bounded pixels.

Pillow guesses among dozens of formats; one of them starts Ghostscript. Here it is told the one that the
answer names, and nothing is decoded unless the size in the file is the one that the answer names.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from osgym_sdk._exceptions import BadFrame
from osgym_sdk.wire import MAX_IMAGE_PIXELS, FrameInfo, ImageFormat

if TYPE_CHECKING:
    from PIL.Image import Image

_PILLOW_NAMES = {ImageFormat.PNG: "PNG", ImageFormat.JPEG: "JPEG", ImageFormat.WEBP: "WEBP"}
_PNG_HEAD = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


def decode(data: bytes, frame: FrameInfo) -> Image:
    """Return the image as RGB.

    Raises:
        BadFrame: It is of another kind or size, has more than ``MAX_IMAGE_PIXELS``, or is broken.
    """
    from PIL import Image as PilImage

    name = _PILLOW_NAMES.get(frame.format)
    if name is None:
        raise BadFrame(f"an image of the format {frame.format.value}")
    size = (frame.width, frame.height)
    if not 0 < size[0] * size[1] <= MAX_IMAGE_PIXELS or min(size) < 1:
        raise BadFrame(f"an image of {size[0]}x{size[1]} is not decoded")
    try:
        with PilImage.open(io.BytesIO(data), formats=(name,)) as opened:
            if opened.size != size:
                raise BadFrame(f"the image is {opened.size[0]}x{opened.size[1]}, not {size[0]}x{size[1]}")
            return opened.convert("RGB")
    except BadFrame:
        raise
    except (OSError, ValueError, SyntaxError, EOFError, PilImage.DecompressionBombError) as exc:
        raise BadFrame(f"the {name} cannot be decoded: {exc}") from exc


def check_png(data: bytes, frame: FrameInfo) -> None:
    """Check the first bytes of a PNG that is passed on as it came.

    Raises:
        BadFrame: It is no PNG, or of another size.
    """
    sides = (side.to_bytes(4, "big") for side in (max(0, frame.width), max(0, frame.height)))
    if data[:24] != _PNG_HEAD + b"".join(sides):
        raise BadFrame(f"the image is no PNG of {frame.width}x{frame.height}")
