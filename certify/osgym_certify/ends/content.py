"""All other contents of a golden file: those of any file, and those of its kind."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from osgym_certify.ends import (
    archive,
    csv_table,
    database,
    document,
    ini,
    json_file,
    picture,
    slides,
    text,
    workbook,
)
from osgym_certify.ends.archive_files import read as read_archive
from osgym_certify.ends.base import Content, GoldenFile, Must, Variants, distinct
from osgym_certify.ends.bookkeeping import is_of_program
from osgym_certify.ends.draw import by_name
from osgym_certify.ends.lines import decode

MAX_DIVIDED_BYTES = 4 << 20
"""Largest file of which a part is changed. Larger ones are only changed as a whole, as they take long."""
_SETTINGS = (".ini", ".conf", ".cfg", ".desktop", ".directory", ".list", ".rc")
_TABLES = (".csv", ".tsv")


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of files.

    Attributes:
        name: Its name, with which the names of its contents begin.
        recognises: Function that says whether a file is of this kind.
        mutations: Functions that make wrong contents.
        equivalents: Functions that make right ones.
        ends_with_content: Whether readers see bytes after the file's own end, so that a doubled file differs.
        has_idle_bytes: Whether some bytes say nothing, so that one changed byte may be no change.
    """

    name: str
    recognises: Callable[[GoldenFile], bool]
    mutations: tuple[Variants, ...] = ()
    equivalents: tuple[Variants, ...] = ()
    ends_with_content: bool = False
    has_idle_bytes: bool = True


def kind_of(golden: GoldenFile) -> Kind:
    """Return the kind of a file, by its bytes and the ending of its name."""
    return next(kind for kind in KINDS if kind.recognises(golden))


def contents(golden: GoldenFile, dice: random.Random, sources: Collection[bytes] = ()) -> list[Content]:
    """Return other contents of a golden file, wrong and right ones, the same for the same generator state.

    Names begin with the kind of the file: ``text: one line removed``; those of any file with ``file``.

    Args:
        golden: The file.
        dice: Generator that draws places in it.
        sources: Contents of other files of the home, at the golden end and before. A golden file that equals
            one of them was moved or copied as it was, and only its own content is right.
    """
    kind, drawn = kind_of(golden), by_name(dice)
    made = [replace(one, name=f"file: {one.name}") for one in _of_any_file(golden, kind, drawn("file"))]
    if len(golden.data) <= MAX_DIVIDED_BYTES:
        was_there = golden.data == golden.before or golden.data in sources
        variants = (*kind.mutations, *(() if was_there else kind.equivalents))
        made += [
            replace(one, name=f"{kind.name}: {one.name}")
            for number, make in enumerate(variants)
            for one in make(golden, drawn(f"variants {number}"))
        ]
    return [one for one in distinct(golden, made) if one.data != golden.before]


def _of_any_file(golden: GoldenFile, kind: Kind, dice: random.Random) -> Iterator[Content]:
    data = golden.data
    changed = {
        "emptied": b"",
        "replaced by other bytes of the same size": dice.randbytes(len(data)),
    }
    if not (kind.name == "settings" and is_of_program(golden.path)):  # of which half may be all that is asked
        changed["cut off in the middle"] = data[: len(data.rstrip(b"\r\n")) // 2]
    if kind.ends_with_content:
        changed["doubled"] = data * 2
    if not kind.has_idle_bytes and data:
        place = dice.randrange(len(data))
        changed["one byte changed"] = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
    for name, content in changed.items():
        yield Content(name, Must.EARN_NOTHING, content)


def _ends_with(*endings: str) -> Callable[[GoldenFile], bool]:
    return lambda golden: golden.path.lower().endswith(endings)


def _is_office_file(*endings: str) -> Callable[[GoldenFile], bool]:
    named = _ends_with(*endings)
    return lambda golden: golden.data.startswith(b"PK") and named(golden)


def _is_settings(golden: GoldenFile) -> bool:
    named = _ends_with(*_SETTINGS)(golden) or is_of_program(golden.path)
    return named and ini.parse(golden) is not None


def _is_json(golden: GoldenFile) -> bool:
    named = golden.path.lower().endswith(".json") or is_of_program(golden.path) or golden.data[:1] == b"{"
    return named and json_file.read(golden) is not None


def _is_table(golden: GoldenFile) -> bool:
    return _ends_with(*_TABLES)(golden) and decode(golden.data) is not None


KINDS: tuple[Kind, ...] = (
    Kind(
        "workbook", _is_office_file(".xlsx", ".xlsm", ".ods"), (workbook.mutations,), (workbook.equivalents,)
    ),
    Kind(
        "document", _is_office_file(".docx", ".docm", ".odt"), (document.mutations,), (document.equivalents,)
    ),
    Kind("slides", _is_office_file(".pptx", ".pptm", ".odp"), (slides.mutations,), (slides.equivalents,)),
    Kind(
        "picture",
        lambda golden: picture.read(golden) is not None,
        (picture.mutations,),
        (picture.equivalents,),
    ),
    Kind(
        "archive",
        lambda golden: read_archive(golden.data) is not None,
        (archive.mutations,),
        (archive.equivalents,),
    ),
    Kind(
        "database",
        lambda golden: database.read(golden) is not None,
        (database.mutations,),
        (database.equivalents,),
    ),
    Kind("JSON", _is_json, (json_file.mutations,), (json_file.equivalents,), ends_with_content=True),
    Kind("settings", _is_settings, (ini.mutations,), (ini.equivalents,)),
    Kind(
        "table", _is_table, (text.mutations, csv_table.mutations), (text.equivalents,), ends_with_content=True
    ),
    Kind(
        "text",
        lambda golden: decode(golden.data) is not None,
        (text.mutations,),
        (text.equivalents,),
        ends_with_content=True,
    ),
    Kind("file", lambda golden: True, ends_with_content=True, has_idle_bytes=False),
)
"""Kinds of files, the first that recognises a file first. The last one recognises all."""
