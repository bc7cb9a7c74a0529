"""Scores of each metric for empty results, results of another task, and half of the right result."""

from __future__ import annotations

import io
import re
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx
import pytest
from openpyxl.styles import PatternFill
from openpyxl.worksheet.datavalidation import DataValidation
from PIL import Image
from tests.integration.test_tasks_blame import expected_of

from osgym_host.tasks.control import control_files
from osgym_host.tasks.evaluator.emptiness import why_empty
from osgym_host.tasks.evaluator.inputs import InputFile, TaskObject
from osgym_host.tasks.evaluator.registry import METRICS
from osgym_host.tasks.evaluator.run import scored
from osgym_host.tasks.values import Value

PAGE = Path(__file__).parents[2] / "docs" / "design" / "scoring.md"
NEED_A_PROGRAM = {"check_by_verifier", "check_python_file_by_test_suite"}
"""Metrics that run in the confined evaluator only (`test_tasks_programs.py`, `test_tasks_verifiers.py`)."""
pytestmark = pytest.mark.filterwarnings("ignore")


def _saved(save: Callable[[Any], object]) -> bytes:
    buffer = io.BytesIO()
    save(buffer)
    return buffer.getvalue()


def _picture(colour: str, size: tuple[int, int] = (64, 48)) -> Image.Image:
    return Image.new("RGB", size, colour)


def _archive(**members: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return buffer.getvalue()


@cache
def empty_files() -> dict[str, bytes]:
    """Return empty files by kind."""
    return {
        "no bytes": b"",
        "a blank line": b" \n",
        "an empty document": _saved(docx.Document().save),
        "an empty workbook": _saved(openpyxl.Workbook().save),
        "an empty presentation": _saved(pptx.Presentation().save),
        "an empty archive": _archive(),
    }


PLAIN: dict[str, bytes] = {
    "a white picture": _saved(lambda to: _picture("white").save(to, "PNG")),
    "a black picture": _saved(lambda to: _picture("black").save(to, "PNG")),
    "a dot": _saved(lambda to: _picture("red", (1, 1)).save(to, "PNG")),
    "no values": b"{}",
    "no items": b"[]",
    "null": b"null",
}
"""Files that hold nothing beside one that does."""


@cache
def full_files() -> dict[str, bytes]:
    """Return a file with content of each kind."""
    document, deck, book = docx.Document(), pptx.Presentation(), openpyxl.Workbook()
    for text in ("Hello world", "two", "three"):
        run = document.add_paragraph().add_run(text)
        run.font.name, run.font.subscript, run.font.strike = "Arial", True, True
    document.add_table(2, 2).cell(0, 0).text = "x"
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text, slide.placeholders[1].text = "Hello", "body"
    assert book.active is not None
    book.active["A1"], book.active["B2"] = "x", 3
    image = _picture("white")
    for at in range(30):
        image.putpixel((at + 2, at), (at * 8, 0, 0))
    controls = {name.removeprefix("control."): data for name, data in control_files().items()}
    return {
        **{kind: controls[kind] for kind in ("pdf", "wav", "mp3", "sqlite", "odt")},
        "docx": _saved(document.save),
        "pptx": _saved(deck.save),
        "xlsx": _saved(book.save),
        "png": _saved(lambda to: image.save(to, "PNG")),
        "txt": b"hello\nworld\n",
        "json": b'{"a": 1, "b": [1, 2]}',
        "xml": b"<a><b c='1'>x</b></a>",
        "zip": _archive(**{"a.txt": "hello"}),
    }


def _file(data: bytes, role: str) -> InputFile:
    return InputFile(-1, "f", role, data)


def said(func: str, result: bytes, expected: bytes | object) -> float:
    """Return the score; 0 for an unreadable result, as on the host."""
    wanted = _file(expected, "expected") if isinstance(expected, bytes) else TaskObject.of(expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return scored(METRICS[func], _file(result, "result"), wanted, {}).score
        except Exception:  # noqa: BLE001 - the host finds out whose fault it is; it is no score
            return 0.0


def _rules(func: str) -> object | None:
    """Return the rules that a metric reads; None for a metric that compares files."""
    given = expected_of(func, Value(files=()))
    return given.data


def _tested() -> list[str]:
    return sorted(
        name
        for name, kind in METRICS.items()
        if name not in NEED_A_PROGRAM
        and not kind.accepts_empty
        and kind.takes_result
        and not kind.unsupported({})
    )


@pytest.mark.parametrize("func", _tested())
def test_nothing_earns_nothing(func: str) -> None:
    """An empty result scores 0 for all metrics except those that compare whole texts."""
    rules = _rules(func)
    if rules is not None:
        found = {name: said(func, data, rules) for name, data in empty_files().items()}
    else:
        found = {
            f"{name} for {kind}": said(func, data, expected)
            for name, data in {**empty_files(), **PLAIN}.items()
            for kind, expected in full_files().items()
        }
    assert {name: score for name, score in found.items() if score > 0} == {}


def test_what_holds_nothing_may_be_expected() -> None:
    """An empty file is right where an empty one is expected, or where its whole text is compared."""
    for name, data in empty_files().items():
        if name in {"no bytes", "a blank line"}:
            assert said("compare_text_file", data, data) == 1
    assert (
        said("compare_docx_files", empty_files()["an empty document"], empty_files()["an empty document"])
        == 1
    )
    assert said("compare_config", b"", {"expected": ""}) == 1
    assert said("check_json", b"{}", {"unexpect": [{"key": ["a"], "method": "eq", "ref": 1}]}) == 1


def _odt(body: str) -> bytes:
    """Return an OpenDocument text with a ``body`` in LibreOffice's form."""
    spaces = "".join(
        f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "text", "draw")
    )
    content = f"<office:document-content{spaces}><office:body><office:text>{body}</office:text></office:body>"
    members = {"mimetype": "application/vnd.oasis.opendocument.text"}
    return _archive(**members, **{"content.xml": f"{content}</office:document-content>"})


FORMATTED = {
    "bold": '<text:p text:style-name="P1"><text:span text:style-name="T1">a text</text:span></text:p>',
    "heading": '<text:h text:style-name="P1" text:outline-level="1"><text:span>a text</text:span></text:h>',
    "link": '<text:p><text:a text:name="x">a text</text:a></text:p>',
}


@pytest.mark.parametrize("kind", FORMATTED)
def test_formatted_text_is_content(kind: str) -> None:
    """LibreOffice puts text that has a format of its own into spans, and headings into another element."""
    expected = docx.Document()
    expected.add_paragraph("a text")
    assert said("compare_docx_files", _odt(FORMATTED[kind]), _saved(expected.save)) == 1
    assert said("compare_docx_files", _odt("<text:p> </text:p>"), _saved(expected.save)) == 0


def test_text_documents_without_text_hold_nothing() -> None:
    """Empty paragraphs, blanks and the declarations that every document has are no content."""
    declared = '<text:sequence-decls><text:sequence-decl text:name="Table"/></text:sequence-decls>'
    for body in ("", declared + "<text:p/>", '<text:p><text:span> </text:span><text:s text:c="3"/></text:p>'):
        result, empty = _file(_odt(body), "result"), TaskObject({"rules": []})
        assert "without content" in why_empty(result, empty)
    assert why_empty(_file(_odt("<text:p><draw:frame/></text:p>"), "result"), None) == ""


def _workbook(change: Callable[[Any], object]) -> bytes:
    book = openpyxl.Workbook()
    change(book)
    return _saved(book.save)


def _colour(book: Any) -> None:
    book.active["B2"].fill = PatternFill("solid", fgColor="FF0000")


def _validate(book: Any) -> None:
    rule = DataValidation(type="list", formula1='"a,b"')
    rule.add("A1:A3")
    book.active.add_data_validation(rule)


STRUCTURES: dict[str, tuple[Callable[[Any], object], dict[str, Any]]] = {
    "zoom": (
        lambda book: setattr(book.active.sheet_view, "zoomScale", 150),
        {"type": "zoom", "sheet_idx": 0, "method": "eq", "ref": 150},
    ),
    "validation": (
        _validate,
        {"type": "data_validation", "sheet_idx": 0, "dv_props": [{"type": {"method": "eq", "ref": "list"}}]},
    ),
    "colour": (
        _colour,
        {
            "type": "check_cell",
            "sheet_idx": 0,
            "coordinate": "B2",
            "props": {"bgcolor": {"ref": "00FF0000", "method": "eq"}},
        },
    ),
}


@pytest.mark.parametrize("what", STRUCTURES)
def test_an_empty_workbook_may_have_the_structure_that_is_asked_for(what: str) -> None:
    """Without an expected file a rule may ask for settings without values; a new workbook is still empty."""
    change, rule = STRUCTURES[what]
    result, metric = _workbook(change), METRICS["compare_table"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert scored(metric, _file(result, "result"), None, {"rules": [rule]}).score == 1
        expected = _file(full_files()["xlsx"], "expected")
        assert scored(metric, _file(result, "result"), expected, {"rules": [rule]}).score == 0
    untouched = _file(_workbook(lambda book: None), "result")
    assert "without content" in why_empty(untouched, None)


@pytest.mark.parametrize("text", ["", "a"])
def test_nothing_is_no_part_of_a_text(text: str) -> None:
    """The empty text, which OSWorld finds in every string, scores 0; a real part of the text scores 1."""
    score = scored(METRICS["match_in_list"], text, TaskObject({"expected": "abc"}), {}).score
    assert score == (1 if text else 0)


def test_lines_that_are_missing_are_missed() -> None:
    """Missing paragraphs with text score 0; empty ones do not matter."""

    def of(*texts: str) -> bytes:
        document = docx.Document()
        for text in texts:
            document.add_paragraph(text)
        return _saved(document.save)

    assert said("compare_init_lines", of("a", "b"), of("a", "b", "c")) == 0
    assert said("compare_init_lines", of("a", "b"), of("a", "b", "")) == 1
    assert said("compare_init_lines", of("a", "b", "c"), of("a", "b")) == 1


def _by_table() -> tuple[set[str], set[str]]:
    """Return the metrics that score another task's file, and those that score half a file."""
    foreign, half = set(), set()
    others = {**full_files(), **{f"other {name}": data for name, data in control_files().items()}}
    for func in _tested():
        if _rules(func) is not None:
            continue
        for expected in full_files().values():
            if said(func, expected, expected) < 1:
                continue
            trials = [data for data in others.values() if data != expected and not _alike(data, expected)]
            if any(said(func, data, expected) > 0.5 for data in trials):
                foreign.add(func)
            if said(func, expected[: len(expected) // 2], expected) > 0.5:
                half.add(func)
    return foreign, half


def _alike(data: bytes, expected: bytes) -> bool:
    """Return whether a metric of texts rightly takes both for the same."""
    return data.split() == expected.split()


def test_the_page_names_what_is_believed_of_other_files() -> None:
    """`docs/design/scoring.md` has a row for each metric that a foreign or a truncated file satisfies."""
    rows = re.findall(r"^\| `(\w+)` \| (yes|no) \| (yes|no) \| .+ \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    foreign, half = _by_table()
    named = {name: (is_foreign == "yes", is_half == "yes") for name, is_foreign, is_half in rows}
    assert named == {name: (name in foreign, name in half) for name in sorted(foreign | half)}
