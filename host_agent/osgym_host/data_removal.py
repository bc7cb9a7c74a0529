"""Removal of a whole data directory, and of nothing that is not ours."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from osgym_host.errors import OsgymHostError

OWN = frozenset(
    {"cache", "checkpoints", "disks", "images", "run", "runner", "snapshots", "state", "trajectories"}
)
"""Names that the stores, the host agent and bakes put into a data directory."""

FLEET_MARK = ".osgym-bootstrap"
"""File that a fleet's bootstrap leaves in a folder that it made (infra/bootstrap/bootstrap.sh)."""


class NotRemovable(OsgymHostError):
    """The folder is not removed; no part of it was."""


def check_removable(folder: Path, mounts: str | None = None) -> None:
    """Check that a folder is a data directory and nothing else, and that nothing in it is in use.

    Args:
        mounts: Text as in /proc/self/mountinfo.

    Raises:
        NotRemovable: The folder fails the check; the message has the reason.
    """
    if folder.is_symlink() or not folder.is_dir():
        raise NotRemovable(f"{folder} is no folder")
    names = {path.name for path in folder.iterdir()}
    if FLEET_MARK in names:
        raise NotRemovable(f"{folder} belongs to a fleet: `pulumi destroy` removes it")
    strangers = sorted(name for name in names - OWN if not name.startswith(".image-"))
    if strangers:
        raise NotRemovable(
            f"{folder} holds what is not of OSGym, and is left alone: {', '.join(strangers[:5])}"
            + (" …" if len(strangers) > 5 else "")
        )
    if mounts is None:
        mounts = Path("/proc/self/mountinfo").read_text()
    inside = str(folder.resolve()) + os.sep
    found = [fields[4] for line in mounts.splitlines() if (fields := line.split()) and len(fields) > 4]
    if used := [place for place in found if place.startswith(inside)]:
        raise NotRemovable(f"{used[0]} is mounted: something still runs on {folder}")


def size_gib(folder: Path) -> float:
    """Return the disk space of a folder; hard links count once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            try:
                found = os.lstat(os.path.join(where, name))  # noqa: PTH118 - hundreds of thousands
            except OSError:
                continue
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * 512
    return total / 1024**3


def remove_data(folder: Path) -> None:
    """Remove a data directory that passed `check_removable`.

    Raises:
        NotRemovable: A part could not be removed, and stays.
    """
    check_removable(folder)
    try:
        shutil.rmtree(folder)
    except OSError as error:
        hint = "; as root?" if isinstance(error, PermissionError) and os.geteuid() else ""
        raise NotRemovable(f"{error.filename} cannot be removed: {error.strerror}{hint}") from error
