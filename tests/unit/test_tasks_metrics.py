"""Metrics on files made here: what earns 1, what earns 0, what is refused."""

from __future__ import annotations

import base64
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from osgym_host.tasks.evaluator.inputs import InputFile, Unreadable
from osgym_host.tasks.evaluator.metrics.text import similarity
from osgym_host.tasks.evaluator.registry import METRICS, Score

File = Callable[..., InputFile]


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """Makes an `InputFile` from bytes or text."""
    fds: list[int] = []

    def make(data: bytes | str, role: str = "result", name: str = "f") -> InputFile:
        path = tmp_path / str(len(fds))
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        fds.append(os.open(path, os.O_RDONLY))
        return InputFile(fds[-1], name, role)

    yield make
    for fd in fds:
        os.close(fd)


def score(name: str, result: object, expected: object = None, **options: object) -> float:
    """The score of one metric."""
    value = METRICS[name].function(result, expected, **options)
    return value.score if isinstance(value, Score) else float(value)


def zipped(members: dict[str, str | bytes]) -> bytes:
    """A zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def xlsx(cells: dict[str, object], title: str = "Sheet1") -> bytes:
    """A workbook of one sheet."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = title
    for place, value in cells.items():
        sheet[place] = value
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


def docx(*rows: str) -> bytes:
    """A Word document of plain paragraphs."""
    ns = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = "".join(f"<w:p><w:r><w:t>{row}</w:t></w:r></w:p>" for row in rows)
    return zipped({"word/document.xml": f'<w:document xmlns:w="{ns}"><w:body>{body}</w:body></w:document>'})


OFFICE = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
    'xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0" '
    'xmlns:presentation="urn:oasis:names:tc:opendocument:xmlns:presentation:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
)


def opendocument(body: str) -> bytes:
    """An OpenDocument file with this body."""
    root = f"<office:document-content {OFFICE}><office:body>{body}</office:body></office:document-content>"
    return zipped({"content.xml": root})


@pytest.mark.parametrize(
    ("name", "result", "expected", "options", "wanted"),
    [
        ("exact_match", "a\n", {"expected": "a\n"}, {}, 1),
        ("exact_match", "a", {"expected": "a\n"}, {}, 0),
        ("exact_match", [1], {"expected": [1]}, {}, 1),
        ("match_in_list", "Bing", {"expected": ["Microsoft Bing", "Bing"]}, {}, 1),
        ("match_in_list", "Google", {"expected": ["Microsoft Bing", "Bing"]}, {}, 0),
        ("is_in_list", ["a", "b"], {"expected": "b"}, {}, 1),
        ("is_in_list", ["a"], {"expected": "b"}, {}, 0),
        ("literal_match", "A", "a", {"ignore_case": True}, 1),
        ("literal_match", "A", "a", {}, 0),
        ("literal_match", ["A"], ["a"], {"type": "list", "ignore_case": True}, 1),
        ("check_include_exclude", "one two", {"include": ["one"], "exclude": ["three"]}, {}, 1),
        ("check_include_exclude", "one three", {"include": ["one"], "exclude": ["three"]}, {}, 0),
        ("check_include_exclude", "two", {"include": ["one"]}, {}, 0),
        ("check_list", "alpha\nbeta", {"expect": ["^al"], "unexpect": ["gamma"]}, {}, 1),
        ("check_list", "alpha\ngamma", {"expect": ["^al"], "unexpect": ["gamma"]}, {}, 0),
        ("is_utc_0", "  Time zone: UTC (UTC, +0000)", None, {}, 1),
        ("is_utc_0", "  Time zone: CET (CET, +0100)", None, {}, 0),
        ("is_extension_installed", "a.py", {"type": "not_contain", "expected": "b.py"}, {}, 1),
        ("is_extension_installed", "a.py", {"type": "contain", "expected": "b.py"}, {}, 0),
        ("check_moved_jpgs", {"children": [{"name": "b"}, {"name": "a"}]}, {"expected": ["a", "b"]}, {}, 1),
        ("check_moved_jpgs", {"children": [{"name": "b"}]}, {"expected": ["a", "b"]}, {}, 0),
        ("check_window_titles", ["x - Mousepad"], {"include": ["Mousepad$"]}, {}, 1),
        ("check_window_titles", ["x - Mousepad"], {"exclude": ["Mousepad$"]}, {}, 0),
        (
            "check_json",
            '{"a": [{"b": 2}]}',
            {"expect": [{"key": ["a", 0, "b"], "method": "eq", "ref": 2}]},
            {},
            1,
        ),
        ("check_json", '{"a": 1}', {"unexpect": [{"key": ["a"], "method": "ge", "ref": 1}]}, {}, 0),
        ("check_json", '{"a": 1}', {"expect": [{"key": ["b"], "method": "ne", "ref": 1}]}, {}, 0),
        ("check_json", '{"a": 1.05}', {"expect": [{"key": ["a"], "method": "approx:0.1", "ref": 1}]}, {}, 1),
        ("check_direct_json_object", '{"a": "x"}', {"expected": {"a": "x"}}, {}, 1),
        ("check_direct_json_object", '{"a": "x"}', {"expected": {"b": "x"}}, {}, 0),
        ("check_direct_json_object", {"a": "xy"}, {"expected": {"a": "x"}, "expect_in_result": True}, {}, 1),
        (
            "check_direct_json_object",
            {"a": ["q"]},
            {"expected": {"a": ["x"]}, "expect_in_result": True},
            {},
            0,
        ),
        ("check_json_settings", '{"a": {"b": 1}}', {"expected": {"a": {"b": 1}}}, {}, 1),
        ("check_json_settings", "{}", {"expected": {"a": 1}}, {}, 0),
        ("check_json_keybindings", '// keys\n[{"key": "a"}]', {"expected": {"key": "a"}}, {}, 1),
        ("check_json_keybindings", "[]", {"expected": {"key": "a"}}, {}, 0),
        (
            "check_config_status",
            '# (theme "x")\n(theme "Light")',
            {"key": "theme", "value": '"Light"'},
            {},
            1,
        ),
        ("check_config_status", '# (theme "Light")', {"key": "theme", "value": '"Light"'}, {}, 0),
        ("check_config_status", "(tool size 4)", {"key": ["tool", "size"], "value": "4"}, {}, 1),
        ("check_qt_bgcone", "#qt-bgcone=0\nqt-bgcone=0", {"expected_qt_bgcone": 0}, {}, 1),
        ("check_qt_bgcone", "#qt-bgcone=0", {"expected_qt_bgcone": 0}, {}, 0),
        ("check_qt_max_volume", "qt-max-volume=200", {"expected_qt_max_volume": 200}, {}, 1),
        ("compare_answer", "a", {"expected": "a"}, {}, 1),
    ],
)
def test_text_metrics(
    name: str, result: object, expected: object, options: dict[str, object], wanted: float
) -> None:
    """Metrics over text and JSON, right and wrong."""
    assert score(name, result, expected, **options) == wanted


@given(st.text(max_size=30), st.text(max_size=30))
def test_similarity_is_that_of_the_longest_common_subsequence(a: str, b: str) -> None:
    """The bit-parallel similarity equals the textbook table's."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    wanted = 1.0 if not a and not b else 2 * table[-1][-1] / (len(a) + len(b))
    assert similarity(a, b) == wanted


def test_text_files(file: File) -> None:
    """Blanks and case count unless they are made not to."""
    assert score("compare_text_file", file("a  B\n\n"), file("a b", "expected")) == 0
    both = {"ignore_blanks": True, "ignore_case": True}
    assert score("compare_text_file", file("a  B\n\n"), file("a b", "expected"), **both) == 1
    assert score("compare_config", file("\ufeffx=1\r\n"), {"expected": "x=1\n"}) == 1
    assert score("file_contains", file("abc"), {"expected": ["b", "d"]}) == 0
    assert score("compare_csv", file("a,1\n\n b,2 "), file("A,1\nb,2\n", "expected")) == 0
    assert score(
        "compare_csv", file("a,1\n\n b,2 "), file("A,1\nb,2", "expected"), strict=False, ignore_case=True
    )


def test_spreadsheet_cells(file: File) -> None:
    """Cells are compared by value, numbers after rounding, of the sheet that is named."""
    book = file(xlsx({"A1": "x", "B2": 0.30000000004, "C3": True}))
    assert (
        score("check_xlsx_cells", book, {"cells": {"A1": "x", "Sheet1!B2": 0.3, "C3": True, "D4": None}}) == 1
    )
    assert score("check_xlsx_cells", book, {"cells": {"B2": 0.31}}) == 0
    assert score("check_xlsx_cells", book, {"cells": {"A1": 1}}) == 0
    assert score("check_xlsx_cells", book, {"cells": {"C3": 1}}) == 0
    assert score("check_xlsx_cells", book, {"cells": {"Other!A1": "x"}}) == 0
    some = {"cells": {"A1": "x", "Sheet1!B2": 0.3}}
    assert score("check_xlsx_cells", book, some) == 1
    assert score("check_xlsx_cells", book, {**some, "others_empty": True}) == 0
    assert (
        score("check_xlsx_cells", book, {"cells": {**some["cells"], "C3": True}, "others_empty": True}) == 1
    )


def test_cells_far_from_each_other_make_no_large_sheet(file: File) -> None:
    """What counts is the number of cells that are stored."""
    book = file(xlsx({"A1": "x", "XFD1048576": 1}))
    assert score("check_xlsx_cells", book, {"cells": {"A1": "x"}}) == 1


def test_opendocument_spreadsheets(file: File) -> None:
    """Repeated cells and rows of ods files stand where they should; empty tails cost nothing."""
    body = (
        '<office:spreadsheet><table:table table:name="S"><table:table-row table:number-rows-repeated="2">'
        '<table:table-cell table:number-columns-repeated="2"/>'
        '<table:table-cell office:value-type="float" office:value="4.50"/></table:table-row>'
        '<table:table-row><table:table-cell office:value-type="string"><text:p>hi</text:p></table:table-cell>'
        '<table:table-cell table:number-columns-repeated="16383"/></table:table-row>'
        '<table:table-row table:number-rows-repeated="1048573"><table:table-cell/></table:table-row>'
        "</table:table></office:spreadsheet>"
    )
    book = file(opendocument(body))
    assert score("check_xlsx_cells", book, {"cells": {"C1": 4.5, "S!C2": 4.5, "A3": "hi", "A1": None}}) == 1


def test_tables(file: File) -> None:
    """compare_table: data of sheets, single cells, names of sheets."""
    ours, same, other = xlsx({"A1": 1, "B1": "x"}), xlsx({"A1": 1.0, "B1": "x"}), xlsx({"A1": 1, "B2": "x"})
    data = [{"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0"}]
    assert score("compare_table", file(ours), file(same, "expected"), rules=data) == 1
    assert score("compare_table", file(ours), file(other, "expected"), rules=data) == 0
    cell = {"type": "check_cell", "sheet_idx": "RNSheet1", "coordinate": "A1"}
    assert score(
        "compare_table", file(ours), None, rules=[{**cell, "props": {"value": {"method": "ge", "ref": 1}}}]
    )
    assert not score(
        "compare_table", file(ours), None, rules=[{**cell, "props": {"value": {"method": "eq", "ref": 2}}}]
    )
    near = file(xlsx({"A1": 1.004, "B1": "x"}), "expected")
    assert score("compare_table", file(ours), near, rules=data) == 0
    assert score("compare_table", file(ours), near, rules=[{**data[0], "precision": 2}]) == 1
    renamed = file(xlsx({"A1": 1}, title="New"), "expected")
    assert score("compare_table", file(ours), renamed, rules=[{"type": "sheet_name"}]) == 0


def test_documents(file: File) -> None:
    """docx, odt and plain text give the same paragraphs."""
    odt = opendocument(
        "<office:text><text:h>One</text:h><text:p>two<text:s text:c='2'/>x</text:p></office:text>"
    )
    rules = {"paragraphs": ["One", "two  x"]}
    assert score("check_document_text", file(odt), rules) == 1
    assert score("check_document_text", file(docx("One", "", "two  x")), rules) == 1
    assert score("check_document_text", file("One\ntwo  x\n"), rules) == 1
    assert score("check_document_text", file("One\n"), {"include": ["One"], "exclude": ["ne"]}) == 0
    assert score("compare_docx_files", file(docx("a", "b")), file(docx("a  b"), "expected")) == 1
    strict = {"ignore_blanks": False}
    assert score("compare_docx_files", file(docx("a", "b")), file(docx("a b"), "expected"), **strict) == 0
    order = {"ignore_blanks": False, "ignore_order": True, "ignore_case": True}
    assert score("compare_docx_files", file(docx("b", "A")), file(docx("a", "B"), "expected"), **order) == 1


def test_slides(file: File) -> None:
    """Slides come in the order they are shown, without their notes."""
    a = "http://schemas.openxmlformats.org/drawingml/2006/main"
    r = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    p = "http://schemas.openxmlformats.org/presentationml/2006/main"

    def page(text: str) -> str:
        return f'<p:sld xmlns:p="{p}" xmlns:a="{a}"><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:sld>'

    pptx = zipped(
        {
            "ppt/presentation.xml": f'<p:p xmlns:p="{p}" xmlns:r="{r}">'
            '<p:sldId r:id="b"/><p:sldId r:id="a"/></p:p>',
            "ppt/_rels/presentation.xml.rels": '<R><X Id="a" Target="slides/slide1.xml"/>'
            '<X Id="b" Target="slides/slide2.xml"/></R>',
            "ppt/slides/slide1.xml": page("first file"),
            "ppt/slides/slide2.xml": page("second file"),
        }
    )
    assert (
        score("check_slides_text", file(pptx), {"slides": [["second file"], ["first file"]], "count": 2}) == 1
    )
    odp = opendocument(
        "<office:presentation><draw:page><text:p>Hi</text:p>"
        "<presentation:notes><text:p>secret</text:p></presentation:notes></draw:page></office:presentation>"
    )
    assert score("check_slides_text", file(odp), {"slides": [["Hi"]]}) == 1
    assert score("check_slides_text", file(odp), {"count": 2}) == 0


def test_parts_of_documents(file: File) -> None:
    """Attributes and texts by path, in parts by pattern and in a file that is XML itself."""
    w = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"

    def body(*styles: str) -> str:
        rows = "".join(f'<w:p><w:pPr><w:pStyle w:val="{s}"/></w:pPr><w:t>{s}!</w:t></w:p>' for s in styles)
        return f'<w:body xmlns:w="{w}">{rows}</w:body>'

    docx = zipped(
        {"word/part10.xml": body("c"), "word/part2.xml": body("a", "b"), "word/size.xml": '<x n="2.54cm"/>'}
    )
    styles = {"part": "word/part*.xml", "path": "w:p/w:pPr/w:pStyle", "attribute": "w:val"}
    size = {"part": "word/size.xml", "path": ".", "attribute": "n"}

    def parts(*rules: dict[str, Any], data: bytes = docx) -> float:
        return score("check_xml_parts", file(data), {"parts": list(rules)})

    assert parts({**styles, "values": ["a", "b", "c"], "count": 3}, {**size, "include": ["2.54cm"]}) == 1
    assert parts({**styles, "values": ["a", "c", "b"]}) == 0
    assert parts({**styles, "count": 2}) == 0
    assert parts({**styles, "include": ["d"]}) == 0
    assert parts({**styles, "exclude": ["b"]}) == 0
    assert parts({**styles, "include": ["a"]}, {**styles, "exclude": ["b"]}) == 0, "all must hold"
    assert parts({"part": "word/part2.xml", "path": "w:p", "values": ["a!", "b!"]}) == 1
    assert parts({"part": "word/none.xml", "path": "w:p", "count": 0}) == 1
    assert parts({**size, "values": [2.5], "tolerance": 0.05}) == 1
    assert parts({**size, "values": [2.4], "tolerance": 0.05}) == 0
    assert parts({"path": "b", "values": ["2"]}, data=b"<a><b>2</b></a>") == 1
    for wrong in ({**styles, "path": "nobody:p"}, {**styles, "path": "p["}, {**styles, "attribute": "no:a"}):
        with pytest.raises(Unreadable) as caught:
            parts(wrong)
        assert caught.value.role == "expected"
    with pytest.raises(Unreadable) as caught:
        parts(styles, data=b"no archive")
    assert caught.value.role == "result"


def test_images(file: File) -> None:
    """Size, mode, format and all pixels; a transparent part is wrong, an alpha channel is not."""
    image = Image.new("RGB", (4, 3), (10, 20, 30))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    rules = {"size": [4, 3], "mode": "RGB", "format": "PNG", "grey": False}
    assert score("check_image_properties", file(buffer.getvalue()), rules) == 1
    for wrong in ({"size": [3, 4]}, {"mode": "L"}, {"format": "JPEG"}, {"grey": True}):
        assert score("check_image_properties", file(buffer.getvalue()), {**rules, **wrong}) == 0
    whole = base64.b64encode(buffer.getvalue()).decode()
    for colour, tolerance, right in (((10, 20, 30), 0, 1), ((10, 20, 31), 0, 0), ((10, 20, 31), 1, 1)):
        other = image.copy()
        other.putpixel((3, 1), colour)
        other.save(changed := io.BytesIO(), "PNG")
        rule = {"picture": {"png_base64": whole, "tolerance": tolerance}}
        assert score("check_image_properties", file(changed.getvalue()), rule) == right
    with pytest.raises(Unreadable, match="no PNG"):
        score("check_image_properties", file(buffer.getvalue()), {"picture": {"png_base64": "eA=="}})
    halves = Image.new("RGB", (20, 10), (200, 100, 0))
    halves.paste((100, 100, 200), (0, 0, 10, 10))
    halves.save(wanted := io.BytesIO(), "PNG")
    rule = {"picture": {"png_base64": base64.b64encode(wanted.getvalue()).decode(), "edge_px": 2}}
    for place, colour, right in (
        ((10, 4), (150, 100, 100), 1),  # mixed at the edge
        ((10, 4), (220, 100, 0), 1),  # brighter at the edge, as scaling makes it
        ((10, 4), (10, 100, 0), 0),  # too dark for it
        ((14, 4), (150, 100, 100), 0),  # mixed where no edge is
    ):
        other = halves.copy()
        other.putpixel(place, colour)
        other.save(changed := io.BytesIO(), "PNG")
        assert score("check_image_properties", file(changed.getvalue()), rule) == right
    for alpha, right in ((255, 1), (254, 0)):
        Image.new("RGBA", (4, 3), (10, 20, 30, alpha)).save(shown := io.BytesIO(), "PNG")
        assert score("check_image_properties", file(shown.getvalue()), {"size": [4, 3]}) == right
    assert score("check_image_size", file(buffer.getvalue()), {"width": 4}) == 1
    assert score("check_image_size", file(buffer.getvalue()), {"height": 4}) == 0


def test_auto_saving_time(file: File) -> None:
    """LibreOffice's interval is read from its registry."""
    xcu = (
        '<oor:items xmlns:oor="http://openoffice.org/2001/registry"><item oor:path="/org.openoffice.Office.'
        'Common/Save/Document"><prop oor:name="AutoSaveTimeIntervall"><value>3</value></prop></item>'
        "</oor:items>"
    )
    assert score("check_auto_saving_time", file(xcu), {"minutes": 3}) == 1
    assert score("check_auto_saving_time", file(xcu), {"minutes": 5}) == 0


LAUGHS = (
    '<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">'
    '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]><l>&c;</l>'
)


@pytest.mark.parametrize(
    "metric",
    ["check_xlsx_cells", "check_document_text", "check_slides_text", "check_image_size", "check_xml_parts"],
)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04 not really",
        b"\xff\xfe\x00",
        zipped({"content.xml": LAUGHS, "word/document.xml": LAUGHS, "ppt/presentation.xml": LAUGHS}),
        zipped({"xl/workbook.xml": LAUGHS, "[Content_Types].xml": LAUGHS}),
        zipped({"content.xml": b"\0" * (65 << 20)}),
        zipped({"word/document.xml": "<a>" * 100_000}),
        xlsx({"A1": 1, "XFD1048576": 2}),
        b"\x89PNG\r\n\x1a\n" + b"\0" * 50,
    ],
)
def test_hostile_files_are_unreadable(file: File, metric: str, data: bytes) -> None:
    """Broken files, bombs and entity tricks are refused as the result's fault, quickly."""
    rules: dict[str, Any] = {"cells": {"A1": "z"}, "include": ["z"], "width": 1}
    rules["parts"] = [{"part": "*.xml", "path": ".", "values": ["z"]}]
    try:
        assert score(metric, file(data), rules) == 0
    except Unreadable as error:
        assert error.role == "result"


def test_a_pixel_bomb_is_refused(file: File) -> None:
    """An image that claims too many pixels is not decoded."""
    import struct
    import zlib

    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + head
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    with pytest.raises(Unreadable, match=r"not a readable image|too many"):
        score("check_image_size", file(png), {"width": 1})


def test_json_without_end_is_refused(file: File) -> None:
    """Nesting beyond reason is unreadable, not a crash."""
    with pytest.raises(Unreadable):
        score("check_json", file("[" * 200_000), {"expect": []})
    assert json.loads("{}") == {}
