"""Metrics over the text of documents and slides: docx, odt, pptx, odp, plain text."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from typing import Any
from xml.etree.ElementTree import Element

from osgym_host.tasks.metric_plugin import (
    Argument,
    InputFile,
    Score,
    as_file,
    differ,
    metric,
    reader,
    rules_of,
    similarity,
)

MAX_DEPTH = 100
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_DRAW = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_PRESENTATION = "{urn:oasis:names:tc:opendocument:xmlns:presentation:1.0}"


@reader
def paragraphs(file: InputFile) -> list[str]:
    """Return the paragraphs of a document in order, empty ones too.

    Raises:
        Unreadable: corrupt, a bomb, or of another kind.
    """
    if not zipfile.is_zipfile(io.BytesIO(file.data())):
        return file.text().splitlines()
    archive = file.zip()
    names = set(archive.namelist())
    if "word/document.xml" in names:
        root = file.xml(file.member(archive, "word/document.xml"))
        return ["".join(_word_text(p)) for p in root.iter(f"{_W}p")]
    if "content.xml" in names:
        root = file.xml(file.member(archive, "content.xml"))
        body = root.find(f"{_OFFICE}body")
        tags = {f"{_TEXT}p", f"{_TEXT}h"}
        elements = (body if body is not None else root).iter()
        return ["".join(_odf_text(e, file)) for e in elements if e.tag in tags]
    raise file.bad("neither docx nor odt nor text")


@reader
def body_paragraphs(file: InputFile) -> list[str]:
    """Return the paragraphs that OSWorld compares: those of a docx without tables and text boxes.

    Raises:
        Unreadable: corrupt, a bomb, or of another kind.
    """
    if not zipfile.is_zipfile(io.BytesIO(file.data())):
        return paragraphs(file)
    archive = file.zip()
    if "word/document.xml" not in archive.namelist():
        return paragraphs(file)
    root = file.xml(file.member(archive, "word/document.xml"))
    return ["".join(_run_texts(paragraph)) for paragraph in root.iterfind(f"{_W}body/{_W}p")]


def _run_texts(paragraph: Element) -> Iterator[str]:
    """Yield the text of a paragraph's runs and links as python-docx reads it: only line breaks count."""
    for child in paragraph:
        if child.tag == f"{_W}hyperlink":
            yield from _run_texts(child)
        for element in child if child.tag == f"{_W}r" else ():
            if element.tag == f"{_W}t":
                yield element.text or ""
            elif element.tag in {f"{_W}tab", f"{_W}ptab"}:
                yield "\t"
            elif element.tag == f"{_W}noBreakHyphen":
                yield "-"
            elif element.tag == f"{_W}cr" or (
                element.tag == f"{_W}br" and element.get(f"{_W}type", "textWrapping") == "textWrapping"
            ):
                yield "\n"


def _word_text(paragraph: Element) -> list[str]:
    parts: list[str] = []
    for element in paragraph.iter():
        if element.tag == f"{_W}t":
            parts.append(element.text or "")
        elif element.tag == f"{_W}tab":
            parts.append("\t")
        elif element.tag in {f"{_W}br", f"{_W}cr"}:
            parts.append("\n")
    return parts


def _odf_text(element: Element, file: InputFile, depth: int = 0) -> list[str]:
    if depth > MAX_DEPTH:
        raise file.bad("nested too deeply")
    parts = [element.text or ""]
    for child in element:
        if child.tag == f"{_TEXT}s":
            count = child.get(f"{_TEXT}c", "1")
            parts.append(" " * min(int(count) if count.isdigit() else 1, 1000))
        elif child.tag == f"{_TEXT}tab":
            parts.append("\t")
        elif child.tag == f"{_TEXT}line-break":
            parts.append("\n")
        elif child.tag not in {f"{_TEXT}p", f"{_TEXT}h", f"{_OFFICE}annotation"}:
            parts.extend(_odf_text(child, file, depth + 1))
        parts.append(child.tail or "")
    return parts


@metric()
def compare_docx_files(
    result: Argument,
    expected: Argument,
    ignore_blanks: bool = True,
    ignore_case: bool = False,
    ignore_order: bool = False,
    delete_empty_lines: bool = False,
    content_only: bool = False,
    fuzzy_match: bool = False,
) -> Score:
    """Two documents (docx or odt) have the same text.

    With ``fuzzy_match`` or ``content_only``: how alike they are, in the mean of the paragraphs where blanks
    count, else as a whole.
    """
    if content_only:
        ignore_blanks = fuzzy_match = True

    def normal(file: InputFile) -> list[str]:
        rows = body_paragraphs(file)
        if delete_empty_lines:
            rows = [row for row in rows if row.strip()]
        if ignore_case:
            rows = [row.lower() for row in rows]
        if ignore_order:
            rows = sorted(rows)
        return [re.sub(r"\s+", " ", "\n".join(rows)).strip()] if ignore_blanks else rows

    got, wanted = normal(as_file(result, "result")), normal(as_file(expected, "expected"))
    if fuzzy_match and len(got) == len(wanted) and got:
        alike = (similarity(a, b) for a, b in zip(got, wanted, strict=True))
        return Score(sum(alike) / len(got))
    return Score(1.0) if got == wanted else differ("the text", got, wanted)


@metric()
def compare_docx_files_and_ignore_new_lines(
    result: Argument, expected: Argument, ignore_blanks: bool = True
) -> Score:
    """Two documents have the same text; empty paragraphs do not count."""
    return compare_docx_files(result, expected, ignore_blanks=ignore_blanks, delete_empty_lines=True)


@metric()
def check_document_text(result: Argument, expected: Argument) -> Score:
    """A document's text: ``paragraphs`` (all that are not empty, in order), ``include``, ``exclude``."""
    rules = rules_of(expected)
    rows = [row.strip() for row in paragraphs(as_file(result, "result")) if row.strip()]
    if "paragraphs" in rules and rows != rules["paragraphs"]:
        return differ("the paragraphs", rows, rules["paragraphs"])
    return _include_exclude("\n".join(rows), rules)


def _include_exclude(text: str, rules: dict[str, Any]) -> Score:
    for wanted in rules.get("include", []):
        if wanted not in text:
            return Score(0.0, f"{wanted!r} is not in the text")
    for unwanted in rules.get("exclude", []):
        if unwanted in text:
            return Score(0.0, f"{unwanted!r} is in the text")
    return Score(1.0)


@reader
def slides(file: InputFile) -> list[list[str]]:
    """Return the text of each slide, paragraph by paragraph, without notes and empty paragraphs.

    Raises:
        Unreadable: corrupt, a bomb, or of another kind.
    """
    archive = file.zip()
    names = archive.namelist()
    found = {int(m[1]): n for n in names if (m := re.fullmatch(r"ppt/slides/slide(\d{1,5})\.xml", n))}
    if "ppt/presentation.xml" in names:
        return [
            _texts(file.xml(file.member(archive, name)), f"{_A}p", _runs)
            for name in (found[i] for i in _slide_order(file, archive, found))
        ]
    if "content.xml" in names:
        root = file.xml(file.member(archive, "content.xml"))
        pages = list(root.iter(f"{_DRAW}page"))
        for page in pages:
            for notes in page.findall(f"{_PRESENTATION}notes"):
                page.remove(notes)
        return [_texts(page, f"{_TEXT}p", lambda p: "".join(_odf_text(p, file))) for page in pages]
    raise file.bad("neither pptx nor odp")


def _slide_order(file: InputFile, archive: zipfile.ZipFile, found: dict[int, str]) -> list[int]:
    """Return slides in the order they are shown, which need not be that of their file names."""
    relations = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
    targets = {
        r.get("Id"): r.get("Target", "")
        for r in file.xml(file.member(archive, "ppt/_rels/presentation.xml.rels"))
    }
    order: list[int] = []
    main = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
    for entry in file.xml(file.member(archive, "ppt/presentation.xml")).iter(f"{main}sldId"):
        match = re.search(r"slides/slide(\d{1,5})\.xml$", targets.get(entry.get(relations), ""))
        if match and int(match[1]) in found:
            order.append(int(match[1]))
    return order


def _runs(paragraph: Element) -> str:
    return "".join(
        (e.text or "") if e.tag == f"{_A}t" else "\n"
        for e in paragraph.iter()
        if e.tag in {f"{_A}t", f"{_A}br"}
    )


def _texts(root: Element, tag: str, read: Any) -> list[str]:
    rows = [read(p).strip() for p in root.iter(tag)]
    return [row for row in rows if row]


@metric()
def check_slides_text(result: Argument, expected: Argument) -> Score:
    """Slides: ``count``, ``slides`` (all paragraphs of all slides), ``include`` and ``exclude``."""
    rules, found = rules_of(expected), slides(as_file(result, "result"))
    if "count" in rules and len(found) != rules["count"]:
        return differ("the number of slides", len(found), rules["count"])
    if "slides" in rules and found != rules["slides"]:
        return differ("the slides", found, rules["slides"])
    return _include_exclude("\n".join(row for rows in found for row in rows), rules)
