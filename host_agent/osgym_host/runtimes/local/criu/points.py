"""The branch points of one host agent: taken of replicas that only a task's set-up has used, never kept.

They lie in the instance's folder, are known to this process only, and go with it; what a killed one left, the
next start removes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from osgym_host.runtimes.base import BranchPoint, PointFailed, PointNotFound, ReplicaSpec
from osgym_host.runtimes.local.criu import layer
from osgym_host.runtimes.local.criu.dumping import Dumped, DumpStuck, dump
from osgym_host.runtimes.local.replica import LocalReplica

AT_ONCE = 1
"""Replicas that are dumped at the same time; others wait, and stand still no longer for it."""


class LocalPoints:
    """For one event loop."""

    def __init__(self, folder: Path, criu: str) -> None:
        """Nothing is touched before `clear`.

        Args:
            folder: Ours alone; its parent is closed to others.
            criu: The program.
        """
        self._folder = folder
        self._criu = criu
        self._points: dict[str, tuple[BranchPoint, Dumped]] = {}
        self._users: dict[str, set[str]] = {}
        self._turn = asyncio.Semaphore(AT_ONCE)

    def clear(self) -> None:
        """Remove what a predecessor left. Blocking.

        Raises:
            OSError: It could not be removed.
        """
        if self._folder.exists():
            shutil.rmtree(self._folder)

    async def take(self, replica: LocalReplica, processes: Callable[[], set[int] | None]) -> BranchPoint:
        """Dump a replica, which goes on.

        Raises:
            PointFailed: It could not be done; when CRIU hung, the replica is killed.
        """
        point_id = f"p{secrets.token_hex(8)}"
        folder = self._folder / point_id
        async with self._turn:
            try:
                await asyncio.to_thread(self._folder.mkdir, mode=0o711, exist_ok=True)
                pids = await asyncio.to_thread(processes) or set()
                dumped = await dump(self._criu, replica, pids, folder)
            except BaseException as exc:
                if isinstance(exc, DumpStuck | asyncio.CancelledError):
                    replica.kill()
                await asyncio.shield(asyncio.to_thread(shutil.rmtree, folder, True))
                if isinstance(exc, OSError):
                    raise PointFailed(str(exc), replica_id=replica.replica_id) from exc
                raise
        point = BranchPoint(
            point_id=point_id,
            image_digest=replica.spec.image.digest,
            replica_id=replica.replica_id,
            generation=replica.generation,
            kept=False,
            created_at=time.time(),
            pause_ms=round(dumped.pause_ms, 3),
            ram_mib=round(dumped.ram_mib, 3),
            disk_mib=round(dumped.disk_mib, 3),
        )
        self._points[point_id] = (point, dumped)
        return point

    def restore_fields(self, spec: ReplicaSpec) -> dict[str, Any]:
        """Return what a `spawn` request says of a clone of `spec.origin` (see `protocol`). Blocking.

        Raises:
            PointNotFound: The point is gone, of another image, or not what it was.
        """
        assert spec.origin is not None
        found = self._points.get(spec.origin.point_id)
        if found is None:
            raise PointNotFound(f"there is no point {spec.origin.point_id}", replica_id=spec.replica_id)
        point, dumped = found
        if point.image_digest != spec.image.digest:
            raise PointNotFound("the point is of another image", replica_id=spec.replica_id)
        try:
            now = layer.digest_of(dumped.images, dumped.upper)
        except OSError as exc:
            raise PointNotFound(f"the point cannot be read: {exc}", replica_id=spec.replica_id) from exc
        if now != dumped.digest:
            raise PointNotFound("the point's files were changed", replica_id=spec.replica_id)
        return {
            "criu": self._criu,
            "images": os.fspath(dumped.images.absolute()),
            "upper": os.fspath(dumped.upper.absolute()),
            "console": dumped.outside.console,
            "listening": dumped.outside.listening,
        }

    def used_by(self, spec: ReplicaSpec) -> Path | None:
        """Return the layer between the image and what a clone writes, and keep it until `unused_by`.

        None where the replica is no clone of a point.
        """
        found = self._points.get(spec.origin.point_id) if spec.origin is not None else None
        if found is None:
            return None
        self._users.setdefault(found[0].point_id, set()).add(spec.replica_id)
        return found[1].upper

    async def unused_by(self, spec: ReplicaSpec) -> None:
        """Nothing of a clone is left. Idempotent."""
        if spec.origin is None:
            return
        point_id = spec.origin.point_id
        users = self._users.get(point_id, set())
        users.discard(spec.replica_id)
        if not users:
            self._users.pop(point_id, None)
            if point_id not in self._points:
                await asyncio.to_thread(shutil.rmtree, self._folder / point_id, True)

    async def release(self, point: BranchPoint) -> None:
        """Remove a point's files; what clones that live have of it goes with the last of them. Idempotent."""
        found = self._points.pop(point.point_id, None)
        if found is not None:
            used = self._users.get(point.point_id)
            gone = found[1].images if used else found[1].folder
            await asyncio.to_thread(shutil.rmtree, gone, True)

    async def close(self) -> None:
        """Release all, when there is no clone any more. Idempotent."""
        self._points.clear()
        self._users.clear()
        await asyncio.to_thread(shutil.rmtree, self._folder, True)
