"""How a batch is doing: numbers for a callback, and a one-line display on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a batch is. ``mean_reward`` is over the episodes that have a reward."""

    finished: int
    failed: int
    running: int
    total: int | None
    mean_reward: float | None
    steps: int
    elapsed_s: float

    @property
    def per_minute(self) -> float:
        """Trajectories per minute so far."""
        return 60.0 * self.finished / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def eta_s(self) -> float | None:
        """Seconds to go; None while it cannot be said."""
        if self.total is None or not self.finished:
            return None
        return (self.total - self.finished) * self.elapsed_s / self.finished

    def __str__(self) -> str:
        total = f"/{self.total}" if self.total is not None else ""
        reward = "" if self.mean_reward is None else f" · reward {self.mean_reward:.2f}"
        failed = f" · {self.failed} failed" if self.failed else ""
        eta = "" if self.eta_s is None else f" · {self.eta_s:.0f} s left"
        return (
            f"{self.finished}{total} done, {self.running} running · {self.steps} steps · "
            f"{self.per_minute:.1f}/min{reward}{failed}{eta}"
        )


OnProgress = Callable[[Progress], object]


class ProgressLine:
    """A callback that keeps one line up to date; prints nothing but the last where there is no terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._width = 0

    def __call__(self, progress: Progress) -> None:
        last = progress.running == 0 and progress.finished == progress.total
        if not self._stream.isatty():
            if last:
                print(progress, file=self._stream)
            return
        text = str(progress)
        self._stream.write("\r" + text.ljust(self._width) + ("\n" if last else ""))
        self._stream.flush()
        self._width = len(text)
