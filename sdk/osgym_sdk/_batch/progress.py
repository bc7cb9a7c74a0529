"""Progress of a batch: numbers for a callback, and a one-line display on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from osgym_sdk._models.results import Result


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a batch. ``mean_reward`` is over the episodes that have a reward."""

    finished: int
    failed: int
    running: int
    total: int | None
    mean_reward: float | None
    steps: int
    elapsed_s: float
    done: bool = False
    """True in the last report: no episode runs any more."""

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


class Tally:
    """Counts episodes and tells a callback of every change.

    Args:
        total: how many episodes there will be; None: unknown.
        on_progress: None: nobody wants to know.
    """

    def __init__(self, total: int | None, on_progress: OnProgress | None, clock: Callable[[], float]) -> None:
        self._total, self._on_progress, self._clock = total, on_progress, clock
        self._started_s = clock()
        self._finished = self._failed = self._running = self._steps = self._rewards = 0
        self._reward_sum = 0.0

    def start(self) -> None:
        """Time counts from here."""
        self._started_s = self._clock()

    def run(self, change: int) -> None:
        """Add to the number of running episodes."""
        self._running += change
        if change > 0:
            self.report()

    def add(self, result: Result) -> None:
        """Take the result of one."""
        self._finished += 1
        self._failed += not result.ok
        self._steps += len(result.steps)
        if result.reward is not None:
            self._rewards += 1
            self._reward_sum += result.reward
        self.report()

    def fail(self, count: int) -> None:
        """Take so many that failed before they began."""
        self._finished += count
        self._failed += count
        if count:
            self.report()

    def report(self, done: bool = False) -> None:
        """Tell how it is; ``done``: nothing runs any more."""
        if self._on_progress is None:
            return
        self._on_progress(
            Progress(
                finished=self._finished,
                failed=self._failed,
                running=self._running,
                total=self._total,
                mean_reward=self._reward_sum / self._rewards if self._rewards else None,
                steps=self._steps,
                elapsed_s=self._clock() - self._started_s,
                done=done,
            )
        )


def terminal_line() -> ProgressLine | None:
    """Return a line on stderr where that is a terminal, else None."""
    stream = sys.stderr
    try:
        return ProgressLine(stream) if stream is not None and stream.isatty() else None
    except ValueError:  # closed
        return None


class ProgressLine:
    """A callback that keeps one line of a terminal up to date.

    Elsewhere (a log, a notebook) it prints a line at the start, then one every ``every_s`` seconds in which
    something changed, and one at the end. A stream that cannot be written is no longer used.
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
