"""Disks of virtual machines, made in several ways, and their space on the host's disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

GIB = 1 << 30


class DisksFailed(RuntimeError):
    """A disk could not be made; the message has the tool's output."""


def run(*argv: str | Path) -> None:
    """Run a tool.

    Raises:
        DisksFailed: It failed or is not there.
    """
    try:
        done = subprocess.run([str(part) for part in argv], capture_output=True, text=True, timeout=900)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DisksFailed(f"{argv[0]}: {error}") from error
    if done.returncode:
        raise DisksFailed(f"{argv[0]}: {done.stderr.strip()[-300:]}")


def copy(source: Path, target: Path) -> None:
    run("cp", "--reflink=never", "--sparse=auto", source, target)


def reflink(source: Path, target: Path) -> None:
    """Make a copy that shares all blocks until they are written."""
    run("cp", "--reflink=always", source, target)


def overlay(source: Path, target: Path) -> None:
    """Make an empty qcow2 file over the source."""
    run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", source, target)


def used_bytes(folder: Path) -> int:
    """Return the used space of the file system that has the folder."""
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def folder_bytes(folder: Path) -> int:
    """Return the size of a folder's files, each counted in full (not for reflinks)."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


@contextlib.contextmanager
def xfs(scratch: Path, size_bytes: int) -> Iterator[Path]:
    """Mount an XFS file system with reflinks in a sparse file for the time of the block.

    Raises:
        DisksFailed: It cannot be made or mounted here (root, xfsprogs, a loop device).
    """
    file, mount = scratch / "xfs.img", scratch / "xfs"
    with file.open("wb") as made:
        made.truncate(size_bytes)
    mount.mkdir()
    try:
        run("mkfs.xfs", "-q", "-m", "reflink=1", file)
        run("mount", "-o", "loop", file, mount)
        try:
            yield mount
        finally:
            run("umount", mount)
    finally:
        mount.rmdir()
        file.unlink()


@dataclass
class Made:
    """Disks made in one way.

    Attributes:
        bytes_each: Growth of the file system for each, after a sync.
        seconds: Time of each, as the maker sees it (before the sync).
        batches: Number of times the budget was filled and emptied.
    """

    count: int = 0
    bytes_each: float = 0.0
    seconds: list[float] = field(default_factory=list)
    batches: int = 0


def make_many(
    make: Callable[[Path, Path], None], source: Path, folder: Path, count: int, budget_bytes: int
) -> Made:
    """Make disks one after another, removing them whenever the budget is used up."""
    made = Made()
    taken = used_bytes if make is reflink else folder_bytes  # others write to the same file system
    grown = 0
    while made.count < count:
        batch = folder / "batch"
        batch.mkdir()
        made.batches += 1
        os.sync()
        before = taken(batch)
        for _ in range(count - made.count):
            began = time.monotonic()
            make(source, batch / f"{made.count}.qcow2")
            made.seconds.append(time.monotonic() - began)
            made.count += 1
            if taken(batch) - before + source.stat().st_blocks * 512 > budget_bytes:
                break
        os.sync()
        grown += taken(batch) - before
        shutil.rmtree(batch)
    made.bytes_each = grown / made.count
    return made
