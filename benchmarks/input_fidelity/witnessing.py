"""Starts a witness in an episode's desktop and reads the events that it received."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.input_fidelity.toolkits import INSIDE, LOG, RCFILE, WITNESSES, Toolkit
from osgym_sdk import Episode, PathNotFound, Window

Event = Mapping[str, Any]
POLL_S = 0.05
MOVED_S = 20.0
STOP_S = 10.0
FRAME_PX = 60
"""Upper bound of what a window manager's frame adds to a position."""


class WitnessFailed(RuntimeError):
    """A witness did not start; the message has its output."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Times for what must come, and for what must not.

    Attributes:
        quiet_s: Time in which nothing may come after them.
        factor: Factor by which starting a program takes longer than on an idle machine.
    """

    arrival_s: float
    quiet_s: float
    factor: float


def until(condition: Callable[[], Any], timeout_s: float) -> Any:
    """Poll until the condition returns something true; return that, or its last value."""
    end = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found or time.monotonic() > end:
            return found
        time.sleep(POLL_S)


def send_witnesses(episode: Episode) -> None:
    for path in sorted(WITNESSES.iterdir()):
        if path.is_file():
            episode.write_file(f"{INSIDE}/{path.name}", path.read_bytes())
    episode.write_file(RCFILE, f"cd\nPS1='$ '\nHISTFILE=\necho '{{\"event\": \"ready\"}}' >>{LOG}\n")


def move_window(episode: Episode, window: Window, x: int, y: int) -> tuple[int, int]:
    """Move a window on the screen; return the distance, in pixels.

    Raises:
        WitnessFailed: The window manager does not move it.
    """
    seen: list[tuple[int, int]] = []

    def moved() -> bool:
        found = [one for one in episode.windows() if one.id == window.id]
        seen.extend((one.x_px, one.y_px) for one in found)
        near = bool(seen) and max(abs(seen[-1][0] - x), abs(seen[-1][1] - y)) <= FRAME_PX
        return near and len(seen) > 1 and seen[-1] == seen[-2]

    for change in (("-b", "remove,maximized_vert,maximized_horz"), ("-e", f"0,{x},{y},-1,-1")):
        episode.execute(["wmctrl", "-i", "-r", hex(window.id), *change])
    if not until(moved, MOVED_S):
        raise WitnessFailed(f"window {window.title!r} was not moved to {x},{y} within {MOVED_S:g} s")
    return seen[-1][0] - window.x_px, seen[-1][1] - window.y_px


class Witness:
    """One program with a window, from its start to its end.

    Attributes:
        targets: Place and size on the screen of each of its targets, in pixels.
    """

    def __init__(self, episode: Episode, toolkit: Toolkit, *, log: str = LOG) -> None:
        self._episode = episode
        self.toolkit = toolkit
        self._log = log
        self._pid = 0
        self._before: set[int] = set()
        self._shown: list[Window] = []
        self.targets: dict[str, list[int]] = {}

    def start(self, factor: float = 1.0) -> None:
        """Start it and wait until its window is shown.

        Raises:
            WitnessFailed: It ended, or is not ready in time.
        """
        self._before = {window.id for window in self._episode.windows()}
        words = " ".join(shlex.quote(word.replace("{log}", self._log)) for word in self.toolkit.command)
        script = f"rm -f {self._log}; setsid {words} >{self._log}.out 2>&1 </dev/null & echo $!"
        self._pid = int(self._episode.execute(script, cwd=INSIDE).stdout)
        timeout_s = self.toolkit.start_s * factor
        if not until(lambda: self._event("ready") or not self.alive(), timeout_s) or not self._event("ready"):
            printed = self._episode.execute(f"tail -c 2000 {self._log}.out").stdout
            raise WitnessFailed(f"{self.toolkit.name}: not ready within {timeout_s:g} s: {printed}")
        self.targets = dict(self._event("ready").get("targets", {}))
        self._shown = list(until(self._own_windows, timeout_s))
        if not self._shown:
            raise WitnessFailed(f"{self.toolkit.name}: ready, but no window is listed within {timeout_s:g} s")
        if self.toolkit.shell:
            self._find_terminal(timeout_s)

    def _find_terminal(self, timeout_s: float) -> None:
        def focused() -> list[Window]:
            return [window for window in self._own_windows() if window.focused]

        for window in until(focused, timeout_s):
            self.targets = {"shell": [window.x_px, window.y_px, window.width_px, window.height_px]}
            return
        raise WitnessFailed(f"{self.toolkit.name}: its window has no focus after {timeout_s:g} s")

    def _own_windows(self) -> list[Window]:
        return [window for window in self._episode.windows() if window.id not in self._before]

    def move_to(self, x: int, y: int) -> None:
        """Move its window, and its targets with it.

        Raises:
            WitnessFailed: The window manager does not move it.
        """
        window = min(self._shown, key=lambda one: one.id)
        dx, dy = move_window(self._episode, window, x, y)
        self.targets = {
            name: [place[0] + dx, place[1] + dy, *place[2:]] for name, place in self.targets.items()
        }

    def _event(self, name: str) -> Event:
        return next((event for event in self.events() if event["event"] == name), {})

    def events(self) -> list[Event]:
        """Return all events so far."""
        try:
            text = self._episode.read_file(self._log).decode()
        except PathNotFound:
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def alive(self) -> bool:
        # the init of a replica does not collect what it inherits, so an ended process stays as a zombie
        script = "grep -qs '^State:.[^ZX]' /proc/$0/status"
        return self._episode.execute(script, str(self._pid)).returncode == 0

    def stop(self) -> None:
        """End it with its children, and wait until its windows are gone."""
        if self._pid:
            self._episode.execute(f"kill -s KILL -- -{self._pid}")
            # the next program may get the same ids for its windows
            until(lambda: not self.alive() and not self._still_shown(), STOP_S)
            self._pid = 0

    def _still_shown(self) -> bool:
        ids = {window.id for window in self._shown}
        return any(window.id in ids for window in self._episode.windows())


class Load:
    """Processes that keep every core busy during the actions.

    Args:
        episode: Desktop in which they run.
        count: Number of processes; 0 for an idle machine.
    """

    def __init__(self, episode: Episode, count: int) -> None:
        self._episode = episode
        self._count = count
        self._pids = ""

    def __enter__(self) -> None:
        if self._count:
            script = 'for i in $(seq "$0"); do sh -c "while :; do :; done" >/dev/null 2>&1 & echo $!; done'
            self._pids = " ".join(self._episode.execute(script, str(self._count)).stdout.split())

    def __exit__(self, *_: object) -> None:
        if self._pids:
            self._episode.execute(f"kill -KILL {self._pids}")
