"""Fields of images, disks and snapshots that the commands of `osgym image` print."""

from __future__ import annotations

from osgym_host.images.calibration import calibration_path
from osgym_host.images.disks.store import DiskImage, DiskStore
from osgym_host.images.snapshots import Snapshot, SnapshotStore
from osgym_host.images.store import Image, ImageStore

MIB = 1 << 20


def image_row(image: Image, store: ImageStore) -> dict[str, object]:
    """Return the fields of a golden image in lists and JSON."""
    manifest = image.manifest
    return {
        "digest": image.digest,
        "flavor": image.name,
        "tagged": store.is_tagged(image),
        "size_mib": manifest.size_bytes // MIB,
        "packages": len(manifest.packages),
        "created_at": manifest.created_at,
        "rootfs": str(image.rootfs),
        "calibrated": calibration_path(image.folder).exists(),
        "session_isolated": manifest.session_isolated,
        "bake_s": manifest.bake_s,
    }


def disk_row(disk: DiskImage, store: DiskStore) -> dict[str, object]:
    manifest = disk.manifest
    return {
        "digest": disk.digest,
        "name": disk.name,
        "tagged": store.is_tagged(disk),
        "format": str(manifest.format),
        "guest": str(manifest.guest),
        "size_mib": manifest.size_bytes // MIB,
        "virtual_mib": manifest.virtual_size_bytes // MIB,
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
        "ram_data_mib": manifest.ram_data_bytes // MIB,
        "disk_mib": manifest.disk_bytes // MIB,
        "state_kib": manifest.state_bytes // 1024,
        "screen": "{}x{}".format(*manifest.screen),
        "qemu_version": manifest.qemu_version,
        "created_at": manifest.created_at,
        "folder": str(snapshot.folder),
        "session_isolated": manifest.session_isolated,
        "boot_s": manifest.boot_s,
        "build_s": manifest.build_s,
    }
