"""Metrics over parts of files: members of archives, an e-book's parts, tables of a database.

Everything is read in memory: nothing is unpacked to a disk, and each member, their number and their sum are
bounded before anything is compared.
"""

from __future__ import annotations

import bz2
import difflib
import gzip
import io
import lzma
import posixpath
import re
import tarfile
import zipfile
from collections.abc import Mapping
from typing import IO, Any

from osgym_host.tasks.metric_plugin import (
    MAX_ZIP_ENTRIES,
    MAX_ZIP_MEMBER_BYTES,
    MAX_ZIP_TOTAL_BYTES,
    METRICS,
    Argument,
    InputFile,
    Score,
    Unreadable,
    as_file,
    differ,
    is_installed,
    metric,
    reader,
    rules_of,
)
from osgym_osworld.packages import needs

MAX_SQL_STEPS = 100_000_000
"""Instructions of SQLite's machine for one query."""
MAX_BOOK_LINES = 20_000
_COMPARED_BY = {
    "text": "compare_text_file",
    "pdf": "compare_pdfs",
    "docx": "compare_docx_files",
    "ppt": "compare_pptx_files",
    "image": "compare_images",
    "csv": "compare_csv",
    "table": "compare_table",
    "audio": "compare_audios",
    "video": "compare_videos",
}
"""OSWorld's ``file_type`` of an archive's members, and the metric that compares them."""
_COMPRESSED = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open))
_STEPS_AT_ONCE = 1_000_000


def _uncomparable(options: Mapping[str, Any]) -> list[str]:
    kind = options.get("file_type", "text")
    if not isinstance(kind, str) or kind not in _COMPARED_BY:
        return [f"file_type {str(kind)[:40]}"]
    return METRICS[_COMPARED_BY[kind]].unsupported({})


@metric(unsupported=_uncomparable)
def compare_archive(
    result: Argument, expected: Argument, file_path: str = "", file_type: str = "text"
) -> Score:
    """Two archives (zip, tar, also compressed) have the same names in ``file_path``; how alike the files are.

    Each pair is scored by the metric of its ``file_type``; a damaged file counts 0. The mean is the score.
    """
    got, wanted = (_folder(as_file(v, r), file_path) for v, r in ((result, "result"), (expected, "expected")))
    if not wanted:
        raise Unreadable("expected", f"nothing is in {file_path or 'the archive'!r}")
    if got.keys() != wanted.keys():
        return differ("the files", sorted(got), sorted(wanted))
    compare, total, notes = METRICS[_COMPARED_BY[file_type]].function, 0.0, []
    for name in sorted(wanted):
        inner, other = got[name], wanted[name]
        if other is None:
            raise Unreadable("expected", f"{name} is a folder")
        try:
            found = compare(inner, other) if inner is not None else Score(0.0, "a folder")
        except Unreadable as error:
            if error.role != "result":
                raise
            found = Score(0.0, str(error))
        score = found if isinstance(found, Score) else Score(float(found))
        total += score.score
        if score.score < 1:
            notes.append(f"{name}: {score.score:.4f} {score.note[:100]}")
    return Score(total / len(wanted), "; ".join(notes))


def _folder(file: InputFile, folder: str) -> dict[str, InputFile | None]:
    """Return the members directly in a folder of an archive, by name; None stands for a folder."""
    prefix = posixpath.normpath(folder) + "/" if folder.strip("./") else ""
    found: dict[str, InputFile | None] = {}
    for path, data in _members(file).items():
        name, below, _ = path.removeprefix(prefix).partition("/")
        if path.startswith(prefix) and name:
            found[name] = None if below or data is None else InputFile(-1, name, file.role, data)
    return found


@reader
def _members(file: InputFile) -> dict[str, bytes | None]:
    """Return the members of an archive by path; None for a folder. Links and devices are left out.

    Raises:
        Unreadable: It is none, damaged, or too large when unpacked.
    """
    if zipfile.is_zipfile(io.BytesIO(file.data())):
        archive = file.zip()
        return {
            _path(name): None if name.endswith("/") else file.member(archive, name)
            for name in archive.namelist()
        }
    found: dict[str, bytes | None] = {}
    total = 0
    with tarfile.open(fileobj=io.BytesIO(_uncompressed(file)), mode="r:") as tar:
        for count, entry in enumerate(tar, 1):
            if count > MAX_ZIP_ENTRIES:
                raise file.bad(f"it has more than {MAX_ZIP_ENTRIES} members")
            if entry.isdir():
                found[_path(entry.name)] = None
            elif entry.isfile():
                total += entry.size
                if entry.size > MAX_ZIP_MEMBER_BYTES or total > MAX_ZIP_TOTAL_BYTES:
                    raise file.bad("too large when unpacked")
                content: IO[bytes] | None = tar.extractfile(entry)
                found[_path(entry.name)] = b"" if content is None else content.read(entry.size)
    return found


def _path(name: str) -> str:
    """Return a member's path without the parts that lead out of the archive."""
    return posixpath.normpath("/" + name).lstrip("/")


def _uncompressed(file: InputFile) -> bytes:
    data = file.data()
    for magic, opened in _COMPRESSED:
        if data.startswith(magic):
            with opened(io.BytesIO(data), "rb") as stream:
                plain = stream.read(MAX_ZIP_TOTAL_BYTES + 1)
            if len(plain) > MAX_ZIP_TOTAL_BYTES:
                raise file.bad("too large when unpacked")
            return bytes(plain)
    return data


@metric(unsupported=needs("lxml"))
def compare_epub(result: Argument, expected: Argument) -> Score:
    """Mean similarity of the lines of two e-books' tables of contents, descriptions and pages.

    What is made anew for each copy (identifiers, points of the table of contents) does not count.
    """
    got, wanted = (_book(as_file(v, r)) for v, r in ((result, "result"), (expected, "expected")))
    if not wanted:
        raise Unreadable("expected", "the e-book has no pages")
    if not got:
        return Score(0.0, "the e-book has no pages")
    scores = [
        difflib.SequenceMatcher(a=a, b=b).ratio()
        for (_, a), (_, b) in zip(sorted(got.items()), sorted(wanted.items()), strict=False)
    ]
    return Score(sum(scores) / len(got), f"{len(got)} parts, {len(wanted)} expected")


@reader
def _book(file: InputFile) -> dict[str, list[str]]:
    """Return the lines of an e-book's parts by name.

    Raises:
        Unreadable: It is none, or has more than 20,000 lines.
    """
    archive = file.zip()
    parts: dict[str, list[str]] = {}
    for name in archive.namelist():
        if name in _VOLATILE:
            text = file.member(archive, name).decode()
            parts[name] = [line for line in text.splitlines() if _VOLATILE[name] not in line]
        elif name.endswith(".html"):
            parts[name] = _page(file.member(archive, name).decode())
    if sum(map(len, parts.values())) > MAX_BOOK_LINES:
        raise file.bad(f"it has more than {MAX_BOOK_LINES} lines")
    return parts


_VOLATILE = {"toc.ncx": "navPoint", "content.opf": "dc:identifier"}
"""Parts of an e-book, and what stands in lines that differ from copy to copy."""


def _page(text: str) -> list[str]:
    import lxml.html

    tree = lxml.html.fromstring(text.replace("\n", "").replace("\r", "").encode())
    return str(lxml.html.tostring(tree, pretty_print=True, encoding="unicode")).splitlines()


_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_CALL = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\s*\(")


@metric()
def run_sqlite3(result: Argument, expected: Argument) -> Score:
    """The first value that the query ``sql`` gives on an SQLite file, 0 to 1; 0 when it gives none."""
    query = str(rules_of(expected)["sql"])
    value = _first_value(as_file(result, "result"), query)
    try:
        return Score(float(value or 0), f"the query gives {value!r}")
    except (TypeError, ValueError):
        return Score(0.0, f"the query gives no number: {str(value)[:80]!r}")


def _first_value(file: InputFile, query: str) -> Any:
    """Return the first value of a query's result.

    Raises:
        Unreadable: The query failed. Its role is `expected` if the query is wrong on every database; else it
            is `result`, whose views or schema may call missing functions or be malformed.
    """
    import sqlite3

    from osgym_osworld.browser.readers import open_database

    if why := _fault_of_query(query):
        raise Unreadable("expected", f"the query is wrong: {why}")
    with open_database(file) as connection:
        steps = iter(range(MAX_SQL_STEPS // _STEPS_AT_ONCE))
        connection.set_progress_handler(lambda: next(steps, None) is None, _STEPS_AT_ONCE)
        try:
            row = connection.execute(query).fetchone()
        except sqlite3.Error as error:
            if _calls(query, str(error)):
                raise Unreadable("expected", f"the query is wrong: {error}") from error
            raise file.bad(f"the query fails: {error}") from error
    return None if row is None else row[0]


def _fault_of_query(query: str) -> str:
    """Return why a query is wrong on every database; an empty text if it may be right."""
    import sqlite3

    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(f"EXPLAIN {query}")
    except (sqlite3.Error, sqlite3.Warning) as error:
        ours = ("no such table", "no such column")
        return "" if any(word in str(error) for word in ours) else str(error)
    finally:
        connection.close()
    return ""


def _calls(query: str, error: str) -> bool:
    """Return whether the query itself calls the function that an error says is missing."""
    name = error.partition("no such function: ")[2].lower()
    return bool(name) and name in {word.lower() for word in _CALL.findall(_QUOTED.sub("''", query))}


def warm_up() -> None:
    import sqlite3

    sqlite3.connect(":memory:").close()
    for mode in ("w:gz", "w:bz2", "w:xz"):
        with tarfile.open(fileobj=io.BytesIO(), mode=mode) as tar:
            tar.addfile(tarfile.TarInfo("a"))
    if is_installed("lxml"):
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            archive.writestr("a.html", "<p>a")
        book = InputFile(-1, "a.epub", "result", written.getvalue())
        assert compare_epub(book, book).score == 1
