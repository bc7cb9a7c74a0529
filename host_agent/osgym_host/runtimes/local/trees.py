"""Removal and measurement of a directory tree that a hostile guest filled. Standard library only.

Nothing is followed: every name is resolved relative to an open directory, one level deep. Depth
does not matter either: a directory that is not empty is moved up to the top and emptied in its
turn, so descriptors and recursion are bounded however deep the guest nested.
"""

from __future__ import annotations

import errno
import os
import time

from osgym_host.core.disk_pressure import INODE_BYTES

MEASURE_S = 10.0
MAX_DEPTH = 200
TOO_DEEP_BYTES = 1 << 50
_DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(parent_fd: int | None, name: str) -> None:
    """Remove `name` below the directory `parent_fd` (None: a path) with all it holds. Absent is fine.

    Raises:
        OSError: Something could not be removed; calling again goes on where it stopped.
    """
    try:
        top = os.open(name, _DIR_FLAGS, dir_fd=parent_fd)
    except FileNotFoundError:
        return
    except OSError as exc:
        if exc.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        os.unlink(name, dir_fd=parent_fd)
        return
    try:
        counter = 0
        while True:
            folders = _unlink_files(top)
            if not folders:
                break
            for folder in folders:
                counter = _flatten(top, folder, counter)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent_fd)


def _unlink_files(fd: int) -> list[str]:
    """Unlink all but folders; return the folders that are not empty."""
    folders = []
    with os.scandir(fd) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_dir in found:
        if not is_dir:
            os.unlink(name, dir_fd=fd)
            continue
        try:
            os.rmdir(name, dir_fd=fd)
        except OSError as exc:
            if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            folders.append(name)
    return folders


def _flatten(top: int, folder: str, counter: int) -> int:
    """Empty `folder` below `top`: files go, folders with contents move up to `top`."""
    fd = os.open(folder, _DIR_FLAGS, dir_fd=top)
    try:
        for inner in _unlink_files(fd):
            while True:
                counter += 1
                try:
                    os.rename(inner, f".osgym-removing-{counter}", src_dir_fd=fd, dst_dir_fd=top)
                    break
                except OSError as exc:
                    if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
                        raise
    finally:
        os.close(fd)
    os.rmdir(folder, dir_fd=top)
    return counter


def measure_tree(parent_fd: int, name: str, most_s: float = MEASURE_S) -> int:
    """Return the disk space in bytes of everything below `name`; links are not followed.

    What vanishes meanwhile counts nothing. A file or folder counts for a block at least, since its
    inode is not free either; and whoever nests deeper than any program does wants to hide something:
    that counts as more than any disk.

    Args:
        most_s: Time limit, after which the sum so far is returned: millions of files, more than a replica
            may have.
    """
    return _measure(parent_fd, name, MAX_DEPTH, time.monotonic() + most_s)


def _measure(parent_fd: int, name: str, depth: int, ends_s: float) -> int:
    if depth < 0:
        return TOO_DEEP_BYTES
    used = 0
    try:
        fd = os.open(name, _DIR_FLAGS, dir_fd=parent_fd)
    except OSError:
        return 0
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                if time.monotonic() > ends_s:
                    break
                try:
                    used += max(INODE_BYTES, entry.stat(follow_symlinks=False).st_blocks * 512)
                    is_dir = entry.is_dir(follow_symlinks=False)
                except OSError:
                    continue
                if is_dir:
                    used += _measure(fd, entry.name, depth - 1, ends_s)
    except OSError:
        return used
    finally:
        os.close(fd)
    return used
