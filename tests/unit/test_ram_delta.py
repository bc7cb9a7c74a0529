"""Copying the private pages of one process into another, with real processes."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from osgym_qemu.branching.ram_delta import (
    RamDeltaError,
    RamScanner,
    find_ram,
    write_delta,
)
from osgym_qemu.branching.ram_native import (
    NativeFailed,
    NativeUnavailable,
    RamControl,
    RamLibrary,
)
from osgym_qemu.branching.ram_pages import (
    PAGE,
    Extents,
    PageBuffer,
    RamDelta,
    SharedPages,
    union,
)
from osgym_qemu.golden.ram_file import RamIdentity

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

    def __init__(
        self,
        golden: int,
        *,
        flags: int = mmap.MAP_PRIVATE,
        parts: int = 1,
        library: RamLibrary | None = None,
    ) -> None:
        """Start it; returns when the file is mapped."""
        argv = [sys.executable, "-I", "-c", GUEST, str(golden), str(flags), str(parts)]
        fds, env = [golden], dict(os.environ)
        self.control = RamControl()
        if library is not None:
            fds.append(self.control.theirs.fileno())
            env |= library.environment(golden, self.control.theirs.fileno())
        self.process = subprocess.Popen(
            argv, pass_fds=fds, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        self.control.theirs.close()
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
        self.control.close()
        self.process.kill()
        self.process.communicate()

    def memory(self, ram: RamIdentity) -> bytes:
        """All of its RAM, read by the kernel's other way."""
        with Path(f"/proc/{self.pid}/mem").open("rb", buffering=0) as file:
            whole = b""
            for piece in find_ram(self.pid, ram).pieces:
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

        def begin(**options: Any) -> Process:
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
            pytest.skip("missing: PAGEMAP_SCAN (Linux 6.7)")
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
        ones.view()[:] = b"\x01" * large.size_bytes
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
    with pytest.raises(RamDeltaError, match="has ended"):
        find_ram(gone.pid, ram)
    scanner.close()
    scanner.close()


def test_buffer_gives_memory_back() -> None:
    """Memory that was made real ahead is real, and goes when the buffer shrinks or closes."""
    buffer = PageBuffer(64 << 20)
    assert _resident(buffer) == 0
    buffer.prefault(16 << 20)
    assert _resident(buffer) >= 16 << 20
    buffer.view()[:3] = b"abc"
    buffer.shrink(4 << 20)
    assert 4 << 20 <= _resident(buffer) <= 6 << 20
    assert bytes(buffer.view()[:3]) == b"abc"
    buffer.close()
    assert _resident(buffer) == 0


def _resident(buffer: PageBuffer) -> int:
    pages = (ctypes.c_ubyte * (buffer.capacity_bytes // PAGE))()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mincore(ctypes.c_void_p(buffer.address), ctypes.c_size_t(buffer.capacity_bytes), pages) == 0
    return sum(page & 1 for page in pages) * PAGE


# The library ----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> RamLibrary:
    """The library for QEMU, compiled."""
    folder = tmp_path_factory.mktemp("native")
    try:
        built = RamLibrary.build(folder)
    except NativeUnavailable as exc:
        pytest.skip(f"missing: {exc}")
    assert RamLibrary.build(folder) == built
    assert [path.name for path in folder.iterdir()] == [built.path.name]
    return built


def _share(delta: RamDelta, ram: RamIdentity) -> SharedPages:
    return delta.shared(ram.size_bytes)


def test_no_compiler_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be compiled, it is said how it could be."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NativeUnavailable, match="gcc"):
        RamLibrary.build(tmp_path / "native")


def test_writes_are_noted(start: Callable[..., Process], ram: RamIdentity, library: RamLibrary) -> None:
    """After a first scan only what is written since is found, page for page, as often as asked."""
    parent = start(library=library)
    for page in range(100, 200):
        parent.write(page * PAGE, 1)
    with RamScanner(parent.pid, ram) as scanner:
        before = scanner.scan_and_watch()
        if before is None:
            pytest.skip("missing: userfaultfd with asynchronous write protection (Linux 6.7)")
        assert _pages(before) == set(range(100, 200))
        assert len(scanner.scan_written()) == 0
        for page in (0, 100, 150, 199, 500):
            parent.write(page * PAGE, 2)
        parent.read(101 * PAGE)
        assert _pages(scanner.scan_written()) == {0, 100, 150, 199, 500}
        assert _pages(scanner.scan_written(watch_on=True)) == {0, 100, 150, 199, 500}
        assert len(scanner.scan_written()) == 0
        parent.write(500 * PAGE, 3)
        assert _pages(scanner.scan_written()) == {500}
        again = scanner.scan_and_watch()
        assert again is not None
        assert _pages(again) == set(range(100, 200)) | {0, 500}
        assert len(scanner.scan_written()) == 0


def test_without_the_library_nothing_is_noted(start: Callable[..., Process], ram: RamIdentity) -> None:
    """It is said that it is not, instead of finding nothing."""
    parent = start()
    parent.write(0, 1)
    for use_ioctl in (True, False):
        with RamScanner(parent.pid, ram, use_ioctl=use_ioctl) as scanner:
            assert scanner.scan_and_watch() is None
            assert _pages(scanner.scan()) == {0}


def test_children_share_pages(start: Callable[..., Process], ram: RamIdentity, library: RamLibrary) -> None:
    """A child that maps its parent's pages is like one that got a copy, and so are its children."""
    parent = start(library=library)
    chosen = random.Random(3)
    for page in [*range(10, 60), *chosen.sample(range(PAGES), 150)]:
        parent.write(page * PAGE + chosen.randrange(PAGE), chosen.randrange(256))
    delta = _take(parent.pid, ram)
    pages = _share(delta, ram)
    first, second = start(library=library), start(library=library)
    for child in (first, second):
        child.control.map(pages.fd, delta.extents)
    pages.close()
    delta.close()
    whole = parent.memory(ram)
    assert first.memory(ram) == second.memory(ram) == whole
    for number, page in enumerate((10, 30, 700, 0)):
        first.write(page * PAGE, number)
    assert second.memory(ram) == parent.memory(ram) == whole

    grown = first.memory(ram)
    assert grown != whole
    for use_ioctl in (True, False):
        with RamScanner(first.pid, ram, use_ioctl=use_ioctl) as scanner:
            found = _pages(scanner.scan())
            assert found == _pages(delta.extents) | {0, 10, 30, 700}
    grandchild, copied = start(library=library), start()
    deeper = _take(first.pid, ram)
    grandchild.control.map(_share(deeper, ram).fd, deeper.extents)
    write_delta(copied.pid, ram, deeper)
    assert grandchild.memory(ram) == copied.memory(ram) == grown

    with RamScanner(grandchild.pid, ram) as scanner:
        if scanner.scan_and_watch() is None:
            return
        grandchild.write(30 * PAGE, 200)  # a shared page becomes its own
        grandchild.write(999 * PAGE, 200)
        assert _pages(scanner.scan_written()) == {30, 999}


def test_nobody_can_change_shared_pages(
    start: Callable[..., Process], ram: RamIdentity, library: RamLibrary
) -> None:
    """Who is given the file cannot write to it, whatever he opens or maps."""
    parent = start(library=library)
    parent.write(5 * PAGE, 1)
    pages = _share(_take(parent.pid, ram), ram)
    for flags in (os.O_RDWR, os.O_RDONLY):
        again = os.open(f"/proc/self/fd/{pages.fd}", flags)
        with pytest.raises(OSError):
            os.pwrite(again, b"x", 0)
        with pytest.raises(OSError):
            mmap.mmap(again, PAGE, flags=mmap.MAP_SHARED)
        os.close(again)
    with pytest.raises(OSError):
        os.ftruncate(pages.fd, 0)
    pages.close()


@pytest.mark.parametrize("run", [(SIZE, PAGE), (0, SIZE + PAGE), (1, PAGE), (0, 0), (0, (1 << 64) - PAGE)])
def test_the_library_maps_only_into_the_ram(
    start: Callable[..., Process], ram: RamIdentity, library: RamLibrary, run: tuple[int, int]
) -> None:
    """It refuses what lies elsewhere, and a second request."""
    child = start(library=library)
    pages = SharedPages(SIZE)
    with pytest.raises(NativeFailed, match="Invalid argument"):
        child.control.map(pages.fd, Extents(array("Q", [run[0]]), array("Q", [run[1]])))
    with pytest.raises(NativeFailed):
        child.control.map(pages.fd, Extents(array("Q", [0]), array("Q", [PAGE])))
    child.write(0, 1)
    pages.close()


def test_union_of_runs() -> None:
    """All pages of both, in as few runs as possible."""
    chosen = random.Random(5)
    for _ in range(200):
        sets = [set(chosen.sample(range(40), chosen.randrange(20))) for _ in range(2)]
        first, second = (
            Extents(array("Q", [page * PAGE for page in sorted(each)]), array("Q", [PAGE] * len(each)))
            for each in sets
        )
        both = union(first, second)
        assert _pages(both) == sets[0] | sets[1]
        if sets[1]:
            joints = zip(both.offsets, both.lengths, list(both.offsets)[1:], strict=False)
            assert all(offset + length < following for offset, length, following in joints)
