"""What branch points are made of in tests: pages of RAM, empty disks."""

from __future__ import annotations

import shutil
import subprocess
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from osgym_qemu.branching.ram_pages import PAGE, Extents, PageBuffer, RamDelta

RAM_MIB = 16
RAM_BYTES = RAM_MIB << 20
DISK_BYTES = 64 << 20
DIGEST = "d" * 64


def make_delta(pages: list[int], content: Callable[[int], bytes]) -> RamDelta:
    """Pages of these numbers with this content."""
    extents = Extents(array("Q"), array("Q"))
    buffer = PageBuffer(len(pages) * PAGE)
    with buffer.view() as view:
        for place, page in enumerate(pages):
            extents.offsets.append(page * PAGE)
            extents.lengths.append(PAGE)
            view[place * PAGE : (place + 1) * PAGE] = content(page)
    return RamDelta(extents, buffer)


def make_disk(path: Path, *options: str) -> Path:
    """An empty qcow2 made by `qemu-img`."""
    if shutil.which("qemu-img") is None:
        pytest.skip("missing: qemu-img (qemu-utils)")
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", *options, str(path), str(DISK_BYTES)], check=True
    )
    return path
