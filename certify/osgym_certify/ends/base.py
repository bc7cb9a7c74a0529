"""End states as data: what a certificate writes into a desktop, and the score that it then must earn."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

MAX_FILE_BYTES = 16 << 20
"""Largest file that a mutation is made of: the SDK writes no larger one into a desktop."""


class Must(StrEnum):
    """Score that an end state must earn."""

    EARN_NOTHING = "0"
    """A mutation, which is not what the task asks for."""
    EARN_ALL = "1"
    """An equivalent, which is as good as the golden end."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write a whole file; a file that exists keeps its permissions."""

    path: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a file, or a folder with all below it."""

    path: str


@dataclass(frozen=True, slots=True)
class Move:
    """Rename a file or folder; the folder of the new name is made."""

    path: str
    to: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy a file, or a folder with all below it; the folder of the copy is made."""

    path: str
    to: str


@dataclass(frozen=True, slots=True)
class Chmod:
    """Set the permissions of a file or folder."""

    path: str
    mode: int


Edit = Write | Remove | Move | Copy | Chmod


def paths_of(edit: Edit) -> tuple[str, ...]:
    """Return the absolute paths that an edit changes, in the order in which it changes them."""
    match edit:
        case Move():
            return (edit.path, edit.to)
        case Copy():
            return (edit.to,)
        case Write() | Remove() | Chmod():
            return (edit.path,)
        case _:
            assert_never(edit)


@dataclass(frozen=True, slots=True)
class GoldenFile:
    """A file that the oracle made or changed.

    Attributes:
        path: Absolute path in the desktop.
        data: Content at the golden end.
        before: Content after the set-up; None if the oracle made the file.
    """

    path: str
    data: bytes = field(repr=False)
    before: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Content:
    """Another content of a golden file.

    Attributes:
        name: What was done to it, as a passive clause that is the same for every file: ``emptied``,
            ``one row removed``. Reports count causes by it.
    """

    name: str
    must: Must
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class End:
    """An end state: edits of the golden end, and the score that it must earn.

    Attributes:
        name: What was done, the same for every task: ``document: all text bold``. Reports count causes by it,
            and `allows` of a task names it.
        about: Path or value that it was done to.
    """

    name: str
    about: str
    must: Must
    edits: tuple[Edit, ...]


Variants = Callable[[GoldenFile, random.Random], Iterable[Content]]
"""Function from a golden file to other contents of it. It yields nothing for a file that it cannot read, and
never a content equal to the golden one. It may draw: the same generator state gives the same contents."""


def distinct(golden: GoldenFile, contents: Iterable[Content]) -> list[Content]:
    """Return the contents that differ from the golden file and from each other, the first of each kept."""
    seen: dict[bytes, Content] = {}
    for content in contents:
        if content.data != golden.data and len(content.data) <= MAX_FILE_BYTES:
            seen.setdefault(content.data, content)
    return list(seen.values())


def parent_of(path: str) -> str:
    """Return the folder of an absolute path."""
    return path.rpartition("/")[0] or "/"


Files = Mapping[str, bytes]
"""Contents of files by absolute path."""
