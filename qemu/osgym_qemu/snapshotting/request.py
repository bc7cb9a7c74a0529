"""What a snapshot is made from, and how its making fails."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from osgym_host.guest_client import GuestClient
from osgym_host.images.errors import BakeError
from osgym_qemu.disks.store import DiskImage
from osgym_qemu.machine.argv import QEMU, Shape
from osgym_qemu.machine.host_checks import shape_fields

_FORMAT = 3
"""To be counted up when a template is booted or warmed up differently, so that snapshots are made anew."""


class SnapshotFailed(BakeError):
    """A snapshot could not be made; nothing of it is left.

    `log_tail` is the end of the guest's console: show it, never interpret it.
    """


class DesktopPreparation(Protocol):
    """Work on a booted desktop, after which it is frozen."""

    @property
    def name(self) -> str:
        """Name of its warm-up, empty without one."""
        ...

    @property
    def key(self) -> str:
        """Hash of its warm-up, empty without one."""
        ...

    @property
    def warm_apps(self) -> tuple[str, ...]:
        """Programs that run in the snapshot without a window, as in the setting of that name."""
        ...

    async def carry_out(
        self, guest: GuestClient, screen: tuple[int, int], enter: Callable[[str, str], None]
    ) -> None:
        """Do the work.

        Args:
            screen: Size of the desktop in pixels.
            enter: Called with the stage that begins and the name of what is done in it.

        Raises:
            OsgymHostError: It failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """What to make.

    Attributes:
        name: Name of the snapshot; its reference is `<disk's name>@<name>`.
        preparation: Work on the desktop before it is frozen.
        accel: `auto`, `kvm` or `tcg`.
        screen: None: as the disk image says.
        refresh: Make it anew although one of the same definition is there.
    """

    disk: DiskImage
    preparation: DesktopPreparation
    name: str = "desktop"
    ram_mib: int = 2048
    vcpus: int = 1
    accel: str = "auto"
    screen: tuple[int, int] | None = None
    refresh: bool = False
    qemu: str = QEMU

    @property
    def reference(self) -> str:
        return f"{self.disk.name}@{self.name}"


def definition_key(request: SnapshotRequest, shape: Shape, screen: tuple[int, int]) -> str:
    """Return the hash of what a snapshot is made from; the program is not part of it, its machine type is."""
    made, warm_apps = request.preparation.key, request.preparation.warm_apps
    parts = [_FORMAT, request.reference, request.disk.digest, made, shape_fields(shape), screen]
    parts += [list(warm_apps)] if warm_apps else []
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
