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
    done: bool = False
    """This is the last; nothing runs any more."""

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
    """A callback that keeps one line of a terminal up to date.

    Elsewhere (a log, a notebook) it prints a line at the start, then one every ``every_s`` seconds in which
    something changed, and one at the end. A stream that cannot be written is given up.
    """

    def __init__(self, stream: TextIO | None = None, every_s: float = 10.0) -> None:
        self._stream: TextIO | None = stream or sys.stderr
        self._every_s = every_s
        self._width = 0
        self._printed_s: float | None = None
        self._ended = False

    def __call__(self, progress: Progress) -> None:
        stream = self._stream
        if stream is None or self._ended:
            return
        self._ended = progress.done
        try:
            self._show(stream, progress)
        except (OSError, ValueError):  # closed, or its reader is gone
            self._stream = None

    def _show(self, stream: TextIO, progress: Progress) -> None:
        text = str(progress)
        due = self._printed_s is None or progress.elapsed_s - self._printed_s >= self._every_s
        if stream.isatty():
            stream.write("\r" + text.ljust(self._width) + ("\n" if progress.done else ""))
            self._width = len(text)
        elif due or progress.done:
            self._printed_s = progress.elapsed_s
            stream.write(text + "\n")
        stream.flush()
