"""Program inside a desktop: starts one program, reads its tree from two sides, and reports the result.

A JSON object on standard input says what to do (`Order`), one on standard output what was found. Nothing but
the standard library and the guest agent's own packages is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Coroutine
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from PIL import ImageGrab

from benchmarks.tree_fidelity.ping import Gap, Pinger
from osgym_guest.osworld.a11y.x_windows import XWindow, read_windows
from osgym_guest.osworld.helper import Helper, HelperError
from osgym_guest.osworld.session import DesktopSession

NS = "{https://accessibility.ubuntu.example.org/ns/"
NAMED = frozenset({"push-button", "menu", "menu-item", "check-box", "radio-button", "page-tab", "frame"})
POLL_S = 0.05
READ_DEADLINE_S = 20.0
QUIET_READS = 5
SLACK_PX = 2


@dataclass(frozen=True)
class Order:
    """Order to check one program.

    Attributes:
        churn: Command that opens a second window of it, again and again; empty: keys open its menus.
        reads: Number of times each of the two readers reads the tree.
        settle_s: Time within which its tree is complete and its window quiet.
        alone_s: Time for which windows open and close while nobody reads; 0: not measured.
        expect: Names that the tree must have.
        gaps: File in which the program writes the largest gaps of its own timer, or empty.
    """

    argv: list[str]
    churn: list[str]
    reads: int
    start_s: float
    settle_s: float
    alone_s: float
    expect: list[str]
    gaps: str


@dataclass
class Found:
    """Findings; times in milliseconds. Gaps are those of the program's timer, else of pings."""

    failure: str = ""
    alive: bool = False
    has_tree: bool = False
    nodes: int = 0
    read_ms: list[float] = field(default_factory=list)
    failed_reads: list[str] = field(default_factory=list)
    missing_reads: int = 0
    windows_opened: int = 0
    missing_names: list[str] = field(default_factory=list)
    unnamed: dict[str, int] = field(default_factory=dict)
    outside: int = 0
    frame_offset_px: list[int] = field(default_factory=list)
    frame_changed: bool | None = None
    gaps_read: list[Gap] = field(default_factory=list)
    gaps_alone: list[Gap] = field(default_factory=list)


class Run:
    """One program, from its start to its end."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.found = Found()
        session = DesktopSession(dict(os.environ), Path.home())
        self._readers = [Helper(session, warm_s=float("inf")) for _ in range(2)]
        self._known: set[int] = set()

    async def run(self) -> Found:
        """Do all of it; an error is in `failure`."""
        self._known = {window.id for window in await read_windows()}
        process = await self._start(self.order.argv)
        try:
            window = await self._window(self.order.start_s)
            if window is None:
                self.found.failure = (
                    f"no window within {self.order.start_s:g} s; exit code {process.returncode}"
                )
                return self.found
            await self._measure(window)
            self.found.alive = any(one.id == window.id for one in await read_windows())
        finally:
            await self._end(process)
            for reader in self._readers:
                await reader.stop()
        return self.found

    async def _measure(self, window: XWindow) -> None:
        await self._until_complete(window)
        await self._check_pixels()
        pinger = await Pinger.connect(window.id, window.pid or 0)
        try:
            begin = len(self._timer_gaps())
            alone: list[Gap] = []
            if self.order.alone_s:
                quiet = self._churning(window, asyncio.sleep(self.order.alone_s))
                alone = await pinger.during(quiet)
            middle = len(self._timer_gaps())
            self.found.windows_opened = 0
            read = await pinger.during(self._churning(window, self._read_often(window)))
        finally:
            pinger.close()
        gaps = self._timer_gaps()
        self.found.gaps_alone, self.found.gaps_read = gaps[begin:middle] or alone, gaps[middle:] or read

    async def _start(self, argv: list[str]) -> asyncio.subprocess.Process:
        null = asyncio.subprocess.DEVNULL
        return await asyncio.create_subprocess_exec(
            *argv, stdin=null, stdout=null, stderr=null, start_new_session=True
        )

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """End the program, and every process whose window came since."""
        pids = {one.pid for one in await read_windows() if one.id not in self._known}
        for pid in pids | {process.pid}:
            if pid and not _draws_desktop(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
        await _shell("wmctrl -l | awk '$2 != -1 {print $1}' | xargs -r -n1 wmctrl -i -c")
        await _until(lambda windows: not self._new(windows), 10)
        await process.wait()

    def _new(self, windows: list[XWindow]) -> list[XWindow]:
        return [one for one in windows if one.is_managed and one.is_shown and one.id not in self._known]

    async def _window(self, timeout_s: float) -> XWindow | None:
        """Wait for the largest new window, once it has the keyboard: splash screens never do."""

        def main_window(windows: list[XWindow]) -> XWindow | None:
            ready = [one for one in self._new(windows) if one.is_active]
            return max(ready, key=lambda one: one.box.width * one.box.height, default=None)

        found = await _until(main_window, timeout_s)
        return found if isinstance(found, XWindow) else None

    async def _tree(self, reader: int = 0) -> ElementTree.Element:
        answer = await self._readers[reader].ask("tree", deadline_s=READ_DEADLINE_S)
        return ElementTree.fromstring(answer.payload)

    async def _until_complete(self, window: XWindow) -> None:
        """Wait until the tree has the expected names, or stays as it is."""
        end = time.monotonic() + self.order.settle_s
        before = -1
        while time.monotonic() < end:
            part = application_of(await self._tree(), window)
            size = len(list(part.iter())) if part is not None else 0
            missing = missing_names(part, self.order.expect)
            if size == before and not missing and has_tree(part):
                break
            before = size
            await asyncio.sleep(4 * POLL_S)
        self._describe(part, window)

    def _describe(self, part: ElementTree.Element | None, window: XWindow) -> None:
        found = self.found
        found.has_tree = has_tree(part)
        found.missing_names = missing_names(part, self.order.expect)
        if part is None:
            return
        found.nodes = len(list(part.iter()))
        for node in part.iter():
            if node.tag in NAMED and not (node.get("name") or node.text) and box_of(node):
                found.unnamed[node.tag] = found.unnamed.get(node.tag, 0) + 1
        for top in part:
            if top.get(f"{NS}attributes}}x11-window") == f"{window.id:#x}":
                found.frame_offset_px = _offsets(box_of(top), window)
                found.outside = sum(_is_outside(box, window) for box in map(box_of, top.iter()) if box)

    async def _check_pixels(self) -> None:
        """Record whether reading changes the frame; None where the screen changes by itself."""
        if await self._frame() != await self._frame(pause_s=1.0):
            return
        before = await self._frame()
        for _ in range(QUIET_READS):
            await asyncio.gather(self._tree(0), self._tree(1))
        self.found.frame_changed = await self._frame(pause_s=0.3) != before

    async def _frame(self, pause_s: float = 0.0) -> str:
        """Wait for late drawing, then return a digest of the screen."""
        await asyncio.sleep(pause_s)
        screen = await asyncio.to_thread(ImageGrab.grab, xdisplay=os.environ.get("DISPLAY", ":0"))
        return hashlib.sha256(screen.tobytes()).hexdigest()

    async def _read_often(self, window: XWindow) -> None:
        await _until(lambda _: self.found.windows_opened, self.order.start_s)  # a few reads are over sooner
        await asyncio.gather(*(self._reads(number, window) for number in range(2)))

    async def _churning(self, window: XWindow, work: Coroutine[Any, Any, None]) -> None:
        """Open and close windows as long as `work` goes on."""
        churn = asyncio.ensure_future(self._churn(window))
        try:
            await work
        finally:
            churn.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await churn
        await _until(lambda windows: len(self._new(windows)) <= 1, 10)

    async def _reads(self, number: int, window: XWindow) -> None:
        for _ in range(self.order.reads):
            began = time.monotonic()
            try:
                part = application_of(await self._tree(number), window)
            except (HelperError, ElementTree.ParseError) as exc:
                self.found.failed_reads.append(str(exc))
                continue
            self.found.read_ms.append((time.monotonic() - began) * 1000)
            if has_tree(part) != self.found.has_tree or part is None:
                self.found.missing_reads += 1

    async def _churn(self, window: XWindow) -> None:
        """Open and close windows until cancelled: a second one of the program, or its menus."""
        while True:
            if self.order.churn:
                await self._open_and_close(window)
            else:
                await _shell(f"xdotool key --window {window.id} alt+f")
                await asyncio.sleep(4 * POLL_S)
                await _shell(f"xdotool key --window {window.id} Escape")
                await asyncio.sleep(4 * POLL_S)
                self.found.windows_opened += 1

    async def _open_and_close(self, window: XWindow) -> None:
        process = await self._start(self.order.churn)

        def second(windows: list[XWindow]) -> list[XWindow]:
            return [one for one in self._new(windows) if one.id != window.id]

        try:
            opened = await _until(second, self.order.start_s)
            for one in opened or ():
                self.found.windows_opened += 1
                await _shell(f"wmctrl -i -c {one.id:#x}")
            await _until(lambda windows: not second(windows), 5)
        finally:
            if process.returncode is None and process.pid != window.pid:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            await process.wait()

    def _timer_gaps(self) -> list[Gap]:
        if not self.order.gaps:
            return []
        with contextlib.suppress(OSError):
            rows = [line.split() for line in Path(self.order.gaps).read_text().splitlines()]
            return [Gap(float(row[0]), float(row[1])) for row in rows if len(row) == 2]
        return []


def application_of(root: ElementTree.Element, window: XWindow) -> ElementTree.Element | None:
    key = f"{NS}attributes}}x11-window"
    return next((app for app in root if any(top.get(key) == f"{window.id:#x}" for top in app)), None)


def has_tree(application: ElementTree.Element | None) -> bool:
    """Return whether a program reports a tree, instead of being listed by the window manager."""
    return application is not None and application.get(f"{NS}attributes}}x11-only") is None


def missing_names(application: ElementTree.Element | None, wanted: list[str]) -> list[str]:
    """Return the names that are not in an application's tree; GTK pads those of menus by spaces."""
    texts = set()
    for node in application.iter() if application is not None else ():
        texts |= {(node.get("name") or "").strip(), (node.text or "").strip()}
    return [name for name in wanted if name not in texts]


def box_of(node: ElementTree.Element) -> tuple[int, int, int, int] | None:
    """Return where a node is on the screen, if it shows."""
    parts = [node.get(f"{NS}component}}{key}", "").strip("()").split(", ") for key in ("screencoord", "size")]
    if any(len(part) != 2 for part in parts):
        return None
    x, y, width, height = (int(number) for part in parts for number in part)
    return (x, y, width, height) if width > 0 and height > 0 else None


def _offsets(box: tuple[int, int, int, int] | None, window: XWindow) -> list[int]:
    """Return how far the edges of a frame are from those of its window: left, top, right, bottom."""
    if box is None:
        return []
    x, y, width, height = box
    at = window.box
    return [x - at.x, y - at.y, x + width - at.x - at.width, y + height - at.y - at.height]


def _is_outside(box: tuple[int, int, int, int], window: XWindow) -> bool:
    """Return whether the middle of an element lies outside its window."""
    x, y = box[0] + box[2] / 2, box[1] + box[3] / 2
    at = window.box
    inside_x = at.x - SLACK_PX <= x <= at.x + at.width + SLACK_PX
    return not (inside_x and at.y - SLACK_PX <= y <= at.y + at.height + SLACK_PX)


def _draws_desktop(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"--desktop" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


async def _until(condition: Any, timeout_s: float) -> Any:
    """Poll the windows until a condition on them returns something true; return that or the last value."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition(await read_windows())
        if value or time.monotonic() >= end:
            return value
        await asyncio.sleep(POLL_S)


async def _shell(script: str) -> None:
    null = asyncio.subprocess.DEVNULL
    await (await asyncio.create_subprocess_shell(script, stdout=null, stderr=null)).wait()


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(Run(Order(**json.load(sys.stdin))).run()))))
