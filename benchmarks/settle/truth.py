"""Ground truth: whether two screens show the same, panel and caret apart. Pure.

It is independent of the guest agent's rules: it compares the frame that was delivered with the frame three
seconds later, pixel by pixel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from PIL import Image, ImageChops

CARET_MAX_WIDTH_PX = 4
CARET_HEIGHT_PX = range(6, 65)
# More differing pixels than this are no caret; they need not be sorted into shapes.
MAX_SHAPE_PIXELS = 4096


@dataclass(frozen=True, slots=True)
class Box:
    """Rectangle of the screen; right and bottom are exclusive."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def width_px(self) -> int:
        return self.right - self.left

    @property
    def height_px(self) -> int:
        return self.bottom - self.top


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference outside the masks: the number of pixels, and their box."""

    pixels: int
    box: Box


def difference(first: Image.Image, second: Image.Image, masks: Sequence[Box]) -> Difference | None:
    """Return the difference between two screens of the same size, masks and carets apart.

    Returns:
        None when they show the same.

    Raises:
        ValueError: The sizes differ.
    """
    if first.size != second.size:
        raise ValueError(f"sizes differ: {first.size} and {second.size}")
    changed = ImageChops.difference(first.convert("RGB"), second.convert("RGB"))
    bands = changed.split()
    grey = ImageChops.lighter(ImageChops.lighter(bands[0], bands[1]), bands[2]).point(_any_difference)
    for mask in masks:
        grey.paste(0, (mask.left, mask.top, mask.right, mask.bottom))
    bounds = grey.getbbox()
    if bounds is None:
        return None
    count = grey.histogram()[255]
    if count > MAX_SHAPE_PIXELS:
        return Difference(count, Box(*bounds))
    shapes = [shape for shape in _shapes(_pixels(grey, bounds)) if not is_caret(bounding_box(shape))]
    if not shapes:
        return None
    pixels = [pixel for shape in shapes for pixel in shape]
    return Difference(len(pixels), bounding_box(pixels))


def _any_difference(value: int) -> int:
    return 255 if value else 0


def is_caret(box: Box) -> bool:
    """Return whether a changed shape can be a text cursor: a few pixels wide, a line high."""
    return box.width_px <= CARET_MAX_WIDTH_PX and box.height_px in CARET_HEIGHT_PX


def bounding_box(pixels: Iterable[tuple[int, int]]) -> Box:
    """Return the smallest box around pixels.

    Raises:
        ValueError: There are no pixels.
    """
    columns, rows = zip(*pixels, strict=True)
    return Box(min(columns), min(rows), max(columns) + 1, max(rows) + 1)


def _pixels(grey: Image.Image, bounds: tuple[int, int, int, int]) -> set[tuple[int, int]]:
    part = grey.crop(bounds)
    width = part.size[0]
    return {
        (bounds[0] + index % width, bounds[1] + index // width)
        for index, value in enumerate(part.tobytes())
        if value
    }


def _shapes(pixels: set[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    rest = set(pixels)
    shapes = []
    while rest:
        frontier = [rest.pop()]
        shape = list(frontier)
        while frontier:
            column, row = frontier.pop()
            around = {(column + dx, row + dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)} & rest
            rest -= around
            shape.extend(around)
            frontier.extend(around)
        shapes.append(shape)
    return shapes
