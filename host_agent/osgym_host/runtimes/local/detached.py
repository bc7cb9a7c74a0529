"""Detached mounts: made with the host's rights, attached by a replica's first process.

Standard library only. Each function returns a descriptor of a mount that goes with its last descriptor
unless it was attached before.
"""

from __future__ import annotations

import ctypes
import os
import stat

from osgym_host.runtimes.local import syscalls as sc

_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_MOUNT_ATTR_RDONLY = 1
_MOUNT_ATTR_NOSUID = 2
_MOUNT_ATTR_NODEV = 4
_MOUNT_ATTR_NOEXEC = 8
_MOUNT_ATTR_IDMAP = 0x00100000
_FSOPEN_CLOEXEC = _FSMOUNT_CLOEXEC = 1
_FSCONFIG_SET_STRING = 1
_FSCONFIG_CMD_CREATE = 6

DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
"""Devices of a replica, all harmless to whoever may write them; major and minor number."""


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


def sysfs() -> int:
    """Make a read-only /sys of this process's network namespace.

    Raises:
        OSError: The kernel refused, as where the host's own /sys is masked.
    """
    return _make(
        "sysfs", {}, _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV | _MOUNT_ATTR_NOEXEC
    )


def proc() -> int:
    """Make a /proc of this process's PID namespace.

    Raises:
        OSError: The kernel refused.
    """
    return _make("proc", {}, _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV | _MOUNT_ATTR_NOEXEC)


def devices(uid: int, gid: int) -> int:
    """Make a /dev with nodes that no other replica has: locks and watches on them stay inside.

    Raises:
        OSError: This process may not make device nodes.
    """
    options = {"mode": "755", "size": "1m", "nr_inodes": "256", "uid": str(uid), "gid": str(gid)}
    mount_fd = _make("tmpfs", options, _MOUNT_ATTR_NOSUID)
    umask = os.umask(0)
    try:
        for name, numbers in DEVICES.items():
            os.mknod(name, stat.S_IFCHR | 0o666, os.makedev(*numbers), dir_fd=mount_fd)
            os.chown(name, uid, gid, dir_fd=mount_fd)
    except OSError:
        os.close(mount_fd)
        raise
    finally:
        os.umask(umask)
    return mount_fd


def _make(kind: str, options: dict[str, str], attributes: int) -> int:
    context = sc.call("fsopen", kind.encode(), _FSOPEN_CLOEXEC)
    try:
        for name, value in options.items():
            sc.call("fsconfig", context, _FSCONFIG_SET_STRING, name.encode(), value.encode(), 0)
        sc.call("fsconfig", context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return sc.call("fsmount", context, _FSMOUNT_CLOEXEC, attributes)
    finally:
        os.close(context)


def attach(mount_fd: int, target: str) -> None:
    """Attach a detached mount at `target` of this process's mount namespace.

    Raises:
        OSError: The kernel refused.
    """
    sc.call("move_mount", mount_fd, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)
