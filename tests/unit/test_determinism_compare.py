"""From frames to what differs."""

from __future__ import annotations

from benchmarks.determinism.compare import Cause, cause, count, differences, side_by_side
from PIL import Image, ImageDraw


def test_shares() -> None:
    """Of each step the most frequent frame."""
    report = count("f", "local", [["a", "b", "c"], ["a", "b", "d"], ["a", "x", "e"], ["a", "b", "c"]])
    assert [step.share for step in report.steps] == [1.0, 0.75, 0.5]
    assert report.share == 0.75
    assert report.row()["by_step"] == [1.0, 0.75, 0.5]
    assert count("f", "local", []).share == 0.0


def test_boxes_and_causes() -> None:
    """Places that lie apart are boxes of their own, near ones are one."""
    one = Image.new("RGB", (1920, 1080))
    other = one.copy()
    assert differences(one, other) == []
    draw = ImageDraw.Draw(other)
    draw.rectangle((100, 100, 101, 115), fill=(255, 255, 255))
    draw.rectangle((600, 300, 700, 310), fill=(255, 255, 255))
    draw.rectangle((1850, 1050, 1880, 1060), fill=(255, 255, 255))
    boxes = sorted(differences(one, other))
    assert boxes == [(100, 100, 102, 116), (600, 300, 701, 311), (1850, 1050, 1881, 1061)]
    named = [cause("flow/files", 3, box) for box in boxes]
    assert named == [Cause.CARET, Cause.UNKNOWN, Cause.PANEL_CLOCK]
    assert cause("flow/files", 1, boxes[1]) is Cause.CLOCK
    assert cause("flow/files", 1, (210, 1044, 450, 1076)) is Cause.PANEL
    assert side_by_side(one, other, boxes[1]).size == (101 + 48, 2 * (11 + 48) + 4)
