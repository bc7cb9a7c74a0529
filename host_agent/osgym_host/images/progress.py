"""Progress of a bake: bars on a terminal, plain lines elsewhere, nothing for machines."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from enum import StrEnum

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress


class ProgressDisplay(StrEnum):
    BARS = "bars"
    LINES = "lines"
    NONE = "none"


STAGES = {
    "download": "Download packages",
    "unpack": "Unpack packages",
    "configure": "Configure packages",
    "write": "Install the packages",
    "layer": "Add the desktop",
    "check": "Check the image",
    "fetch": "Download the machine's packages",
    "disk": "Make the disk",
    "boot": "Boot the machine",
    "warmup": "Warm the machine up",
    "open": "Start the programs that clones have running",
    "rest": "Wait until the machine is idle",
    "freeze": "Freeze it",
    "try": "Try a clone",
    "hash": "Compare with the image",
    "upload": "Send layers",
    "pull": "Fetch layers",
    "layers": "Unpack layers",
    "publish": "Publish",
}


class BakeProgress:
    """Progress of one bake. Thread-safe.

    Attributes:
        timings: Time of the last progress of each stage, in seconds after the start.
    """

    def __init__(self, display: ProgressDisplay, console: Console | None = None) -> None:
        self._display = display
        self._console = console or Console(stderr=True)
        self._bars: RichProgress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._counts: dict[str, int] = {}
        self._totals: dict[str, int] = {}
        self._expected = 0
        self._essential = 0
        self._mutex = threading.Lock()
        self._begin = time.monotonic()
        self.timings: dict[str, float] = {}

    @contextlib.contextmanager
    def shown(self) -> Iterator[BakeProgress]:
        """Show it for the time of the block; a second call starts anew."""
        self._begin = time.monotonic()
        self._tasks, self._counts = {}, {}
        if self._display is not ProgressDisplay.BARS:
            yield self
            return
        columns = (
            TextColumn("{task.description:<24}"),
            BarColumn(bar_width=36),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[what]}"),
        )
        with RichProgress(*columns, console=self._console, transient=False) as bars:
            self._bars = bars
            try:
                yield self
                for name in self._tasks:
                    self._close(name)
            finally:
                self._bars = None

    def expect(self, packages: int) -> None:
        """Add packages that will be installed (apt announces the essential ones and the rest)."""
        with self._mutex:
            if packages == 0:
                return
            self._expected = max(self._expected, self._essential + packages)
            self._essential = self._essential or packages
            for stage, task in self._tasks.items():
                if self._bars is not None and stage in ("unpack", "configure"):
                    self._bars.update(task, total=self._expected)

    def expect_count(self, stage: str, total: int) -> None:
        """Set how often `count` will be called for a stage, and begin it."""
        self._totals[stage] = total
        self.stage(stage)

    def count(self, stage: str, what: str) -> None:
        with self._mutex:
            self._counts[stage] = count = self._counts.get(stage, 0) + 1
            self._move(stage)
            if self._bars is not None:
                self._bars.update(self._task(stage), advance=1, what=what)
            elif self._display is ProgressDisplay.LINES and count % 50 == 0:
                expected = self._totals.get(stage) or (stage != "download" and self._expected)
                total = f" of {expected}" if expected else ""
                self._line(f"{STAGES[stage].lower()}: {count}{total}")

    def stage(self, stage: str, what: str = "") -> None:
        with self._mutex:
            self._move(stage)
            if self._bars is not None:
                for name in list(self._tasks):
                    self._close(name)
                self._bars.update(self._task(stage), what=what)
            elif self._display is ProgressDisplay.LINES:
                self._line(f"{STAGES.get(stage, stage)}{': ' + what if what else ''}")

    def note(self, text: str) -> None:
        """Print a message for readers of the log."""
        with self._mutex:
            if self._display is ProgressDisplay.LINES:
                self._line(text)

    def wait(self, text: str) -> None:
        """Print what is waited for, above the bars too, since none of them moves meanwhile."""
        self.note(text)
        if self._bars is not None:
            self._bars.console.print(text, markup=False, highlight=False)

    def _line(self, text: str) -> None:
        self._console.print(
            f"[{time.monotonic() - self._begin:6.1f} s] {text}", markup=False, highlight=False
        )

    def _move(self, stage: str) -> None:
        self.timings[stage] = round(time.monotonic() - self._begin, 2)

    def _task(self, stage: str) -> TaskID:
        assert self._bars is not None
        if stage not in self._tasks:
            expected = self._expected if stage in ("unpack", "configure") else 0
            total = self._totals.get(stage) or expected or None
            self._tasks[stage] = self._bars.add_task(STAGES.get(stage, stage), total=total, what="")
        return self._tasks[stage]

    def _close(self, stage: str) -> None:
        assert self._bars is not None
        task = self._tasks[stage]
        done = self._counts.get(stage, 1)
        self._bars.update(task, total=done, completed=done, what="")
        self._bars.stop_task(task)
