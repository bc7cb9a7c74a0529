"""Choice of the end states of a task: what its golden end consists of, and which variants of it are tried."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from osgym_certify.ends.base import End, GoldenFile, Must, Remove, Write
from osgym_certify.ends.content import contents
from osgym_certify.ends.files import file_ends
from osgym_certify.home import HOME, STATE_FILES, Listing, is_hidden, visible

MAX_KEPT = 16
MAX_KEPT_BYTES = 64 << 10
MAX_PROBES = 8
SETTINGS = f"{HOME}/.config"


@dataclass(frozen=True, slots=True)
class GoldenEnd:
    """Golden end of a task, as far as it lies in files.

    Attributes:
        files: Files that the oracle made or changed and the check is about.
        modes: Permissions of `files` by path.
        folders: Folders that the oracle made.
        removed: Contents of the files that the oracle removed, after the set-up, by path.
        kept: Contents of other small files of the home, which the task leaves as they are, by path.
        losses: Other paths of the home that must not be lost, by the name of the end state that loses them.
    """

    files: tuple[GoldenFile, ...]
    modes: Mapping[str, int] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    removed: Mapping[str, bytes] = field(default_factory=dict)
    kept: Mapping[str, bytes] = field(default_factory=dict)
    losses: Mapping[str, str] = field(default_factory=dict)


def ends_of(golden: GoldenEnd, dice: random.Random, most: int) -> list[End]:
    """Return the end states to try, at most this many, the same for the same generator state.

    If there are more, each name is kept once before any is kept twice, and equivalents before mutations.
    """
    found: list[End] = []
    before = [file.before for file in golden.files if file.before is not None]
    sources = [*golden.kept.values(), *golden.removed.values(), *before]
    for file in golden.files:
        for content in contents(file, dice, sources):
            edit = Write(file.path, content.data)
            found.append(End(content.name, file.path, content.must, (edit,)))
    found += file_ends(golden.files, golden.folders, golden.removed, golden.kept, golden.modes, dice)
    found += [End(name, path, Must.EARN_NOTHING, (Remove(path),)) for name, path in golden.losses.items()]
    return _limited(found, dice, most)


def losses(golden: Listing, files: Sequence[str]) -> dict[str, str]:
    """Return paths that no task asks to remove, by the name of the end state that removes them.

    Args:
        files: Paths of the golden files, which lie below none of them.
    """
    used = {folder for path in (*golden, *files) for folder in _folders_above(path)}
    asked = {folder for path in files for folder in _folders_above(path)}
    inside = [path for path in sorted(golden) if path.rpartition("/")[0] == HOME and path not in files]
    found = {
        "hidden file: removed": [p for p in inside if is_hidden(p) and golden[p].kind == "file"],
        "empty folder: removed": [p for p in visible(inside) if golden[p].kind == "folder" and p not in used],
        "settings of all programs: removed": [p for p in inside if p == SETTINGS and p not in asked],
    }
    return {name: paths[0] for name, paths in found.items() if paths}


def _folders_above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(2, len(parts))]


def kept_paths(before: Listing, golden: Listing) -> list[str]:
    """Return small visible files that the oracle left as they were, the first of each folder first."""
    same = [
        path
        for path in visible(golden)
        if golden[path].kind == "file"
        and golden[path].size <= MAX_KEPT_BYTES
        and before.get(path) == golden[path]
    ]
    folders: dict[str, int] = {}
    ranked = []
    for path in sorted(same):
        folder = path.rpartition("/")[0]
        folders[folder] = folders.get(folder, 0) + 1
        ranked.append((folders[folder], path))
    return [path for _, path in sorted(ranked)][:MAX_KEPT]


def worth_a_probe(hidden: Iterable[str], task: Mapping[str, Any]) -> list[str]:
    """Return the hidden files that the check may read: `STATE_FILES`, and those that it names."""
    text = json.dumps(task.get("evaluator", {}), ensure_ascii=False)
    named = (path for path in hidden if (name := path.rpartition("/")[2]) in STATE_FILES or name in text)
    return list(named)[:MAX_PROBES]


def _limited(ends: Sequence[End], dice: random.Random, most: int) -> list[End]:
    if len(ends) <= most:
        return list(ends)
    shuffled = dice.sample(list(ends), len(ends))
    ranks: dict[tuple[Must, str], int] = {}
    ranked = []
    for end in shuffled:
        key = end.must, end.name
        ranks[key] = ranks.get(key, 0) + 1
        ranked.append((ranks[key], end.must is Must.EARN_NOTHING, end))
    ranked.sort(key=lambda one: one[:2])
    chosen = {id(end) for *_, end in ranked[:most]}
    return [end for end in ends if id(end) in chosen]
