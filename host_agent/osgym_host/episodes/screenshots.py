"""Cached screenshots of replicas for people: one capture serves all viewers, and few run at once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from osgym_host.core.states import ReplicaState
from osgym_host.cpu_cost import charged_to_caller
from osgym_host.errors import ServiceError
from osgym_host.guest_client import GuestError
from osgym_host.replicas.manager import ReplicaManager
from osgym_host.replicas.replica_set import ReplicaSet
from osgym_protocol.codes import ErrorCode, ImageFormat
from osgym_protocol.observation import ObservedFrame
from osgym_protocol.options import ObserveOptions

MIN_S, MAX_S = 0.25, 2.0
"""Bounds of the interval between two captures of one desktop, for all viewers and sizes together."""
_REST_FACTOR = 4
"""Interval after a capture, as a multiple of the time it took, so that the guest agent has time for steps."""
AT_ONCE = 2
"""Number of captures in flight: the guests do the work, beside the steps of their policies."""
LOOK_S = 5.0
QUALITY = 60
_SIZES = 8
"""Number of sizes in which the latest picture of a desktop is kept."""


@dataclass(frozen=True, slots=True)
class Screenshot:
    """Screenshot in a reduced size.

    Attributes:
        hash: Hash of the whole screen, the same for all sizes.
        image: WebP.
        hold: Which time the desktop stood still when it was captured; None: it did not, or not all the while.
    """

    hash: str
    image: bytes
    at: float
    hold: int | None = None


@dataclass(slots=True, eq=False)
class _Desktop:
    """Latest captures of one desktop.

    Attributes:
        turn: Held by the one capture that runs or waits to run.
        next_at: Time of the monotonic clock before which no capture begins.
        interval_s: Interval that was chosen after the last capture.
        small: Latest picture by width in pixels.
        waiting: Next capture of the whole screen, until it begins; all requests until then share it.
    """

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    next_at: float = 0.0
    interval_s: float = MIN_S
    small: dict[int, Screenshot] = field(default_factory=dict)
    waiting: asyncio.Task[ObservedFrame] | None = None


class ScreenshotCache:
    """Takes screenshots of replicas with a desktop, and keeps the latest. For one event loop."""

    def __init__(self, replicas: ReplicaSet, screen: tuple[int, int]) -> None:
        self._replicas = replicas
        self._screen = screen
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._desktops: dict[tuple[str, int], _Desktop] = {}

    async def full(self, replica_id: str) -> ObservedFrame:
        """Return the whole screen as PNG, captured after this call.

        Raises:
            ServiceError: `not_found`, or the guest did not answer.
        """
        manager = self._manager(replica_id)
        desktop = self._desktop(manager)
        if desktop.waiting is None:
            capture = charged_to_caller(self._capture_whole(manager, desktop))
            desktop.waiting = asyncio.create_task(capture, name="screenshot")
            desktop.waiting.add_done_callback(_retrieved)
        return await asyncio.shield(desktop.waiting)

    async def small(self, replica_id: str, width_px: int) -> Screenshot:
        """Return the screen at this width, at most `MIN_S` old, or `MAX_S` for a desktop slow to capture.

        A desktop that has stood still since its last picture shows the same, and is not woken.

        Raises:
            ServiceError: `not_found`, or the guest did not answer.
        """
        manager = self._manager(replica_id)
        desktop = self._desktop(manager)
        async with desktop.turn:
            last = desktop.small.get(width_px)
            hold = manager.hold
            if last is not None and hold is not None and last.hold == hold:
                return last
            if last is not None and time.monotonic() - last.at < desktop.interval_s:
                return last
            async with self._capturing(desktop):
                hold = manager.hold
                look = await self._take(manager, width_px, last)
                look = replace(look, hold=hold if manager.hold == hold else None)
            while len(desktop.small) >= _SIZES and width_px not in desktop.small:
                del desktop.small[next(iter(desktop.small))]
            desktop.small[width_px] = look
            return look

    async def _capture_whole(self, manager: ReplicaManager, desktop: _Desktop) -> ObservedFrame:
        async with desktop.turn, self._capturing(desktop):
            desktop.waiting = None
            return await _observe(manager, None)

    @contextlib.asynccontextmanager
    async def _capturing(self, desktop: _Desktop) -> AsyncIterator[None]:
        """Wait for the desktop's next capture time; then set the one after, in proportion to the duration."""
        wait_s = desktop.next_at - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        async with self._slots:
            began_at = time.monotonic()
            try:
                yield
            finally:
                now = time.monotonic()
                desktop.interval_s = min(MAX_S, max(MIN_S, _REST_FACTOR * (now - began_at)))
                desktop.next_at = now + desktop.interval_s

    async def _take(self, manager: ReplicaManager, width_px: int, last: Screenshot | None) -> Screenshot:
        width, height = self._screen
        wanted = ObserveOptions(
            format=ImageFormat.WEBP,
            quality=QUALITY,
            size=(width_px, max(1, round(height * width_px / width))),
            unless_hash=None if last is None else last.hash,
        )
        frame = await _observe(manager, wanted)
        info = frame.observation.frame
        if info.unchanged and last is not None:
            return Screenshot(last.hash, last.image, time.monotonic())
        return Screenshot(info.hash, bytes(frame.image), time.monotonic())

    def _manager(self, replica_id: str) -> ReplicaManager:
        manager = self._replicas.find(replica_id)
        if manager is None or manager.state not in (ReplicaState.READY, ReplicaState.LEASED):
            raise ServiceError(ErrorCode.NOT_FOUND, "This host has no replica with that id and a desktop.")
        return manager

    def _desktop(self, manager: ReplicaManager) -> _Desktop:
        """Return the captures of a desktop; drop those of replicas that are gone."""
        for key in [key for key in self._desktops if self._replicas.find(key[0]) is None]:
            del self._desktops[key]
        return self._desktops.setdefault((manager.replica_id, manager.generation), _Desktop())


def _retrieved(task: asyncio.Task[ObservedFrame]) -> None:
    """Retrieve the error of a task that nobody awaits, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


async def _observe(manager: ReplicaManager, wanted: ObserveOptions | None) -> ObservedFrame:
    try:
        return await manager.guest.observe(wanted, timeout_s=LOOK_S)
    except GuestError as error:
        raise ServiceError(ErrorCode.TIMEOUT, f"The replica did not answer: {error}") from error
