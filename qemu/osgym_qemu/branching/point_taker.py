"""Taking of a branch point of a running machine: before, during and after its pause."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from osgym_host.images.content_store import remove_tree
from osgym_host.runtimes.base import BranchPoint
from osgym_qemu.branching import delta_file, disk_chain
from osgym_qemu.branching.disk_chain import DiskChain, NewLayer
from osgym_qemu.branching.kept_points import (
    DISK,
    RAM,
    SCREEN,
    STATE,
    KeptPointStore,
    PointData,
    PointManifest,
    mib,
)
from osgym_qemu.branching.paused_state import (
    MemoryReader,
    PausedState,
    pause_and_capture,
    screen_memory,
)
from osgym_qemu.branching.ram_delta import MappedRange
from osgym_qemu.disks.overlay import make_overlay
from osgym_qemu.golden.ram_file import RamIdentity
from osgym_qemu.golden.snapshot import GoldenSnapshot
from osgym_qemu.machine.machine import Machine

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BranchSource:
    """Resources of a running machine for branching.

    Attributes:
        token: Token of its guest agent; a child's first identity call needs it.
        ram: Golden RAM that it maps.
        folder: Folder with the files of its disk, which gets new layers (`top-*.qcow2`).
        overlay: First overlay in that folder.
        pausing: Gives a context within which the machine may stand still because we say so.
    """

    replica_id: str
    generation: int
    token: str | None = field(repr=False)
    machine: Machine
    ram: RamIdentity
    folder: Path
    overlay: Path
    golden: GoldenSnapshot
    pausing: Callable[[], AbstractAsyncContextManager[None]]


class PointTaker:
    """Taker of points of one instance's machines."""

    def __init__(
        self,
        run_folder: Path,
        store: KeptPointStore,
        max_layers: int,
        threads: Executor,
        helpers: Executor,
    ) -> None:
        """Args:
        run_folder: Folder for temporary points.
        helpers: Other threads than `threads`.
        """
        self._folder = run_folder
        self._store = store
        self._max_layers = max_layers
        self._threads = threads
        self._helpers = helpers

    async def take(self, source: BranchSource, *, keep: bool) -> PointData:
        """Take a point. The caller excludes simultaneous points of the same machine.

        Raises:
            OsgymHostError, OSError: It could not be taken; nothing of it is left, the machine runs.
        """
        point_id = f"p-{uuid.uuid4().hex[:16]}"
        qmp = source.machine.qmp
        chain = await disk_chain.read_chain(qmp, source.folder, source.overlay)
        # A checkpoint is one file over the snapshot's disk.
        if len(chain.layers) >= (2 if keep else self._max_layers):
            chain = await disk_chain.flatten(qmp, chain)
        if not keep:
            folder = self._folder / point_id
            folder.mkdir(mode=0o700)
            try:
                return await self._take_into(folder, point_id, source, chain)
            except BaseException:
                await in_thread(self._threads, remove_tree, folder)
                raise
        with self._store.workspace() as folder:
            point = await self._take_into(folder, point_id, source, chain)
            try:
                return await in_thread(self._threads, self._keep, point, source)
            finally:
                point.forget()

    async def freeze_disk(self, source: BranchSource) -> tuple[Path, ...]:
        """Put a new layer on top of a running machine's disk; return its own layers below that.

        Raises:
            OsgymHostError, OSError: The layer could not be added; the machine runs as before.
        """
        qmp = source.machine.qmp
        chain = await disk_chain.read_chain(qmp, source.folder, source.overlay)
        if len(chain.layers) >= self._max_layers:
            chain = await disk_chain.flatten(qmp, chain)
        top = await self._new_top(source, chain, f"d-{uuid.uuid4().hex[:16]}")
        try:
            await disk_chain.use_top(qmp, chain, top)
        except BaseException:
            await disk_chain.drop_top(qmp, top)
            raise
        return chain.layers

    async def _take_into(
        self, folder: Path, point_id: str, source: BranchSource, chain: DiskChain
    ) -> PointData:
        qmp, golden = source.machine.qmp, source.golden
        screen = await screen_memory(qmp) if golden.shape.vga else None
        top = await self._new_top(source, chain, point_id)
        used = False

        async def freeze() -> None:
            nonlocal used
            await disk_chain.use_top(qmp, chain, top)
            used = True

        reader = None
        try:
            reader = await in_thread(
                self._threads, MemoryReader, source.machine.pid, source.ram, screen, self._helpers
            )
            paused = await pause_and_capture(qmp, reader, folder / STATE, freeze, self._threads)
        finally:
            if reader is not None:
                reader.close()
            if not used:
                await disk_chain.drop_top(qmp, top)
        try:
            return await in_thread(
                self._threads, self._finish, folder, point_id, source, chain, paused, screen
            )
        except BaseException:
            paused.forget()
            raise

    async def _new_top(self, source: BranchSource, chain: DiskChain, point_id: str) -> NewLayer:
        prepared = self._folder / f"{point_id}.qcow2"
        try:
            make_overlay(prepared, source.golden.disk_bytes)
            return await disk_chain.open_top(source.machine.qmp, chain, prepared)
        finally:
            prepared.unlink(missing_ok=True)

    def _finish(
        self,
        folder: Path,
        point_id: str,
        source: BranchSource,
        chain: DiskChain,
        paused: PausedState,
        screen: MappedRange | None,
    ) -> PointData:
        """Do the rest of the work while the machine runs again. Blocking."""
        layers = disk_chain.freeze(chain.layers, folder)
        size = paused.ram.size_bytes + (paused.screen.size_bytes if paused.screen else 0)
        info = BranchPoint(
            point_id=point_id,
            image_digest=source.golden.digest,
            replica_id=source.replica_id,
            generation=source.generation,
            kept=False,
            created_at=time.time(),
            pause_ms=paused.pause_ms,
            ram_mib=mib(size),
            disk_mib=disk_chain.disk_mib(layers),
        )
        return PointData(
            info=info,
            folder=folder,
            layers=layers,
            token=source.token,
            ram_bytes=source.ram.size_bytes,
            screen_bytes=screen.end - screen.start if screen is not None else 0,
            ram=paused.ram,
            screen=paused.screen,
        )

    def _keep(self, point: PointData, source: BranchSource) -> PointData:
        """Write the remaining files of a point, and publish it. Blocking."""
        assert point.ram is not None
        delta_file.write_file(point.folder / RAM, point.ram, point.ram_bytes, self._helpers)
        if point.screen is not None:
            delta_file.write_file(point.folder / SCREEN, point.screen, point.screen_bytes, self._helpers)
        (layer,) = point.layers
        layer.rename(point.folder / DISK)
        info = asdict(point.info)
        del info["kept"]
        manifest = PointManifest(
            **info,
            ram_bytes=point.ram_bytes,
            screen_bytes=point.screen_bytes,
            disk_bytes=source.golden.disk_bytes,
        )
        return self._store.publish(point.folder, manifest, point.token)


async def in_thread(threads: Executor, call: Callable[..., T], *arguments: object) -> T:
    """Run a blocking call in one of these threads."""
    return await asyncio.get_running_loop().run_in_executor(threads, call, *arguments)
