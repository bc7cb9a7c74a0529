"""Metrics over images: size, mode, format, the colour of single pixels."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

from osgym_host.tasks.metric_plugin import (
    Argument,
    InputFile,
    Score,
    as_file,
    differ,
    metric,
    reader,
    rules_of,
)

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")
MAX_PIXELS = 64_000_000


@reader
def open_image(file: InputFile) -> Image.Image:
    """Return the image, decoded.

    Raises:
        Unreadable: damaged, of another kind, or larger than 64 megapixels.
    """
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(file.data()), formats=FORMATS)
            if image.width * image.height > MAX_PIXELS:
                raise file.bad(f"{image.width}×{image.height} pixels are too many")
            image.load()
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise file.bad(f"not a readable image: {error}") from error
    return image


@metric()
def check_image_size(result: Argument, expected: Argument) -> Score:
    """``width`` and ``height`` in pixels, each if given; ``ignore_transparent``: of what can be seen."""
    rules, image = rules_of(expected), open_image(as_file(result, "result"))
    width, height = _seen_size(image) if rules.get("ignore_transparent") else image.size
    got = {"width": width, "height": height}
    for side, value in got.items():
        if rules.get(side) is not None and rules[side] != value:
            return differ(side, value, rules[side])
    return Score(1.0)


def _seen_size(image: Image.Image) -> tuple[int, int]:
    if not has_alpha(image):
        return image.size
    box = image.convert("RGBA").getchannel("A").getbbox()
    return (0, 0) if box is None else (box[2] - box[0], box[3] - box[1])


def has_alpha(image: Image.Image) -> bool:
    """Return whether an image can have transparent pixels."""
    return image.mode in {"RGBA", "LA"} or "transparency" in image.info


@metric()
def check_image_properties(result: Argument, expected: Argument) -> Score:
    """``size`` [w, h], ``mode``, ``format``, ``pixels`` [{at, rgb, tolerance=0}], ``grey`` true.

    An image of which a part is transparent is wrong.
    """
    rules, image = rules_of(expected), open_image(as_file(result, "result"))
    facts = {"size": list(image.size), "mode": image.mode, "format": image.format}
    for name, got in facts.items():
        if name in rules and rules[name] != got:
            return differ(name, got, rules[name])
    if image.has_transparency_data and image.convert("RGBA").getchannel("A").getextrema() != (255, 255):
        return Score(0.0, "a part of the image is transparent")
    rgb = image.convert("RGB")
    if "grey" in rules and _is_grey(rgb) != rules["grey"]:
        return Score(0.0, "the image has colours" if rules["grey"] else "the image has no colours")
    for pixel in rules.get("pixels", []):
        x, y = pixel["at"]
        if not (0 <= x < rgb.width and 0 <= y < rgb.height):
            return Score(0.0, f"there is no pixel at {x}, {y}")
        colour = rgb.getpixel((x, y))
        assert isinstance(colour, tuple)
        if any(abs(a - b) > pixel.get("tolerance", 0) for a, b in zip(colour, pixel["rgb"], strict=True)):
            return differ(f"the pixel at {x}, {y}", list(colour), pixel["rgb"])
    return Score(1.0)


def _is_grey(image: Image.Image) -> bool:
    red, green, blue = image.split()
    data = red.tobytes()
    return data == green.tobytes() == blue.tobytes()
