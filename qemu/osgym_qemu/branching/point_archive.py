"""Archive of a kept branch point: one file for another host, read as hostile input.

The file is a tar archive, so that people can look into it, with these members in this order, all plain
files: `export.json` (sizes and digests of the rest), `manifest.json`, `token`, `device.state`,
`ram.delta`, `screen.delta`, `disk.qcow2`; `token` and `screen.delta` may be missing. It is read header by
header here: no name of it becomes a path, no size is believed before it was checked, nothing is unpacked
that was not announced. It holds all that the desktop's memory held, so it is for its owner's eyes only.

The device state is QEMU's own format, which QEMU reads in the process of the child that it is loaded into,
as an unprivileged user in a sandbox. Still: take points from hosts that you trust.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
import uuid
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from osgym_host.errors import OsgymHostError
from osgym_host.images.errors import ImageNotFound
from osgym_host.runtimes.base import PointFailed, PointNotFound
from osgym_qemu.branching import delta_file
from osgym_qemu.branching.kept_points import (
    DISK,
    MANIFEST,
    RAM,
    SCREEN,
    STATE,
    TOKEN,
    TOKEN_TEXT,
    KeptPointStore,
    PointData,
    PointManifest,
)
from osgym_qemu.branching.qcow2 import Qcow2Error, parse_header, without_names
from osgym_qemu.golden.snapshot import GoldenSnapshot, golden_snapshot
from osgym_qemu.snapshots import SnapshotStore

EXPORT = "export.json"
_ORDER = (MANIFEST, TOKEN, STATE, RAM, SCREEN, DISK)
_OPTIONAL = (TOKEN, SCREEN)
_BLOCK = tarfile.BLOCKSIZE
_COPY_BYTES = 1 << 20
_HEAD_BYTES = 1 << 16
_SMALL_BYTES = 1 << 16
_STATE_MAX_BYTES = 64 << 20
_ROOM_BYTES = 64 << 20


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    size: Annotated[int, Field(ge=0, le=1 << 46)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Export(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    files: dict[str, _File]


# Writing ---------------------------------------------------------------------------------------------


def export_point(store: KeptPointStore, point_id: str, target: Path) -> None:
    """Write a kept point to one file, which appears whole or not at all. Blocking.

    Raises:
        PointNotFound: It is gone.
        PointFailed: The file is there already, or cannot be written.
    """
    point = store.load(point_id)
    if target.exists():
        raise PointFailed(f"{target} already exists")
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as out:
            _write_archive(point, out)
            out.flush()
            os.fsync(out.fileno())
        partial.rename(target)
    except FileNotFoundError as exc:
        raise PointNotFound(f"the checkpoint {point_id} cannot be written to {target}: {exc}") from exc
    except OSError as exc:
        raise PointFailed(f"the checkpoint {point_id} cannot be written to {target}: {exc}") from exc
    finally:
        partial.unlink(missing_ok=True)


def _write_archive(point: PointData, out: BinaryIO) -> None:
    names = [name for name in _ORDER if (point.folder / name).is_file()]
    files = {name: _describe(point.folder / name) for name in names}
    head = _Export(files=files).model_dump_json().encode()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(_member(EXPORT, len(head)), io.BytesIO(head))
        for name in names:
            with (point.folder / name).open("rb") as source:
                tar.addfile(_member(name, files[name].size), source)


def _describe(path: Path) -> _File:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return _File(size=file.tell(), sha256=digest)


def _member(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    return info


# Reading ---------------------------------------------------------------------------------------------


def import_point(store: KeptPointStore, data_dir: Path, source: Path) -> PointData:
    """Read a kept point of another host and store it under a new id. Blocking.

    Raises:
        PointFailed: The file is broken, or of a golden snapshot that is not here; nothing is left.
    """
    try:
        with source.open("rb") as file, store.workspace() as folder:
            return _import(store, data_dir, file, folder)
    except PointFailed:
        raise
    except (OsgymHostError, OSError) as exc:
        raise PointFailed(f"{source.name} cannot be imported: {exc}") from exc


def _import(store: KeptPointStore, data_dir: Path, file: BinaryIO, folder: Path) -> PointData:
    try:
        announced = _Export.model_validate_json(_read_small(file, EXPORT)).files
    except ValidationError as exc:
        raise PointFailed("the file has no manifest") from exc
    names = [name for name in _ORDER if name in announced]
    if set(announced) - set(_ORDER) or set(_ORDER) - set(_OPTIONAL) - set(names):
        raise PointFailed("the file does not have the members of an exported branch point")
    manifest = PointManifest.read(_checked(_read_small(file, MANIFEST), announced[MANIFEST]))
    golden = _golden(data_dir, manifest)
    if (SCREEN in names) != (manifest.screen_bytes > 0):
        raise PointFailed("the file and its manifest disagree about a screen")
    token = None
    if TOKEN in names:
        token = _checked(_read_small(file, TOKEN), announced[TOKEN]).decode("latin-1")
        if TOKEN_TEXT.match(token) is None:
            raise PointFailed("the token in the file is malformed")
    _check_sizes(announced, manifest, folder)
    for name in (name for name in names if name not in (MANIFEST, TOKEN)):
        _copy_member(file, name, announced[name], folder / name)
    _clean_disk(folder / DISK, golden)
    for name, size in ((RAM, manifest.ram_bytes), (SCREEN, manifest.screen_bytes)):
        if name in names:
            delta_file.check_file(folder / name, size)
    point_id = f"p-{uuid.uuid4().hex[:16]}"
    return store.publish(folder, manifest.model_copy(update={"point_id": point_id, "imported": True}), token)


def _golden(data_dir: Path, manifest: PointManifest) -> GoldenSnapshot:
    """Return the golden snapshot from which a point was taken.

    Raises:
        PointFailed: This host lacks it, or has one that does not fit the point.
    """
    snapshots = SnapshotStore(data_dir)
    try:
        golden = golden_snapshot(snapshots.resolve(manifest.image_digest))
    except ImageNotFound as exc:
        here = ", ".join(snapshot.digest[:12] for snapshot in snapshots.all()) or "none"
        raise PointFailed(
            f"it was made from the golden snapshot {manifest.image_digest[:12]}, and this host has {here}"
        ) from exc
    if manifest.ram_bytes != golden.shape.ram_mib << 20 or manifest.disk_bytes != golden.disk_bytes:
        raise PointFailed("its RAM or disk has another size than the golden snapshot's")
    return golden


def _check_sizes(announced: dict[str, _File], manifest: PointManifest, folder: Path) -> None:
    limits = {
        STATE: _STATE_MAX_BYTES,
        RAM: manifest.ram_bytes + _ROOM_BYTES,
        SCREEN: manifest.screen_bytes + _ROOM_BYTES,
        DISK: manifest.disk_bytes + manifest.disk_bytes // 8 + _ROOM_BYTES,
    }
    for name, limit in limits.items():
        if name in announced and announced[name].size > limit:
            raise PointFailed(f"{name} has {announced[name].size} bytes, more than the {limit} it may have")
    needed = sum(entry.size for entry in announced.values())
    free = shutil.disk_usage(folder).free
    if needed + _ROOM_BYTES > free:
        raise PointFailed(f"it needs {needed >> 20} MiB of disk, but only {free >> 20} MiB are free")


def _clean_disk(path: Path, golden: GoldenSnapshot) -> None:
    """Erase all names in the disk's header, and check its size."""
    with path.open("r+b") as file:
        head = file.read(_HEAD_BYTES)
        header = parse_header(head, path.stat().st_size)
        if header.virtual_bytes != golden.disk_bytes or 1 << header.cluster_bits > _HEAD_BYTES:
            raise Qcow2Error("the disk has another size than the golden snapshot's")
        file.seek(0)
        file.write(without_names(head, header))


def _next_size(file: BinaryIO, name: str) -> int:
    """Read a member's header, which must be that of a plain file of this name."""
    block = file.read(_BLOCK)
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.TarError, UnicodeDecodeError, ValueError) as exc:
        raise PointFailed(f"the file is not an exported branch point: {name} is missing") from exc
    if info.name != name or info.type != tarfile.REGTYPE or info.size < 0:
        raise PointFailed(f"the file is not an exported branch point: {name} is missing")
    return info.size


def _read_small(file: BinaryIO, name: str) -> bytes:
    size = _next_size(file, name)
    if size > _SMALL_BYTES:
        raise PointFailed(f"{name} has {size} bytes, which is too large")
    data = file.read(size)
    if len(data) != size or len(file.read(-size % _BLOCK)) != -size % _BLOCK:
        raise PointFailed("the file ends too early")
    return data


def _checked(data: bytes, announced: _File) -> bytes:
    if len(data) != announced.size or hashlib.sha256(data).hexdigest() != announced.sha256:
        raise PointFailed("the file is damaged: a digest does not match")
    return data


def _copy_member(file: BinaryIO, name: str, announced: _File, target: Path) -> None:
    size = _next_size(file, name)
    if size != announced.size:
        raise PointFailed(f"{name} does not have the announced size")
    digest, left = hashlib.sha256(), size
    with target.open("xb") as out:
        while left:
            data = file.read(min(left, _COPY_BYTES))
            if not data:
                raise PointFailed("the file ends too early")
            digest.update(data)
            out.write(data)
            left -= len(data)
    file.read(-size % _BLOCK)
    if digest.hexdigest() != announced.sha256:
        raise PointFailed(f"the file is damaged: the digest of {name} does not match")
