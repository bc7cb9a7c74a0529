"""Our metrics over presentations and documents give what OSWorld's own give, on files made here."""

from __future__ import annotations

import io
import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from PIL import Image
from tests.support import osworld_metrics

from osgym_host.tasks.evaluator.inputs import InputFile, Unreadable
from osgym_host.tasks.evaluator.registry import METRICS, Score

Change = Callable[[Any], None]


def deck() -> Any:
    """Three slides: title and body, a picture and a group, a table."""
    from pptx import Presentation
    from pptx.util import Pt

    made = Presentation()
    first = made.slides.add_slide(made.slide_layouts[1])
    first.shapes.title.text = "Product Comparison"
    body = first.placeholders[1].text_frame
    body.text = "one"
    body.add_paragraph().text = "two"
    second = made.slides.add_slide(made.slide_layouts[6])
    picture = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(picture, "PNG")
    second.shapes.add_picture(picture, Pt(100), Pt(300), Pt(50), Pt(50))
    group = second.shapes.add_group_shape()
    group.shapes.add_textbox(Pt(1), Pt(1), Pt(90), Pt(20)).text_frame.text = "in a group"
    third = made.slides.add_slide(made.slide_layouts[5])
    third.shapes.title.text = "table"
    table = third.shapes.add_table(2, 2, Pt(50), Pt(100), Pt(200), Pt(80)).table
    for row, column in itertools.product(range(2), range(2)):
        table.cell(row, column).text = f"{row} {column}"
    return made


def _run(made: Any, slide: int = 0, shape: int = 1, paragraph: int = 0) -> Any:
    return made.slides[slide].shapes[shape].text_frame.paragraphs[paragraph].runs[0]


def _cell_run(made: Any) -> Any:
    return made.slides[2].shapes[1].table.cell(0, 0).text_frame.paragraphs[0].runs[0]


def _move(slide: int, shape: int, side: str, by_pt: float) -> Change:
    def change(made: Any) -> None:
        moved = made.slides[slide].shapes[shape]
        places = {name: getattr(moved, name) for name in ("left", "top", "width", "height")}
        for name, value in places.items():
            setattr(moved, name, value + int(by_pt * 12700) * (name == side))

    return change


def _colour(run: Callable[[Any], Any], theme: bool = False) -> Change:
    def change(made: Any) -> None:
        from pptx.dml.color import RGBColor
        from pptx.enum.dml import MSO_THEME_COLOR

        if theme:
            run(made).font.color.theme_color = MSO_THEME_COLOR.ACCENT_1
        else:
            run(made).font.color.rgb = RGBColor(255, 0, 0)

    return change


def _background(red: int) -> Change:
    def change(made: Any) -> None:
        from pptx.dml.color import RGBColor

        fill = made.slides[1].background.fill
        fill.solid()
        fill.fore_color.rgb = RGBColor(red, 0, 0)

    return change


def _bullet(made: Any) -> None:
    properties = made.slides[0].shapes[1].text_frame.paragraphs[1]._p.get_or_add_pPr()
    properties.append(
        properties.makeelement("{http://schemas.openxmlformats.org/drawingml/2006/main}buChar", {"char": "•"})
    )


def _set(read: Callable[[Any], Any], name: str, value: object) -> Change:
    return lambda made: setattr(read(made), name, value)


def _font(name: str, value: object, run: Callable[[Any], Any] = _run) -> Change:
    return lambda made: setattr(run(made).font, name, value)


def _body(made: Any) -> Any:
    return made.slides[0].shapes[1].text_frame


CHANGES: dict[str, Change] = {
    "nothing": lambda made: None,
    "another slide": lambda made: made.slides.add_slide(made.slide_layouts[6]),
    "another shape": lambda made: made.slides[1].shapes.add_textbox(0, 0, 9, 9),
    "text": _set(_run, "text", "uno"),
    "blanks": _set(_run, "text", "one "),
    "another paragraph": lambda made: _body(made).add_paragraph(),
    "another run": lambda made: _body(made).paragraphs[0].add_run(),
    "level": lambda made: setattr(_body(made).paragraphs[1], "level", 1),
    "centred": lambda made: setattr(_body(made).paragraphs[0], "alignment", 2),
    "left": lambda made: setattr(_body(made).paragraphs[0], "alignment", 1),
    "bold": _font("bold", True),
    "not bold": _font("bold", False),
    "italic": _font("italic", True),
    "underlined": _font("underline", True),
    "not underlined": _font("underline", False),
    "waves": _font("underline", 6),
    "size": _font("size", 254_000),
    "font": _font("name", "Arial"),
    "struck": lambda made: _run(made).font._element.set("strike", "sngStrike"),
    "colour": _colour(_run),
    "theme's colour": _colour(_run, theme=True),
    "bullet": _bullet,
    "background": _background(255),
    "other background": _background(0),
    "notes": lambda made: setattr(made.slides[0].notes_slide.notes_text_frame, "text", "x"),
    "empty notes": lambda made: made.slides[0].notes_slide,
    "cell's text": _set(_cell_run, "text", "z"),
    "cell's colour": _colour(_cell_run),
    "bold cell": _font("bold", True, _cell_run),
    "underlined cell": _font("underline", True, _cell_run),
    "title down": _move(0, 0, "top", 300),
    "table down": _move(2, 1, "top", 300),
    "table a little down": _move(2, 1, "top", 0.2),
    "picture right": _move(1, 0, "left", 400),
    "picture up": _move(1, 0, "top", -250),
    "picture wider": _move(1, 0, "width", 20),
    "title higher": _move(0, 0, "height", 20),
    "grouped text": lambda made: setattr(made.slides[1].shapes[1].shapes[0].text_frame, "text", "else"),
    "grouped alignment": lambda made: setattr(
        made.slides[1].shapes[1].shapes[0].text_frame.paragraphs[0], "alignment", 3
    ),
}


def _write(path: Path, made: Any, change: Change) -> Path:
    change(made)
    made.save(str(path))
    return path


@pytest.fixture(scope="module")
def decks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A presentation for each change."""
    folder = tmp_path_factory.mktemp("decks")
    return {name: _write(folder / f"{i}.pptx", deck(), c) for i, (name, c) in enumerate(CHANGES.items())}


@pytest.fixture(scope="module")
def slides() -> ModuleType:
    """OSWorld's metrics over slides."""
    return osworld_metrics.load("slides")


def given(path: Path, role: str) -> InputFile:
    """A file as a metric gets it."""
    return InputFile(-1, path.name, role, path.read_bytes())


def ours(name: str, result: Path, expected: object = None, **options: object) -> float:
    """Our score."""
    wanted = given(expected, "expected") if isinstance(expected, Path) else expected
    try:
        value = METRICS[name].function(given(result, "result"), wanted, **options)
    except Unreadable as error:
        assert error.role == "result"
        return 0.0
    return value.score if isinstance(value, Score) else float(value)


def theirs(function: Callable[..., Any], *arguments: object, **options: object) -> float:
    """Their score; an exception of theirs is shown by −1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return float(function(*(str(a) if isinstance(a, Path) else a for a in arguments), **options) or 0)
        except (AttributeError, TypeError, KeyError, IndexError, ValueError):
            return -1.0


MOVES = [name for name in CHANGES if any(word in name for word in ("down", "right", "up", "wider", "higher"))]
PLACES = {
    "title_bottom_position": True,
    "table_bottom_position": True,
    "right_position": True,
    "top_position": True,
    "shape_for_shift_size": True,
    "image_size": True,
    "modify_height": True,
}


@pytest.mark.parametrize(
    ("names", "options"),
    [
        (list(CHANGES), {}),
        *((MOVES, {"examine_shape": False, f"examine_{name}": value}) for name, value in PLACES.items()),
    ],
)
def test_presentations_compare_as_theirs(
    slides: ModuleType, decks: dict[str, Path], names: list[str], options: dict[str, Any]
) -> None:
    """Each change is a difference, or none, as it is for OSWorld's own metric."""
    for name in names:
        pair = decks[name], decks["nothing"]
        wanted = theirs(slides.compare_pptx_files, *pair, enable_debug=False, **options)
        assert ours("compare_pptx_files", *pair, **options) == wanted, (name, options)


def test_other_metrics_over_slides_are_theirs(slides: ModuleType, decks: dict[str, Path]) -> None:
    """Strikes, orientation, fills, pictures and numbers as OSWorld finds them."""
    strike = {"slide_index_s": [0], "shape_index_s": [1], "paragraph_index_s": [0]}
    red = {"rgb": [255, 0, 0], "original_rgb": [0, 0, 0]}
    for name in ("nothing", "struck", "background", "other background"):
        path = decks[name]
        for metric, rules in (
            ("check_strikethrough", strike),
            ("evaluate_presentation_fill_to_rgb_distance", red),
            ("check_transition", {"slide_idx": 0, "transition_type": "dissolve"}),
        ):
            wanted = theirs(getattr(slides, metric), path, rules)
            assert ours(metric, path, rules) == pytest.approx(wanted), (metric, name)
    path = decks["nothing"]
    for metric in ("check_slide_orientation_Portrait", "check_slide_numbers_color"):
        assert ours(metric, path) == theirs(getattr(slides, metric), path), metric
    wanted = theirs(slides.check_image_stretch_and_center, path, path)
    assert ours("check_image_stretch_and_center", path, path) == wanted


def _document() -> Any:
    import docx

    made = docx.Document()
    made.add_paragraph("first line")
    made.add_paragraph("12:00:00, T1, S1, 4")
    made.add_paragraph("12:00:10, T2, S1, 4")
    made.add_table(1, 2).cell(0, 0).text = "CELL"
    made.add_paragraph("last")
    return made


def _document_run(made: Any) -> Any:
    return made.paragraphs[-1].runs[0]


def _page_break(made: Any) -> None:
    made.add_page_break()


DOCUMENT_CHANGES: dict[str, Change] = {
    "nothing": lambda made: None,
    "text": _set(_document_run, "text", "least"),
    "struck": _font("strike", True, _document_run),
    "subscript": _font("subscript", True, _document_run),
    "font": _font("name", "Arial", _document_run),
    "italic": _font("italic", True, _document_run),
    "break": _page_break,
    "footer": lambda made: setattr(made.sections[0].footer.paragraphs[0], "text", "Page 1"),
    "footer without number": lambda made: setattr(made.sections[0].footer.paragraphs[0], "text", "Page"),
    "spacing": lambda made: setattr(made.paragraphs[0].paragraph_format, "line_spacing", 1.5),
    "centred": lambda made: setattr(made.paragraphs[0].paragraph_format, "alignment", 1),
    "tab stop": lambda made: made.paragraphs[0].paragraph_format.tab_stops.add_tab_stop(914_400),
    "cell": lambda made: setattr(made.tables[0].cell(0, 1), "text", "x"),
    "twice": lambda made: made.add_paragraph("12:00:10, T2, S1, 4"),
    "capitals": _set(_document_run, "text", "LAST"),
    "picture": lambda made: made.add_picture(_png()),
}


def _png() -> io.BytesIO:
    buffer = io.BytesIO()
    Image.new("RGB", (3, 3), "blue").save(buffer, "PNG")
    buffer.seek(0)
    return buffer


WITH_GOLD = {
    "compare_docx_files": "text",
    "compare_docx_files_and_ignore_new_lines": "text",
    "compare_subscript_contains": "subscript",
    "evaluate_strike_through_last_paragraph": "struck",
    "compare_init_lines": "text",
    "compare_docx_lines": "twice",
    "compare_docx_tables": "cell",
    "compare_docx_images": "picture",
    "compare_line_spacing": "spacing",
    "check_tabstops": "tab stop",
    "compare_insert_equation": "text",
    "compare_contains_image": "picture",
    "check_italic_font_size_14": "italic",
    "check_no_duplicates": "twice",
    "compare_highlighted_text": "text",
}
ALONE = {
    "has_page_numbers_in_footers": "footer",
    "is_first_line_centered": "centred",
    "evaluate_conversion": "capitals",
    "evaluate_spacing": "spacing",
}


def test_metrics_over_documents_are_theirs(tmp_path: Path) -> None:
    """Fonts, breaks, footers, tables, pictures, spacing as OSWorld finds them."""
    unused = ("easyocr", "odf", "odf.opendocument", "odf.text", "rapidfuzz", "skimage", "skimage.color")
    docs = osworld_metrics.load("docs", without=unused)
    changes = enumerate(DOCUMENT_CHANGES.items())
    made = {name: _write(tmp_path / f"{i}.docx", _document(), change) for i, (name, change) in changes}
    for metric, change in WITH_GOLD.items():
        for pair in itertools.product((made["nothing"], made[change]), repeat=2):
            wanted = theirs(getattr(docs, metric), *pair)
            assert ours(metric, *pair) == pytest.approx(wanted), (metric, change)
    for change, blanks in itertools.product(("cell", "tab stop", "break"), (True, False)):
        pair = made["nothing"], made[change]
        wanted = theirs(docs.compare_docx_files, *pair, ignore_blanks=blanks)
        assert ours("compare_docx_files", *pair, ignore_blanks=blanks) == wanted, (change, blanks)
    for metric, change in ALONE.items():
        for name in ("nothing", change):
            assert ours(metric, made[name]) == theirs(getattr(docs, metric), made[name]), (metric, name)
    for rules in ({}, {"page_break_count": 1}, {"page_break_count": 2}):
        wanted = theirs(docs.contains_page_break, made["break"], rules)
        assert ours("contains_page_break", made["break"], rules) == wanted, rules
