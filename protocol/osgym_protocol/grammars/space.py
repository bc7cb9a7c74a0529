"""Conversion between coordinates of models and pixels of the screen. Nothing is clamped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from osgym_protocol.limits import MAX_SCREEN_SIDE_PX

Coordinates = str | tuple[int, int]
"""``pixel``, ``norm1000``, ``norm1``, or the width and height of an image of the whole screen."""
NAMES = ("pixel", "norm1000", "norm1")


@dataclass(frozen=True, slots=True)
class Space:
    """A space of coordinates over the screen.

    Attributes:
        screen: Width and height in pixels.
        size: Width and height of the space: 1000 and 1 when normalised, else those of an image.
        closed: The far edge belongs to it, as in 0 to 1000; an image's last column is ``width - 1``.
    """

    screen: tuple[int, int]
    size: tuple[int, int]
    closed: bool

    @classmethod
    def named(cls, coordinates: Any, screen: tuple[int, int]) -> Space:
        """Return the space with that name or size. Raises ValueError if no space has that name or size."""
        if coordinates == "pixel":
            return cls(screen, screen, False)
        if coordinates == "norm1000":
            return cls(screen, (1000, 1000), True)
        if coordinates == "norm1":
            return cls(screen, (1, 1), True)
        if isinstance(coordinates, (tuple, list)) and len(coordinates) == 2:
            width, height = coordinates
            whole = type(width) is int and type(height) is int
            if whole and min(width, height) > 0 and max(width, height) <= MAX_SCREEN_SIDE_PX:
                return cls(screen, (width, height), False)
        raise ValueError(f"coordinates must be one of {', '.join(NAMES)}, or (width, height) of an image")

    def allowed(self) -> str:
        """Return the range of points, for messages."""
        width, height = self.size
        if self.closed:
            return f"x and y from 0 to {width}"
        return f"x from 0 to {width - 1}, y from 0 to {height - 1}"

    def pixel(self, x: Any, y: Any) -> tuple[int, int] | None:
        """Return the pixel of the screen, or None where the point lies outside or is no point."""
        if self._is_fraction(x, y):
            return None
        px, py = self._pixel(x, 0), self._pixel(y, 1)
        return None if px is None or py is None else (px, py)

    def why(self, x: Any, y: Any) -> str:
        """Return the reason for which a point has no pixel, for messages."""
        numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (x, y))
        if not numbers:
            return "the point must be in the image, as two numbers"
        fraction = ", not as fractions of it" if self._is_fraction(x, y) else ""
        return f"the point must be in the image{fraction}"

    def _is_fraction(self, x: Any, y: Any) -> bool:
        """Return whether a point can only be meant as fractions of an image, in a space of whole numbers.

        Read as pixels it would be the corner of the screen.
        """
        if self.closed and self.size == (1, 1):
            return False
        numbers = [value for value in (x, y) if isinstance(value, (int, float))]
        inside = len(numbers) == 2 and all(0 <= value <= 1 for value in numbers)
        return inside and any(isinstance(value, float) and not value.is_integer() for value in numbers)

    def _pixel(self, value: Any, axis: int) -> int | None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        side, size = self.screen[axis], self.size[axis]
        if not (0 <= value <= size if self.closed else 0 <= value < size):  # also no for NaN
            return None
        if self.closed:
            return min(side - 1, int(value * side / size))
        if side == size:
            return int(value)
        return min(side - 1, int((int(value) + 0.5) * side / size))

    def point(self, x: int, y: int) -> tuple[float, float]:
        """Return a point of the space that is read as the given pixel, if there is one."""
        return self._point(x, 0), self._point(y, 1)

    def _point(self, pixel: int, axis: int) -> float:
        side, size = self.screen[axis], self.size[axis]
        if size == 1:
            return (pixel + 0.5) / side
        if self.closed:
            return min(size, math.ceil(pixel * size / side))
        return pixel if side == size else int((pixel + 0.5) * size / side)

    def region(self, left: Any, top: Any, right: Any, bottom: Any) -> tuple[int, int, int, int] | None:
        """Return x, y, width, height in pixels of a part of the screen; None where it is none."""
        edges = []
        for value, axis in ((left, 0), (top, 1), (right, 0), (bottom, 1)):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return None
            if not 0 <= value <= self.size[axis]:
                return None
            edges.append(int(value * self.screen[axis] / self.size[axis] + 0.5))
        x, y, width, height = edges[0], edges[1], edges[2] - edges[0], edges[3] - edges[1]
        return (x, y, width, height) if width > 0 and height > 0 else None

    def length_px(self, length: float, axis: int) -> float:
        """Return a length of the space in pixels of the screen."""
        return length * self.screen[axis] / self.size[axis]


def smart_resize(
    width: int, height: int, factor: int = 28, min_pixels: int = 3136, max_pixels: int = 12_845_056
) -> tuple[int, int]:
    """Return the size that a Qwen2.5-VL processor gives to an image, in which its coordinates are.

    Args:
        width: Width of the image that is sent.
        height: Height of the image that is sent.
        factor: Number of which both sides become multiples.
        min_pixels: Size to which smaller images are enlarged.
        max_pixels: Size to which larger images are reduced; use the value of the model server's processor.

    Source: `smart_resize` of Qwen2-VL's image processor (transformers) and of UI-TARS' README_coordinates.
    """
    if min(width, height) < 1 or max(width, height) > 200 * min(width, height):
        raise ValueError("a side is 0, or the sides differ by a factor of more than 200")
    new_width = max(factor, round(width / factor) * factor)
    new_height = max(factor, round(height / factor) * factor)
    if new_width * new_height > max_pixels:
        scale = math.sqrt(width * height / max_pixels)
        new_width = max(factor, math.floor(width / scale / factor) * factor)
        new_height = max(factor, math.floor(height / scale / factor) * factor)
    elif new_width * new_height < min_pixels:
        scale = math.sqrt(min_pixels / (width * height))
        new_width = math.ceil(width * scale / factor) * factor
        new_height = math.ceil(height * scale / factor) * factor
    return new_width, new_height
