"""Pages of RAM in a file: what is written is read back, what a stranger made is refused."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.branch_points import RAM_BYTES, make_delta

from osgym_qemu.branching.delta_file import DeltaFileError, check_file, read_file, write_file
from osgym_qemu.branching.ram_pages import PAGE


@pytest.fixture
def workers() -> Iterator[ThreadPoolExecutor]:
    """Threads that compress."""
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 3000])
def test_pages_come_back(tmp_path: Path, workers: ThreadPoolExecutor, count: int) -> None:
    """What is read is what was written, whatever falls on the border of a chunk."""
    chosen = random.Random(count)
    pages = sorted(chosen.sample(range(RAM_BYTES // PAGE), count))
    delta = make_delta(pages, lambda page: chosen.randbytes(64) * (PAGE // 64))
    write_file(tmp_path / "ram", delta, RAM_BYTES, workers)
    found = read_file(tmp_path / "ram", RAM_BYTES, workers)
    assert found.extents == delta.extents
    assert bytes(found.packed()) == bytes(delta.packed())


def test_a_damaged_file_of_pages_is_refused(tmp_path: Path, workers: ThreadPoolExecutor) -> None:
    """No byte can be changed, taken away or added anywhere without an error, or without being pages."""
    good = tmp_path / "good"
    write_file(good, make_delta([1, 2, 9], lambda page: bytes([page]) * PAGE), RAM_BYTES, workers)
    data = good.read_bytes()
    bad = tmp_path / "bad"
    for at in range(len(data)):
        bad.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        with pytest.raises(DeltaFileError):
            read_file(bad, RAM_BYTES, workers)
    for size in (0, 7, 40, 60, len(data) - 1):
        bad.write_bytes(data[:size])
        with pytest.raises(DeltaFileError, match="too early"):
            read_file(bad, RAM_BYTES, workers)
    bad.write_bytes(data + b"x")
    with pytest.raises(DeltaFileError, match="longer than its header"):
        read_file(bad, RAM_BYTES, workers)
    with pytest.raises(DeltaFileError, match="do not fit"):
        read_file(good, 2 * RAM_BYTES, workers)


def head_of(runs: list[tuple[int, int]]) -> bytes:
    """The beginning of a file of pages, up to its first chunk."""
    places = b"".join(struct.pack("<QQ", *run) for run in runs)
    head = struct.pack("<8sIIQQQI", b"OSGYMRAM", 1, PAGE, RAM_BYTES, len(runs), 1, zlib.crc32(places))
    return head + places


@pytest.mark.parametrize(
    ("runs", "error"),
    [
        ([(PAGE, PAGE), (PAGE, PAGE)], "overlap"),
        ([(2 * PAGE, PAGE), (0, PAGE)], "out of order"),
        ([(RAM_BYTES, PAGE)], "outside"),
        ([(RAM_BYTES - PAGE, 2 * PAGE)], "outside"),
        ([(0, (1 << 64) - PAGE)], "outside"),
        ([(0, 0)], "outside"),
        ([(1, PAGE)], "outside"),
    ],
)
def test_runs_that_lead_elsewhere_are_refused(
    tmp_path: Path, workers: ThreadPoolExecutor, runs: list[tuple[int, int]], error: str
) -> None:
    """No run of pages may lie outside the RAM or twice in it."""
    (tmp_path / "ram").write_bytes(head_of(runs))
    with pytest.raises(DeltaFileError, match=error):
        read_file(tmp_path / "ram", RAM_BYTES, workers)


def test_a_bomb_does_not_unfold(tmp_path: Path, workers: ThreadPoolExecutor) -> None:
    """A chunk that would grow beyond its place is refused before it does."""
    bomb = zlib.compress(bytes(64 << 20), 9)
    (tmp_path / "ram").write_bytes(head_of([(0, PAGE)]) + struct.pack("<I", len(bomb)) + bomb)
    with pytest.raises(DeltaFileError, match="size"):
        read_file(tmp_path / "ram", RAM_BYTES, workers)


def resident_mib() -> float:
    """What this process has in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / (1 << 20)


def announced(size: int, chunks: bytes) -> bytes:
    """A file of one run of that size, whatever follows."""
    places = struct.pack("<QQ", 0, size)
    count = -(-size // (4 << 20))
    return (
        struct.pack("<8sIIQQQI", b"OSGYMRAM", 1, PAGE, size, 1, count, zlib.crc32(places)) + places + chunks
    )


@pytest.mark.parametrize(
    ("chunks", "error"),
    [
        (b"", "too early"),
        (struct.pack("<I", 20) + bytes(20), "too small"),
        (struct.pack("<I", 4000) + bytes(4000), "too early"),
        ((struct.pack("<I", 4000) + bytes(4000)) * 255, "too early"),
        ((struct.pack("<I", 4000) + bytes(4000)) * 257, "longer than its header"),
        (struct.pack("<I", 0xFFFFFFFF), "too large"),
    ],
)
def test_memory_that_a_file_has_no_pages_for_is_not_taken(
    tmp_path: Path, workers: ThreadPoolExecutor, chunks: bytes, error: str
) -> None:
    """1 GiB announced in 60 bytes costs nothing: the chunks are looked at before there is room for them."""
    (tmp_path / "ram").write_bytes(announced(1 << 30, chunks))
    before_mib = resident_mib()
    for read in (lambda path: read_file(path, 1 << 30, workers), lambda path: check_file(path, 1 << 30)):
        with pytest.raises(DeltaFileError, match=error):
            read(tmp_path / "ram")
        assert resident_mib() - before_mib < 16


def test_a_file_is_checked_in_the_memory_of_one_chunk(tmp_path: Path) -> None:
    """1 GiB of zeros is a sound file of a megabyte; to say so takes no gigabyte."""
    packed = zlib.compress(bytes(4 << 20), 9)
    (tmp_path / "ram").write_bytes(announced(1 << 30, (struct.pack("<I", len(packed)) + packed) * 256))
    before_mib = resident_mib()
    check_file(tmp_path / "ram", 1 << 30)
    assert resident_mib() - before_mib < 32
    broken = zlib.compress(bytes((4 << 20) - 1), 9)
    (tmp_path / "ram").write_bytes(announced(4 << 20, struct.pack("<I", len(broken)) + broken))
    with pytest.raises(DeltaFileError, match="size"):
        check_file(tmp_path / "ram", 4 << 20)
