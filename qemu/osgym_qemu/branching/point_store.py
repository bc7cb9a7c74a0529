"""Store of branch points of running virtual machines: taken, restored, released.

The runtime owns the machines; this module is told what it needs of one (`BranchSource`,
`BranchChild`) and gives back a `BranchPoint`, the handle of the runtime contract.

    point = await store.take(source, keep=False)   # the parent stands still for milliseconds
    token = await store.restore(point, child)      # a parked process: RAM, disk and device state are in
    await child.machine.cont()                     # the runtime goes on as for any clone: identity, READY
    await store.release(point)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from osgym_host.errors import OsgymHostError
from osgym_host.images.content_store import remove_tree
from osgym_host.runtimes.base import BranchPoint, PointFailed, PointNotFound
from osgym_qemu.branching import delta_file, disk_chain
from osgym_qemu.branching import point_archive as point_files
from osgym_qemu.branching.kept_points import (
    RAM,
    SCREEN,
    KeptPointStore,
    PointData,
)
from osgym_qemu.branching.paused_state import screen_memory
from osgym_qemu.branching.point_taker import BranchSource, PointTaker
from osgym_qemu.branching.ram_delta import write_delta
from osgym_qemu.branching.ram_native import RamControl
from osgym_qemu.branching.ram_pages import RamDelta, SharedPages
from osgym_qemu.golden.ram_file import RamIdentity
from osgym_qemu.golden.snapshot import GoldenSnapshot
from osgym_qemu.machine.machine import Machine

log = logging.getLogger(__name__)

MAX_LAYERS = 8
"""Number of frozen layers under a disk before they are joined: each costs files and look-ups in children."""
_THREADS = 4
_LOAD_TIMEOUT_S = 30.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BranchChild:
    """Resources of a parked process that becomes a child.

    Attributes:
        folder: Folder of the machine, which gets links to frozen layers (`below-*.qcow2`).
        overlay: Empty overlay in that folder.
        control: Socket to the library in it, by which it shares the point's pages; None: they are copied.
    """

    machine: Machine
    ram: RamIdentity
    folder: Path
    overlay: Path
    golden: GoldenSnapshot
    control: RamControl | None = None


class BranchPointStore:
    """Branch points of one instance. Every method may be called concurrently."""

    def __init__(self, *, run_folder: Path, data_dir: Path, max_layers: int = MAX_LAYERS) -> None:
        """Args:
        run_folder: Folder for temporary points (`run/<instance>/points`), of this store alone.
        data_dir: Folder for kept points.
        """
        self._folder = run_folder
        self._store = KeptPointStore(data_dir)
        self._data_dir = data_dir
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="branch")
        self._helpers = ThreadPoolExecutor(_THREADS, thread_name_prefix="branch-part")
        self._taker = PointTaker(run_folder, self._store, max_layers, self._threads, self._helpers)
        self._points: dict[str, PointData] = {}
        self._turns: weakref.WeakValueDictionary[Path, asyncio.Lock] = weakref.WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._sharing = asyncio.Lock()

    async def start(self) -> tuple[BranchPoint, ...]:
        """Remove leftovers of a killed predecessor and return the kept points.

        Raises:
            OSError: Leftovers cannot be removed.
        """
        points = await self._in_thread(self._start)
        return tuple(point.info for point in points)

    def _start(self) -> list[PointData]:
        remove_tree(self._folder)
        self._folder.mkdir(mode=0o700, parents=True)
        self._store.reap()
        return self._store.all()

    async def settle(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def stop(self) -> None:
        """Release the temporary points; kept ones stay on disk. Idempotent."""
        await self.settle()
        for point in self._points.values():
            point.forget()
        self._points.clear()
        await self._in_thread(remove_tree, self._folder)

    # Taking ------------------------------------------------------------------------------------------

    async def take(self, source: BranchSource, *, keep: bool) -> BranchPoint:
        """Take a point; the machine stands still for milliseconds and goes on in every case.

        Cancelled, it is taken nevertheless, and released then.

        Args:
            keep: True to return only when it is durable on disk.

        Raises:
            PointFailed: It could not be taken; nothing of it is left, the machine runs.
        """
        taking = self._spawn(self._take_in_turn(source, keep))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            self._spawn(self._release_when_taken(taking))
            raise

    async def _release_when_taken(self, taking: asyncio.Task[BranchPoint]) -> None:
        with contextlib.suppress(PointFailed):
            await self._release(await taking)

    async def _take_in_turn(self, source: BranchSource, keep: bool) -> BranchPoint:
        async with self._turn(source, f"{source.replica_id} could not be branched"), source.pausing():
            point = await self._taker.take(source, keep=keep)
        self._points[point.info.point_id] = point
        return point.info

    async def freeze_disk(self, source: BranchSource) -> tuple[Path, ...]:
        """Freeze the machine's own layers, and return them from the bottom up; it writes to a new one.

        Cancelled, it is done nevertheless.

        Raises:
            PointFailed: The layers could not be frozen; the machine runs.
        """
        return await asyncio.shield(self._spawn(self._freeze_disk_in_turn(source)))

    async def _freeze_disk_in_turn(self, source: BranchSource) -> tuple[Path, ...]:
        async with self._turn(source, f"the disk of {source.replica_id} could not be frozen"):
            return await self._taker.freeze_disk(source)

    @contextlib.asynccontextmanager
    async def _turn(self, source: BranchSource, failure: str) -> AsyncIterator[None]:
        """Context in which nobody else branches the machine, and errors become `PointFailed`."""
        async with self._turns.setdefault(source.folder, asyncio.Lock()):
            try:
                yield
            except (OsgymHostError, OSError) as exc:
                raise PointFailed(f"{failure}: {exc}", replica_id=source.replica_id) from exc

    # Restoring ---------------------------------------------------------------------------------------

    async def restore(self, point: BranchPoint, child: BranchChild) -> str | None:
        """Load the point's RAM, disk and device state into a parked process; it stays paused.

        Returns:
            Token that the guest agent demands until its new identity is acknowledged.

        Raises:
            PointNotFound: It was released.
            PointFailed: The point could not be loaded; the process must be killed.
        """
        return await asyncio.shield(self._spawn(self._restore(point, child)))

    async def _restore(self, info: BranchPoint, child: BranchChild) -> str | None:
        async with self._using(info) as point:
            try:
                await self._restore_into(point, child)
            except (OsgymHostError, OSError) as exc:
                raise PointFailed(f"the branch point {info.point_id} cannot be used: {exc}") from exc
            return point.token

    async def _restore_into(self, point: PointData, child: BranchChild) -> None:
        assert point.ram is not None
        machine, shape = child.machine, child.golden.shape
        if point.info.image_digest != child.golden.digest or point.ram_bytes != child.ram.size_bytes:
            raise PointFailed("the branch point was made from another golden snapshot than the process")
        layers = await self._in_thread(disk_chain.link_below, point.layers, child.folder)
        results = await asyncio.gather(
            self._restore_ram(point, child),
            disk_chain.attach(machine.qmp, child.overlay, layers, child.golden.image_format),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        await machine.load_state(point.state, timeout_s=_LOAD_TIMEOUT_S)
        if shape.vga and point.screen is not None:
            screen = await screen_memory(machine.qmp)
            if screen is None or screen.end - screen.start != point.screen_bytes:
                raise PointFailed("the screen of the process has another size than the branch point's")
            await self._in_thread(write_delta, machine.pid, screen, point.screen)

    async def _restore_ram(self, point: PointData, child: BranchChild) -> None:
        """Let the child share the point's pages, or give it copies of its own."""
        assert point.ram is not None
        if child.control is None:
            await self._in_thread(write_delta, child.machine.pid, child.ram, point.ram)
            return
        if not isinstance(point.ram.pages, SharedPages):
            async with self._sharing:
                point.ram = await self._in_thread(_shared, point.ram, point.ram_bytes)
        pages, extents = point.ram.pages, point.ram.extents
        assert isinstance(pages, SharedPages)
        pages.seal()
        await self._in_thread(child.control.map, pages.fd, extents)

    @contextlib.asynccontextmanager
    async def _using(self, info: BranchPoint) -> AsyncIterator[PointData]:
        """Context with the point's data, whose memory stays meanwhile."""
        point = self._points.get(info.point_id)
        if point is None:
            # One that another instance took, or that was there at the start.
            loaded = await self._in_thread(self._store.load, info.point_id)
            point = self._points.setdefault(info.point_id, loaded)
        if point.released:
            raise PointNotFound(f"the branch point {info.point_id} was released")
        point.users += 1
        try:
            async with point.loading:
                if point.ram is None:
                    await self._in_thread(self._load, point)
            yield point
        finally:
            point.users -= 1
            if not point.users:
                if point.info.kept:
                    point.forget()
                point.idle.set()

    def _load(self, point: PointData) -> None:
        try:
            ram = delta_file.read_file(point.folder / RAM, point.ram_bytes, self._helpers)
            if point.screen_bytes:
                point.screen = delta_file.read_file(point.folder / SCREEN, point.screen_bytes, self._helpers)
            point.ram = ram
        except FileNotFoundError as exc:
            raise PointNotFound(f"the checkpoint {point.info.point_id} was deleted") from exc
        except (OsgymHostError, OSError) as exc:
            raise PointFailed(f"the checkpoint {point.info.point_id} cannot be read: {exc}") from exc

    # Letting go --------------------------------------------------------------------------------------

    async def release(self, point: BranchPoint) -> None:
        """Release a point and remove its files, once no child is being made of it. Idempotent."""
        await asyncio.shield(self._spawn(self._release(point)))

    async def _release(self, info: BranchPoint) -> None:
        point = self._points.get(info.point_id)
        if point is not None:
            point.released = True
            while point.users:
                point.idle.clear()
                await point.idle.wait()
            self._points.pop(info.point_id, None)
            point.forget()
        if info.kept:
            await self._in_thread(self._store.remove, info.point_id)
        elif point is not None:
            await self._in_thread(remove_tree, point.folder)

    # Other hosts -------------------------------------------------------------------------------------

    async def export(self, point: BranchPoint, target: Path) -> None:
        """Write a kept point as one file.

        Raises:
            PointNotFound: It is gone, or not a kept one.
            PointFailed: The file is there already, or could not be written.
        """
        if not point.kept:
            raise PointNotFound(f"the branch point {point.point_id} is not kept, so it cannot be exported")
        await asyncio.shield(
            self._spawn(self._in_thread(point_files.export_point, self._store, point.point_id, target))
        )

    async def import_(self, source: Path) -> BranchPoint:
        """Read a kept point of another host; the file is hostile input.

        Raises:
            PointFailed: It is broken, or of a golden snapshot that is not here.
        """
        importing = self._in_thread(point_files.import_point, self._store, self._data_dir, source)
        return (await asyncio.shield(self._spawn(importing))).info

    # Threads and tasks -------------------------------------------------------------------------------

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start work that goes on when its caller is cancelled."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _shared(delta: RamDelta, ram_bytes: int) -> RamDelta:
    """Return the same pages in a memory file, after pending copies of the old memory. Blocking."""
    return RamDelta(delta.extents, delta.shared(ram_bytes))
