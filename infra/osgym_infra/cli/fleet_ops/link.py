"""What runs a command on one host, whichever way it is entered."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Protocol

from osgym_infra.cli.fleet_ops.outcome import HostFailure
from osgym_infra.cli.fleet_ops.text import MOST_SHOWN_LINES, Lines
from osgym_infra.hosts.transport import GUARD

POLL_S = 0.5
"""So long at most until a command that nobody wants any more is noticed."""
CONNECT_S = 20.0
MOST_KEPT_BYTES = 1024 * 1024
"""Of a command's output its end is kept, for commands that read it."""


class LinkFailed(Exception):
    """The command did not come to its end there."""

    def __init__(self, step: str, problem: str, remedy: str = "") -> None:
        self.failure = HostFailure(step, problem, remedy)
        super().__init__(str(self.failure))


@dataclass(frozen=True, slots=True)
class RemoteJob:
    """A command for many hosts.

    Attributes:
        argv: run as it is, no shell in between; it ends when the connection does.
        as_root: through `sudo -n` where the login is somebody else's.
        deadline_s: of one host, from the connection to the command's end; None: only the connection has one.
        most_lines: of one host that are shown; None: all.
    """

    argv: tuple[str, ...]
    as_root: bool = False
    deadline_s: float | None = None
    most_lines: int | None = MOST_SHOWN_LINES

    def guarded(self, sudo: bool) -> list[str]:
        """As it is run there: stopped with all that it started when our end goes away."""
        whole = ["sh", "-c", GUARD, "guard", *self.argv]
        return ["sudo", "-n", *whole] if sudo and self.as_root else whole


class Budget:
    """How long one host may still take, and whether anybody still wants it."""

    def __init__(self, job: RemoteJob, stop: threading.Event) -> None:
        self._end_s = None if job.deadline_s is None else time.monotonic() + job.deadline_s
        self._deadline_s, self._stop = job.deadline_s, stop

    def check(self, step: str) -> None:
        """Raises: LinkFailed: the time is over, or we were interrupted."""
        if self._stop.is_set():
            raise LinkFailed("interrupted", "stopped before its end")
        if self._end_s is not None and time.monotonic() > self._end_s:
            problem = f"not done within {self._deadline_s:g} s; it was stopped"
            raise LinkFailed(step, problem, "give it more time with --deadline-s")

    def connect_s(self) -> float:
        """How long a connection may take to be made."""
        if self._end_s is None:
            return CONNECT_S
        return max(1.0, min(CONNECT_S, self._end_s - time.monotonic()))


class Output:
    """The lines of a command as they come, and the end of what it printed."""

    def __init__(self, lines: Lines) -> None:
        self._lines, self._kept = lines, bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._kept += data
        if len(self._kept) > 2 * MOST_KEPT_BYTES:
            del self._kept[:-MOST_KEPT_BYTES]
        self._lines.feed(data)

    def end(self) -> None:
        """Pass on what had no line end."""
        self._lines.end()

    def skip(self, *beginnings: str) -> None:
        """Do not show lines that begin so."""
        self._lines.skipped = beginnings

    @property
    def text(self) -> str:
        """What was printed, as it came; not fit to be shown."""
        return self._kept[-MOST_KEPT_BYTES:].decode(errors="replace")


class HostLink(Protocol):
    """A way into one host. Used by one thread at a time."""

    def execute(self, job: RemoteJob, budget: Budget, output: Output) -> int:
        """Run a command; return its exit code.

        Raises:
            LinkFailed: it did not come to its end.
        """
        ...

    def close(self) -> None:
        """Close what is open; idempotent."""
        ...
