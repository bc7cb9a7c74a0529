"""What virtual machines make of golden images: bootable disks, and snapshots of machines that booted them."""

from __future__ import annotations

from pathlib import Path

from osgym_host.images.definition import tree_hash
from osgym_host.images.derived import DerivedBuild, DerivedImage, DerivedImages, DerivedStore
from osgym_host.images.progress import BakeProgress
from osgym_qemu.disks.bake import BUILDER_VERSION, DiskBaker, DiskRequest
from osgym_qemu.disks.definition import VmSource
from osgym_qemu.disks.manifest import DiskFormat
from osgym_qemu.disks.overlay import can_reflink, choose
from osgym_qemu.disks.store import DiskImage, DiskStore
from osgym_qemu.snapshots import Snapshot, SnapshotStore

_MIB = 1 << 20
_BEST = "disk"
"""Format that suits this host: qcow2 or raw."""
_DISK_COLUMNS = {
    "digest": "{digest:.16}",
    "disk": "{name}",
    "tag": "{tag}",
    "format": "{format}",
    "guest": "{guest}",
    "size": "{size_mib} MiB",
    "virtual": "{virtual_mib} MiB",
    "created": "{created_at}",
}
_SNAPSHOT_COLUMNS = {
    "digest": "{digest:.16}",
    "snapshot": "{reference}",
    "tag": "{tag}",
    "accel": "{accel}",
    "RAM": "{ram_mib} MiB",
    "in file": "{ram_data_mib} MiB",
    "disk": "{disk_mib} MiB",
    "screen": "{screen}",
    "created": "{created_at}",
}


class DisksAndSnapshots(DerivedImages):
    """Bootable disks, which `osgym image build` makes, and snapshots, which `osgym image snapshot` makes."""

    formats = (_BEST, *(str(kind) for kind in DiskFormat))

    def build(self, request: DerivedBuild, progress: BakeProgress) -> DerivedImage:
        kind = request.format
        if kind == _BEST:
            choice = choose(reflink=can_reflink(request.store.data_dir))
            progress.note(f"{choice.format}: {choice.reason}")
            kind = choice.format
        disks = DiskStore(request.store.data_dir)
        source = request.source
        baker = DiskBaker(source.definition, VmSource(source.folder), request.store, disks, progress)
        disk = baker.bake(DiskRequest(request.image, DiskFormat(kind), request.refresh))
        row = disk_row(disk, disks)
        return DerivedImage(disk.name, disk.digest, disk.manifest.size_bytes, disk.disk, row)

    def definition_parts(self, folder: Path) -> tuple[str, ...]:
        return VmSource(folder).key(), tree_hash([folder / "warmups"]), str(BUILDER_VERSION)

    def stores(self, data_dir: Path) -> tuple[DerivedStore, ...]:
        return disk_store(data_dir), snapshot_store(data_dir)


def disk_store(data_dir: Path) -> DerivedStore:
    """Return the bootable disks of the data directory, as `osgym image` lists them."""
    return DerivedStore(DiskStore(data_dir), disk_row, _DISK_COLUMNS, listed=True)


def snapshot_store(data_dir: Path) -> DerivedStore:
    """Return the snapshots of the data directory, as `osgym image` lists them."""
    return DerivedStore(SnapshotStore(data_dir), snapshot_row, _SNAPSHOT_COLUMNS)


def disk_row(disk: DiskImage, store: DiskStore) -> dict[str, object]:
    manifest = disk.manifest
    return {
        "digest": disk.digest,
        "name": disk.name,
        "tagged": store.is_tagged(disk),
        "format": str(manifest.format),
        "guest": str(manifest.guest),
        "size_mib": manifest.size_bytes // _MIB,
        "virtual_mib": manifest.virtual_size_bytes // _MIB,
        "created_at": manifest.created_at,
        "disk": str(disk.disk),
        "source": manifest.source,
        "session_isolated": manifest.session_isolated,
        "bake_s": manifest.bake_s,
    }


def snapshot_row(snapshot: Snapshot, store: SnapshotStore) -> dict[str, object]:
    manifest = snapshot.manifest
    return {
        "digest": snapshot.digest,
        "reference": snapshot.reference,
        "tagged": store.is_tagged(snapshot),
        "accel": manifest.shape.get("accel"),
        "ram_mib": manifest.ram_mib,
        "warm_apps": list(manifest.warm_apps),
        "ram_data_mib": manifest.ram_data_bytes // _MIB,
        "disk_mib": manifest.disk_bytes // _MIB,
        "state_kib": manifest.state_bytes // 1024,
        "screen": "{}x{}".format(*manifest.screen),
        "qemu_version": manifest.qemu_version,
        "created_at": manifest.created_at,
        "folder": str(snapshot.folder),
        "session_isolated": manifest.session_isolated,
        "boot_s": manifest.boot_s,
        "build_s": manifest.build_s,
    }
