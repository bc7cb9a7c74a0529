"""History of an episode, each screenshot kept once, and prompts as views of it. Pure."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

VISION_START = "<|vision_start|>"
VISION_END = "<|vision_end|>"
IMAGE = f"{VISION_START}<|image_pad|>{VISION_END}"
"""Mark of a screenshot in the text of a prompt."""


@dataclass(slots=True)
class History:
    """An episode's instruction, screenshots (JPEG) and actions (text), in the order they came."""

    instruction: str
    parts: list[bytes | str] = field(default_factory=list)

    def prompt(self, max_images: int = 0) -> Prompt:
        """Return all so far; it stays so when the history grows."""
        return Prompt(self, len(self.parts), max_images)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The first ``length`` parts of a history: a view, so a step costs what it adds.

    ``str(prompt)`` is what OSGym's client makes: the instruction, actions, and each screenshot as base64
    between vision marks. With ``max_images`` only the newest so many are in it.
    """

    history: History
    length: int
    max_images: int = 0

    @property
    def images(self) -> list[bytes]:
        """The screenshots, as JPEG."""
        found = [part for part in self.history.parts[: self.length] if isinstance(part, bytes)]
        return found[-self.max_images :] if self.max_images else found

    def text(self, image: str = IMAGE) -> str:
        """Return the prompt with a mark in place of each screenshot."""
        return self._joined([image] * len(self.images))

    def __str__(self) -> str:
        coded = (base64.b64encode(one).decode("ascii") for one in self.images)
        return self._joined([f"{VISION_START}{one}{VISION_END}" for one in coded])

    def _joined(self, images: list[str]) -> str:
        parts = self.history.parts[: self.length]
        skipped = sum(isinstance(part, bytes) for part in parts) - len(images)
        shown = ["" for _ in range(skipped)] + images
        out = [self.history.instruction]
        for part in parts:
            out.append(part if isinstance(part, str) else shown.pop(0))
        return "".join(out)


def split_prompt(prompt: str | Prompt) -> tuple[str, list[bytes]]:
    """Return text and screenshots of a prompt, also of one that is text with base64 in it.

    Raises:
        ValueError: what stands between vision marks is not base64.
    """
    if isinstance(prompt, Prompt):
        return prompt.text(), prompt.images
    pieces = prompt.split(VISION_START)
    text, images = [pieces[0]], []
    for piece in pieces[1:]:
        coded, end, rest = piece.partition(VISION_END)
        if not end:
            text.append(VISION_START + piece)
            continue
        images.append(base64.b64decode(coded, validate=True))
        text.append(IMAGE + rest)
    return "".join(text), images
