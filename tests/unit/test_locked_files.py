"""Files of images that stay in memory: which, when, and how many."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from osgym_host.runtimes.local.locked_files import LockedFiles

SIZE = 64 * 1024
REPLICAS = [f"r{number}" for number in range(8)]

MakeFile = Callable[[str], Path]


def locked_kib() -> int:
    """Return how much of this process's memory is locked."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmLck"))


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    return tmp_path / "rootfs"


@pytest.fixture
def mapped(tmp_path: Path, rootfs: Path) -> Iterator[MakeFile]:
    """Makes a file that this process maps, and that is in the image under the name that its mapping has."""
    with ExitStack() as stack:

        def make(name: str) -> Path:
            path = tmp_path / name
            path.write_bytes(os.urandom(SIZE))
            in_image = rootfs / str(path).lstrip("/")
            in_image.parent.mkdir(parents=True, exist_ok=True)
            in_image.hardlink_to(path)
            with path.open("rb") as file:
                stack.enter_context(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
            return in_image

        yield make


def lock(files: LockedFiles, rootfs: Path, replicas: list[str] = REPLICAS) -> int:
    """Let replicas map what this process maps; return how much is locked then, in KiB."""
    before = locked_kib()
    for replica_id in replicas:
        files.lock_mapped(replica_id, [os.getpid()], rootfs)
    return locked_kib() - before


def test_a_file_that_many_replicas_map_is_locked_once(mapped: MakeFile, rootfs: Path) -> None:
    """Not before eight different ones have it; closing unlocks it."""
    mapped("lib.so")
    files = LockedFiles()
    assert lock(files, rootfs, [*REPLICAS[:7], *REPLICAS[:7]]) == 0
    assert lock(files, rootfs) == SIZE // 1024
    assert lock(files, rootfs, ["r100"]) == 0
    before = locked_kib()
    files.close()
    assert before - locked_kib() == SIZE // 1024


def test_only_the_images_own_files_are_locked(mapped: MakeFile, rootfs: Path) -> None:
    """Not a guest's file of the same name, nor where a symbolic link of the image leads."""
    replaced, linked = mapped("replaced.so"), mapped("linked.so")
    replaced.unlink()
    replaced.write_bytes(os.urandom(SIZE))
    target = linked.rename(linked.with_name("target.so"))
    linked.symlink_to(target)
    files = LockedFiles()
    assert lock(files, rootfs) == 0
    files.close()


def test_the_bound_holds_and_is_free_again_after_closing(mapped: MakeFile, rootfs: Path) -> None:
    """Seventeen files of 64 KiB, and room for one MiB of them."""
    for number in range(17):
        mapped(f"{number}.so")
    files = LockedFiles(max_mib=1)
    for _ in range(2):
        assert lock(files, rootfs) == 1024
        files.close()


def test_processes_that_are_gone_are_left_out(rootfs: Path) -> None:
    """A replica may die while it is looked at."""
    files = LockedFiles()
    files.lock_mapped("r1", [2**22 + 1], rootfs)
    files.close()
