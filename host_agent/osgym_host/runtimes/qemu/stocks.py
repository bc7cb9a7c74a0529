"""Snapshots as the runtime knows them, and the parked processes of each."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from osgym_host.images.errors import ImageError
from osgym_host.images.snapshots import Snapshot, SnapshotStore
from osgym_host.runtimes.base import ImageLike, RuntimeNotRunning, RuntimeUnsupported
from osgym_host.runtimes.qemu.adoption import GoneImage
from osgym_host.runtimes.qemu.golden import Golden, golden_of
from osgym_host.runtimes.qemu.parked import Stock, StockOptions
from osgym_host.runtimes.qemu.vms import Vm, VmYard


class Goldens:
    """The snapshots that were asked for, each read once."""

    def __init__(self, data_dir: Path) -> None:
        """Nothing is read before it is asked for."""
        self._store = SnapshotStore(data_dir)
        self._known: dict[str, Golden] = {}

    def of(self, image: ImageLike) -> Golden:
        """Return what is known of the image of a spec.

        Raises:
            RuntimeUnsupported: It is no snapshot, or a broken one.
        """
        found = self._known.get(image.digest)
        if found is not None:
            return found
        if isinstance(image, Golden):
            golden = image
        elif isinstance(image, Snapshot):
            try:
                golden = golden_of(image)
            except ImageError as exc:
                raise RuntimeUnsupported(str(exc)) from exc
        else:
            raise RuntimeUnsupported(
                "the qemu runtime needs a golden snapshot", remedy="`osgym image snapshot small` makes one."
            )
        self._known[golden.digest] = golden
        return golden

    def find(self, digest: str) -> Golden | None:
        """Return a snapshot by its digest, from the store if need be; None when it is gone."""
        if digest not in self._known:
            with contextlib.suppress(ImageError):
                self._known[digest] = golden_of(self._store.resolve(digest))
        return self._known.get(digest)

    def image_of(self, digest: str) -> ImageLike:
        """The image of a replica that was found running."""
        return self.find(digest) or GoneImage(digest)


class Stocks:
    """Parked processes by snapshot. Those of the first one asked for are made ahead of demand."""

    def __init__(self, options: StockOptions) -> None:
        """Nothing is made before `of`."""
        self._options = options
        self._stocks: dict[str, Stock[Vm]] = {}
        self._closed = False

    def open(self) -> None:
        """Allow making, after a `close` too."""
        self._closed = False

    def of(self, golden: Golden, yard: VmYard) -> Stock[Vm]:
        """The stock of a snapshot.

        Raises:
            RuntimeNotRunning: After `close`.
        """
        if self._closed:
            raise RuntimeNotRunning("the qemu runtime is stopping")
        found = self._stocks.get(golden.digest)
        if found is None:
            found = Stock(self._options, lambda: yard.park(golden), yard.remove)
            if not self._stocks:
                found.start()
            self._stocks[golden.digest] = found
        return found

    def parked(self) -> list[Vm]:
        """Every machine in stock."""
        return [vm for stock in self._stocks.values() for vm in stock.ready]

    async def close(self) -> None:
        """Remove all; who waits for one is refused. Idempotent."""
        self._closed = True
        await asyncio.gather(*(stock.close() for stock in self._stocks.values()))
        self._stocks.clear()
