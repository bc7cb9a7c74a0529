"""End states that differ in whole files: what is left of a home after the edits of each."""

from __future__ import annotations

import random
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from osgym_certify.ends.base import Chmod, Copy, End, GoldenFile, Move, Must, Remove, Write
from osgym_certify.ends.files import file_ends

HOME = "/home/user"
Home = dict[str, bytes]


def below(home: Home, path: str) -> list[str]:
    """A file, or all files below a folder."""
    return [one for one in home if one == path or one.startswith(f"{path}/")]


def after(home: Mapping[str, bytes], end: End) -> Home:
    """Files of a home after the edits of an end state, all of whose paths must exist."""
    left = dict(home)
    for edit in end.edits:
        match edit:
            case Write(path, data):
                left[path] = data
            case Remove(path):
                gone = below(left, path)
                for one in gone:
                    del left[one]
            case Move(path, to) | Copy(path, to):
                assert below(left, path) and not below(left, to), end
                for one in below(left, path):
                    left[to + one.removeprefix(path)] = left.pop(one) if isinstance(edit, Move) else left[one]
            case Chmod(path, _):
                assert path in left
    return left


FILES = [
    GoldenFile(f"{HOME}/Sorted/a.txt", b"a"),
    GoldenFile(f"{HOME}/Sorted/b.txt", b"b"),
    GoldenFile(f"{HOME}/list.txt", b"new", b"old"),
]
REMOVED = {f"{HOME}/Downloads/a.txt": b"a", f"{HOME}/Downloads/b.txt": b"b"}
KEPT = {
    f"{HOME}/other.txt": b"other",
    f"{HOME}/Downloads/c.txt": b"c",
    f"{HOME}/Music/deep/song.mid": b"song",
    f"{HOME}/Music/empty": b"",
}
GOLDEN: Home = {one.path: one.data for one in FILES} | KEPT


def made(seed: int = 1, modes: Mapping[str, int] | None = None) -> dict[str, list[Home]]:
    """Homes after the end states, by name."""
    found: dict[str, list[Home]] = {}
    for end in file_ends(FILES, [f"{HOME}/Sorted"], REMOVED, KEPT, modes or {}, random.Random(seed)):
        assert end.must is Must.EARN_NOTHING
        found.setdefault(end.name, []).append(after(GOLDEN, end))
    return found


def without(*paths: str) -> Home:
    """The golden home without files."""
    return {path: data for path, data in GOLDEN.items() if path not in paths}


def test_each_file_is_put_back_alone() -> None:
    """Made, changed and removed files."""
    found = made()
    assert sorted(found["file: removed"], key=str) == sorted(
        [without(FILES[0].path), without(FILES[1].path)], key=str
    )
    assert found["file: put back"] == [{**GOLDEN, FILES[2].path: b"old"}]
    assert sorted(found["removed file: put back"], key=str) == sorted(
        [{**GOLDEN, path: data} for path, data in REMOVED.items()], key=str
    )


def test_files_are_elsewhere() -> None:
    """One golden file is renamed or moved, with its content."""
    for seed in range(10):
        found = made(seed)
        for name in ("file: renamed", "file: moved to a new folder", "file: moved to another folder"):
            [home] = found[name]
            [gone], [come] = GOLDEN.keys() - home.keys(), home.keys() - GOLDEN.keys()
            assert home[come] == GOLDEN[gone] and gone in {one.path for one in FILES}
            assert (come.rpartition("/")[0] == gone.rpartition("/")[0]) is (name == "file: renamed")


def test_folders() -> None:
    """A made folder is removed, renamed, emptied, and holds files without content."""
    found = made()
    inside = [FILES[0].path, FILES[1].path]
    assert found["folder: removed"] == [without(*inside)]
    assert found["folder: renamed"] == [
        {**without(*inside), f"{HOME}/another-Sorted/a.txt": b"a", f"{HOME}/another-Sorted/b.txt": b"b"}
    ]
    assert "folder: emptied" in found
    assert found["folder: all files emptied"] == [{**GOLDEN, **dict.fromkeys(inside, b"")}]


def test_entries_are_added_only_where_the_task_asks_for_the_entries() -> None:
    """A further file does harm in a folder that the oracle made or filled, and nowhere else."""
    found = made()
    [home] = found["folder: further file added"]
    assert home.keys() - GOLDEN.keys() == {f"{HOME}/Sorted/further-file.txt"}
    [home] = found["file: copied under another name"]
    [copy] = home.keys() - GOLDEN.keys()
    assert copy.startswith(f"{HOME}/Sorted/copy-of-") and home[copy] == home[copy.replace("copy-of-", "")]
    names = {end.name for end in file_ends(FILES[2:], [], {}, KEPT, {}, random.Random(1))}
    assert not {"folder: further file added", "file: copied under another name"} & names


def test_contents_of_other_files() -> None:
    """Contents of two golden files are exchanged, and one has the content of another file of its ending."""
    for seed in range(10):
        found = made(seed)
        [home] = found["file: content exchanged with another file's"]
        assert home != GOLDEN and sorted(home.values()) == sorted(GOLDEN.values())
        [home] = found["file: content replaced by another file's"]
        [changed] = [path for path in GOLDEN if home[path] != GOLDEN[path]]
        assert changed in {one.path for one in FILES}
        assert home[changed] in {b"other", b"c", b"a", b"b"}


def test_other_files_and_folders_are_lost_and_changed() -> None:
    """A file beside a golden one, one elsewhere, a whole folder, all but the golden files of a folder."""
    for seed in range(10):
        found = made(seed)
        for home in found["other file: removed"]:
            [gone] = GOLDEN.keys() - home.keys()
            assert gone in KEPT and {**home, gone: GOLDEN[gone]} == GOLDEN
        assert len(found["other file: removed"]) == 2
        assert f"{HOME}/other.txt" in {
            gone for home in found["other file: removed"] for gone in GOLDEN.keys() - home.keys()
        }
        for name in ("other file: emptied", "other file: appended to"):
            for home in found[name]:
                [changed] = [path for path in GOLDEN if home[path] != GOLDEN[path]]
                assert changed in KEPT and home.keys() == GOLDEN.keys()
        for home in found["other file: renamed"]:
            assert sorted(home.values()) == sorted(GOLDEN.values()) and home.keys() != GOLDEN.keys()
        [home] = found["other folder: removed"]
        assert {path.split("/")[3] for path in GOLDEN.keys() - home.keys()} <= {"Music", "Downloads"}
        assert GOLDEN.keys() - home.keys()
        [home] = found["folder: everything else removed"]
        assert home == {one.path: one.data for one in FILES}


def test_permissions_are_changed_where_only_they_can_be_asked_for() -> None:
    """A file whose content stayed, and a program; of no other golden file."""
    plain = GoldenFile(f"{HOME}/plain.txt", b"x", b"x")
    program = GoldenFile(f"{HOME}/run", b"#!/bin/sh\n")
    modes = {plain.path: 0o640, program.path: 0o755, FILES[0].path: 0o644}
    ends = file_ends([plain, program, *FILES], [], {}, {}, modes, random.Random(1))
    found = {
        (end.name, edit.path, edit.mode) for end in ends for edit in end.edits if isinstance(edit, Chmod)
    }
    assert found == {
        ("file: all permissions given to everybody", plain.path, 0o777),
        ("file: permissions left to the owner only", plain.path, 0o600),
        ("file: permission to execute changed", plain.path, 0o751),
        ("file: permission to execute removed", program.path, 0o644),
    }
    ends = file_ends([plain], [], {}, {}, {plain.path: 0o777}, random.Random(1))
    assert all(edit.mode != 0o777 for end in ends for edit in end.edits if isinstance(edit, Chmod))


NAMES = st.sampled_from(["a", "b.txt", "x/a", "x/b.txt", "x/y/a", "z/b.txt", "further-file.txt", "another-a"])
TREES = st.dictionaries(
    NAMES.map(lambda name: f"{HOME}/{name}"), st.sampled_from([b"", b"1", b"2"]), max_size=6
)


@given(TREES, TREES, TREES, st.integers())
def test_ends_differ_from_the_golden_end_and_repeat(
    golden: Home, removed: Home, kept: Home, seed: int
) -> None:
    """No end state is the golden one, and one seed gives one list."""
    others = {path: data for path, data in kept.items() if path not in golden}
    gone = {path: data for path, data in removed.items() if path not in golden and path not in others}
    files = [GoldenFile(path, data, b"1" if data == b"2" else None) for path, data in golden.items()]
    folders = sorted({path.rpartition("/")[0] for path in golden if path.count("/") > 3})
    ends = file_ends(files, folders, gone, others, {}, random.Random(seed))
    assert ends == file_ends(files, folders, gone, others, {}, random.Random(seed))
    home = golden | others
    for end in ends:
        if not any(isinstance(edit, Chmod) for edit in end.edits):
            assert after(home, end) != home, end
