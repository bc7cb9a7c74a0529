"""Time of a typed character in a field of a program."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.input_fidelity.stage import Stage, text_of
from benchmarks.input_fidelity.text_cells import MANY
from benchmarks.input_fidelity.witnessing import until

PLAIN = ("the quick brown fox jumps over the lazy dog and " * 5)[:200]
LINES = "\n".join(f"line number {number}" for number in range(20))
UNICODE = (MANY + "Съешь же ещё этих мягких французских булок. ")[:100]
TEXTS = {
    "200 characters of ASCII": ("entry", PLAIN),
    "20 lines": ("multiline", LINES),
    "100 characters of Unicode": ("multiline", UNICODE),
}
ARRIVAL_S = 60.0


@dataclass(frozen=True, slots=True)
class TypingTime:
    """Time of one text, in milliseconds for each of its characters.

    Attributes:
        arrived_ms: Time until the program has all of it; its file is checked every 50 ms.
    """

    text: str
    chars: int
    input_ms: float
    arrived_ms: float
    right: bool


def typing_time(stage: Stage, name: str) -> TypingTime:
    """Type one of the texts and measure."""
    target, text = TEXTS[name]
    stage.step(stage.click(target))
    began = time.monotonic()
    obs = stage.episode.step([{"op": "type", "text": text}], observe="none")

    def arrived() -> bool:
        return text_of(stage.witness.events(), target) == text

    right = bool(until(arrived, ARRIVAL_S))
    total_ms = (time.monotonic() - began) * 1000
    chars = len(text)
    assert obs.timing is not None
    return TypingTime(name, chars, obs.timing.input_ms / chars, total_ms / chars, right)
