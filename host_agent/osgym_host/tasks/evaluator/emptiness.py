"""Results that hold nothing, which some metrics find nothing wrong with.

Many of OSWorld's metrics look for a flaw, or compare as far as the shorter of two documents goes: an empty
document has no flaw and ends at once. A policy that empties its result has not done its task, so where a
metric gives such a result a score, the result is looked at once more, and scores 0 if it holds nothing.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from typing import Any

from osgym_host.tasks.evaluator.inputs import MAX_ZIP_MEMBER_BYTES, Argument, InputFile, Unreadable
from osgym_host.tasks.evaluator.metrics.documents import paragraphs

_CONTENT = (
    (
        re.compile(r"word/document\.xml"),
        re.compile(rb"<w:(?:t|drawing|pict|object)[ >]|<m:t[ >]"),
        "document",
    ),
    (re.compile(r"ppt/slides/slide\d+\.xml"), re.compile(rb""), "presentation"),
    (re.compile(r"xl/worksheets/sheet\d+\.xml"), re.compile(rb"<(?:\w+:)?(?:v|is|f)[ >]"), "workbook"),
)
"""Members of Office Open XML files, and what one of them has that holds anything."""
_WORKBOOK_STRUCTURE = re.compile(
    rb"<(?:\w+:)?(?:dataValidation|pane|drawing|conditionalFormatting|mergeCell|autoFilter|sparkline)[ >]"
    rb"|<(?:\w+:)?c (?:[^>]* )?s=\"0*[1-9]|<(?:\w+:)?sheetView [^>]*zoomScale=\"(?!100\")"
)
"""What a sheet without values may have by somebody's doing; a new one has none of it."""
_OPEN_DOCUMENT = "content.xml"
_OPEN_DOCUMENT_OBJECT = re.compile(rb"<draw:|<table:table-cell")
_NO_VALUES = frozenset({b"{}", b"[]", b"null", b'""'})
_IMAGE_STARTS = (b"\x89PNG", b"\xff\xd8", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"RIFF")
_MAX_PIXELS = 40_000_000


def why_nothing(result: Argument, expected: Argument) -> str:
    """Return why a result holds nothing though something is expected, empty if it holds something.

    Args:
        result: The metric's first argument; texts and JSON values are not looked at, since a command that
            prints nothing may say all.
        expected: Where it is a file that holds nothing either, nothing was expected.
    """
    given = _files(result)
    if not given:
        return ""
    wanted = _files(expected)
    reasons = [_nothing(file, compared=bool(wanted)) for file in given]
    if not all(reasons) or (wanted and all(_nothing(file, compared=True) for file in wanted)):
        return ""
    return f"{given[0].name} {reasons[0]}"


def _files(value: Argument) -> list[InputFile]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, InputFile)]


def _nothing(file: InputFile, *, compared: bool) -> str:
    """Return what makes a file hold nothing, empty if it holds something.

    A picture of one colour, ``{}``, or a workbook with a zoom, a rule for input or a colour but without
    values may be right where it is not compared with another file.
    """
    data = file.data()
    if not data.strip():
        return "is empty"
    if data.startswith(b"PK"):
        return _nothing_in_archive(file, compared=compared)
    if compared and data.strip() in _NO_VALUES:
        return "holds no value"
    if compared and data.startswith(_IMAGE_STARTS) and _is_one_colour(data):
        return "is a picture of one colour"
    return ""


def _nothing_in_archive(file: InputFile, *, compared: bool) -> str:
    try:
        archive = zipfile.ZipFile(io.BytesIO(file.data()))
        members: Mapping[str, zipfile.ZipInfo] = {member.filename: member for member in archive.infolist()}
        if not members:
            return "is an archive of nothing"
        for name, content, kind in _CONTENT:
            main = {"document": "word/document.xml", "presentation": "ppt/presentation.xml"}
            if main.get(kind, "xl/workbook.xml") in members:
                parts = [_read(archive, members[part]) for part in members if name.fullmatch(part)]
                found = any(content.search(part) for part in parts)
                if kind == "workbook" and not compared:
                    found = found or len(parts) > 1 or any(map(_WORKBOOK_STRUCTURE.search, parts))
                return "" if found else f"is a {kind} without content"
        if "mimetype" in members and _OPEN_DOCUMENT in members:
            found = bool(_OPEN_DOCUMENT_OBJECT.search(_read(archive, members[_OPEN_DOCUMENT])))
            found = found or any(text.strip() for text in paragraphs(file))
            return "" if found else "is a document without content"
    except (Unreadable, zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, OSError, RuntimeError):
        return ""  # the metric has read it, another way
    return ""


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    return archive.read(member) if member.file_size <= MAX_ZIP_MEMBER_BYTES else b"<w:t ><v >"


def _is_one_colour(data: bytes) -> bool:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > _MAX_PIXELS:
                return False
            extrema: Any = image.convert("RGB").getextrema()
    except Exception:  # noqa: BLE001 - the metric has read it, another way
        return False
    return all(low == high for low, high in extrema)
