"""Snapshots in use by the runtime, and the parked processes of each."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path

from osgym_host.images.errors import ImageError
from osgym_host.runtimes.base import ImageLike, RuntimeNotRunning, RuntimeUnsupported
from osgym_qemu.cloning.managed_vm import ManagedVm
from osgym_qemu.cloning.parked_pool import ParkedPool, ParkedPoolOptions
from osgym_qemu.cloning.vm_manager import VmManager
from osgym_qemu.golden.snapshot import GoldenSnapshot, golden_snapshot
from osgym_qemu.snapshots import Snapshot, SnapshotStore


@dataclass(frozen=True, slots=True)
class MissingImage:
    """Snapshot that is no longer in the store, though machines cloned from it still run."""

    digest: str


class SnapshotRegistry:
    """Snapshots in use, each read once."""

    def __init__(self, data_dir: Path) -> None:
        self._store = SnapshotStore(data_dir)
        self._known: dict[str, GoldenSnapshot] = {}

    def close_to_others(self) -> list[str]:
        """Remove other users' access to snapshots of older versions; return those. Blocking."""
        return self._store.close_to_others()

    def of(self, image: ImageLike) -> GoldenSnapshot:
        """Return the golden snapshot of a spec's image.

        Raises:
            RuntimeUnsupported: The image is not a snapshot, or a broken one.
        """
        found = self._known.get(image.digest)
        if found is not None:
            return found
        if isinstance(image, GoldenSnapshot):
            golden = image
        elif isinstance(image, Snapshot):
            try:
                golden = golden_snapshot(image)
            except ImageError as exc:
                raise RuntimeUnsupported(str(exc)) from exc
        else:
            raise RuntimeUnsupported(
                "the qemu runtime needs a golden snapshot",
                remedy="Make one with `osgym image snapshot small`.",
            )
        self._known[golden.digest] = golden
        return golden

    def find(self, digest: str) -> GoldenSnapshot | None:
        """Return a snapshot by its digest, read from the store if needed; None when it is gone."""
        if digest not in self._known:
            with contextlib.suppress(ImageError):
                self._known[digest] = golden_snapshot(self._store.resolve(digest))
        return self._known.get(digest)


class ParkedPools:
    """Pools of parked processes by snapshot. Only that of the first snapshot is filled ahead of demand."""

    def __init__(self, options: ParkedPoolOptions, vms: VmManager) -> None:
        self._options = options
        self._vms = vms
        self._pools: dict[str, ParkedPool[ManagedVm]] = {}
        self._closed = False

    def of(self, golden: GoldenSnapshot) -> ParkedPool[ManagedVm]:
        """Return the pool of a snapshot.

        Raises:
            RuntimeNotRunning: After `close`.
        """
        if self._closed:
            raise RuntimeNotRunning("the qemu runtime is stopping")
        found = self._pools.get(golden.digest)
        if found is None:
            found = ParkedPool(self._options, lambda: self._vms.park(golden), self._vms.remove)
            if not self._pools:
                found.start()
            self._pools[golden.digest] = found
        return found

    def parked(self) -> list[ManagedVm]:
        return [vm for pool in self._pools.values() for vm in pool.ready]

    async def close(self) -> None:
        """Close all pools; waiting callers are refused. Idempotent."""
        self._closed = True
        await asyncio.gather(*(pool.close() for pool in self._pools.values()))
        self._pools.clear()
