"""Kept branch points of `local` on the disk: whole or not at all, found again, and skipped when broken."""

from __future__ import annotations

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
    assert list(KeptDumps(tmp_path / "kept").open()) == [(POINT, kept)]
    assert layer.digest_of(kept.images, kept.upper) == kept.digest
    assert (tmp_path / "kept").stat().st_mode & 0o077 == 0


def test_what_a_removal_left_goes_and_what_is_broken_is_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A folder without a manifest is removed; one that cannot be read stays, for people to look at."""
    store = KeptDumps(tmp_path / "kept")
    assert list(store.open()) == []
    kept = store.keep(POINT, make_dump(tmp_path / "made"))
    (kept.folder / "manifest.json").unlink()
    assert list(store.open()) == []
    assert not kept.folder.exists()
    kept = store.keep(POINT, make_dump(tmp_path / "again"))
    for text in ("{", "[]", '{"version": 1}', '{"version": 2, "point": {"point_id": "p0123456789abcdef"}}'):
        (kept.folder / "manifest.json").write_text(text)
        assert list(store.open()) == []
        assert kept.folder.exists()
    assert "cannot be used and is skipped" in caplog.text
