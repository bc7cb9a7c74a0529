"""Pictures of desktops for people: small, one capture for all who look, and never many at once."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from osgym_host.core.states import ReplicaState
from osgym_host.episodes.errors import ServiceError
from osgym_host.guest_client import GuestError
from osgym_host.replicas.manager import ReplicaManager
from osgym_host.replicas.replica_set import ReplicaSet
from osgym_protocol.codes import ErrorCode, ImageFormat
from osgym_protocol.observation import ObservedFrame
from osgym_protocol.options import ObserveOptions

MIN_S = 0.25
"""Between two captures of one desktop in one size, however many look."""
AT_ONCE = 2
"""Captures in flight: the guests do the work, beside what policies ask of them."""
LOOK_S = 5.0
QUALITY = 60


@dataclass(frozen=True, slots=True)
class Look:
    """A picture as it was taken.

    Attributes:
        hash: Of the whole screen, so the same for all sizes of it.
        image: WebP.
    """

    hash: str
    image: bytes
    at: float


class Looks:
    """Takes pictures of replicas that have a desktop. For one event loop."""

    def __init__(self, replicas: ReplicaSet, screen: tuple[int, int]) -> None:
        """Nothing is taken before it is asked for."""
        self._replicas = replicas
        self._screen = screen
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._locks: dict[tuple[str, int, int], asyncio.Lock] = {}
        self._last: dict[tuple[str, int, int], Look] = {}

    async def full(self, replica_id: str) -> ObservedFrame:
        """Return the whole screen as PNG.

        Raises:
            ServiceError: `not_found`, or the guest did not answer.
        """
        return await _observe(self._manager(replica_id), None)

    async def small(self, replica_id: str, width_px: int) -> Look:
        """Return the screen at this width, as it was at most `MIN_S` ago.

        Raises:
            ServiceError: `not_found`, or the guest did not answer.
        """
        manager = self._manager(replica_id)
        key = (replica_id, manager.generation, width_px)
        self._forget()
        async with self._locks.setdefault(key, asyncio.Lock()):
            last = self._last.get(key)
            if last is not None and time.monotonic() - last.at < MIN_S:
                return last
            async with self._slots:
                look = await self._take(manager, width_px, last)
            self._last[key] = look
            return look

    async def _take(self, manager: ReplicaManager, width_px: int, last: Look | None) -> Look:
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
            return Look(last.hash, last.image, time.monotonic())
        return Look(info.hash, bytes(frame.image), time.monotonic())

    def _manager(self, replica_id: str) -> ReplicaManager:
        manager = self._replicas.find(replica_id)
        if manager is None or manager.state not in (ReplicaState.READY, ReplicaState.LEASED):
            raise ServiceError(ErrorCode.NOT_FOUND, "There is no such replica with a desktop.")
        return manager

    def _forget(self) -> None:
        """Drop what belongs to replicas that are gone."""
        for key in [key for key in self._locks if self._replicas.find(key[0]) is None]:
            del self._locks[key]
            self._last.pop(key, None)


async def _observe(manager: ReplicaManager, wanted: ObserveOptions | None) -> ObservedFrame:
    try:
        return await manager.guest.observe(wanted, timeout_s=LOOK_S)
    except GuestError as error:
        raise ServiceError(ErrorCode.TIMEOUT, f"The replica did not answer: {error}") from error
