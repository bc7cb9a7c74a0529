"""Layers of a file tree, as tar archives whose bytes depend only on the tree (standard library only).

A layer holds the files of some packages, of some folders, or one large file, so that a new version of an
image shares most of its layers with the version before. The operations are called by name from `enter.py`,
in the way of `tree.py`.
"""

# Paths are bytes here: a name in an image need not be UTF-8.
# ruff: noqa: PTH115, PTH118, PTH123

from __future__ import annotations

import gzip
import hashlib
import os
import resource
import shutil
import stat
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

from osgym_host.images.tree import walk

DIRECTORIES = "directories"
"""Layer of all folders, with their owners, modes and times."""
PACKAGE_LAYERS, FOLDER_LAYERS = 64, 32
OWN_LAYER_BYTES = 8 << 20
"""Size from which a file is a layer of its own."""
_FOLDER_DEPTH = 6
_MERGED_FOLDERS = (b"bin/", b"sbin/", b"lib/", b"lib64/")
"""Folders of a package's list that are links into `usr` in the tree."""
_LEVEL = 4
_BLOCK = 1 << 20
_MAX_ID = 65_536
_MAX_ENTRIES = 4_000_000
_MEMORY_BYTES = 2 << 30
"""Address space of an unpacking process: tarfile reads extended headers of any size into memory."""


class RefusedLayer(Exception):
    """A layer is not one that can be unpacked safely.

    Attributes:
        code: Stable code, one of `registry.errors.RegistryCode`.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def layer_digests(path: str) -> list[dict[str, Any]]:
    """Return key, `diff_id` (hex SHA-256 of the tar archive) and bytes of every layer, folders first."""
    found = []
    for key, names in _plan(os.fsencode(path)).items():
        sink = _Sink(None)
        _write(os.fsencode(path), names, sink)
        found.append({"key": key, "diff_id": sink.digest.hexdigest(), "bytes": sink.count})
    return found


def pack_layers(path: str, keys: list[str], into: str) -> list[dict[str, Any]]:
    """Write layers as gzip files into the folder `into`, named by their own digests.

    Returns:
        Key, `diff_id`, digest and size of each file.
    """
    plan = _plan(os.fsencode(path))
    found = []
    for key in keys:
        scratch = Path(into, f"{key.replace(':', '-')}.part")
        with scratch.open("wb") as file:
            hashed = _Sink(file)
            packed = gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=hashed, mtime=0)
            sink = _Sink(cast(BinaryIO, packed))
            _write(os.fsencode(path), plan[key], sink)
            packed.close()
        digest = hashed.digest.hexdigest()
        scratch.rename(Path(into, digest))
        row = {"key": key, "diff_id": sink.digest.hexdigest(), "digest": digest, "size": hashed.count}
        found.append(row)
    return found


def link_layers(base: str, target: str, keys: list[str]) -> int:
    """Hard-link the files of a base's layers into `target`, which holds only folders; return their number.

    Raises:
        RefusedLayer: `target` lacks a folder, or has such a file already.
    """
    source, count = os.fsencode(base), 0
    plan = _plan(source)
    for key in keys:
        for name in plan[key]:
            try:
                os.link(
                    os.path.join(source, name), os.path.join(os.fsencode(target), name), follow_symlinks=False
                )
            except OSError as error:
                raise RefusedLayer(
                    "malformed_layer", f"{key}: {os.fsdecode(name)}: {error.strerror}"
                ) from error
            count += 1
    return count


def unpack_layers(
    target: str, archives: list[str], max_bytes: int, only_folders: bool = False
) -> list[dict[str, Any]]:
    """Unpack gzip archives into `target` and return `diff_id`, bytes and entries of each.

    The process changes its root to `target` first. Existing folders get the attributes of the archive; no
    other entry may exist already.

    Args:
        max_bytes: Largest sum of the archives' uncompressed sizes.
        only_folders: Refuse anything but folders.

    Raises:
        RefusedLayer: An archive is malformed or too large, or an entry is none of a tree below `target`.
    """
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    files = [open(archive, "rb") for archive in archives]  # noqa: SIM115  # before their paths are out of reach
    os.chroot(target)
    os.chdir("/")
    found, left = [], max_bytes
    for file in files:
        with file:
            source = _Source(cast(BinaryIO, gzip.GzipFile(fileobj=file, mode="rb")), left)
            try:
                entries = _unpack(source, only_folders=only_folders)
                while source.read(_BLOCK):
                    pass
            except (tarfile.TarError, zlib.error, OSError, EOFError, ValueError, MemoryError) as error:
                raise RefusedLayer("malformed_layer", f"{type(error).__name__}: {error}") from error
        left -= source.count
        found.append({"diff_id": source.digest.hexdigest(), "bytes": source.count, "entries": entries})
    return found


class _Sink:
    """Writer that counts and hashes what passes."""

    def __init__(self, below: BinaryIO | None) -> None:
        self.digest = hashlib.sha256()
        self.count = 0
        self._below = below

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.count += len(data)
        if self._below is not None:
            self._below.write(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing; the file below flushes itself."""


class _Source:
    """Reader that counts, bounds and hashes what passes."""

    def __init__(self, below: BinaryIO, max_bytes: int) -> None:
        self.digest = hashlib.sha256()
        self.count = 0
        self._below = below
        self._max_bytes = max_bytes

    def read(self, size: int) -> bytes:
        data = self._below.read(size)
        self.count += len(data)
        if self.count > self._max_bytes:
            raise RefusedLayer("too_large", "the layers are larger than allowed, or than the free disk space")
        self.digest.update(data)
        return data


def _plan(root: bytes) -> dict[str, list[bytes]]:
    """Return the names of each layer's entries, relative to the root, in a fixed order."""
    entries = [(os.path.relpath(path, root), os.lstat(path)) for path in walk(root)]
    owners = _package_owners(root, entries)
    plan: dict[str, list[bytes]] = {DIRECTORIES: [b"."]}
    for name, info in entries:
        if stat.S_ISDIR(info.st_mode):
            plan[DIRECTORIES].append(name)
        elif info.st_size >= OWN_LAYER_BYTES:
            plan.setdefault(f"file:{hashlib.sha256(name).hexdigest()[:16]}", []).append(name)
        elif owner := owners.get(name):
            plan.setdefault(f"packages:{_bin(owner, PACKAGE_LAYERS)}", []).append(name)
        else:
            folder = b"/".join(name.split(b"/")[:-1][:_FOLDER_DEPTH])
            plan.setdefault(f"folders:{_bin(folder, FOLDER_LAYERS)}", []).append(name)
    return plan


def _bin(name: bytes, count: int) -> int:
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big") % count


def _package_owners(root: bytes, entries: list[tuple[bytes, os.stat_result]]) -> dict[bytes, bytes]:
    owners = {}
    for name, info in entries:
        folder, _, file = name.rpartition(b"/")
        if folder != b"var/lib/dpkg/info" or not stat.S_ISREG(info.st_mode):
            continue
        package, _, kind = file.rpartition(b".")
        owners[name] = package
        if kind == b"list":
            with open(os.path.join(root, name), "rb") as lines:
                for line in lines:
                    path = line.strip().lstrip(b"/")
                    owners[b"usr/" + path if path.startswith(_MERGED_FOLDERS) else path] = package
    return owners


def _write(root: bytes, names: list[bytes], sink: _Sink) -> None:
    """Write a tar archive of these entries; the second name of a file is a hard link."""
    seen: dict[int, str] = {}
    with tarfile.open(
        fileobj=cast(BinaryIO, sink), mode="w|", format=tarfile.PAX_FORMAT, bufsize=_BLOCK
    ) as out:
        for name in names:
            path = os.path.join(root, name)
            info = os.lstat(path)
            member = tarfile.TarInfo(os.fsdecode(name))
            member.mode, member.mtime = stat.S_IMODE(info.st_mode), int(info.st_mtime)
            member.uid, member.gid = info.st_uid, info.st_gid
            if stat.S_ISLNK(info.st_mode):
                member.type, member.linkname = tarfile.SYMTYPE, os.fsdecode(os.readlink(path))
            elif stat.S_ISDIR(info.st_mode):
                member.type = tarfile.DIRTYPE
            elif not stat.S_ISREG(info.st_mode) or os.listxattr(path, follow_symlinks=False):
                raise RefusedLayer(
                    "unsupported_file", f"{member.name} is a device or has extended attributes"
                )
            elif info.st_ino in seen:
                member.type, member.linkname = tarfile.LNKTYPE, seen[info.st_ino]
            else:
                member.size = info.st_size
                seen[info.st_ino] = member.name
                with open(path, "rb") as file:
                    out.addfile(member, file)
                continue
            out.addfile(member)


def _unpack(source: _Source, *, only_folders: bool) -> int:
    entries = 0
    folders = {b""}
    with tarfile.open(fileobj=cast(BinaryIO, source), mode="r|", bufsize=_BLOCK) as archive:
        for member in archive:
            entries += 1
            archive.members = []  # type: ignore[attr-defined]  # tarfile keeps all it has read
            if entries > _MAX_ENTRIES:
                raise RefusedLayer("too_large", f"a layer has more than {_MAX_ENTRIES} entries")
            name = _checked_name(member, folders)
            if only_folders and not member.isdir():
                raise RefusedLayer("malformed_layer", f"{member.name!r} is no folder")
            _make(archive, member, name, folders)
    return entries


def _checked_name(member: tarfile.TarInfo, folders: set[bytes]) -> bytes:
    """Return the name of an entry whose parents are real folders below the root."""
    name = os.fsencode(member.name)
    if name == b"." and member.isdir():
        return b""
    parts = name.split(b"/")
    if b"\0" in name or any(part in (b"", b".", b"..") for part in parts):
        raise RefusedLayer("unsafe_path", f"{member.name!r} is no plain relative path")
    if not (0 <= member.uid < _MAX_ID and 0 <= member.gid < _MAX_ID):
        raise RefusedLayer("unsafe_path", f"{member.name!r} belongs to an id outside of the image")
    for end in range(1, len(parts)):
        parent = b"/".join(parts[:end])
        if parent not in folders:
            if not _is(parent, stat.S_ISDIR):
                raise RefusedLayer("unsafe_path", f"{member.name!r} lies below something that is no folder")
            folders.add(parent)
    return name


def _is(path: bytes, kind: Callable[[int], bool]) -> bool:
    try:
        return kind(os.lstat(path).st_mode)
    except OSError:
        return False


def _make(archive: tarfile.TarFile, member: tarfile.TarInfo, name: bytes, folders: set[bytes]) -> None:
    path, times = name or b".", (member.mtime, member.mtime)
    if member.isdir():
        if not _is(path, stat.S_ISDIR):
            os.mkdir(path, 0o700)  # noqa: PTH102
        folders.add(name)
    elif member.issym():
        os.symlink(os.fsencode(member.linkname), path)  # noqa: PTH211
        os.chown(path, member.uid, member.gid, follow_symlinks=False)
        os.utime(path, times, follow_symlinks=False)
        return
    elif member.islnk():
        other = _checked_name(member.replace(name=member.linkname, deep=False), folders)
        if not _is(other, stat.S_ISREG):
            raise RefusedLayer("unsafe_path", f"{member.name!r} links to what is no file of the layer")
        os.link(other, path, follow_symlinks=False)
        return
    elif member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and member.sparse is None:
        content = archive.extractfile(member)
        assert content is not None
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with content, os.fdopen(fd, "wb") as file:
            shutil.copyfileobj(content, file, _BLOCK)
    else:
        raise RefusedLayer("unsafe_path", f"{member.name!r} is neither file, folder nor link")
    os.chown(path, member.uid, member.gid)
    os.chmod(path, stat.S_IMODE(member.mode))  # noqa: PTH101
    os.utime(path, times)


def _caught(operation: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    def run(**arguments: Any) -> dict[str, Any]:
        try:
            return {"result": operation(**arguments)}
        except RefusedLayer as error:
            return {"code": error.code, "message": str(error)}

    return run


OPERATIONS: dict[str, Callable[..., dict[str, Any]]] = {
    operation.__name__: _caught(operation)
    for operation in (layer_digests, pack_layers, link_layers, unpack_layers)
}
"""Operations by name; each returns its `result`, or `code` and `message` of a refusal."""
