"""From a disk image to a golden snapshot: boot, prepare the desktop, come to rest, freeze, try, publish."""

from osgym_host.runtimes.qemu.snapshotting.build import SnapshotBuilder
from osgym_host.runtimes.qemu.snapshotting.request import DesktopPreparation, SnapshotFailed, SnapshotRequest

__all__ = ["DesktopPreparation", "SnapshotBuilder", "SnapshotFailed", "SnapshotRequest"]
