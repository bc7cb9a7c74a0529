"""Who ends when the host's disk is nearly full."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from osgym_host.core.disk_pressure import (
    INODE_BYTES,
    LEAST_MIB,
    DiskAccount,
    DiskRoom,
    Writer,
    biggest_writer,
)

MIB = 1 << 20
SIZES = st.floats(0, 1e6)
WRITERS = st.lists(st.builds(Writer, st.uuids().map(str), SIZES, SIZES, st.booleans()), max_size=6)


def _room(files: int, files_free: int) -> DiskRoom:
    """Return the room of a file system with 100 free blocks."""
    return DiskRoom.of(os.statvfs_result((4096, 4096, 1000, 100, 100, files, files_free, files_free, 0, 255)))


def test_a_disk_without_inodes_is_full() -> None:
    """Empty files fill it, too; where their number is not bounded only blocks count."""
    assert _room(1000, 500).free_mib == 100 * 4096 / MIB
    assert _room(1000, 7).free_mib == 7 * INODE_BYTES / MIB
    assert _room(0, 0).free_mib == 100 * 4096 / MIB


def test_what_was_written_is_seen_where_the_other_of_blocks_and_inodes_is_scarcer() -> None:
    """One big file takes no inodes, many empty ones take no blocks."""
    before = DiskRoom(73_000.0, 62_000.0)
    assert DiskRoom(72_600.0, 62_000.0).used_since_mib(before) == 400.0
    assert DiskRoom(73_000.0, 61_700.0).used_since_mib(before) == 300.0
    assert DiskRoom(72_600.0).used_since_mib(DiskRoom(73_000.0)) == 400.0
    assert DiskRoom(72_600.0, 63_000.0).most(before) == DiskRoom(73_000.0, 63_000.0)


def test_who_wrote_the_most() -> None:
    """By what it has, or wrote and deleted again."""
    has, wrote = Writer("has", 500.0), Writer("wrote", 3.0, 800.0)
    assert biggest_writer([has, wrote], 0.0) == wrote
    assert biggest_writer([has, Writer("small", 10.0)], 0.0) == has
    assert biggest_writer([Writer("small", 10.0)], 0.0) is None
    assert biggest_writer([], 1e9) is None


def test_who_hides_answers_for_what_nobody_has() -> None:
    """A file that only a descriptor in flight holds is in no measurement, but gone from the disk."""
    honest, hides = Writer("honest", 400.0, 400.0), Writer("hides", 1.0, 1.0, hides=True)
    assert biggest_writer([honest, hides], 3000.0) == hides
    assert biggest_writer([honest, hides], 10.0) == honest


def test_what_is_unaccounted_is_what_nobody_is_seen_to_have() -> None:
    """Writing and deleting by replicas changes nothing; what is hidden does, until it is freed."""
    account = DiskAccount()
    account.update(0, 10_000.0, [100.0, 0.0], hides=False)
    account.update(1, 9_000.0, [600.0, 500.0], hides=False)
    assert account.unaccounted_mib == 0
    account.update(2, 7_000.0, [600.0, 500.0], hides=False)  # before the replica is measured
    account.update(16, 7_000.0, [600.0, 500.0], hides=True)
    assert account.unaccounted_mib == 2000
    for second in range(17, 600):
        account.update(second, 7_000.0, [600.0, 500.0], hides=True)
    assert account.unaccounted_mib == 2000
    account.update(600, 10_100.0, [], hides=False)
    assert account.unaccounted_mib == 0


def test_what_the_host_wrote_itself_is_put_to_nobodys_account() -> None:
    """It is forgotten while no replica could hide anything, so that one that does later is not blamed."""
    account = DiskAccount()
    account.update(0, 50_000.0, [100.0], hides=False)
    for second in range(1, 200):
        account.update(second, 20_000.0, [100.0], hides=False)
    account.update(200, 20_000.0, [100.0], hides=True)
    assert account.unaccounted_mib == 0
    account.update(201, 19_000.0, [100.0], hides=True)
    assert account.unaccounted_mib == 1000


@given(WRITERS, SIZES)
def test_nobody_heavier_is_spared(writers: list[Writer], unaccounted_mib: float) -> None:
    """Whoever ends weighs at least as much as all others, and enough for it to help."""
    chosen = biggest_writer(writers, unaccounted_mib)
    weights = [writer.weight_mib(unaccounted_mib) for writer in writers]
    if chosen is None:
        assert all(weight < LEAST_MIB for weight in weights)
    else:
        assert chosen.weight_mib(unaccounted_mib) == max(weights) >= LEAST_MIB
