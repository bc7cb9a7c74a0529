"""Watch after an answer: detects that the frame changed before the next action.

It wakes only when the X server reports a change, and while changes continue, looks again only after a pause.
The panel and carets do not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from osgym_guest._native import Display, DisplayGone, now_ns
from osgym_protocol.observation import PreviousFrame

EVENT_DAMAGE, EVENT_WINDOWS = 1, 2
PAUSE_S = 0.02
LONG_PAUSE_S = 0.2
LONG_AFTER_S = 3.0
"""Time after an answer from which the pauses are long. They are also long when no answer is watched."""


@dataclass
class WatchedFrame:
    """Frame of the last step, and the time of its first change; 0 means none."""

    seq: int
    taken_ns: int
    changed_ns: int = 0

    def seen(self) -> PreviousFrame:
        """Return the report for the next answer."""
        if not self.changed_ns:
            return PreviousFrame(self.seq, final=True)
        after_ms = max(0.0, (self.changed_ns - self.taken_ns) / 1e6)
        return PreviousFrame(self.seq, final=False, changed_after_ms=round(after_ms, 3))


class FrameWatch:
    """Watches one display from the event loop while no worker uses it.

    Args:
        display: Display that this object uses only between `resume` and `pause`.
        on_windows: Called when windows came, went or were given to the window manager.
        on_gone: Called when the X server is gone.
    """

    def __init__(self, display: Display, on_windows: Callable[[], None], on_gone: Callable[[], None]) -> None:
        self._display = display
        self._on_windows = on_windows
        self._on_gone = on_gone
        self._running = False
        self._rearm: asyncio.TimerHandle | None = None
        self.watched: WatchedFrame | None = None

    def resume(self) -> None:
        if not self._running:
            self._running = True
            self._arm()

    def pause(self) -> None:
        """Stop using the display, so that a worker may."""
        if self._rearm is not None:
            self._rearm.cancel()
            self._rearm = None
        if self._running:
            asyncio.get_running_loop().remove_reader(self._display.fileno())
        self._running = False

    def answered(self, seq: int, taken_ns: int) -> None:
        """Watch the frame that a step was answered with. Call it only while paused."""
        self._display.watch_anew()
        self.watched = WatchedFrame(seq, taken_ns)

    def previous(self) -> PreviousFrame | None:
        """Return the report about the last step's frame. Call it only while paused.

        Raises:
            DisplayGone: The X server is gone.
        """
        self._take()
        return self.watched.seen() if self.watched else None

    def changed(self, at_ns: int) -> None:
        """Record a change of the screen that somebody else saw."""
        if self.watched is not None and not self.watched.changed_ns:
            self.watched.changed_ns = at_ns

    def _take(self) -> int:
        """Receive the pending events of the X server and return their kinds."""
        seen, first_ns, _ = self._display.watch()
        if first_ns:
            self.changed(first_ns)
        return seen

    def _arm(self) -> None:
        self._rearm = None
        if self._running:
            asyncio.get_running_loop().add_reader(self._display.fileno(), self._on_events)
            self._look()  # what the connection has read already wakes nobody

    def _look(self) -> int:
        try:
            seen = self._take()
        except DisplayGone:
            self.pause()
            self._on_gone()
            return 0
        if seen & EVENT_WINDOWS:
            self._on_windows()
        return seen

    def _on_events(self) -> None:
        if not self._look() & EVENT_DAMAGE or not self._running:
            return
        late = self.watched is None or now_ns() - self.watched.taken_ns > LONG_AFTER_S * 1e9
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._display.fileno())
        self._rearm = loop.call_later(LONG_PAUSE_S if late else PAUSE_S, self._arm)
