"""Mounts attached nowhere: made with the host's rights, put in place by a replica's first process.

Standard library only. Each function returns a descriptor of a mount that goes with its last descriptor
unless it was attached before.
"""

from __future__ import annotations

import ctypes
import os

from osgym_host.runtimes.local import syscalls as sc

_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_MOUNT_ATTR_RDONLY = 1
_MOUNT_ATTR_IDMAP = 0x00100000


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def clone_tree(path: str) -> int:
    """Clone the mount that `path` is on, with `path` as its root.

    Raises:
        OSError: The kernel refused (ENOSYS before Linux 5.2).
    """
    return sc.call("open_tree", _AT_FDCWD, os.fsencode(path), _OPEN_TREE_CLONE | os.O_CLOEXEC)


def map_ids(mount_fd: int, user_namespace_fd: int) -> None:
    """Show the files of a detached mount with other owners, and let nobody write through it.

    The owner that the user namespace knows as id n appears as the id that n is outside of it.

    Raises:
        OSError: The kernel or the file system cannot (Linux 5.12, and not every file system).
    """
    attr = _MountAttr(_MOUNT_ATTR_IDMAP | _MOUNT_ATTR_RDONLY, 0, 0, user_namespace_fd)
    sc.call("mount_setattr", mount_fd, b"", _AT_EMPTY_PATH, bytes(attr), ctypes.sizeof(attr))


def attach(mount_fd: int, target: str) -> None:
    """Attach a detached mount at `target` of this process's mount namespace.

    Raises:
        OSError: The kernel refused.
    """
    sc.call("move_mount", mount_fd, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
