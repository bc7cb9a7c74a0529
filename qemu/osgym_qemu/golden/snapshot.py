"""Golden snapshot as the runtime uses it, and the cache of its RAM."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from osgym_host.images.errors import ImageError
from osgym_host.runtimes.base import Screen
from osgym_qemu.disks.manifest import DiskFormat, GuestKind
from osgym_qemu.disks.overlay import virtual_size
from osgym_qemu.golden.ram_file import RamFile, RamFileError, RamIdentity, memory_copy
from osgym_qemu.machine.argv import BASE_FD, IMAGE_FD, Shape
from osgym_qemu.machine.host_checks import shape_of
from osgym_qemu.snapshots import Snapshot

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GoldenSnapshot:
    """Golden snapshot as the runtime uses it.

    Attributes:
        shape: Hardware of template, clones and branches as guest and migration stream see it.
        disk: Path of the frozen disk, below every clone's overlay.
        image: Path of the disk image below that, in its format.
        token: Token that the frozen guest agent demands; None for a guest without our agent.
        guest: Kind of agent inside.
        screen_from: Source of the screen (`Hardware.screen_from`); unused with our agent inside.
        uefi: Path of the firmware; None for BIOS.
    """

    digest: str
    name: str
    shape: Shape
    disk: Path
    ram: Path
    state: Path
    token: str | None = field(repr=False)
    guest: GuestKind
    screen: Screen
    disk_bytes: int
    screen_from: str
    uefi: Path | None
    image: Path
    image_format: str


def golden_snapshot(snapshot: Snapshot) -> GoldenSnapshot:
    """Read a snapshot of the store.

    Raises:
        ImageError: It is broken.
    """
    manifest = snapshot.manifest
    try:
        shape = shape_of(manifest)
        size = virtual_size(snapshot.disk, DiskFormat.QCOW2)
    except (ImageError, ValueError) as exc:
        raise ImageError(f"the snapshot {snapshot.reference} is broken: {exc}", "build it again") from exc
    return GoldenSnapshot(
        digest=snapshot.digest,
        name=snapshot.reference,
        shape=shape,
        disk=snapshot.disk,
        ram=snapshot.ram,
        state=snapshot.state,
        token=snapshot.secret(),
        guest=manifest.guest,
        screen=Screen(*manifest.screen),
        disk_bytes=size,
        screen_from="vga" if manifest.hardware is None else manifest.hardware.screen_from,
        uefi=snapshot.uefi,
        image=snapshot.base,
        image_format=manifest.disk_format,
    )


@contextlib.contextmanager
def opened_disks(disk: Path, image: Path) -> Iterator[dict[int, int]]:
    """Open a frozen disk and its image for a machine; return descriptors by their number in QEMU.

    Raises:
        OSError: One of them is missing, or not ours to read.
    """
    with contextlib.ExitStack() as stack:
        fds = {}
        for number, path in ((BASE_FD, disk), (IMAGE_FD, image)):
            fds[number] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, fds[number])
        yield fds


class GoldenRamCache:
    """Cache of golden RAM and firmware of each snapshot in use, kept until the runtime stops."""

    def __init__(self) -> None:
        self._files: dict[str, RamFile] = {}
        self._firmware: dict[str, int] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def get(self, golden: GoldenSnapshot) -> RamFile:
        """Return the RAM of a snapshot; loading takes a second for each GB or two.

        Raises:
            RamFileError: It cannot be read, or there is not enough memory.
        """
        async with self._locks[golden.digest]:
            found = self._files.get(golden.digest)
            if found is None:
                loading = asyncio.create_task(asyncio.to_thread(RamFile.load, golden.ram))
                try:
                    found = await asyncio.shield(loading)
                except asyncio.CancelledError:
                    with contextlib.suppress(RamFileError):
                        (await loading).close()
                    raise
                self._files[golden.digest] = found
            return found

    def firmware(self, golden: GoldenSnapshot) -> int:
        """Return the descriptor of a sealed memory file with the snapshot's firmware.

        Raises:
            OSError: It has none, or it cannot be read.
        """
        if golden.uefi is None:
            raise FileNotFoundError(f"{golden.name} has no firmware file")
        if golden.digest not in self._firmware:
            self._firmware[golden.digest] = memory_copy(golden.uefi)
        return self._firmware[golden.digest]

    def recover(self, digest: str, pid: int, identity: RamIdentity) -> None:
        """Take over the RAM of a snapshot from a machine of a previous host agent that maps it.

        RAM that cannot be recovered is loaded anew on demand; then two copies are in memory for as long as
        the machines of the previous host agent live.
        """
        if digest in self._files:
            return
        try:
            self._files[digest] = RamFile.recover(pid, identity)
        except RamFileError as exc:
            log.warning("the golden RAM of snapshot %s is loaded again: %s", digest[:12], exc)

    def close(self) -> None:
        """Close all. Idempotent."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        for fd in self._firmware.values():
            os.close(fd)
        self._firmware.clear()
