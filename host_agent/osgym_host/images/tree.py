"""Operations on file trees that run as root inside a user namespace (standard library only).

Each is called by name from `enter.py`, takes paths relative to the working directory and returns
something that JSON can carry.
"""

# Paths are bytes here: a name in an image need not be UTF-8.
# ruff: noqa: PTH101, PTH102, PTH104, PTH108, PTH112, PTH114, PTH115, PTH118, PTH123

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

OVERLAY_XATTR = "user.overlay."
KEPT_FROM_S = 4102444800
"""2100-01-01: `clamp` keeps time stamps from here on."""


def remove(path: str) -> None:
    """Remove a tree whose files belong to ids of the namespace; a missing one is fine."""
    if os.path.lexists(path):
        shutil.rmtree(path, onerror=_ignore_absent)


def _ignore_absent(function: object, path: str, info: Any) -> None:
    """Ignore an entry that another process removed first; raise any other error."""
    del function, path
    if not isinstance(info[1], FileNotFoundError):
        raise info[1]


def make(paths: list[str]) -> None:
    """Make directories owned by the namespace's root."""
    for path in paths:
        Path(path).mkdir(mode=0o755, parents=True)


def clamp(path: str, epoch_s: int) -> None:
    """Set every time stamp later than `epoch_s` to `epoch_s`, so that two bakes agree.

    One of 2100 or later was set on purpose (a cache that must not look old) and stays.
    """
    for entry in walk(path):
        if epoch_s < os.lstat(entry).st_mtime < KEPT_FROM_S:
            os.utime(entry, (epoch_s, epoch_s), follow_symlinks=False)
    os.utime(path, (epoch_s, epoch_s))


def digest(path: str) -> dict[str, Any]:
    """Return the content digest of a tree: names, types, modes, owners, contents, targets; no time stamps.

    Returns:
        `digest` (hex SHA-256), `files` and `bytes` of regular files.
    """
    total = hashlib.sha256()
    files = size = 0
    for entry in walk(path):
        info = os.lstat(entry)
        kind = stat.S_IFMT(info.st_mode)
        content = b""
        if kind == stat.S_IFLNK:
            content = os.fsencode(os.readlink(entry))
        elif kind == stat.S_IFREG:
            files += 1
            size += info.st_size
            with open(entry, "rb", buffering=0) as file:
                content = hashlib.file_digest(file, "sha256").digest()
        elif kind in (stat.S_IFCHR, stat.S_IFBLK):
            content = str(info.st_rdev).encode()
        name = os.path.relpath(entry, os.fsencode(path))
        head = f"{info.st_mode:o} {info.st_uid} {info.st_gid} ".encode()
        total.update(head + name + b"\0" + content + b"\n")
    return {"digest": total.hexdigest(), "files": files, "bytes": size}


def measure(path: str) -> dict[str, int]:
    """Return the number of entries and bytes of regular files of a tree."""
    entries = size = 0
    for entry in walk(path):
        info = os.lstat(entry)
        entries += 1
        size += info.st_size if stat.S_ISREG(info.st_mode) else 0
    return {"entries": entries, "bytes": size}


def flatten(base: str, layer: str, target: str) -> None:
    """Make `target` the tree that overlayfs shows for `layer` over `base`.

    Files of the base are hard-linked, so an unchanged file is on disk once, and in memory once, for
    all images made from it; files of the layer are moved out of it.
    """
    _link_tree(os.fsencode(base), os.fsencode(target))
    _apply(os.fsencode(layer), os.fsencode(target))


def sync(path: str) -> None:
    """Write the file system of `path` out to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    os.sync()


def walk(path: str | bytes) -> Iterator[bytes]:
    """Yield every entry below `path` in a fixed order, directories before what is in them."""
    root = os.fsencode(path)
    with os.scandir(root) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        yield entry.path
        if entry.is_dir(follow_symlinks=False):
            yield from walk(entry.path)


def _link_tree(source: bytes, target: bytes) -> None:
    os.mkdir(target)
    with os.scandir(source) as entries:
        for entry in entries:
            here = os.path.join(target, entry.name)
            if entry.is_dir(follow_symlinks=False):
                _link_tree(entry.path, here)
            else:
                os.link(entry.path, here, follow_symlinks=False)
    _set_directory_attributes(target, os.lstat(source))


def _apply(layer: bytes, target: bytes) -> None:
    attributes = os.lstat(layer)  # before moving files out changes its time
    with os.scandir(layer) as found:
        entries = list(found)
    for entry in entries:
        here = os.path.join(target, entry.name)
        info = entry.stat(follow_symlinks=False)
        exists = os.path.lexists(here)
        whiteout = stat.S_ISCHR(info.st_mode) and info.st_rdev == 0
        if stat.S_ISDIR(info.st_mode):
            opaque = _xattr(entry.path, "opaque") == b"y"
            if exists and (opaque or not os.path.isdir(here) or os.path.islink(here)):
                _discard(here)
                exists = False
            if not exists:
                os.mkdir(here)
            _apply(entry.path, here)
            continue
        if exists:
            _discard(here)
        if not whiteout:
            _strip_xattrs(entry.path)
            os.rename(entry.path, here)
    _set_directory_attributes(target, attributes)


def _discard(path: bytes) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _xattr(path: bytes, name: str) -> bytes:
    try:
        return os.getxattr(path, OVERLAY_XATTR + name, follow_symlinks=False)
    except OSError:
        return b""


def _strip_xattrs(path: bytes) -> None:
    if os.path.islink(path):
        return
    for name in os.listxattr(path, follow_symlinks=False):
        if name.startswith(OVERLAY_XATTR):
            os.removexattr(path, name, follow_symlinks=False)


def _set_directory_attributes(target: bytes, info: os.stat_result) -> None:
    os.chown(target, info.st_uid, info.st_gid)
    os.chmod(target, stat.S_IMODE(info.st_mode))
    os.utime(target, ns=(info.st_atime_ns, info.st_mtime_ns))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "remove": remove,
    "make": make,
    "clamp": clamp,
    "digest": digest,
    "measure": measure,
    "flatten": flatten,
    "sync": sync,
}
