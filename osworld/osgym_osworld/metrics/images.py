"""Metrics over images: size, mode, format, colours."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from osgym_host.tasks.metric_plugin import (
    Argument,
    InputFile,
    Score,
    Unreadable,
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
_OVERSHOOT = 4
"""Part of the contrast of an edge by which colours beside it may be brighter or darker: one in this many."""


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
    """``size`` [w, h], ``mode``, ``format``, ``grey``, ``picture`` {png_base64, tolerance=0, edge_px=0}.

    ``grey`` says whether the image lacks colours. ``picture`` is compared pixel by pixel; within ``edge_px``
    pixels of an edge its colours may mix, as they do when a picture is scaled. An image of which a part is
    transparent is wrong.
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
    return _compare_with(rgb, rules["picture"]) if "picture" in rules else Score(1.0)


def _compare_with(image: Image.Image, rule: Mapping[str, Any]) -> Score:
    """Compare every pixel of an image in RGB with those of the picture in a rule."""
    from PIL import Image, ImageChops, ImageFilter

    try:
        data = base64.b64decode(rule["png_base64"], validate=True)
        with Image.open(io.BytesIO(data), formats=["PNG"]) as opened:
            wanted = opened.convert("RGB")
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise Unreadable("expected", f"the picture in the rule is no PNG in base64: {error}") from error
    if image.size != wanted.size:
        return differ("size", list(image.size), list(wanted.size))
    darkest = brightest = wanted
    if around := 2 * int(rule.get("edge_px", 0)):
        darkest, brightest = (
            wanted.filter(make(around + 1)) for make in (ImageFilter.MinFilter, ImageFilter.MaxFilter)
        )
        overshoot = ImageChops.subtract(brightest, darkest, scale=_OVERSHOOT)
        darkest, brightest = ImageChops.subtract(darkest, overshoot), ImageChops.add(brightest, overshoot)
    outside = ImageChops.subtract(darkest, image), ImageChops.subtract(image, brightest)
    channels = [channel for one in outside for channel in one.split()]
    most = max(high for channel in channels for _, high in [channel.getextrema()])
    if most > rule.get("tolerance", 0):
        return Score(0.0, f"a pixel differs by {most}")
    return Score(1.0)


def _is_grey(image: Image.Image) -> bool:
    red, green, blue = image.split()
    data = red.tobytes()
    return data == green.tobytes() == blue.tobytes()


def warm_up() -> None:
    from PIL import ImageChops, ImageFilter

    assert ImageChops and ImageFilter
