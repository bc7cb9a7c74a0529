"""OSWorld's metrics over pictures, tables, PDF files, settings: what earns 1, what earns 0."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import openpyxl
import pytest
from openpyxl.chart import BarChart, Reference
from openpyxl.styles import Font, PatternFill
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter

from osgym_host.tasks.evaluator.inputs import InputFile, Unreadable
from osgym_host.tasks.evaluator.registry import METRICS, Score


def given(data: bytes | str, role: str = "result", name: str = "f.xlsx") -> InputFile:
    """A file as a metric gets it."""
    return InputFile(-1, name, role, data.encode() if isinstance(data, str) else data)


def score(name: str, result: object, expected: object = None, **options: object) -> float:
    """The score of one metric."""
    value = METRICS[name].function(result, expected, **options)
    return value.score if isinstance(value, Score) else float(value)


def saved(image: Image.Image, kind: str = "PNG") -> bytes:
    """An image as a file."""
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def picture() -> Image.Image:
    """Something with structure and colours."""
    image = Image.linear_gradient("L").resize((64, 48)).convert("RGB")
    draw = ImageDraw.Draw(image)
    draw.ellipse((5, 5, 25, 30), fill=(200, 90, 80))
    draw.rectangle((35, 10, 60, 20), fill=(60, 90, 150))
    return image


def faint() -> Image.Image:
    """The picture, half transparent."""
    made = picture().convert("RGBA")
    made.putalpha(128)
    return made


def noise() -> Image.Image:
    """Something else of the same size."""
    return Image.effect_noise((64, 48), 90).convert("RGB")


@pytest.mark.parametrize(
    ("metric", "right", "wrong"),
    [
        ("check_structure_sim", picture(), [noise(), picture().resize((32, 24))]),
        ("check_file_exists_and_structure_sim", picture(), [noise()]),
        ("check_structure_sim_resized", picture().resize((128, 96)), [noise()]),
        ("check_image_mirror", picture().transpose(Image.Transpose.FLIP_LEFT_RIGHT), [picture(), noise()]),
        ("check_palette_and_structure_sim", picture().quantize(), [picture(), noise().quantize()]),
        (
            "check_brightness_decrease_and_structure_sim",
            ImageEnhance.Brightness(picture()).enhance(0.7),
            [picture(), ImageEnhance.Brightness(picture()).enhance(1.2), Image.new("RGB", (64, 48))],
        ),
        (
            "check_saturation_increase_and_structure_sim",
            ImageEnhance.Color(picture()).enhance(1.1),
            [picture(), ImageEnhance.Color(picture()).enhance(0.5), noise()],
        ),
        (
            "check_contrast_increase_and_structure_sim",
            ImageEnhance.Contrast(picture()).enhance(1.2),
            [picture(), ImageEnhance.Contrast(picture()).enhance(0.7), noise()],
        ),
        ("check_sharper", picture(), [picture().filter(ImageFilter.GaussianBlur(2))]),
        (
            "compare_image_list",
            picture(),
            [noise(), ImageEnhance.Brightness(picture()).enhance(1.01), faint()],
        ),
    ],
)
def test_pictures(metric: str, right: Image.Image, wrong: list[Image.Image]) -> None:
    """The picture that was asked for scores 1; near misses 0."""
    before = picture().filter(ImageFilter.GaussianBlur(1)) if metric == "check_sharper" else picture()
    gold = given(saved(before), "expected")
    assert score(metric, given(saved(right)), gold) == 1
    for image in wrong:
        assert score(metric, given(saved(image)), gold) == 0


def test_how_alike_pictures_are() -> None:
    """1 for equal ones, less for others, nothing below what was there before, 0 for tiny ones."""
    gold = given(saved(picture()), "expected")
    assert score("compare_images", given(saved(picture())), gold) == pytest.approx(1)
    assert score("compare_images", given(saved(noise())), gold) < 0.3
    assert score("compare_images", given(saved(noise())), gold, reference_base_result=0.5) == 0
    assert score("compare_images", given(saved(Image.new("L", (3, 3)))), gold) == 0
    with pytest.raises(Unreadable) as caught:
        score("compare_images", given(b"\x89PNG\r\n\x1a\n" + b"\0" * 50), gold)
    assert caught.value.role == "result"


def test_places_in_pictures() -> None:
    """Triangles in the middle, text at the left, green grounds, sizes of what is seen and of files."""
    canvas = Image.new("RGB", (100, 100), "white")
    ImageDraw.Draw(canvas).rectangle((0, 0, 9, 9), fill="black")
    assert score("check_textbox_on_leftside", given(saved(canvas))) == 1
    assert score("check_triangle_position", given(saved(canvas))) == 1  # OSWorld's: the second rarest colour
    assert score("check_textbox_on_leftside", given(saved(canvas.rotate(180)))) == 0
    assert score("check_triangle_position", given(saved(Image.new("RGB", (9, 9))))) == 0
    mask = Image.new("RGB", (10, 10), "white")
    mask.paste((0, 0, 0), (2, 2, 5, 5))
    green = Image.new("RGB", (10, 10), (10, 200, 10))
    assert score("check_green_background", given(saved(green)), given(saved(mask), "expected")) == 1
    green.putpixel((9, 9), (200, 10, 10))
    assert score("check_green_background", given(saved(green)), given(saved(mask), "expected")) == 0
    layer = Image.new("RGBA", (20, 20))
    layer.paste((1, 2, 3, 255), (5, 5, 15, 12))
    seen = {"width": 10, "height": 7, "ignore_transparent": True}
    assert score("check_image_size", given(saved(layer)), seen) == 1
    assert score("check_image_size", given(saved(layer)), {**seen, "height": 20}) == 0
    assert score("check_image_file_size", given(b"x" * 10), {"max_size": 11}) == 1
    assert score("check_image_file_size", given(b"x" * 10), {"max_size": 10}) == 0


def workbook(change: str = "") -> bytes:
    """A workbook with one of several things changed."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Sheet1"
    for row in (("Name", "Sum"), ("North Rd", 3.5), ("South", 4)):
        sheet.append(row)
    chart = BarChart()
    chart.title = "Sums" if change != "title" else "Sum"
    chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=3 if change != "series" else 2))
    sheet.add_chart(chart, "D5")
    sheet["A1"].font = Font(bold=change != "bold", color="FFFF0000")
    if change == "fill":
        sheet["B2"].fill = PatternFill("solid", fgColor="FF00FF00")
    sheet.freeze_panes = "A2" if change != "freeze" else "B2"
    sheet.sheet_view.zoomScale = 200 if change != "zoom" else 100
    sheet.auto_filter.ref = "A1:B3" if change != "filter" else "A1:B2"
    sheet.row_dimensions[2].hidden = change != "row"
    sheet.column_dimensions["B"].width = 30 if change != "column" else 8
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


IS_TRUE = {"method": "eq", "ref": True}


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("title", {"type": "chart", "chart_props": ["title", "type"]}),
        ("series", {"type": "chart"}),
        ("bold", {"type": "style", "props": ["font_bold", "font_color"]}),
        ("fill", {"type": "style", "props": ["bgcolor"]}),
        ("freeze", {"type": "freeze"}),
        ("zoom", {"type": "zoom", "method": "gt", "ref": 150}),
        ("filter", {"type": "filter"}),
        ("row", {"type": "row_props", "props": ["hidden"]}),
        ("column", {"type": "col_props", "props": ["width"]}),
        (
            "bold",
            {"type": "check_cell", "coordinate": "A1", "props": {"font_bold": {"method": "eq", "ref": True}}},
        ),
    ],
)
def test_rules_over_more_than_values(change: str, rule: dict[str, Any]) -> None:
    """Charts, styles, filters, windows: the same is right, one thing changed is wrong."""
    rules = [{"sheet_idx": 0, "sheet_idx0": 0, "sheet_idx1": "EI0", **rule}]
    gold = given(workbook(), "expected")
    assert METRICS["compare_table"].unsupported({"rules": rules}) == []
    assert score("compare_table", given(workbook()), gold, rules=rules) == 1
    assert score("compare_table", given(workbook(change)), gold, rules=rules) == 0
    absent = [{**rules[0], "sheet_idx": "RNodd", "sheet_idx0": "RNodd"}]
    with pytest.raises(Unreadable):
        score("compare_table", given(workbook()), gold, rules=absent)


@pytest.mark.parametrize(
    ("got", "condition", "wanted"),
    [
        ("North Road", {"type": "exact_match", "normalization": [["Rd", "Road"]]}, 1),
        ("North Road", {"type": "exact_match"}, 0),
        ("north rd", {"type": "exact_match", "ignore_case": True}, 1),
        ("+ (North) Rd", {"type": "exact_match", "trim_leadings": "+ ", "ignore_chars": "()"}, 1),
        ("North Rd.", {"type": "fuzzy_match", "threshold": 90}, 1),
        ("South", {"type": "fuzzy_match"}, 0),
        ("the North Rd", {"type": "includes"}, 1),
        ("North", {"type": "includes"}, 0),
        ("North", {"type": "included_by"}, 1),
    ],
)
def test_fuzzy_ranges(got: str, condition: dict[str, Any], wanted: float) -> None:
    """Cells of ranges are compared as text, after what the rule takes away."""
    book = openpyxl.load_workbook(io.BytesIO(workbook()))
    book.active["A2"] = got
    buffer = io.BytesIO()
    book.save(buffer)
    inner = {"range": ["A2:A2", "B2:B3"], **condition}
    inner["range"] = ["A2"] if "include" in condition["type"] else inner["range"]
    rules = [{"type": "sheet_fuzzy", "sheet_idx0": 0, "sheet_idx1": "ENSheet1", "rules": [inner]}]
    gold = given(workbook(), "expected")
    assert score("compare_table", given(buffer.getvalue()), gold, rules=rules) == wanted


def test_printed_sheets() -> None:
    """What a sheet shows is in a csv file beside the workbook; empty lines at the end do not count."""
    rules = [{"type": "sheet_print", "sheet_idx0": "RNSheet1", "sheet_idx1": "ENSheet1"}]

    def side(role: str, name: str, text: str | None) -> InputFile:
        file = given(workbook(), role, f"{name}.xlsx")
        if text is not None:
            csv = given(text, role, f"{name}-Sheet1.csv")
            file.beside = {csv.name: csv}
        return file

    gold = side("expected", "gold", "a;1,5\nb;2\n\n")
    assert score("compare_table", side("result", "x", "a;1,5\nb;2"), gold, rules=rules) == 1
    assert score("compare_table", side("result", "x", "a;1.5\nb;2"), gold, rules=rules) == 0
    with pytest.raises(Unreadable, match=r"x-Sheet1\.csv"):
        score("compare_table", side("result", "x", None), gold, rules=rules)


def pdf(*lines: str) -> bytes:
    """A PDF file of one page for each line of plain text."""
    kids = " ".join(f"{3 + 2 * i} 0 R" for i in range(len(lines)))
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count {len(lines)} >>"]
    for i, line in enumerate(lines):
        text = f"BT /F1 12 Tf 72 720 Td ({line}) Tj ET"
        resources = f"/Resources << /Font << /F1 {font} >> >> /MediaBox [0 0 612 792]"
        objects.append(f"<< /Type /Page /Parent 2 0 R /Contents {4 + 2 * i} 0 R {resources} >>")
        objects.append(f"<< /Length {len(text)} >>\nstream\n{text}\nendstream")
    body, places = "%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj\n{text}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    tail = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    return (body + head + tail).encode()


def test_pdf_files() -> None:
    """Texts and pages; a broken file is the result's fault, or counts 0 among several."""
    gold = given(pdf("one line", "another"), "expected")
    assert score("compare_pdfs", given(pdf("one line", "another")), gold) == 1
    assert 0.3 < score("compare_pdfs", given(pdf("one line", "anything")), gold) < 1
    assert score("check_pdf_pages", given(pdf("a", "b")), {"relation": "eq", "ref_value": 2}) == 1
    assert score("check_pdf_pages", given(pdf("a")), {"relation": "ge", "ref_value": 2}) == 0
    pair = [given(pdf("one line", "another")), given(b"%PDF-1.4 broken")]
    assert score("compare_pdfs", pair, [gold, gold]) == 0.5
    text = given('{"a": "one line"}', "expected")
    assert score("is_gold_text_included_in_pdf", given(pdf("one line")), text) == 1
    assert score("is_gold_text_included_in_pdf", given(pdf("no line")), text) == 0
    with pytest.raises(Unreadable) as caught:
        score("compare_pdfs", given(b"%PDF-1.4 broken"), gold)
    assert caught.value.role == "result"


def zipped(members: dict[str, bytes]) -> bytes:
    """A zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def test_archives() -> None:
    """Names and contents of members; PDF files by their text."""
    gold = given(zipped({"a.txt": b"a", "b.pdf": pdf("the same text")}), "expected")
    other = pdf("the same text").replace(b"720 Td", b"700 Td")
    assert score("compare_zip_files", given(zipped({"a.txt": b"a", "b.pdf": other})), gold) == 1
    assert score("compare_zip_files", given(zipped({"a.txt": b"b", "b.pdf": other})), gold) == 0
    assert score("compare_zip_files", given(zipped({"a.txt": b"a"})), gold) == 0
    assert score("compare_zip_files", given(zipped({"a.txt": b"a", "b.pdf": pdf("x")})), gold) == 0


LAUGHS = b'<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><l>&b;</l>'


@pytest.mark.parametrize(
    "metric",
    ["compare_pptx_files", "compare_docx_lines", "compare_pdfs", "compare_zip_files", "compare_table"],
)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04 not really",
        b"%PDF-1.7\n" + b"\xff" * 500,
        zipped({"ppt/presentation.xml": LAUGHS, "word/document.xml": LAUGHS, "xl/workbook.xml": LAUGHS}),
        zipped({"ppt/presentation.xml": b"\0" * (65 << 20), "word/document.xml": b"<a>"}),
    ],
)
def test_hostile_files_are_the_results_fault(metric: str, data: bytes) -> None:
    """Broken files, bombs and entity tricks are refused by whose file they are."""
    gold = {"compare_pdfs": pdf("a"), "compare_zip_files": zipped({"a": b""}), "compare_table": workbook()}
    try:
        assert score(metric, given(data), given(gold.get(metric, data), "expected")) == 0
    except Unreadable as error:
        assert error.role == "result" or metric not in gold


@pytest.mark.parametrize(
    ("name", "result", "expected", "wanted"),
    [
        (
            "check_gnome_favorite_apps",
            "['a.desktop', 'b.desktop']\n",
            {"expected": ["b.desktop", "a.desktop"]},
            1,
        ),
        ("check_gnome_favorite_apps", "['a.desktop']", {"expected": ["b.desktop"]}, 0),
        ("check_gnome_favorite_apps", "__import__('os')", {"expected": []}, 0),
        ("check_text_enlarged", "1.25\n", None, 1),
        ("check_text_enlarged", "1.0\n", None, 0),
        ("is_in_vm_clickboard", {"expected": ["a", "b"]}, "a b", 1),
        ("is_in_vm_clickboard", {"expected": "c"}, "a b", 0),
        ("is_vlc_fullscreen", {"width": 8, "height": 6}, {"width": 8, "height": 6}, 1),
        ("is_vlc_fullscreen", {"width": 8, "height": 5}, {"width": 8, "height": 6}, 0),
        ("check_qt_slider_colours", "qt-slider-colours=1;2;3;99;0;0\n", {"type": "blackish"}, 1),
        ("check_qt_slider_colours", "qt-slider-colours=1;2;3;100;0;0\n", {"type": "blackish"}, 0),
        ("check_qt_slider_colours", "", {"type": "blackish"}, 0),
        (
            "is_vlc_recordings_folder",
            "input-record-path=/home/u\n",
            {"recording_file_path": "/home/u"},
            1,
        ),
        (
            "is_vlc_recordings_folder",
            "#input-record-path=/home/u\n",
            {"recording_file_path": "/home/u"},
            0,
        ),
        (
            "check_global_key_play_pause",
            "global-key-play-pause=a\n",
            {"expected_global_key_play_pause": 1},
            1,
        ),
        ("check_global_key_play_pause", "", {"expected_global_key_play_pause": 1}, 0),
        ("check_csv", given("a,b\n1,2\n"), {"expect": [{"a": "1"}], "unexpect": [{"b": "3"}]}, 1),
        ("check_csv", given("a,b\n1,2\n"), {"expect": [{"a": "2"}]}, 0),
        ("check_line_number", given("12:00:00 x\ny\n"), {"expected": "1"}, 1),
        ("check_line_number", given("25:00:00 x\ny\n"), {"expected": "1"}, 0),
        ("compare_python_pure_text", given("#!/x\na\n\n"), given("a  ", "expected"), 1),
        ("compare_python_pure_text", given(" a"), given("a", "expected"), 0),
        ("compare_result_files", given("C 1.25\n"), given("1.25", "expected"), 1),
        ("compare_result_files", given("1.26"), given("1.25", "expected"), 0),
        ("diff_text_file", given("a\nb"), given("a\nb", "expected"), 1),
        ("check_left_panel", "<a><document-frame name='Slides View'/></a>", None, 1),
        ("check_left_panel", "<a><document-frame name='Other'/></a>", None, 0),
        (
            "check_html_background_image",
            given("<style>body {background-image: url('a.png')}</style>"),
            {"value": "a.png"},
            1,
        ),
        ("check_html_background_image", given("<p>url('a.png')</p>"), {"value": "a.png"}, 0),
        (
            "check_thunderbird_prefs",
            given('user_pref("a.b", true);\nuser_pref("c", "x");'),
            {"expect": {"a.b": {"method": "eq", "ref": True}, "c": {"method": "re.I", "ref": "X"}}},
            1,
        ),
        (
            "check_thunderbird_prefs",
            given('user_pref("a.b", true);'),
            {"unexpect": {"a.b": {"method": "eq", "ref": True}}},
            0,
        ),
        (
            "check_thunderbird_filter",
            given('name="f"\nenabled="yes"\ncondition="AND (subject,contains,x) OR (from,is,\\"a b\\")"\n'),
            {"expect": [{"enabled": "yes", "condition": ["AND (subject,contains,x)", 'OR (from,is,"a b")']}]},
            1,
        ),
        (
            "is_vlc_playing",
            given(
                "<root><state>playing</state><information><category name='meta'>"
                "<info name='filename'>a.mp4</info></category></information></root>"
            ),
            {"type": "file_name", "file_name": "a.mp4"},
            1,
        ),
        (
            "is_vlc_playing",
            given("<root><state>paused</state></root>"),
            {"type": "file_name", "file_name": "a.mp4"},
            0,
        ),
    ],
)
def test_texts_and_settings(name: str, result: object, expected: object, wanted: float) -> None:
    """What commands print, what settings say."""
    assert score(name, result, expected) == wanted
