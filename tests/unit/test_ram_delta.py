"""Copying the private pages of one process into another, with real processes."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from osgym_host.runtimes.qemu.ram_delta import (
    PAGE,
    Extents,
    PageBuffer,
    RamDelta,
    RamDeltaError,
    RamScanner,
    find_ram,
    write_delta,
)
from osgym_host.runtimes.qemu.ram_file import RamIdentity

PAGES = 1024
SIZE = PAGES * PAGE
GUEST = """
import mmap, os, sys
fd, flags, parts = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
size = os.fstat(fd).st_size
# Addresses are given out downwards: parts mapped in order do not become one mapping.
maps = [None] * parts
for i in range(parts):
    maps[i] = mmap.mmap(fd, size // parts, flags=flags, offset=i * size // parts)
def at(offset):
    return maps[offset // (size // parts)], offset % (size // parts)
print("up", flush=True)
for line in sys.stdin:
    what, offset, value = line.split()
    memory, place = at(int(offset))
    if what == "write":
        memory[place] = int(value)
    else:
        memory[place:place + 4096]
    print("done", flush=True)
"""


def identity_of(fd: int) -> RamIdentity:
    """Name the file behind a descriptor."""
    found = os.fstat(fd)
    return RamIdentity(found.st_dev, found.st_ino, found.st_size)


class Process:
    """A process that maps the golden file, as QEMU does, and writes where it is told."""

    def __init__(self, golden: int, *, flags: int = mmap.MAP_PRIVATE, parts: int = 1) -> None:
        """Start it; returns when the file is mapped."""
        argv = [sys.executable, "-I", "-c", GUEST, str(golden), str(flags), str(parts)]
        self.process = subprocess.Popen(
            argv, pass_fds=[golden], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid
        self._answer("up")

    def write(self, offset: int, value: int) -> None:
        """Change one byte of its memory."""
        self._ask(f"write {offset} {value}")

    def read(self, offset: int) -> None:
        """Touch a page without changing it."""
        self._ask(f"read {offset} 0")

    def close(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.communicate()

    def memory(self, ram: RamIdentity) -> bytes:
        """All of its RAM, read by the kernel's other way."""
        with Path(f"/proc/{self.pid}/mem").open("rb", buffering=0) as file:
            whole = b""
            for piece in find_ram(self.pid, ram):
                file.seek(piece.start)
                whole += file.read(piece.end - piece.start)
        return whole

    def _ask(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        self._answer("done")

    def _answer(self, expected: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == expected


@pytest.fixture
def golden() -> Iterator[int]:
    """A RAM file whose pages differ."""
    fd = os.memfd_create("golden", os.MFD_CLOEXEC)
    for page in range(PAGES):
        os.write(fd, page.to_bytes(2, "little") * (PAGE // 2))
    yield fd
    os.close(fd)


@pytest.fixture
def ram(golden: int) -> RamIdentity:
    """Its name."""
    return identity_of(golden)


@pytest.fixture
def start(golden: int) -> Iterator[Callable[..., Process]]:
    """Start processes that map it; all are killed at the end."""
    with ExitStack() as stack:

        def begin(**options: int) -> Process:
            process = Process(golden, **options)
            stack.callback(process.close)
            return process

        yield begin


def _pages(extents: Extents) -> set[int]:
    found: set[int] = set()
    for offset, length in zip(extents.offsets, extents.lengths, strict=True):
        assert offset % PAGE == length % PAGE == 0
        pages = set(range(offset // PAGE, (offset + length) // PAGE))
        assert not pages & found
        found |= pages
    return found


def _take(pid: int, ram: RamIdentity, *, helpers: ThreadPoolExecutor | None = None) -> RamDelta:
    with RamScanner(pid, ram) as scanner:
        extents = scanner.scan()
        pages = PageBuffer(extents.size_bytes)
        scanner.read(extents, pages, helpers=helpers)
        return RamDelta(extents, pages)


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("use_ioctl", [True, False])
def test_only_written_pages_are_found(
    start: Callable[..., Process], ram: RamIdentity, parts: int, use_ioctl: bool
) -> None:
    """Both ways find exactly the pages that were written, also where the mapping is in parts."""
    parent = start(parts=parts)
    chosen = random.Random(parts)
    written = {0, 1, 2, PAGES // 4 - 1, PAGES // 4, PAGES - 1} | set(chosen.sample(range(PAGES), 100))
    for page in written:
        parent.write(page * PAGE + chosen.randrange(PAGE), 255)
    for page in chosen.sample(range(PAGES), 50):
        parent.read(page * PAGE)
    with RamScanner(parent.pid, ram, use_ioctl=use_ioctl) as scanner:
        if use_ioctl and not scanner.by_ioctl:
            pytest.skip("this kernel has no PAGEMAP_SCAN (Linux 6.7)")
        assert scanner.by_ioctl is use_ioctl
        assert len(scanner.pieces) == parts
        assert _pages(scanner.scan()) == written


def test_nothing_written_is_nothing_found(start: Callable[..., Process], ram: RamIdentity) -> None:
    """A fresh clone has an empty delta, which can be planted."""
    parent, child = start(), start()
    delta = _take(parent.pid, ram)
    assert len(delta.extents) == 0
    write_delta(child.pid, ram, delta)
    with RamScanner(child.pid, ram) as scanner:
        assert len(scanner.scan()) == 0


@pytest.mark.parametrize("parts", [(1, 1), (1, 2), (2, 1), (4, 2)])
def test_child_becomes_parent(
    start: Callable[..., Process], golden: int, ram: RamIdentity, parts: tuple[int, int]
) -> None:
    """The child's memory is the parent's, byte by byte; the file and the parent stay as they were."""
    parent, child = start(parts=parts[0]), start(parts=parts[1])
    chosen = random.Random(7)
    for page in [*range(300, 340), *chosen.sample(range(PAGES), 200)]:
        parent.write(page * PAGE + chosen.randrange(PAGE), chosen.randrange(256))
    before, frozen = parent.memory(ram), os.pread(golden, SIZE, 0)
    assert before != frozen
    with ThreadPoolExecutor(1) as helpers:
        delta = _take(parent.pid, ram, helpers=helpers)
        parent.write(0, 99)  # what comes later belongs to the parent alone
        write_delta(child.pid, ram, delta, helpers=helpers)
    assert child.memory(ram) == before
    child.write(PAGE * 400, 77)
    assert parent.memory(ram)[1:] == before[1:]
    assert os.pread(golden, SIZE, 0) == frozen


def test_more_runs_than_one_call_takes(start: Callable[..., Process], ram: RamIdentity) -> None:
    """Every other page: more runs than the kernel lists or copies in one call, each listed once."""
    many = 8192 + 2058  # in one call of the ioctl fit 8192, in one copy 1024
    fd = os.memfd_create("large", os.MFD_CLOEXEC)
    os.ftruncate(fd, 2 * many * PAGE)
    large = identity_of(fd)
    parent, child = Process(fd), Process(fd)
    try:
        ones = PageBuffer(large.size_bytes)
        ones.view(large.size_bytes)[:] = b"\x01" * large.size_bytes
        delta = _take(parent.pid, large)
        delta.extents.offsets.extend(range(0, 2 * many * PAGE, 2 * PAGE))
        delta.extents.lengths.extend([PAGE] * many)
        write_delta(parent.pid, large, RamDelta(delta.extents, ones))
        taken = _take(parent.pid, large)
        assert len(taken.extents) == many
        write_delta(child.pid, large, taken)
        assert child.memory(large) == (b"\x01" * PAGE + bytes(PAGE)) * many
    finally:
        parent.close()
        child.close()
        os.close(fd)


def test_refusals(start: Callable[..., Process], ram: RamIdentity) -> None:
    """A process that is gone, shares the file, or does not map it is refused by name."""
    shared = start(flags=mmap.MAP_SHARED)
    with pytest.raises(RamDeltaError, match="has 0 of"):
        RamScanner(shared.pid, ram)
    with pytest.raises(RamDeltaError, match="has 0 of"):
        RamScanner(os.getpid(), ram)
    gone = start()
    scanner = RamScanner(gone.pid, ram)
    gone.write(0, 1)
    extents = scanner.scan()
    with pytest.raises(RamDeltaError, match="do not fit"):
        scanner.read(Extents(extents.offsets * 9, extents.lengths * 9), PageBuffer(PAGE))
    gone.close()
    with pytest.raises(RamDeltaError):
        scanner.read(extents, PageBuffer(PAGE))
    with pytest.raises(RamDeltaError, match="is gone"):
        find_ram(gone.pid, ram)
    scanner.close()
    scanner.close()


def test_buffer_gives_memory_back() -> None:
    """Memory that was made real ahead is real, and goes when the buffer shrinks or closes."""
    buffer = PageBuffer(64 << 20)
    assert _resident(buffer) == 0
    buffer.prefault(16 << 20)
    assert _resident(buffer) >= 16 << 20
    buffer.view(3)[:] = b"abc"
    buffer.shrink(4 << 20)
    assert 4 << 20 <= _resident(buffer) <= 6 << 20
    assert bytes(buffer.view(3)) == b"abc"
    buffer.close()
    assert _resident(buffer) == 0


def _resident(buffer: PageBuffer) -> int:
    pages = (ctypes.c_ubyte * (buffer.capacity_bytes // PAGE))()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mincore(ctypes.c_void_p(buffer.address), ctypes.c_size_t(buffer.capacity_bytes), pages) == 0
    return sum(page & 1 for page in pages) * PAGE
