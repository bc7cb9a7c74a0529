"""Metrics over two images: alike in structure, and brighter, richer in contrast, mirrored, …

OSWorld's, with its thresholds. Images that differ in what a metric cannot bring together score 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from osgym_host.tasks.metric_plugin import (
    Argument,
    Score,
    Unreadable,
    as_file,
    differ,
    is_installed,
    metric,
    rules_of,
)
from osgym_osworld.formats.structure import WINDOW, structural_similarity
from osgym_osworld.metrics.images import has_alpha, open_image
from osgym_osworld.packages import needs

if TYPE_CHECKING:
    from PIL import Image

ALIKE = 0.9
"""Images are alike in structure from this index on."""
ALIKE_IN_CONTRAST = 0.65
"""The same, where the contrast was to be changed."""
MIRRORED = 0.99
_NORMAL_BRIGHTNESS = 128
_GAIN = 0.01
"""Least gain of an image over ``reference_base_result`` that counts."""
_DARK = 128
_AT_THE_EDGE = 0.05
"""A part of the width, or of a length from the middle."""

_numpy = needs("numpy")


def _two(result: Argument, expected: Argument) -> tuple[Image.Image, Image.Image]:
    return open_image(as_file(result, "result")), open_image(as_file(expected, "expected"))


def _alike(a: Image.Image, b: Image.Image, threshold: float = ALIKE) -> Score:
    """Score 1 if two images of the same size are similar in structure, in RGB."""
    if min(*a.size, *b.size) < WINDOW:
        return Score(0.0, f"images smaller than {WINDOW} pixels cannot be compared")
    if a.size != b.size:
        return differ("the size", list(a.size), list(b.size))
    index = structural_similarity(a.convert("RGB"), b.convert("RGB"))
    if index >= threshold:
        return Score(1.0)
    return Score(0.0, f"the structure is alike by {index:.3f}, less than {threshold}")


@metric(unsupported=_numpy)
def compare_images(result: Argument, expected: Argument, reference_base_result: float | None = None) -> Score:
    """Similarity of two images in grey, in the size of the narrower one.

    With ``reference_base_result`` (how alike the image was before), the part of the rest that was gained.
    """
    from PIL import Image

    a, b = (image.convert("L") for image in _two(result, expected))
    size = min(a.size, b.size)
    if min(size) < WINDOW:
        return Score(0.0, f"images smaller than {WINDOW} pixels cannot be compared")
    a, b = (image.resize(size, Image.Resampling.LANCZOS) for image in (a, b))
    index = structural_similarity(a, b)
    note = f"the structure is alike by {index:.3f}"
    if reference_base_result is None:
        return Score(max(0.0, index), note)
    if index < reference_base_result + _GAIN:
        return Score(0.0, f"{note}, {reference_base_result} before")
    return Score((index - reference_base_result) / (1 - reference_base_result), note)


@metric()
def compare_image_list(result: Argument, expected: Argument) -> Score:
    """Each image equals, pixel by pixel, the expected one at its place, in its size and mode."""
    from PIL import Image, ImageChops

    got = result if isinstance(result, list) else [result]
    wanted = expected if isinstance(expected, list) else [expected]
    if len(got) != len(wanted):
        raise Unreadable("expected", f"{len(got)} images are asked for, {len(wanted)} expected")
    for place, (one, other) in enumerate(zip(got, wanted, strict=True), 1):
        a, b = _two(one, other)
        if a.size != b.size:
            a = a.resize(b.size, Image.Resampling.LANCZOS)
        mode = "RGBA" if a.has_transparency_data else b.mode
        if ImageChops.difference(a.convert(mode), b.convert(mode)).getbbox(alpha_only=False):
            return Score(0.0, f"image {place} differs")
    return Score(1.0)


@metric(unsupported=_numpy)
def check_structure_sim(result: Argument, expected: Argument) -> Score:
    """The image is alike in structure, in the same size."""
    return _alike(*_two(result, expected))


@metric(unsupported=_numpy)
def check_structure_sim_with_threshold(
    result: Argument, expected: Argument, ssim_threshold: float = 0.85
) -> Score:
    """The image, brought to the expected size, is alike in structure by ``ssim_threshold``."""
    from PIL import Image

    a, b = _two(result, expected)
    return _alike(a.resize(b.size, Image.Resampling.LANCZOS), b, ssim_threshold)


@metric(unsupported=_numpy)
def check_file_exists_and_structure_sim(result: Argument, expected: Argument) -> Score:
    """The image is there and alike in structure."""
    return _alike(*_two(result, expected))


@metric(unsupported=_numpy)
def check_structure_sim_resized(result: Argument, expected: Argument) -> Score:
    """The opaque part of the image, in the expected size, is similar in structure."""
    a, b = _two(result, expected)
    if has_alpha(a):
        a = a.convert("RGBA")
        box = a.getchannel("A").getbbox()
        if box is None:
            return Score(0.0, "the image is transparent all over")
        a = a.crop(box).convert("RGB")
    return _alike(a.resize(b.size), b)


@metric(unsupported=_numpy)
def check_palette_and_structure_sim(result: Argument, expected: Argument) -> Score:
    """The image has a palette and is alike in structure."""
    a, b = _two(result, expected)
    return _alike(a, b) if a.mode == "P" else differ("the mode", a.mode, "P")


@metric(unsupported=_numpy)
def check_image_mirror(result: Argument, expected: Argument) -> Score:
    """The image is the expected one mirrored, left to right."""
    from PIL import Image

    a, b = _two(result, expected)
    return _alike(a.transpose(Image.Transpose.FLIP_LEFT_RIGHT), b, MIRRORED)


def _mean(image: Image.Image) -> float:
    from PIL import ImageStat

    return float(ImageStat.Stat(image).mean[0])


@metric(unsupported=_numpy)
def check_brightness_decrease_and_structure_sim(
    result: Argument, expected: Argument, threshold: float = 0.03
) -> Score:
    """The image is darker; brought to one brightness, the mean squared difference is below ``threshold``."""
    a, b = _two(result, expected)
    bright = _mean(a.convert("L")), _mean(b.convert("L"))
    if not bright[0] < bright[1]:
        return differ("the brightness", round(bright[0], 2), f"less than {bright[1]:.2f}")
    if bright[0] == 0:
        return Score(0.0, "the image is black")
    normal = [
        image.point(lambda value, f=_NORMAL_BRIGHTNESS / mean: min(255, max(0, int(value * f))))
        for image, mean in zip((a, b), bright, strict=True)
    ]
    error = _mean_squared_error(*normal)
    if error < threshold:
        return Score(1.0)
    return Score(0.0, f"the mean squared difference is {error:.4f}, not less than {threshold}")


def _mean_squared_error(a: Image.Image, b: Image.Image) -> float:
    """Return the mean squared error of bytes as 0 to 1, in RGB and the second image's size."""
    from PIL import Image, ImageChops, ImageStat

    if a.size != b.size:
        a = a.resize(b.size, Image.Resampling.LANCZOS)
    difference = ImageStat.Stat(ImageChops.difference(a.convert("RGB"), b.convert("RGB")))
    return float(sum(difference.sum2)) / (3 * b.width * b.height * 255 * 255)


@metric(unsupported=_numpy)
def check_saturation_increase_and_structure_sim(result: Argument, expected: Argument) -> Score:
    """The image is more saturated; hue and value are alike in structure."""
    a, b = (image.convert("HSV").split() for image in _two(result, expected))
    got, before = _mean(a[1]), _mean(b[1])
    if not got > before:
        return differ("the saturation", round(got, 2), f"more than {before:.2f}")
    hue = _alike(a[0], b[0])
    return hue if hue.score < 1 else _alike(a[2], b[2])


@metric(unsupported=_numpy)
def check_contrast_increase_and_structure_sim(result: Argument, expected: Argument) -> Score:
    """The image's bytes deviate more from their mean; its structure is alike by 0.65 at least."""
    a, b = _two(result, expected)
    got, before = _deviation(a), _deviation(b)
    if not got > before:
        return differ("the contrast", round(got, 2), f"more than {before:.2f}")
    return _alike(a, b, ALIKE_IN_CONTRAST)


def _deviation(image: Image.Image) -> float:
    import numpy as np

    return float(np.asarray(image).std(dtype=np.float64))


@metric(unsupported=_numpy)
def check_sharper(result: Argument, expected: Argument) -> Score:
    """The variance of the Laplacian, in grey, is larger than that of the expected image."""
    got, before = (_sharpness(image.convert("L")) for image in _two(result, expected))
    return Score(1.0) if got > before else differ("the sharpness", round(got, 2), f"more than {before:.2f}")


def _sharpness(image: Image.Image) -> float:
    import numpy as np

    grey = np.pad(np.asarray(image).astype(np.int32), 1, mode="reflect")
    around = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:]
    return float((around - 4 * grey[1:-1, 1:-1]).var())


@metric(unsupported=_numpy)
def check_green_background(result: Argument, expected: Argument) -> Score:
    """Wherever the expected image is not black, the image has more green than red and blue."""
    import numpy as np

    a, b = (image.convert("RGB") for image in _two(result, expected))
    if a.size != b.size:
        return differ("the size", list(a.size), list(b.size))
    got, wanted = np.asarray(a), np.asarray(b)
    green = (got[..., 1] > got[..., 0]) & (got[..., 1] > got[..., 2])
    wrong = wanted.any(axis=2) & ~green
    if not wrong.any():
        return Score(1.0)
    y, x = (int(v) for v in np.argwhere(wrong)[0])
    return Score(0.0, f"the pixel at {x}, {y} is not green")


@metric(needs_expected=False, unsupported=_numpy)
def check_triangle_position(result: Argument, expected: Argument) -> Score:
    """The middle of what has the second rarest colour is within 5 % of the image's middle."""
    import numpy as np

    image = open_image(as_file(result, "result"))
    pixels = np.asarray(image.convert("RGBA")).view(np.uint32)[..., 0]
    colours, counts = np.unique(pixels, return_counts=True)
    if len(colours) < 2:
        return Score(0.0, "the image has one colour")
    middle = np.argwhere(pixels == colours[np.argsort(counts, kind="stable")[1]]).mean(axis=0)
    lengths = np.array(pixels.shape)
    if (abs(middle - lengths / 2) < _AT_THE_EDGE * lengths).all():
        return Score(1.0)
    return differ("the middle (y, x)", middle.round(1).tolist(), (lengths / 2).tolist())


@metric(needs_expected=False)
def check_textbox_on_leftside(result: Argument, expected: Argument) -> Score:
    """The leftmost dark pixel is in the left 5 % of the image."""
    image = open_image(as_file(result, "result")).convert("L")
    box = image.point(lambda value: 255 if value < _DARK else 0).getbbox()
    left = image.width if box is None else box[0]
    if left < image.width * _AT_THE_EDGE:
        return Score(1.0)
    return differ("the leftmost dark pixel", left, f"less than {image.width * _AT_THE_EDGE:.1f}")


@metric()
def check_image_file_size(result: Argument, expected: Argument) -> Score:
    """The file is smaller than ``max_size`` bytes."""
    size, bound = len(as_file(result, "result").data()), rules_of(expected)["max_size"]
    return Score(1.0) if size < bound else differ("the size in bytes", size, f"less than {bound}")


def warm_up() -> None:
    from PIL import Image, ImageChops, ImageStat

    assert ImageChops and ImageStat
    if is_installed("numpy"):
        structural_similarity(Image.new("RGB", (8, 8)), Image.new("RGB", (8, 8), "red"))
