"""Detection of empty results, which some metrics would accept.

Many of OSWorld's metrics look for flaws, or compare two documents up to the end of the shorter one. An empty
document has no flaws and ends at once, but a policy that empties its result has not done its task. Results
that a metric gives a score are therefore checked for content, and score 0 if they have none.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from typing import Any

from osgym_host.tasks.evaluator.inputs import MAX_ZIP_MEMBER_BYTES, Argument, InputFile, Unreadable

_CONTENT = (
    (
        re.compile(r"word/document\.xml"),
        re.compile(rb"<w:(?:t|drawing|pict|object)[ >]|<m:t[ >]"),
        "document",
    ),
    (re.compile(r"ppt/slides/slide\d+\.xml"), re.compile(rb""), "presentation"),
    (re.compile(r"xl/worksheets/sheet\d+\.xml"), re.compile(rb"<(?:\w+:)?(?:v|is|f)[ >]"), "workbook"),
)
"""Content members of Office Open XML files, a pattern that at least one has to match, and the file's kind."""
_WORKBOOK_STRUCTURE = re.compile(
    rb"<(?:\w+:)?(?:dataValidation|pane|drawing|conditionalFormatting|mergeCell|autoFilter|sparkline)[ >]"
    rb"|<(?:\w+:)?c (?:[^>]* )?s=\"0*[1-9]|<(?:\w+:)?sheetView [^>]*zoomScale=\"(?!100\")"
)
"""Settings that somebody made in a sheet without values; a new sheet has none of them."""
_OPEN_DOCUMENT = "content.xml"
_OPEN_DOCUMENT_OBJECT = re.compile(rb"<draw:|<table:table-cell")
_OPEN_DOCUMENT_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_OPEN_DOCUMENT_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_NO_VALUES = frozenset({b"{}", b"[]", b"null", b'""'})
_IMAGE_STARTS = (b"\x89PNG", b"\xff\xd8", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"RIFF")
_MAX_PIXELS = 40_000_000


def why_empty(result: Argument, expected: Argument) -> str:
    """Return why a result is empty though content is expected; an empty text if it has content.

    Args:
        result: First argument of the metric. Only files are checked: for a text or a JSON value, such as the
            output of a command, empty may be right.
        expected: Second argument of the metric. If its files are empty too, an empty result is right.
    """
    given = _files(result)
    if not given:
        return ""
    wanted = _files(expected)
    reasons = [_why_empty_file(file, compared=bool(wanted)) for file in given]
    if not all(reasons) or (wanted and all(_why_empty_file(file, compared=True) for file in wanted)):
        return ""
    return f"{given[0].name} {reasons[0]}"


def _files(value: Argument) -> list[InputFile]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, InputFile)]


def _why_empty_file(file: InputFile, *, compared: bool) -> str:
    """Return why a file is empty; an empty text if it has content.

    A picture of one colour, ``{}``, and a workbook with settings but no values count as empty only if they
    are compared with another file.
    """
    data = file.data()
    if not data.strip():
        return "is empty"
    if data.startswith(b"PK"):
        return _why_empty_archive(file, compared=compared)
    if compared and data.strip() in _NO_VALUES:
        return "holds no value"
    if compared and data.startswith(_IMAGE_STARTS) and _is_one_colour(data):
        return "is a picture of one colour"
    return ""


def _why_empty_archive(file: InputFile, *, compared: bool) -> str:
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
            found = found or _has_paragraph(file, archive)
            return "" if found else "is a document without content"
    except (Unreadable, zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, OSError, RuntimeError):
        return ""  # the metric could read it in its own way, so its score stands
    return ""


def _has_paragraph(file: InputFile, archive: zipfile.ZipFile) -> bool:
    root = file.xml(file.member(archive, _OPEN_DOCUMENT))
    tags = {f"{_OPEN_DOCUMENT_TEXT}p", f"{_OPEN_DOCUMENT_TEXT}h"}
    body = root.find(f"{_OPEN_DOCUMENT_OFFICE}body")
    elements = (root if body is None else body).iter()
    return any("".join(e.itertext()).strip() for e in elements if e.tag in tags)


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    return archive.read(member) if member.file_size <= MAX_ZIP_MEMBER_BYTES else b"<w:t ><v >"


def _is_one_colour(data: bytes) -> bool:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > _MAX_PIXELS:
                return False
            extrema: Any = image.convert("RGB").getextrema()
    except Exception:  # noqa: BLE001 - the metric could read it in its own way, so its score stands
        return False
    return all(low == high for low, high in extrema)
