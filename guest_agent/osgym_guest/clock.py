"""Wall clock of the desktop, where it differs from its host's.

In a container all programs share a page of memory that `osgym-view.so` (`native/view.c`) reads, so running
programs follow a change. A virtual machine has a clock of its own, which `osgym-identity` sets.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osgym_guest.http import HttpError, bad
from osgym_protocol.codec import known_fields
from osgym_protocol.codes import GuestErrorCode
from osgym_protocol.limits import MAX_CLOCK_S, MIN_CLOCK_S

if TYPE_CHECKING:
    from osgym_guest.engine import Engine
    from osgym_guest.identity import Identities

PAGE = Path("/run/osgym/clock")
"""File of the shared page, which the session makes first; blank until a clock is set."""
RUNNING, FROZEN = 1, 2
PANEL = "tint2"
PANEL_GONE_S, PANEL_BACK_S = 1.0, 5.0
_POLL_S = 0.005
_MODE = struct.Struct("=q")
_VALUES = struct.Struct("=qq")


class DesktopClock:
    """Sets the desktop's clock, once.

    Args:
        identities: Identities of the virtual machine, whose helper sets its clock; None in a container.
        page: File of the page that the programs of a container read.
    """

    def __init__(self, engine: Engine, identities: Identities | None, page: Path = PAGE) -> None:
        self._engine = engine
        self._identities = identities
        self._page = page

    async def set(self, body: Mapping[str, Any]) -> None:
        """Set the clock as a request says: ``{"start_ns", "frozen"?}``.

        Raises:
            HttpError: 400 for a time out of bounds or a second call, 501 ``not_available`` where this image
                or this machine has no such clock, 503 when the helper does not answer.
        """
        fields = known_fields(body, ("start_ns", "frozen"), "clock")
        start_ns, frozen = fields.get("start_ns"), fields.get("frozen", False)
        if type(start_ns) is not int or not MIN_CLOCK_S <= start_ns / 10**9 < MAX_CLOCK_S:
            raise bad("start_ns must be a whole number of nanoseconds, of a time from 2020 to 2099")
        if type(frozen) is not bool:
            raise bad("frozen must be true or false")
        if self._identities is not None:
            if frozen:
                text = "the clock of a virtual machine cannot be frozen, only started at a time"
                raise HttpError(501, GuestErrorCode.NOT_AVAILABLE, text)
            self._identities.set_clock(start_ns)
            return
        self._share(start_ns, frozen)
        await self._redraw_panel()

    def _share(self, start_ns: int, frozen: bool) -> None:
        try:
            fd = os.open(self._page, os.O_RDWR | os.O_CLOEXEC)
        except OSError as exc:
            text = "this image has no clock that can be set; bake the image again"
            raise HttpError(501, GuestErrorCode.NOT_AVAILABLE, text) from exc
        try:
            if os.pread(fd, _MODE.size, 0) in (_MODE.pack(RUNNING), _MODE.pack(FROZEN)):
                raise bad("the clock was already set")
            now_ns = time.time_ns()  # the host's, until now
            os.pwrite(fd, _VALUES.pack(start_ns if frozen else start_ns - now_ns, now_ns), _MODE.size)
            os.pwrite(fd, _MODE.pack(FROZEN if frozen else RUNNING), 0)
        finally:
            os.close(fd)

    async def _redraw_panel(self) -> None:
        """Restart the panel, which would otherwise show the new time only at its next full minute."""
        pids = list(_pids_of(PANEL))
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        await self._docks(shown=False, within_s=PANEL_GONE_S)
        if not await self._docks(shown=True, within_s=PANEL_BACK_S):
            raise HttpError(504, GuestErrorCode.NOT_READY, "the panel did not come back with the new time")

    async def _docks(self, *, shown: bool, within_s: float) -> bool:
        """Wait until a panel is shown, or none is, and return whether that happened in time."""
        ends = time.monotonic() + within_s
        while time.monotonic() < ends:
            _, _, docks, _ = await self._engine.use(lambda screen: screen.display.windows())
            if bool(docks) is shown:
                return True
            await asyncio.sleep(_POLL_S)
        return False


def _pids_of(name: str) -> Iterator[int]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if Path(entry.path, "comm").read_text() == f"{name}\n" and entry.stat().st_uid == os.getuid():
                    yield int(entry.name)
