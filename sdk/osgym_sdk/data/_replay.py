"""One episode as a page of HTML that needs nothing else: filmstrip, scrubber, what was done drawn on it."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from PIL import Image

from osgym_sdk._exceptions import OSGymError
from osgym_sdk.data._dataset import Episode, Step
from osgym_sdk.data._replay_words import (
    cut,
    ending,
    facts,
    in_words,
    marks,
    notes,
    parts_ms,
    reward_word,
    waited,
)

WIDTHS = (1280, 960, 640, 400)
"""Pixels of an image in the page: the first with which the page stays within its bound."""
THUMBNAIL_WIDTH = 160
MAX_PAGE_MIB = 20.0
"""Size of a page. Mail servers commonly take attachments of 25 MB, base64 included."""
QUALITY = 75
"""Quality of WebP at its quickest method: text stays readable."""


def episode_page(episode: Episode, *, max_mib: float = MAX_PAGE_MIB) -> str:
    """Return the page: each step with what the policy saw, where it acted, what it said, what came of it.

    It opens from a file or a mail, without a network; what guests and models wrote is only ever text in it.

    Args:
        max_mib: images are made smaller until the page is no larger, as far as that goes.

    Raises:
        DatasetError: the episode cannot be read; an image that cannot is left out.
    """
    steps = episode.steps
    names = _frame_names(episode)
    numbers = {name: number for number, name in enumerate(names)}
    chunks = _chunks(episode, names, max_mib)
    lost = {name for name, number in numbers.items() if number not in chunks.found}
    shown = {name: number for name, number in numbers.items() if name not in lost}
    return _page(_told(episode, steps, shown, chunks.size), chunks.html, str(_title(episode)))


class _Chunks:
    """The images, as inert parts of the page."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.found: set[int] = set()
        self.bytes = 0
        self.size = (16, 9)

    @property
    def html(self) -> str:
        return "\n".join(self.parts)

    def add(self, number: int, image: Image.Image, width: int) -> None:
        """Take an image and its thumbnail."""
        self.found.add(number)
        self.size = image.size
        for letter, pixels in (("f", width), ("t", THUMBNAIL_WIDTH)):
            data = _webp(image, pixels)
            self.bytes += len(data)
            self.parts.append(f'<template id="{letter}{number}">{data}</template>')


def _chunks(episode: Episode, names: Mapping[str, Step], max_mib: float) -> _Chunks:
    found = _Chunks()
    for width in WIDTHS:
        found = _Chunks()
        for number, image in _images(names):
            found.add(number, image, width)
            if found.bytes > max_mib * 1024**2 and width != WIDTHS[-1]:
                break
        else:
            break
    return found


def _images(names: Mapping[str, Step]) -> Iterator[tuple[int, Image.Image]]:
    for number, (name, step) in enumerate(names.items()):
        try:
            image = step.image if step["frame"] == name else step.image_before
        except (OSGymError, KeyError, OSError):
            continue
        if image is not None:
            yield number, image


def _webp(image: Image.Image, width: int) -> str:
    if image.width > width:
        image = image.resize((width, max(1, image.height * width // image.width)), Image.Resampling.BOX)
    out = io.BytesIO()
    image.save(out, "WEBP", quality=QUALITY, method=0)
    return base64.b64encode(out.getvalue()).decode("ascii")


def _frame_names(episode: Episode) -> dict[str, Step]:
    """Return the name of each different image, and a step that has it."""
    found: dict[str, Step] = {}
    for step in (episode.first, *episode.steps):
        for column in ("frame_before", "frame"):
            if step[column] is not None:
                found.setdefault(step[column], step)
    return found


def _told(
    episode: Episode, steps: list[Step], numbers: Mapping[str, int], size: tuple[int, int]
) -> dict[str, Any]:
    """Return what the script shows."""
    first = episode.first
    screen = (first["screen_width"] or size[0], first["screen_height"] or size[1])
    return {
        "title": _title(episode),
        "reward": reward_word(episode),
        "facts": [*facts(episode), *_missing(episode, numbers)],
        "end": ending(episode),
        "screen": screen,
        "first": numbers.get(first["frame"]),
        "steps": [_step(step, numbers) for step in steps],
    }


def _missing(episode: Episode, numbers: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return what is said of images that the page lacks."""
    names = _frame_names(episode)
    if not names:
        return [("Screens", "were not recorded; a host agent does with the setting trajectory: frames")]
    lost = len(names) - len(numbers)
    return [("Screens", f"{lost} of {len(names)} could not be read")] if lost else []


def _step(step: Step, numbers: Mapping[str, int]) -> dict[str, Any]:
    words = [in_words(action) for action in step.actions]
    return {
        "number": step["step"],
        "before": numbers.get(step["frame_before"]),
        "after": numbers.get(step["frame"]),
        "label": words[0] if words else "",
        "actions": words,
        "marks": [mark for action in step.actions for mark in marks(action)],
        "text": cut(step["text"] or ""),
        "notes": notes(step),
        "times": parts_ms(step),
        "total": "" if step["total_ms"] is None else f"{step['total_ms']:.0f} ms",
        "settle": waited(step),
    }


def _title(episode: Episode) -> str:
    return str(episode.first["task_id"] or episode.name)


def _page(told: Mapping[str, Any], images: str, title: str) -> str:
    style, script, body = (_asset(f"replay.{kind}") for kind in ("css", "js", "html"))
    policy = (
        f"default-src 'none'; img-src blob:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    # A data block is not run; `<` is escaped so that no text in it can end the block.
    data = json.dumps(told, ensure_ascii=True).replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{style}</style></head><body>\n{body}"
        f'<script type="application/json" id="episode">{data}</script>\n{images}\n'
        f"<script>{script}</script>\n</body></html>\n"
    )


def _asset(name: str) -> str:
    return resources.files("osgym_sdk.data").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
