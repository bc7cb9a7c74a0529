"""Isolation of replicas from each other: ids of their own where possible, and limits of kernel objects."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from osgym_host.runtimes.local.ranges import LOCK_FILE, IdRanges, ReplicaIds

_log = logging.getLogger(__name__)

COUNTS: Mapping[str, int] = {
    # A browser makes a user and a PID namespace for each tab, and network namespaces for its sandbox.
    "max_user_namespaces": 512,
    "max_pid_namespaces": 512,
    "max_mnt_namespaces": 512,
    "max_ipc_namespaces": 256,
    "max_uts_namespaces": 256,
    "max_net_namespaces": 256,
    "max_cgroup_namespaces": 128,
    "max_time_namespaces": 128,
    # What an ordinary desktop's one user has.
    "max_inotify_instances": 128,
    "max_inotify_watches": 65_536,
    "max_fanotify_groups": 64,
    "max_fanotify_marks": 65_536,
}
"""Largest number of kernel objects of one replica, by file name in `/proc/sys/user`."""
_SHARE = 8
"""Divisor of the host's own limit, where replicas share it: one gets that part, but at least `_LEAST`."""
_LEAST = 16
"""Least share: a desktop with four large applications had 8 inotify instances."""

SIGPENDING = 4096
"""Limit of queued signals and timers of one replica; the default is half of the threads that fit into
memory."""
MSGQUEUE_BYTES = 204_800
"""Limit of POSIX message queues of one replica; a default queue takes 83,000 bytes."""

SHARED_USER = (
    "All replicas share one range of ids, since ordinary users cannot map the ids of a mount: descriptors "
    "in flight, pipe buffers and epoll watches are counted for all of them together. As root each has its "
    "own range."
)

UNBOUNDED = (
    "A replica's use of the kernel's namespaces and inotify instances is not bounded, since "
    "/proc/sys is mounted read-only here, as in most containers. Run the host agent where it can be written."
)
_SYSCTLS = Path("/proc/sys/user")


class Isolation:
    """Ids for each replica, and what the kernel refused of them so far."""

    def __init__(self, ranges: IdRanges | None) -> None:
        """Args:
        ranges: Ranges of ids; None for an ordinary user, who has only one.
        """
        self._ranges = ranges
        self._refused: dict[Path, str] = {}
        self.devices_shared = False
        """Some replica has the host's device nodes, since none of its own could be made."""

    @classmethod
    def open(cls, instance: Path) -> Isolation:
        """Open the ranges that this user may use.

        Raises:
            OSError: The instance's folder cannot be written.
        """
        if os.geteuid() != 0:
            return cls(None)
        return cls(IdRanges.open(LOCK_FILE, instance / "id-ranges.lock"))

    def take(self, rootfs: Path) -> ReplicaIds | None:
        """Return ids for a replica of this image; None: the image's own, which such replicas share."""
        if self._ranges is None or rootfs in self._refused:
            return None
        ids = self._ranges.take()
        if ids is None:
            _log.warning("all ranges of ids are in use: a replica uses the range of its image")
        return ids

    def release(self, ids: ReplicaIds | None) -> None:
        """Return ids to their range, after the last process and file that has them. Idempotent."""
        if ids is not None and self._ranges is not None:
            self._ranges.release(ids)

    def refused(self, rootfs: Path, reason: str) -> None:
        """Record that a replica of this image ran with shared ids only, and why."""
        _log.warning("replicas of %s share one range of ids: %s", rootfs, reason)
        self._refused[rootfs] = reason

    def close(self) -> None:
        """Release all ranges. Idempotent."""
        if self._ranges is not None:
            self._ranges.close()

    @property
    def lock_fd(self) -> int:
        """Descriptor that keeps the ranges taken as long as any process holds it; -1: none."""
        return -1 if self._ranges is None else self._ranges.lock_fd

    @property
    def shared_because(self) -> str:
        """Reason why replicas share a range of ids; empty when each has its own."""
        if self._ranges is None:
            return SHARED_USER
        return next(iter(self._refused.values()), "")


def unbounded_because(sysctls: Path = _SYSCTLS) -> str:
    """Return the reason why limits of user namespaces cannot be written here; empty where they can."""
    with contextlib.suppress(OSError):  # none at all: this kernel does not count
        if os.statvfs(sysctls).f_flag & os.ST_RDONLY:
            return UNBOUNDED
    return ""


def counts(own_ids: bool, sysctls: Path = _SYSCTLS) -> dict[str, int]:
    """Return the limits of a replica's outer user namespace, by file name in `/proc/sys/user`.

    With ids of its own a replica counts towards nobody else's share of the host's limits.
    """
    if unbounded_because(sysctls):
        return {}
    if own_ids:
        return dict(COUNTS)
    found = {}
    for name, most in COUNTS.items():
        try:
            of_host = int((sysctls / name).read_text())
        except (OSError, ValueError):
            of_host = most * _SHARE
        found[name] = min(most, max(_LEAST, of_host // _SHARE))
    return found
