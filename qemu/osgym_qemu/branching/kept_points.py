"""Branch points in memory and on disk, and the store of kept ones.

A kept point (checkpoint) is a folder below `<data>/checkpoints` that never changes, named by its id:

    manifest.json   what it is, and what a host needs to take it
    ram.delta       the RAM that differs from the golden snapshot's (`delta_file`)
    screen.delta    the memory of the VGA screen, where the machine has one
    device.state    the rest of the machine
    disk.qcow2      what was written over the snapshot's disk; another name of the parent's frozen layer
    token           what the guest agent demands, where it demands something

A temporary point is a folder of the instance with a state and one or more layers; its RAM is in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from osgym_host.images.content_store import discard, fsync_folder, reap_folders, workspace_in
from osgym_host.runtimes.base import BranchPoint, PointFailed, PointNotFound
from osgym_host.whole_file import write_whole
from osgym_qemu.branching.ram_pages import RamDelta

log = logging.getLogger(__name__)

MANIFEST, RAM, SCREEN, STATE, DISK, TOKEN = (
    "manifest.json",
    "ram.delta",
    "screen.delta",
    "device.state",
    "disk.qcow2",
    "token",
)
POINT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
TOKEN_TEXT = re.compile(r"[\x21-\x7e]{1,512}\Z")
_MANIFEST_MAX_BYTES = 65536
_PREPARED = "point"

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class PointManifest(BaseModel):
    """Manifest of a kept point.

    Attributes:
        image_digest: Digest of the golden snapshot below its RAM and disk.
        ram_bytes, screen_bytes, disk_bytes: Sizes of the whole memory, screen memory (0: none) and disk.
        imported: True if it was taken on another host.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    point_id: Name
    image_digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    replica_id: Name
    generation: Annotated[int, Field(ge=0, lt=1 << 63)]
    created_at: Amount
    pause_ms: Amount
    ram_mib: Amount
    disk_mib: Amount
    ram_bytes: Annotated[int, Field(gt=0, le=1 << 40)]
    screen_bytes: Annotated[int, Field(ge=0, le=1 << 30)]
    disk_bytes: Annotated[int, Field(gt=0, le=1 << 46)]
    imported: bool = False

    @classmethod
    def read(cls, text: str | bytes) -> PointManifest:
        """Parse a manifest.

        Raises:
            PointFailed: `text` is not a manifest, or too large.
        """
        if len(text) > _MANIFEST_MAX_BYTES:
            raise PointFailed("the manifest of a branch point is too large")
        try:
            return cls.model_validate_json(text)
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise PointFailed(f"the manifest of a branch point is broken: {place} {first['msg']}") from exc

    def branch_point(self) -> BranchPoint:
        """Handle of the runtime contract."""
        names = {field.name for field in fields(BranchPoint)} - {"kept"}
        return BranchPoint(kept=True, **self.model_dump(include=names))


@dataclass(slots=True)
class PointData:
    """Point from which children can be made.

    Attributes:
        layers: Frozen layers of its disk, from the bottom up.
        ram, screen: Pages of its memory, None while they are only on disk (or for no screen).
        ram_bytes, screen_bytes: Sizes of the whole memory and screen memory; no screen is 0.
        users: Number of children being made of it.
        idle: Set when the last of them is done.
        released: True if it takes no more users.
    """

    info: BranchPoint
    folder: Path
    layers: tuple[Path, ...]
    token: str | None = field(repr=False)
    ram_bytes: int
    screen_bytes: int
    ram: RamDelta | None = None
    screen: RamDelta | None = None
    users: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    released: bool = False

    @property
    def state(self) -> Path:
        """Path of its device state."""
        return self.folder / STATE

    def forget(self) -> None:
        """Free its memory."""
        for delta in (self.ram, self.screen):
            if delta is not None:
                delta.close()
        self.ram = self.screen = None


class KeptPointStore:
    """Kept points below `<data>/checkpoints`; several processes may use it at once."""

    def __init__(self, data_dir: Path) -> None:
        self.folder = data_dir / "checkpoints"

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """Context with an empty folder for a point; removed at the end unless it was published."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with workspace_in(self.folder) as outer:
            prepared = outer / _PREPARED
            prepared.mkdir(mode=0o700)
            yield prepared

    def publish(self, prepared: Path, manifest: PointManifest, token: str | None) -> PointData:
        """Make the written files durable and visible, all at once. Blocking.

        Raises:
            OSError: The disk is full, or fails.
        """
        write_whole(prepared / MANIFEST, manifest.model_dump_json(indent=1).encode() + b"\n")
        if token is not None:
            write_whole(prepared / TOKEN, token.encode())
        for path in prepared.iterdir():
            _fsync(path)
        fsync_folder(prepared)
        prepared.rename(self.folder / manifest.point_id)
        fsync_folder(self.folder)
        return self.load(manifest.point_id)

    def load(self, point_id: str) -> PointData:
        """Read one point.

        Raises:
            PointNotFound: No point has this id.
            PointFailed: The point is broken.
        """
        folder = self.folder / point_id
        if POINT_ID.match(point_id) is None or not (folder / MANIFEST).is_file():
            raise PointNotFound(f"there is no checkpoint {point_id}")
        try:
            manifest = PointManifest.read(_read(folder / MANIFEST))
            token = _read(folder / TOKEN).decode() if (folder / TOKEN).exists() else None
        except (OSError, UnicodeDecodeError) as exc:
            raise PointFailed(f"the checkpoint {point_id} cannot be read: {exc}") from exc
        return PointData(
            info=manifest.branch_point(),
            folder=folder,
            layers=(folder / DISK,),
            token=token,
            ram_bytes=manifest.ram_bytes,
            screen_bytes=manifest.screen_bytes,
        )

    def all(self) -> list[PointData]:
        """Return all complete points, the oldest first; broken ones are left out, and logged."""
        found = []
        for folder in self.folder.iterdir() if self.folder.is_dir() else ():
            if not POINT_ID.match(folder.name):
                continue
            try:
                found.append(self.load(folder.name))
            except (PointFailed, PointNotFound) as exc:
                log.warning("a checkpoint cannot be used and is skipped: %s", exc)
        return sorted(found, key=lambda point: point.info.created_at)

    def remove(self, point_id: str) -> None:
        """Remove a point by one rename. Idempotent; its children go on.

        Raises:
            OSError: It cannot be removed.
        """
        with contextlib.suppress(FileNotFoundError):
            discard(self.folder / point_id)

    def reap(self) -> None:
        """Remove points that killed host agents left half written or half removed."""
        reap_folders(self.folder)


def mib(size_bytes: float) -> float:
    """Convert bytes to MiB, rounded to a hundredth."""
    return math.ceil(size_bytes / (1 << 20) * 100) / 100


def _read(path: Path) -> bytes:
    """Read a small file; of a larger one, one byte more than the bound."""
    with path.open("rb") as file:
        return file.read(_MANIFEST_MAX_BYTES + 1)


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
