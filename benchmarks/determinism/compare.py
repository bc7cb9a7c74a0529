"""Differences between the frames of many replicas: shares, boxes, known causes. Pure but for pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from PIL import Image, ImageChops

Box = tuple[int, int, int, int]
CARET_PX = (3, 32)
MARGIN_PX = 24
TILE_PX = 32


class Cause(StrEnum):
    PANEL_CLOCK = "the panel's clock"
    PANEL = "the panel, which is drawn when its turn comes; a step does not wait for it"
    CARET = "a caret that blinks, or stands elsewhere"
    CLOCK = "dates: the flow shows the time, or files that are as old as the replica"
    OWN = "what the replica is: ids, pids, random names"
    UNKNOWN = "unknown"


PANEL_CLOCK: Box = (1820, 1040, 1920, 1080)
"""Place of the panel's clock at 1920×1080."""
STEPS: Mapping[tuple[str, int], Cause] = {
    ("flow/terminal-of-its-own", 1): Cause.OWN,
    ("flow/terminal-of-its-own", 2): Cause.OWN,
    ("flow/terminal-of-its-own", 3): Cause.OWN,
    ("flow/terminal-of-its-own", 4): Cause.CLOCK,
    ("flow/terminal-of-its-own", 5): Cause.CLOCK,
    ("flow/terminal-of-its-own", 6): Cause.OWN,
    ("flow/files", 1): Cause.CLOCK,
    ("flow/dialogs", 2): Cause.CLOCK,
    ("flow/dialogs", 4): Cause.CLOCK,
    ("flow/dialogs", 5): Cause.CLOCK,
}
"""Steps that show something on purpose that a replica may have for itself."""


@dataclass(frozen=True)
class StepShare:
    """One step of a flow over all replicas; step 0 is the first frame.

    Attributes:
        hashes: Number of replicas that showed each frame, the most frequent first.
    """

    step: int
    hashes: dict[str, int]

    @property
    def share(self) -> float:
        """Share of replicas that showed the most frequent frame."""
        return max(self.hashes.values()) / sum(self.hashes.values())


@dataclass
class FlowReport:
    """Frames of a flow on all replicas of a runtime."""

    flow: str
    runtime: str
    replicas: int
    steps: list[StepShare]
    differences: list[dict[str, Any]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Share of frames that are the most frequent one of their step."""
        same = sum(max(step.hashes.values()) for step in self.steps)
        return same / total if (total := sum(sum(step.hashes.values()) for step in self.steps)) else 0.0

    def row(self) -> dict[str, Any]:
        shares = [round(step.share, 4) for step in self.steps]
        row = {k: v for k, v in asdict(self).items() if k != "steps"}
        return {**row, "identical": round(self.share, 4), "by_step": shares}


def count(flow: str, runtime: str, frames: Sequence[Sequence[str]]) -> FlowReport:
    """Count the frames of the replicas that came to the end.

    Args:
        frames: Hash of each step's frame, for each replica.
    """
    length = min(map(len, frames), default=0)
    steps = [
        StepShare(number, dict(Counter(one[number] for one in frames).most_common()))
        for number in range(length)
    ]
    return FlowReport(flow, runtime, len(frames), steps)


def differences(one: Image.Image, other: Image.Image) -> list[Box]:
    """Return a box around each group of pixels that differ, groups being `TILE_PX` or more apart."""
    differing = ImageChops.difference(one.convert("RGB"), other.convert("RGB"))
    tiles: dict[tuple[int, int], Box] = {}
    for x in range(0, one.width, TILE_PX):
        for y in range(0, one.height, TILE_PX):
            found = differing.crop((x, y, x + TILE_PX, y + TILE_PX)).getbbox()
            if found is not None:
                left, top, right, bottom = found
                tiles[x // TILE_PX, y // TILE_PX] = (left + x, top + y, right + x, bottom + y)
    boxes = []
    while tiles:
        group, waiting = [], [next(iter(tiles))]
        while waiting:
            x, y = waiting.pop()
            if (box := tiles.pop((x, y), None)) is not None:
                group.append(box)
                waiting += [(x + dx, y + dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)]
        lefts, tops, rights, bottoms = zip(*group, strict=True)
        boxes.append((min(lefts), min(tops), max(rights), max(bottoms)))
    return boxes


def cause(flow: str, step: int, box: Box) -> Cause:
    """Name why a step's frames differ within a box."""
    left, top, right, bottom = box
    if top >= PANEL_CLOCK[1]:
        return Cause.PANEL_CLOCK if left >= PANEL_CLOCK[0] else Cause.PANEL
    if right - left <= CARET_PX[0] and bottom - top <= CARET_PX[1]:
        return Cause.CARET
    return STEPS.get((flow, step), Cause.UNKNOWN)


def side_by_side(one: Image.Image, other: Image.Image, box: Box) -> Image.Image:
    """Crop both frames to the box and a margin, one above the other."""
    left, top, right, bottom = box
    crop = (
        max(0, left - MARGIN_PX),
        max(0, top - MARGIN_PX),
        min(one.width, right + MARGIN_PX),
        min(one.height, bottom + MARGIN_PX),
    )
    parts = [image.convert("RGB").crop(crop) for image in (one, other)]
    width, height = parts[0].size
    sheet = Image.new("RGB", (width, 2 * height + 4), (255, 0, 0))
    sheet.paste(parts[0], (0, 0))
    sheet.paste(parts[1], (0, height + 4))
    return sheet
