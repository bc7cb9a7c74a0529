"""Branch points of one host agent.

Those that are not kept lie in the instance's folder, are known to this process only, and go with it; what a
killed one left, the next start removes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from osgym_host.programs import end_program, start_program
from osgym_host.runtimes.base import BranchPoint, PointFailed, PointNotFound
from osgym_host.runtimes.local import trees
from osgym_host.runtimes.local.criu import layer
from osgym_host.runtimes.local.criu.commands import copy_argv
from osgym_host.runtimes.local.criu.dumping import Dumped, DumpStuck, dump
from osgym_host.runtimes.local.criu.installed import InstalledCriu, find_criu
from osgym_host.runtimes.local.criu.kept import KeptDumps
from osgym_host.runtimes.local.replica import LocalReplica

_log = logging.getLogger(__name__)

T = TypeVar("T")

COPY_S = 20.0
_ATTEMPTS = 3
_CONNECTED = "Unix socket"
"""CRIU's words for a socket whose other end is the host's."""
AT_ONCE = 1
"""Number of replicas dumped at the same time; others wait while they run on."""


class LocalPoints:
    """Store of branch points, for one event loop."""

    def __init__(self, folder: Path, kept: KeptDumps, *, wanted: bool) -> None:
        self._folder = folder
        self._kept = kept
        self._wanted = wanted
        self._criu = InstalledCriu(lacking="the settings task_templates, warm_clones and branching are off")
        self._points: dict[str, Dumped] = {}
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._taking: dict[asyncio.Task[BranchPoint], LocalReplica] = {}

    @property
    def lacking(self) -> str:
        """Reason why there can be no branch points; empty when there can."""
        return self._criu.lacking

    def open(self) -> tuple[BranchPoint, ...]:
        """Remove a predecessor's points, and search CRIU where it is wanted; return the kept ones. Blocking.

        Raises:
            OSError: Something could not be removed.
        """
        trees.remove_tree(None, os.fspath(self._folder))
        if not self._wanted:
            return ()
        self._criu = find_criu()
        self._kept.reap()
        return self.find()

    def find(self) -> tuple[BranchPoint, ...]:
        """Return the kept points that there are now. Blocking.

        Raises:
            OSError: They cannot be read.
        """
        kept = list(self._kept.read())
        self._points |= {point.point_id: dumped for point, dumped in kept}
        return tuple(point for point, _ in kept)

    async def take(
        self, replica: LocalReplica, processes: Callable[[], set[int] | None], *, keep: bool = False
    ) -> BranchPoint:
        """Dump a replica, which runs on.

        Cancelled, it is dumped nevertheless, and the point released then.

        Args:
            keep: Return when the dump is safe on the disk, where the next host agent finds it.

        Raises:
            PointFailed: The dump failed; when CRIU hung, the replica is killed.
        """
        taking = self._spawn(self._take(replica, processes, keep=keep))
        self._taking[taking] = replica
        taking.add_done_callback(self._taking.pop)
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            self._spawn(self._release_when_taken(taking))
            raise

    async def settled(self, replica: LocalReplica) -> None:
        """Wait until no dump of a replica is under way, which would never end if the replica were paused."""
        if taking := [task for task, whose in self._taking.items() if whose is replica]:
            await asyncio.wait(taking)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _release_when_taken(self, taking: asyncio.Task[BranchPoint]) -> None:
        with contextlib.suppress(PointFailed):
            await self.release(await taking)

    async def _take(
        self, replica: LocalReplica, processes: Callable[[], set[int] | None], *, keep: bool
    ) -> BranchPoint:
        point_id = f"p{secrets.token_hex(8)}"
        folder = self._folder / point_id
        async with self._turn:
            try:
                await asyncio.to_thread(self._folder.mkdir, mode=0o711, exist_ok=True)
                dumped = await self._dump(replica, processes, folder)
                point = _point_of(point_id, replica, dumped, kept=keep)
                if keep:
                    dumped = await asyncio.to_thread(self._kept.keep, point, dumped)
            except Exception as exc:
                if isinstance(exc, DumpStuck):
                    replica.kill()
                await asyncio.to_thread(_remove_quietly, folder)
                if isinstance(exc, OSError):
                    raise PointFailed(str(exc), replica_id=replica.replica_id) from exc
                raise
        self._points[point_id] = dumped
        return point

    async def _dump(
        self, replica: LocalReplica, processes: Callable[[], set[int] | None], folder: Path
    ) -> Dumped:
        """Dump a replica; once more if a call to its guest agent came between the look for one and CRIU."""
        for attempt in range(_ATTEMPTS):
            try:
                pids = await asyncio.to_thread(processes) or set()
                return await dump(self._criu.path, replica, pids, folder)
            except PointFailed as exc:
                if attempt + 1 == _ATTEMPTS or _CONNECTED not in str(exc):
                    raise
                await asyncio.to_thread(_remove_quietly, folder)
        raise AssertionError

    async def prepare(self, replica: LocalReplica) -> dict[str, Any]:
        """Copy the layer of a clone's origin into its folder.

        Returns:
            Value of `restore` in a `spawn` request (see `protocol`).

        Raises:
            PointNotFound: The point is gone, of another image, or not what it was.
            OSError: It could not be copied.
        """
        spec = replica.spec
        assert spec.origin is not None
        dumped = self._points.get(spec.origin.point_id)
        if dumped is None:
            raise PointNotFound(
                f"there is no branch point {spec.origin.point_id}", replica_id=spec.replica_id
            )
        if spec.origin.image_digest != spec.image.digest:
            raise PointNotFound("the branch point was made from another image", replica_id=spec.replica_id)
        if replica.ids is None or not replica.group.procs_files:
            raise PointNotFound(
                "the replica has no ids or no control group of its own", replica_id=spec.replica_id
            )
        if await asyncio.to_thread(_digest, dumped) != dumped.digest:
            raise PointNotFound("the branch point's files were changed", replica_id=spec.replica_id)
        await _copy(dumped.upper, replica.folder / "upper")
        await asyncio.to_thread(layer.renumber, replica.folder / "upper", dumped.base, replica.ids.base)
        return {
            "criu": self._criu.path,
            "images": os.fspath(dumped.images.absolute()),
            "console": dumped.outside.console,
            "listening": dumped.outside.listening,
        }

    async def release(self, point: BranchPoint) -> None:
        """Remove a point's files; clones that live need none of them. Idempotent."""
        dumped = self._points.pop(point.point_id, None)
        if dumped is not None:
            await asyncio.to_thread(_remove_quietly, dumped.folder)

    async def close(self) -> None:
        """Release the points that are not kept, after the last clone. Idempotent."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._points.clear()
        await asyncio.to_thread(_remove_quietly, self._folder)


def _point_of(point_id: str, replica: LocalReplica, dumped: Dumped, *, kept: bool) -> BranchPoint:
    return BranchPoint(
        point_id=point_id,
        image_digest=replica.spec.image.digest,
        replica_id=replica.replica_id,
        generation=replica.generation,
        kept=kept,
        created_at=time.time(),
        pause_ms=round(dumped.pause_ms, 3),
        ram_mib=round(dumped.ram_mib, 3),
        disk_mib=round(dumped.disk_mib, 3),
    )


def _digest(dumped: Dumped) -> str:
    try:
        return layer.digest_of(dumped.images, dumped.upper)
    except FileNotFoundError:  # another host agent has released it
        return ""


def _remove_quietly(folder: Path) -> None:
    """Remove a folder as far as possible; the next start removes the rest."""
    try:
        trees.remove_tree(None, os.fspath(folder))
    except OSError as exc:
        _log.warning("%s could not be removed: %s", folder, exc)


async def _copy(source: Path, target: Path) -> None:
    """Copy a tree with all its attributes.

    Raises:
        OSError: It could not be done in time.
    """
    process = await start_program(copy_argv(os.fspath(source), os.fspath(target)))
    try:
        async with asyncio.timeout(COPY_S):
            said, _ = await process.communicate()
    except TimeoutError as exc:
        raise OSError(errno.ETIMEDOUT, f"the layer was not copied within {COPY_S:g} s") from exc
    finally:
        await asyncio.shield(end_program(process))
    if process.returncode != 0:
        raise OSError(errno.EIO, f"the layer was not copied: {said.decode('utf-8', 'replace')[:300]}")
