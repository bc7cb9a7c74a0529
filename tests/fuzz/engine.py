"""The loop: inputs that reach new lines are kept and changed further; whatever breaks the promise is found.

The promise of every target is the same: an input is taken, or refused by the target's own error, within
seconds of CPU time and without memory that the input does not account for.
"""

from __future__ import annotations

import ast
import contextlib
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any

from tests.fuzz.mutation import MAX_BYTES, mutate

CORPUS = Path(__file__).parent / "corpus"
CPU_S = 5.0
"""User time of one input, traced: no parser of ours needs a tenth of it for what `MAX_BYTES` holds."""
WALL_S = 60.0
MEMORY_MIB = 96
"""By how much the process may grow over a whole run, caches and kept inputs included."""

Run = Callable[[bytes], None]
"""Feed one input; returns when it was taken or refused, raises when the promise was broken."""
Mutation = Callable[[Random, bytes, Sequence[bytes]], bytes]


class Hang(BaseException):
    """An input took more time than any may take. Not an `Exception`: nothing on the way catches it."""


@dataclass(frozen=True)
class Target:
    """A parser and its promise.

    Attributes:
        opened: brings up what it needs (a socket, a guest) and gives the function to feed.
        watched: parts of file names whose lines guide the search.
        traced: whether lines can be seen at all (not those of another process).
    """

    name: str
    opened: Callable[[], contextlib.AbstractContextManager[Run]]
    watched: tuple[str, ...] = ()
    mutation: Mutation = mutate
    traced: bool = True

    def corpus(self) -> list[bytes]:
        """The committed inputs: one Python bytes literal a line, comments between them."""
        lines = (CORPUS / f"{self.name}.txt").read_text().splitlines()
        return [ast.literal_eval(line) for line in lines if line.strip() and not line.startswith("#")]


@dataclass
class Finding:
    """An input that broke the promise, and how."""

    target: str
    data: bytes
    error: str

    def __str__(self) -> str:
        shown = repr(self.data) if len(self.data) < 2000 else f"{self.data[:2000]!r}… {len(self.data)} bytes"
        return f"{self.target}: {shown}\n{self.error}"


@dataclass
class Report:
    """What one run did."""

    target: str
    inputs: int = 0
    lines: int = 0
    kept: int = 0
    grown_mib: float = 0.0
    findings: list[Finding] = field(default_factory=list)


def fuzz(target: Target, seconds: float, seed: int, most_findings: int = 5) -> Report:
    """Feed the corpus, then inputs made of it until the time is over. In the main thread only."""
    random = Random(f"{target.name}:{seed}")
    kept = target.corpus()
    report = Report(target.name)
    lines = _Lines(target.watched if target.traced else ())
    with target.opened() as run:
        before_mib = _begin_peak()
        end = time.monotonic() + seconds
        queue = list(kept)
        while queue or time.monotonic() < end:
            data = queue.pop(0) if queue else target.mutation(random, random.choice(kept), kept)[:MAX_BYTES]
            error = _fed(run, data, lines)
            report.inputs += 1
            if lines.take_new() and len(data) <= 8192:
                kept.append(data)
            if error:
                report.findings.append(Finding(target.name, data, error))
                if len(report.findings) >= most_findings:
                    break
        report.grown_mib = _peak_mib() - before_mib
    report.lines, report.kept = len(lines.seen), len(kept)
    if report.grown_mib > MEMORY_MIB:
        report.findings.append(Finding(target.name, b"", f"the process grew by {report.grown_mib:.0f} MiB"))
    return report


def _fed(run: Run, data: bytes, lines: _Lines) -> str:
    """What was wrong with an input; empty when nothing was."""
    try:
        with _clock(), lines:
            run(data)
    except Hang:
        return f"it took more than {CPU_S:g} s of CPU or {WALL_S:g} s\n{traceback.format_exc(limit=-4)}"
    except Exception:  # noqa: BLE001 (that is the question)
        return traceback.format_exc(limit=-4)
    return ""


@contextlib.contextmanager
def _clock() -> Iterator[None]:
    def late(*_: Any) -> None:
        raise Hang

    old = [signal.signal(number, late) for number in (signal.SIGVTALRM, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    signal.setitimer(signal.ITIMER_REAL, WALL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip((signal.SIGVTALRM, signal.SIGALRM), old, strict=True):
            signal.signal(number, handler)


class _Lines:
    """Which lines of the watched files an input reached."""

    def __init__(self, watched: tuple[str, ...]) -> None:
        self.seen: set[tuple[CodeType, int]] = set()
        self._watched = watched
        self._wanted: dict[CodeType, bool] = {}
        self._known = 0

    def take_new(self) -> bool:
        """Whether there are more than at the last call."""
        new = len(self.seen) > self._known
        self._known = len(self.seen)
        return new

    def __enter__(self) -> None:
        if self._watched and threading.current_thread() is threading.main_thread():
            sys.settrace(self._call)

    def __exit__(self, *_: object) -> None:
        if self._watched:
            sys.settrace(None)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        wanted = self._wanted.get(code)
        if wanted is None:
            wanted = self._wanted[code] = any(part in code.co_filename for part in self._watched)
        return self._line if wanted else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self.seen.add((frame.f_code, frame.f_lineno))
        return self._line


def _begin_peak() -> float:
    """Forget the largest size that the process had until now; return the size that it has, in MiB."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak_mib()


def _peak_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
