"""End states that differ from the golden one in whole files and folders: place, name, number, permissions.

Other contents of single files are in `content`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import commonpath

from osgym_certify.ends.base import (
    Chmod,
    Copy,
    Edit,
    End,
    Files,
    GoldenFile,
    Move,
    Must,
    Remove,
    Write,
    parent_of,
)
from osgym_certify.ends.draw import by_name, few

MAX_PUT_BACK = 8
"""Number of files that are put back, each in an end state of its own."""
_STRAY = b"a file that no task asks for\n"
_EVERYBODY, _OWNER, _EXECUTABLE = 0o777, 0o600, 0o111

Made = Iterator[tuple[str, str, Sequence[Edit]]]
"""Names of end states, the path or value that each is about, and its edits."""


@dataclass(frozen=True, slots=True)
class GoldenFiles:
    """Files of the golden end, compared with those after the set-up.

    Attributes:
        files: Files that the oracle made or changed and that the task asks for.
        made_folders: Folders that the oracle made.
        removed: Contents of files that the oracle removed.
        kept: Contents of other files of the home, which the task leaves as they are.
        modes: Permissions of `files`, as far as they are known.
    """

    files: Sequence[GoldenFile]
    made_folders: Sequence[str] = ()
    removed: Files = field(default_factory=dict)
    kept: Files = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)

    @property
    def paths(self) -> frozenset[str]:
        """Paths that exist at the golden end, as far as they are known, with the folders above them."""
        known = [*(one.path for one in self.files), *self.kept, *self.made_folders]
        return frozenset(known) | {folder for path in known for folder in _folders_above(path)}

    @property
    def arranged(self) -> frozenset[str]:
        """Folders whose entries the task asks for: those that the oracle made, or made several files in.

        In others, and where files are that the oracle left alone, a further file does no harm.
        """
        parents = [parent_of(one.path) for one in self.files if one.before is None]
        several = {one for one in parents if parents.count(one) > 1}
        mixed = {one for one in several if any(path.startswith(f"{one}/") for path in self.kept)}
        return frozenset([*self.made_folders, *(several - mixed)])

    def has_golden_below(self, folder: str) -> bool:
        """Return whether a golden file or made folder lies below a folder."""
        golden = [*(one.path for one in self.files), *self.made_folders]
        return any(path == folder or path.startswith(f"{folder}/") for path in golden)


def file_ends(
    files: Sequence[GoldenFile],
    made_folders: Sequence[str],
    removed: Files,
    kept: Files,
    modes: Mapping[str, int],
    dice: random.Random,
) -> list[End]:
    """Return end states of the whole golden end, all of which must earn 0.

    The arguments are the attributes of `GoldenFiles`. The same generator state gives the same end states.
    """
    golden, drawn = GoldenFiles(files, made_folders, removed, kept, modes), by_name(dice)
    found: dict[tuple[Edit, ...], End] = {}
    for make in _MAKERS:
        for name, about, edits in make(golden, drawn(make.__name__)):
            found.setdefault(tuple(edits), End(name, about, Must.EARN_NOTHING, tuple(edits)))
    return list(found.values())


def _folders_above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(2, len(parts))]


def _beside(path: str, prefix: str, golden: GoldenFiles) -> str:
    """Return a path in the same folder that no known file has."""
    folder, _, name = path.rpartition("/")
    chosen = f"{folder}/{prefix}{name}"
    while chosen in golden.paths or chosen in golden.removed:
        chosen = f"{folder}/{prefix}{chosen.rpartition('/')[2]}"
    return chosen


def _put_back(golden: GoldenFiles, dice: random.Random) -> Made:
    for file in few(golden.files, dice, MAX_PUT_BACK):
        if file.before is None:
            yield "file: removed", file.path, [Remove(file.path)]
        elif file.before != file.data:
            yield "file: put back", file.path, [Write(file.path, file.before)]
    for path in few(golden.removed, dice, MAX_PUT_BACK):
        yield "removed file: put back", path, [Write(path, golden.removed[path])]


def _moved(golden: GoldenFiles, dice: random.Random) -> Made:
    for file in few(golden.files, dice):
        folder, _, name = file.path.rpartition("/")
        new = _beside(f"{folder}/folder", "another-", golden)
        yield "file: renamed", file.path, [Move(file.path, _beside(file.path, "another-", golden))]
        yield "file: moved to a new folder", file.path, [Move(file.path, f"{new}/{name}")]
    others = sorted({parent_of(path) for path in golden.kept})
    for file in few(golden.files, dice):
        name = file.path.rpartition("/")[2]
        targets = [f"{one}/{name}" for one in others if one != parent_of(file.path)]
        for target in few((one for one in targets if one not in golden.paths), dice):
            yield "file: moved to another folder", file.path, [Move(file.path, target)]


def _folders_changed(golden: GoldenFiles, dice: random.Random) -> Made:
    for folder in few(golden.made_folders, dice):
        yield "folder: removed", folder, [Remove(folder)]
        yield "folder: renamed", folder, [Move(folder, _beside(folder, "another-", golden))]
        inside = [one for one in golden.files if one.path.startswith(f"{folder}/")]
        if inside:
            yield "folder: emptied", folder, [Remove(one.path) for one in inside]
        if any(one.data for one in inside):
            yield "folder: all files emptied", folder, [Write(one.path, b"") for one in inside]


def _entries_added(golden: GoldenFiles, dice: random.Random) -> Made:
    for folder in few(sorted(golden.arranged), dice):
        stray = _beside(f"{folder}/file.txt", "further-", golden)
        yield "folder: further file added", folder, [Write(stray, _STRAY)]
        inside = [one.path for one in golden.files if parent_of(one.path) == folder]
        for path in few(inside, dice):
            yield (
                "file: copied under another name",
                path,
                [Copy(path, _beside(path, "copy-of-", golden))],
            )


def _contents_exchanged(golden: GoldenFiles, dice: random.Random) -> Made:
    pairs = [
        (one, other)
        for number, one in enumerate(golden.files)
        for other in golden.files[number + 1 :]
        if one.data != other.data and _ending(one.path) == _ending(other.path)
    ]
    for one, other in few(pairs, dice):
        edits = [Write(one.path, other.data), Write(other.path, one.data)]
        yield "file: content exchanged with another file's", one.path, edits
    known = {**golden.kept, **golden.removed}
    others = [
        (file, path)
        for file in golden.files
        for path in known
        if _ending(path) == _ending(file.path) and known[path] not in (file.data, file.before)
    ]
    for file, path in few(others, dice):
        yield "file: content replaced by another file's", file.path, [Write(file.path, known[path])]


def _ending(path: str) -> str:
    name = path.rpartition("/")[2]
    return name.rpartition(".")[2].lower() if "." in name[1:] else ""


def _permissions_changed(golden: GoldenFiles, dice: random.Random) -> Made:
    """Yield other permissions of files of which the oracle changed nothing else, and of executable programs.

    Of other files no task says who may read and write them.
    """
    for file in few((one for one in golden.files if one.before == one.data), dice, 2):
        mode = golden.modes.get(file.path)
        others = {
            "all permissions given to everybody": _EVERYBODY,
            "permissions left to the owner only": _OWNER,
        }
        if mode is not None:
            others["permission to execute changed"] = mode ^ _EXECUTABLE
        for name, other in others.items():
            if other != mode:
                yield f"file: {name}", file.path, [Chmod(file.path, other)]
    programs = [one for one in golden.files if golden.modes.get(one.path, 0) & _EXECUTABLE]
    for file in few((one for one in programs if one.data.startswith(b"#!")), dice):
        plain = golden.modes[file.path] & ~_EXECUTABLE
        yield "file: permission to execute removed", file.path, [Chmod(file.path, plain)]


def _others_changed(golden: GoldenFiles, dice: random.Random) -> Made:
    """Yield the loss and change of other files: one beside a golden file, and one elsewhere."""
    parents = {parent_of(one.path) for one in golden.files}
    beside = [path for path in golden.kept if parent_of(path) in parents]
    elsewhere = [path for path in golden.kept if parent_of(path) not in parents]
    for path in [*few(beside, dice), *few(elsewhere, dice)]:
        data = golden.kept[path]
        if data:
            yield "other file: emptied", path, [Write(path, b"")]
        yield "other file: removed", path, [Remove(path)]
        yield "other file: renamed", path, [Move(path, _beside(path, "another-", golden))]
        yield "other file: appended to", path, [Write(path, data + _STRAY)]
        yield "other file: all permissions given to everybody", path, [Chmod(path, _EVERYBODY)]


def _others_removed(golden: GoldenFiles, dice: random.Random) -> Made:
    known = [*golden.kept, *(one.path for one in golden.files), *golden.made_folders]
    home = commonpath([parent_of(path) for path in known]) if known else "/"
    tops = dict.fromkeys(_child(home, path) for path in golden.kept if parent_of(path) != home)
    lost = [folder for folder in tops if not golden.has_golden_below(folder)]
    for folder in few(lost, dice):
        yield "other folder: removed", folder, [Remove(folder)]
    others: dict[str, list[Edit]] = {}
    for parent in dict.fromkeys(parent_of(one.path) for one in golden.files):
        inside = dict.fromkeys(_child(parent, path) for path in golden.kept if path.startswith(f"{parent}/"))
        others[parent] = [Remove(path) for path in inside if not golden.has_golden_below(path)]
    for folder in few((parent for parent, edits in others.items() if edits), dice):
        yield "folder: everything else removed", folder, others[folder]


def _child(folder: str, path: str) -> str:
    """Return the entry of a folder that a path is or lies in."""
    start = folder.rstrip("/")
    return f"{start}/{path[len(start) + 1 :].partition('/')[0]}"


_MAKERS: Iterable[Callable[[GoldenFiles, random.Random], Made]] = (
    _put_back,
    _moved,
    _folders_changed,
    _entries_added,
    _contents_exchanged,
    _permissions_changed,
    _others_changed,
    _others_removed,
)
