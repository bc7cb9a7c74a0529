"""Checks of Writer's tasks on documents made here: what shows counts, however it is written."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import docx
import pytest
from docx.enum.text import WD_ALIGN_PARAGRAPH, WD_BREAK
from docx.oxml.ns import qn
from docx.shared import Pt, RGBColor

from osgym_host.tasks.evaluator.inputs import InputFile
from osgym_osworld.metrics.document_look import check_document_kept, check_text_formats
from osgym_tasks.writer import docx_bytes

ROWS = ["The barn opens on Monday.", "All barns are closed.", "Meet us by the barn."]
Change = Callable[[Any], object]


def document(change: Change | None = None) -> bytes:
    """A document of Writer's families, changed."""
    made = docx.Document(io.BytesIO(docx_bytes([("Notes", "Heading1"), *ROWS])))
    if change is not None:
        change(made)
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def given(data: bytes, role: str = "result") -> InputFile:
    """A file as a metric gets it."""
    return InputFile(-1, "document.docx", role, data)


def kept(change: Change | None, **options: Any) -> float:
    """The score of `check_document_kept` for a changed document."""
    return check_document_kept(given(document(change)), given(document(), "expected"), **options).score


def split(made: Any, at: int, word: str, **switches: bool) -> None:
    """Writes a paragraph as three runs, of which the middle one, a word, has formats switched."""
    paragraph = made.paragraphs[at]
    before, _, after = paragraph.text.partition(word)
    paragraph.clear()
    paragraph.add_run(before)
    run = paragraph.add_run(word)
    for name, value in switches.items():
        setattr(run, name, value)
    paragraph.add_run(after)


def test_a_format_that_is_switched_off_is_none() -> None:
    """Explicitly not italic is not italic; a word in two runs is one word; a character style counts."""

    def act(made: Any) -> None:
        split(made, 1, "barn", bold=True, italic=False)
        split(made, 3, "barn", bold=True, underline=False)
        last = made.paragraphs[3].runs[1]
        last.text = "ba"
        second = made.paragraphs[3].add_run("rn")
        second.bold = True
        last._element.addnext(second._element)

    formats = {"bold": ["Notes", "barn", "barn"], "italic": [], "underlined": []}
    assert check_text_formats(given(document(act)), {"formats": formats}).score == 1.0
    for wrong in ({"bold": ["Notes", "barn"]}, {"italic": ["barn"]}):
        assert check_text_formats(given(document(act)), {"formats": wrong}).score == 0.0
    assert check_text_formats(given(document(every_run(italic=True))), {"formats": formats}).score == 0.0


def every_run(**font: Any) -> Change:
    """Gives all text a format."""

    def act(made: Any) -> None:
        for run in (run for paragraph in made.paragraphs for run in paragraph.runs):
            for name, value in font.items():
                if name == "colour":
                    run.font.color.rgb = value
                else:
                    setattr(run.font, name, value)

    return act


def centred(made: Any) -> None:
    """Centres all paragraphs."""
    for paragraph in made.paragraphs:
        paragraph.alignment = WD_ALIGN_PARAGRAPH.CENTER


def of_the_first_section(name: str, size: Any) -> Change:
    """Gives the first section another length."""
    return lambda made: setattr(made.sections[0], name, size)


def with_a_second_section(made: Any) -> None:
    """Adds a section whose pages are narrower."""
    made.add_section().page_width = Pt(200)


PAGES = [
    of_the_first_section("left_margin", Pt(10)),
    of_the_first_section("page_height", Pt(500)),
    with_a_second_section,
]


def smaller_style(made: Any) -> None:
    """Makes the text small by its style."""
    made.styles["Normal"].font.size = Pt(4)


@pytest.mark.parametrize(
    "change",
    [
        every_run(bold=True),
        every_run(size=Pt(4)),
        every_run(colour=RGBColor(255, 255, 255)),
        every_run(hidden=True),
        every_run(strike=True),
        centred,
        smaller_style,
        *PAGES,
        lambda made: setattr(made.paragraphs[1], "style", made.styles["heading 1"]),
    ],
)
def test_the_look_of_a_document_is_compared(change: Change) -> None:
    """Formats, sizes, colours and alignment, by style or directly, and pages."""
    assert kept(change) == 0.0


def tracked(made: Any) -> None:
    """Marks a run as an insertion that nobody accepted."""
    run = made.paragraphs[1].runs[0]._element
    mark = run.makeelement(qn("w:ins"), {qn("w:id"): "1", qn("w:author"): "User"})
    run.addprevious(mark)
    mark.append(run)


@pytest.mark.parametrize(
    "change",
    [
        tracked,
        lambda made: made.paragraphs[1].add_run().add_break(WD_BREAK.PAGE),
        lambda made: setattr(made.paragraphs[1].paragraph_format, "page_break_before", True),
        lambda made: setattr(made.paragraphs[1].paragraph_format, "line_spacing", 2.0),
        lambda made: setattr(made.styles["Normal"].paragraph_format, "line_spacing", 2.0),
    ],
)
def test_breaks_line_spacing_and_tracked_changes_are_compared(change: Change) -> None:
    """The same text on more pages, or with a change that nobody accepted, is another document."""
    assert kept(change) == 0.0


def test_single_line_spacing_may_be_stated() -> None:
    """As LibreOffice does, which also states that no page breaks."""

    def act(made: Any) -> None:
        made.paragraphs[1].paragraph_format.line_spacing = 1.0
        made.paragraphs[1].paragraph_format.page_break_before = False

    assert kept(act) == 1.0


@pytest.mark.parametrize("change", PAGES)
def test_pages_may_be_what_a_task_changes(change: Change) -> None:
    """Then nothing else may change; a length that was only rounded is no change."""
    assert kept(change, ignored=["page"]) == 1.0
    assert kept(lambda made: (change(made), centred(made)), ignored=["page"]) == 0.0
    assert kept(of_the_first_section("left_margin", Pt(57))) == 1.0  # of 1,134 twentieths of a point


def test_what_a_task_may_change_is_no_harm() -> None:
    """The look that new texts share with old ones, formats that are asked for, styles of named paragraphs."""
    assert kept(None) == 1.0
    assert kept(lambda made: made.add_paragraph("A new line.")) == 1.0
    assert kept(lambda made: setattr(made.paragraphs[2].runs[0], "text", "Another text.")) == 1.0
    assert kept(lambda made: split(made, 1, "barn", italic=False)) == 1.0
    assert kept(lambda made: split(made, 1, "barn", bold=True)) == 0.0
    assert kept(lambda made: split(made, 1, "barn", bold=True), ignored=["bold"]) == 1.0

    def headed(made: Any) -> None:
        made.paragraphs[1].style = made.styles["heading 1"]

    assert kept(headed, restyled=[ROWS[0]]) == 1.0
    assert kept(lambda made: (headed(made), every_run(hidden=True)(made)), restyled=[ROWS[0]]) == 0.0

    def added(made: Any, **font: Any) -> None:
        run = made.add_paragraph().add_run("A cell of a new table.")
        run.font.bold = True
        for name, value in font.items():
            setattr(run.font, name, value)

    assert kept(lambda made: added(made, size=Pt(13)), may_add=True) == 1.0
    assert kept(lambda made: added(made, size=Pt(13))) == 0.0
    assert kept(lambda made: added(made, size=Pt(4)), may_add=True) == 0.0
