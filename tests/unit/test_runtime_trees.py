"""Removing and measuring trees that somebody hostile filled."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from osgym_host.runtimes.local.trees import MAX_DEPTH, measure_tree, remove_tree


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_what_is_absent_is_fine(parent: int) -> None:
    """Removing nothing succeeds, so that it can be repeated."""
    remove_tree(parent, "absent")
    assert measure_tree(parent, "absent") == 0


def test_a_link_is_removed_and_not_followed(parent: int, tmp_path: Path) -> None:
    """At the top and inside, links go and what they point to stays."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("x")
    (tmp_path / "link").symlink_to(victim)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/link").symlink_to(victim)
    for name in ("link", "tree"):
        remove_tree(parent, name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["victim"]
    assert (victim / "file").read_text() == "x"


def test_a_very_deep_tree_needs_neither_stack_nor_descriptors(parent: int, tmp_path: Path) -> None:
    """Five thousand levels, longer than any path, are removed with a handful of descriptors."""
    fd = os.open(tmp_path, os.O_RDONLY)
    for name in ["tree", *["d" * 50] * 5000]:
        os.mkdir(name, dir_fd=fd)
        deeper = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(fd)
    remove_tree(parent, "tree")
    assert list(tmp_path.iterdir()) == []


def test_measuring_counts_blocks_and_does_not_follow(parent: int, tmp_path: Path) -> None:
    """A megabyte counts once, through a link not at all, a hole not at all."""
    tree = tmp_path / "tree"
    (tree / "folder").mkdir(parents=True)
    (tree / "folder/file").write_bytes(os.urandom(1 << 20))
    (tmp_path / "outside").write_bytes(os.urandom(1 << 20))
    (tree / "link").symlink_to(tmp_path / "outside")
    with (tree / "hole").open("wb") as hole:
        hole.truncate(1 << 30)
    assert 1 << 20 <= measure_tree(parent, "tree") < (1 << 20) + 65536


def test_measuring_is_not_evaded_by_empty_files_or_by_depth(parent: int, tmp_path: Path) -> None:
    """An empty file costs an inode; what is nested deeper than programs nest counts as too much."""
    (tmp_path / "many").mkdir()
    for number in range(100):
        (tmp_path / f"many/{number}").touch()
    assert measure_tree(parent, "many") >= 100 * 4096
    deep = tmp_path / "deep"
    for _ in range(MAX_DEPTH + 2):
        deep /= "d"
    deep.mkdir(parents=True)
    assert measure_tree(parent, "deep") >= 1 << 50
    remove_tree(parent, "deep")


names = st.text(
    st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=20
).filter(lambda name: name not in (".", ".."))
paths = st.lists(
    st.lists(st.one_of(names, st.sampled_from([".osgym-removing-1", "a"])), min_size=1, max_size=5),
    max_size=20,
)


@given(paths, st.integers(0, 0o777))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_tree_goes(parent: int, tmp_path: Path, entries: list[list[str]], mode: int) -> None:
    """Whatever the names, the nesting and (for root) the modes are, nothing is left."""
    top = tmp_path / "tree"
    top.mkdir()
    for entry in entries:
        try:
            folder = top.joinpath(*entry[:-1])
            folder.mkdir(parents=True, exist_ok=True)
            (folder / entry[-1]).touch()
            folder.chmod(mode if os.geteuid() == 0 else mode | stat.S_IRWXU)
        except OSError:
            continue  # a name that is a file already, or too long
    remove_tree(parent, "tree")
    assert not top.exists()
