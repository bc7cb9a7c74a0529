"""Kept branch points of `local` on the disk: whole or not at all, found again, and skipped when broken."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from osgym_host.runtimes.base import BranchPoint
from osgym_host.runtimes.local.criu import layer
from osgym_host.runtimes.local.criu.commands import Outside
from osgym_host.runtimes.local.criu.dumping import Dumped
from osgym_host.runtimes.local.criu.kept import KeptDumps

POINT = BranchPoint("p0123456789abcdef", "d" * 64, "r1", 7, True, 1.0, 90.0, 40.0, 2.0)


def make_dump(folder: Path) -> Dumped:
    """A dump with one file in each part, and a link that leads out of it."""
    for part in ("images", "upper"):
        (folder / part).mkdir(parents=True)
        (folder / part / "file").write_text(part)
    (folder / "upper/link").symlink_to("/etc/shadow")
    digest = layer.digest_of(folder / "images", folder / "upper")
    return Dumped(folder, Outside("file[1:2]", 3), 100000, digest, 90.0, 40.0, 2.0)


def test_a_kept_dump_is_found_again_unchanged(tmp_path: Path) -> None:
    """By another host agent, with the digest that its clones are checked against."""
    kept = KeptDumps(tmp_path / "kept").keep(POINT, make_dump(tmp_path / "made"))
    assert not (tmp_path / "made").exists()
    assert list(KeptDumps(tmp_path / "kept").read()) == [(POINT, kept)]
    assert layer.digest_of(kept.images, kept.upper) == kept.digest
    assert (tmp_path / "kept").stat().st_mode & 0o077 == 0


def test_what_a_removal_left_goes_and_what_is_broken_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder without a manifest is removed; one that cannot be read stays, for people to look at."""
    store = KeptDumps(tmp_path / "kept")
    assert list(store.read()) == []
    kept = store.keep(POINT, make_dump(tmp_path / "made"))
    (kept.folder / "manifest.json").unlink()
    assert list(store.read()) == []
    copy = tmp_path / "kept" / "p0123456789abcde0.copy"
    copy.mkdir()
    store.reap()
    assert not kept.folder.exists()
    assert copy.exists(), "another host may be making it"
    os.utime(copy, (0, 0))
    store.reap()
    assert not copy.exists()
    kept = store.keep(POINT, make_dump(tmp_path / "again"))
    for text in ("{", "[]", '{"version": 1}', '{"version": 2, "point": {"point_id": "p0123456789abcdef"}}'):
        (kept.folder / "manifest.json").write_text(text)
        assert list(store.read()) == []
        assert kept.folder.exists()
    assert "cannot be used and is skipped" in caplog.text


def test_a_dump_is_copied_to_another_file_system(tmp_path: Path) -> None:
    """Shared storage is one: the files have other inodes there, and the digest is that of the copy."""
    other = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        if other.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("missing: a second file system at /dev/shm")
        kept = KeptDumps(other / "kept").keep(POINT, make_dump(tmp_path / "made"))
        assert not (tmp_path / "made").exists()
        assert list(KeptDumps(other / "kept").read()) == [(POINT, kept)]
        assert layer.digest_of(kept.images, kept.upper) == kept.digest
        assert (kept.upper / "file").read_text() == "upper"
    finally:
        shutil.rmtree(other)
