"""Trees: content digests, and flattening what an overlay would show."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from osgym_host.images import tree


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A small tree."""
    base = tmp_path / "base"
    (base / "etc" / "old").mkdir(parents=True)
    (base / "etc" / "kept").write_text("kept")
    (base / "etc" / "changed").write_text("before")
    (base / "etc" / "deleted").write_text("x")
    (base / "etc" / "old" / "inner").write_text("x")
    (base / "link").symlink_to("etc/kept")
    return base


@contextmanager
def caught_in_threads() -> Iterator[list[BaseException]]:
    """What threads of this block raise."""
    errors: list[BaseException] = []
    before = threading.excepthook
    threading.excepthook = lambda info: errors.append(info.exc_value or RuntimeError("unknown"))
    try:
        yield errors
    finally:
        threading.excepthook = before


def _whiteout(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))
    except PermissionError:
        pytest.skip("missing: the right to make whiteouts (kernel before 5.8)")


def test_digest_is_of_content_and_not_of_time(base: Path) -> None:
    """Other times give the same digest; another byte, mode, name or target gives another."""
    first = tree.digest(str(base))
    assert first["files"] == 4
    os.utime(base / "etc" / "kept", (1, 1))
    assert tree.digest(str(base)) == first
    seen = {first["digest"]}
    (base / "etc" / "kept").write_text("KEPT")
    seen.add(tree.digest(str(base))["digest"])
    (base / "etc" / "kept").chmod(0o600)
    seen.add(tree.digest(str(base))["digest"])
    (base / "etc" / "kept").rename(base / "etc" / "renamed")
    seen.add(tree.digest(str(base))["digest"])
    (base / "link").unlink()
    (base / "link").symlink_to("etc/renamed")
    seen.add(tree.digest(str(base))["digest"])
    assert len(seen) == 5


def test_flatten_shows_what_the_overlay_shows(base: Path, tmp_path: Path) -> None:
    """Added, changed, deleted and replaced entries end up as the upper layer has them."""
    layer = tmp_path / "layer"
    (layer / "etc" / "fresh").mkdir(parents=True)
    (layer / "etc" / "changed").write_text("after")
    (layer / "etc" / "fresh" / "new").write_text("new")
    _whiteout(layer / "etc" / "deleted")
    _whiteout(layer / "etc" / "old")
    tree.flatten(str(base), str(layer), str(tmp_path / "out"))
    out = tmp_path / "out"
    assert sorted(path.name for path in (out / "etc").iterdir()) == ["changed", "fresh", "kept"]
    assert (out / "etc" / "changed").read_text() == "after"
    assert (out / "etc" / "fresh" / "new").read_text() == "new"
    assert (out / "link").readlink() == Path("etc/kept")


def test_flatten_shares_unchanged_files_and_leaves_the_base_alone(base: Path, tmp_path: Path) -> None:
    """An unchanged file is the same inode; a changed one leaves the base's content as it was."""
    layer = tmp_path / "layer"
    (layer / "etc").mkdir(parents=True)
    (layer / "etc" / "changed").write_text("after")
    tree.flatten(str(base), str(layer), str(tmp_path / "out"))
    assert (tmp_path / "out" / "etc" / "kept").stat().st_ino == (base / "etc" / "kept").stat().st_ino
    assert (base / "etc" / "changed").read_text() == "before"


def test_flatten_keeps_times_of_folders(base: Path, tmp_path: Path) -> None:
    """Font and icon caches are valid only while their folders' times stay the same."""
    layer = tmp_path / "layer"
    (layer / "etc").mkdir(parents=True)
    (layer / "etc" / "changed").write_text("after")
    os.utime(layer / "etc", (1000, 1000))
    os.utime(base / "etc" / "old", (2000, 2000))
    tree.flatten(str(base), str(layer), str(tmp_path / "out"))
    assert (tmp_path / "out" / "etc").stat().st_mtime == 1000
    assert (tmp_path / "out" / "etc" / "old").stat().st_mtime == 2000


def test_two_may_remove_the_same_tree_at_once(tmp_path: Path) -> None:
    """Whoever comes second finds less and does not fail; both leave nothing."""
    for number in range(3000):
        (tmp_path / "tree" / str(number % 50) / str(number)).mkdir(parents=True)
    threads = [threading.Thread(target=tree.remove, args=(str(tmp_path / "tree"),)) for _ in range(3)]
    with caught_in_threads() as errors:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
    assert errors == []
    assert not (tmp_path / "tree").exists()


def test_clamp_takes_back_late_times_only(base: Path) -> None:
    """No time is after the epoch, earlier ones stay, and so does one far off that was set on purpose."""
    os.utime(base / "etc" / "kept", (5, 5))
    cache = base / "etc" / "cache"
    cache.write_text("never old")
    os.utime(cache, (tree.KEPT_FROM_S, tree.KEPT_FROM_S))
    tree.clamp(str(base), 1000)
    assert (base / "etc" / "kept").stat().st_mtime == 5
    assert cache.stat().st_mtime == tree.KEPT_FROM_S
    assert (base / "etc" / "changed").stat().st_mtime == 1000
    assert (base / "etc").stat().st_mtime == 1000
