"""What a snapshot is made from, and how its making fails."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from osgym_host.errors import OsgymHostError
from osgym_host.images.disks.store import DiskImage
from osgym_host.runtimes.qemu.machine import QEMU, Shape, shape_fields
from osgym_host.snapshotting.warmup import Warmup

_FORMAT = 3
"""To be counted up when a template is booted or warmed up differently, so that snapshots are made anew."""


class SnapshotFailed(OsgymHostError):
    """A snapshot could not be made; nothing of it is left.

    Attributes:
        stage: Where it failed.
        log_tail: The end of the guest's console: show it, never interpret it.
    """

    def __init__(self, stage: str, message: str, log_tail: str = "") -> None:
        """Keep the fields beside the message."""
        super().__init__(f"{stage}: {message}")
        self.stage = stage
        self.log_tail = log_tail


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """What to make.

    Attributes:
        name: Of the snapshot; its reference is `<disk's name>@<name>`.
        warmup: None: the bare desktop.
        warm_apps: Programs that run in it without a window, as in the setting of that name.
        accel: `auto`, `kvm` or `tcg`.
        screen: None: as the disk image says.
        refresh: Make it anew although one of the same definition is there.
    """

    disk: DiskImage
    name: str = "desktop"
    warmup: Warmup | None = None
    warm_apps: tuple[str, ...] = ()
    ram_mib: int = 2048
    vcpus: int = 1
    accel: str = "auto"
    screen: tuple[int, int] | None = None
    refresh: bool = False
    qemu: str = QEMU

    @property
    def reference(self) -> str:
        """`<disk's name>@<name>`."""
        return f"{self.disk.name}@{self.name}"


def definition_key(request: SnapshotRequest, shape: Shape, screen: tuple[int, int]) -> str:
    """Return the hash of what a snapshot is made from; the program is not part of it, its machine type is."""
    warmup = request.warmup.key if request.warmup is not None else ""
    parts = [_FORMAT, request.reference, request.disk.digest, warmup, shape_fields(shape), screen]
    parts += [list(request.warm_apps)] if request.warm_apps else []
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
