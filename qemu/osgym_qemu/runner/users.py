"""User ids of virtual machines, one each, so that a guest that breaks out of QEMU has no rights.

It then finds itself as a user without a name, password, group or file outside its own folder, who may
neither signal nor trace the other machines.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection
from pathlib import Path

from osgym_host.images.idmap import ID_COUNT, ROOT_UID_BASE

FIRST_ID = ROOT_UID_BASE + ID_COUNT
"""First id after the range of the images' files, of the same block (see `images.idmap`)."""

_SEARCH_BITS = stat.S_IXGRP | stat.S_IXOTH


class UserPool:
    """Pool of ids; the same number serves as user and as group."""

    def __init__(self, salt: str, first: int = FIRST_ID, count: int = ID_COUNT) -> None:
        """Args:
        salt: Name of the instance, so that two of them seldom use the same ids.
        """
        self._salt = salt
        self._first = first
        self._count = count
        self._by_name: dict[str, int] = {}

    def take(self, name: str) -> int:
        """Return the id of a machine, a free one when it has none yet.

        Raises:
            RuntimeError: All are in use.
        """
        if name in self._by_name:
            return self._by_name[name]
        digest = hashlib.sha256(f"{self._salt}/{name}".encode()).digest()
        start = int.from_bytes(digest[:8], "big") % self._count
        used = set(self._by_name.values())
        for step in range(self._count):
            number = self._first + (start + step) % self._count
            if number not in used:
                self._by_name[name] = number
                return number
        raise RuntimeError("no user id is free for another virtual machine")

    def claim(self, name: str, number: int) -> None:
        """Record the id of a machine that a previous host agent started."""
        if self._first <= number < self._first + self._count:
            self._by_name[name] = number

    def release(self, name: str) -> None:
        """Return an id. Idempotent."""
        self._by_name.pop(name, None)


def as_user(argv: list[str], user: int, groups: Collection[int] = (), *, setpriv: str) -> list[str]:
    """Return the vector that runs `argv` in the same process as `user`, without a way to gain rights."""
    return [
        setpriv,
        f"--reuid={user}",
        f"--regid={user}",
        f"--groups={','.join(str(group) for group in groups)}" if groups else "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
        "--no-new-privs",
        "--",
        *argv,
    ]


def with_limits(argv: list[str], max_file_mib: int | None, *, prlimit: str) -> list[str]:
    """Return the vector that runs `argv` in the same process, without core dumps and with bounded files.

    The process sets the limits itself: to bound another user's process takes a capability that containers
    lack.
    """
    if not prlimit:
        return argv
    bound = [f"--fsize={max_file_mib << 20}"] if max_file_mib is not None else []
    return [prlimit, "--core=0", *bound, "--", *argv]


def chown_folder(folder: Path, user: int, private: Collection[str] = ()) -> None:
    """Give a machine's folder and its files to the user, and close it to others.

    Files with a second name elsewhere are frozen layers that machines share: they keep their owner.
    """
    for entry in os.scandir(folder):
        found = entry.stat(follow_symlinks=False)
        if entry.name not in private and stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            os.chown(entry.path, user, user, follow_symlinks=False)
    os.chown(folder, user, user)
    folder.chmod(0o700)


def make_traversable(folder: Path, top: Path) -> None:
    """Let every user traverse (not list) the folders from `top` down to above `folder`.

    Raises:
        ValueError: `folder` is not below `top`.
    """
    parts = folder.relative_to(top).parts[:-1]
    for depth in range(len(parts) + 1):
        passed = top.joinpath(*parts[:depth])
        mode = stat.S_IMODE(passed.stat().st_mode)
        if mode & _SEARCH_BITS != _SEARCH_BITS:
            passed.chmod(mode | _SEARCH_BITS)


def untraversable_parent(folder: Path) -> Path | None:
    """Return the first folder on the path to `folder` that other users may not traverse, if any."""
    for passed in [*reversed(folder.resolve().parents), folder.resolve()]:
        if not passed.stat().st_mode & stat.S_IXOTH:
            return passed
    return None


def user_of(pid: int) -> int:
    """Return the user id of a process; -1 when it is gone."""
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return -1
