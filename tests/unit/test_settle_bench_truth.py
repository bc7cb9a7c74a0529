"""The settle benchmark's ground truth: which differences between two screens count."""

from __future__ import annotations

import pytest
from benchmarks.settle.truth import Box, difference
from PIL import Image, ImageDraw

PANEL = Box(0, 180, 200, 200)


def screen(*boxes: tuple[int, int, int, int]) -> Image.Image:
    """A white screen of 200 by 200 with black boxes (right and bottom exclusive)."""
    image = Image.new("RGB", (200, 200), "white")
    draw = ImageDraw.Draw(image)
    for left, top, right, bottom in boxes:
        draw.rectangle([left, top, right - 1, bottom - 1], fill="black")
    return image


def test_equal_screens_do_not_differ() -> None:
    """The same picture is the same."""
    assert difference(screen((5, 5, 9, 9)), screen((5, 5, 9, 9)), []) is None


def test_one_pixel_counts() -> None:
    """A single changed pixel is a difference, with its place."""
    found = difference(screen(), screen((50, 60, 51, 61)), [PANEL])
    assert found is not None
    assert found.pixels == 1
    assert found.box == Box(50, 60, 51, 61)


def test_panel_is_masked() -> None:
    """What changes on the panel does not count."""
    assert difference(screen(), screen((20, 185, 90, 195)), [PANEL]) is None


@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_caret_does_not_count(width: int) -> None:
    """A shape a few pixels wide and a line high is a caret, also two of them."""
    assert difference(screen(), screen((50, 60, 50 + width, 80), (90, 60, 90 + width, 80)), []) is None


@pytest.mark.parametrize("box", [(50, 60, 55, 80), (50, 60, 52, 64), (50, 60, 52, 160)])
def test_other_shapes_count(box: tuple[int, int, int, int]) -> None:
    """Too wide, too low or too high for a caret: a difference."""
    assert difference(screen(), screen(box), []) is not None


def test_a_caret_beside_a_change_does_not_hide_it() -> None:
    """The change is reported without the caret."""
    found = difference(screen(), screen((50, 60, 52, 80), (100, 60, 110, 70)), [])
    assert found is not None
    assert found.box == Box(100, 60, 110, 70)
    assert found.pixels == 100


def test_large_changes_are_counted_whole() -> None:
    """A change of many pixels is not sorted into shapes."""
    found = difference(screen(), screen((0, 0, 150, 150)), [])
    assert found is not None
    assert found.pixels == 150 * 150


def test_sizes_must_agree() -> None:
    """Two screens of different size cannot be compared."""
    with pytest.raises(ValueError):
        difference(screen(), Image.new("RGB", (10, 10)), [])
