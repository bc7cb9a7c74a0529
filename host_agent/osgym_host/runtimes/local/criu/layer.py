"""Layer that a dumped replica wrote, and its copies for clones. Blocking.

Each clone has a copy of its own as upper layer. As one more lower layer it would cost nothing, but a folder
of a lower layer cannot be renamed, so folders that a set-up made would not be what they are after a set-up.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from osgym_host.runtimes.local.protocol import ID_COUNT


def renumber(root: Path, before: int, after: int) -> None:
    """Change the owners in a layer to the ids of another replica.

    Raises:
        OSError: A file could not be changed.
    """
    for path, found in walk(root):
        uid, gid = _moved(found.st_uid, before, after), _moved(found.st_gid, before, after)
        if (uid, gid) == (found.st_uid, found.st_gid):
            continue
        os.lchown(path, uid, gid)
        if found.st_mode & (stat.S_ISUID | stat.S_ISGID) and not stat.S_ISLNK(found.st_mode):
            path.chmod(stat.S_IMODE(found.st_mode))  # a change of owner clears these


def _moved(number: int, before: int, after: int) -> int:
    return number - before + after if before <= number < before + ID_COUNT else number


def digest_of(*roots: Path) -> str:
    """Return a hexadecimal digest that changes when a file of these trees is replaced, written or removed.

    Sizes, times and inodes are looked at, not contents: the folders are closed to all but the host agent, and
    this guards against mixing up, not against root.

    Raises:
        OSError: A tree cannot be read.
    """
    digest = hashlib.blake2b(digest_size=16)
    for root in roots:
        for path, found in walk(root):
            marks = (
                found.st_mode,
                found.st_uid,
                found.st_gid,
                found.st_ino,
                found.st_size,
                found.st_mtime_ns,
            )
            digest.update(f"{path.relative_to(root)}\0{marks}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def size_mib(root: Path) -> float:
    """Return the disk space that a tree takes, in MiB."""
    return sum(found.st_blocks for _, found in walk(root)) * 512 / (1 << 20)


def walk(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield all paths of a tree, itself first, in a fixed order; follows no link.

    Raises:
        OSError: It cannot be read, or is too deep to be named.
    """
    left = [root]
    while left:
        path = left.pop()
        found = path.lstat()
        yield path, found
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(path) as entries:
                names = sorted((entry.name for entry in entries), reverse=True)
            left += [path / name for name in names]
