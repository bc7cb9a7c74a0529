"""Pauses of a container's clocks: they stand still from `hold` to `resume`, for all programs.

The programs read them from the page of `clock.PAGE` (`native/view.h`). The host stops the processes in
between.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

from osgym_guest._native import kernel_times_ns
from osgym_guest.clock import PAGE
from osgym_guest.http import HttpError
from osgym_protocol.codes import GuestErrorCode

_COUNT_AT = 64
_STATES_AT = 72
_ENDED_AT = 120
_LOG_AT = 4096
_LOG_ENTRIES = 4096
_NUMBER = struct.Struct("=q")
_STATE = struct.Struct("=qqq")
_ENTRY = struct.Struct("=qq")
LEAD_NS = 500_000
"""Time from which a pause is held, counted from its announcement: no program has seen a later one by then."""

_SKEW_NS = 20_000
"""Time between two readings of the kernel's clocks at most: the wall clock is held so much sooner, since it
would else go back when the pause ends."""


class ClockPauses:
    """Writer of the pauses in a page. Blocking, for less than a millisecond; for one thread at a time.

    Args:
        page: File of the page that the programs read.
    """

    def __init__(self, page: Path = PAGE) -> None:
        self._page = page
        self._fd = -1

    def hold(self) -> None:
        """Let all clocks stand still from now on. Idempotent.

        Raises:
            HttpError: 501 ``not_available``: the image has no such clock.
        """
        count, paused_ns, held_at_ns, _ = self._state()
        if held_at_ns:
            return
        mono_ns, wall_ns = kernel_times_ns()
        held_at_ns = mono_ns + LEAD_NS
        self._write(count + 1, paused_ns, held_at_ns, wall_ns + LEAD_NS - _SKEW_NS)
        while kernel_times_ns()[0] < held_at_ns:
            time.sleep(0)

    def resume(self, charge_s: float | None) -> float:
        """Let the clocks go on.

        Args:
            charge_s: Time by which they are later than at `hold`; None: the time that has really passed.

        Returns:
            Seconds of the charge that have not passed yet, since the pause was shorter.
        """
        count, paused_ns, held_at_ns, _ = self._state()
        if not held_at_ns:
            return 0.0 if charge_s is None else float(charge_s)
        mono_ns, wall_ns = kernel_times_ns()
        length_ns = mono_ns - held_at_ns
        charge_ns = length_ns if charge_s is None else round(charge_s * 1e9)
        paused_ns += max(0, length_ns - charge_ns)
        ended = self._number(_ENDED_AT)
        entry = _LOG_AT + min(ended, _LOG_ENTRIES - 1) * _ENTRY.size
        os.pwrite(self._fd, _ENTRY.pack(wall_ns, paused_ns), entry)
        os.pwrite(self._fd, _NUMBER.pack(ended + 1), _ENDED_AT)
        self._write(count + 1, paused_ns, 0, 0)
        return max(0, charge_ns - length_ns) / 1e9

    def _write(self, count: int, *state: int) -> None:
        os.pwrite(self._fd, _STATE.pack(*state), _STATES_AT + (count & 1) * _STATE.size)
        os.pwrite(self._fd, _NUMBER.pack(count), _COUNT_AT)

    def _state(self) -> tuple[int, int, int, int]:
        """Return the number of states so far, and the newest."""
        if self._fd < 0:
            self._fd = self._open()
        count = self._number(_COUNT_AT)
        at = _STATES_AT + (count & 1) * _STATE.size
        return count, *_STATE.unpack(os.pread(self._fd, _STATE.size, at))

    def _open(self) -> int:
        """Open the page and make room for the log.

        Raises:
            HttpError: 501 ``not_available``: there is none.
        """
        try:
            fd = os.open(self._page, os.O_RDWR | os.O_CLOEXEC)
        except OSError as exc:
            text = "this image has no clock that can stand still; bake the image again"
            raise HttpError(501, GuestErrorCode.NOT_AVAILABLE, text) from exc
        os.ftruncate(fd, _LOG_AT + _LOG_ENTRIES * _ENTRY.size)
        return fd

    def _number(self, at: int) -> int:
        number: int = _NUMBER.unpack(os.pread(self._fd, _NUMBER.size, at))[0]
        return number
