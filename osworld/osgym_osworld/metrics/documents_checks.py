"""Metrics over one property of a Word document: breaks, footers, fonts, tables, pictures, spacing.

OSWorld's, over the paragraphs of the body, not those of tables, as python-docx gives them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from osgym_host.tasks.metric_plugin import (
    Argument,
    InputFile,
    Score,
    Unreadable,
    as_file,
    differ,
    is_installed,
    metric,
    rules_of,
    similarity,
)
from osgym_osworld.formats.office import cell_runs, open_document
from osgym_osworld.metrics.documents import compare_docx_files
from osgym_osworld.metrics.images import open_image
from osgym_osworld.packages import needs

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
CENTER, CLEAR, LEFT = 1, 101, 0
"""``WD_PARAGRAPH_ALIGNMENT.CENTER``, ``WD_TAB_ALIGNMENT.CLEAR`` and ``.LEFT`` of python-docx."""
_GAIN = 0.01

_docx = needs("docx")


def _two(result: Argument, expected: Argument) -> tuple[Any, Any]:
    return open_document(as_file(result, "result")), open_document(as_file(expected, "expected"))


def _texts(document: Any) -> list[str]:
    return [paragraph.text for paragraph in document.paragraphs]


def _runs(document: Any) -> Iterator[Any]:
    for paragraph in document.paragraphs:
        yield from paragraph.runs


def _pairs(a: Any, b: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the runs that stand at the same place of two documents, as far as both go."""
    for one, other in zip(a.paragraphs, b.paragraphs, strict=False):
        yield from zip(one.runs, other.runs, strict=False)


@metric(unsupported=_docx, needs_expected=False)
def contains_page_break(result: Argument, expected: Argument) -> Score:
    """Document has a page break that was typed, or ``page_break_count`` of them."""
    document = open_document(as_file(result, "result"))
    breaks = [b for run in _runs(document) for b in run.element.iter(f"{_W}br")]
    count = sum(b.get(f"{_W}type") == "page" for b in breaks)
    wanted = expected.get("page_break_count") if isinstance(expected, dict) else None
    if wanted is not None and count != wanted:
        return differ("the page breaks", count, wanted)
    return Score(1.0) if count else Score(0.0, "there is no page break")


@metric(unsupported=_docx)
def compare_subscript_contains(result: Argument, expected: Argument) -> Score:
    """Both documents have a subscript at the same place."""
    pairs = _pairs(*_two(result, expected))
    found = any(a.font.subscript and b.font.subscript for a, b in pairs)
    return Score(1.0) if found else Score(0.0, "no subscript is where one is expected")


@metric(unsupported=_docx, needs_expected=False)
def has_page_numbers_in_footers(result: Argument, expected: Argument) -> Score:
    """The first paragraph of each section's footer has a digit."""
    footer = None
    for number, section in enumerate(open_document(as_file(result, "result")).sections, 1):
        if not section.footer.is_linked_to_previous:
            footer = section.footer
        rows = [] if footer is None else footer.paragraphs
        if not any(char.isdigit() for char in (rows[0].text if rows else "")):
            return Score(0.0, f"the footer of section {number} has no number")
    return Score(1.0)


@metric(unsupported=_docx)
def evaluate_strike_through_last_paragraph(result: Argument, expected: Argument) -> Score:
    """The text is as expected, and all of the last paragraph is struck through."""
    text = compare_docx_files(result, expected)
    if text.score < 1:
        return text
    rows = open_document(as_file(result, "result")).paragraphs
    struck = rows and all(run.font.strike for run in rows[-1].runs)
    return Score(1.0) if struck else Score(0.0, "the last paragraph is not struck through")


@metric(unsupported=_docx)
def compare_init_lines(result: Argument, expected: Argument) -> Score:
    """All paragraphs of the shorter document are equal, and the longer one has no text after them."""
    a, b = (_texts(document) for document in _two(result, expected))
    if any(text.strip() for text in b[len(a) :]):
        return differ("the number of paragraphs", len(a), len(b))
    for place, (got, wanted) in enumerate(zip(a, b, strict=False), 1):
        if got != wanted:
            return differ(f"paragraph {place}", got, wanted)
    return Score(1.0)


@metric(unsupported=_docx)
def compare_docx_lines(result: Argument, expected: Argument) -> Score:
    """Both documents have the same paragraphs, in any order and number; empty ones do not count."""
    got, wanted = ({text.strip() for text in _texts(document)} - {""} for document in _two(result, expected))
    return Score(1.0) if got == wanted else differ("the lines", sorted(got - wanted), sorted(wanted - got))


@metric(unsupported=_docx)
def compare_docx_tables(result: Argument, expected: Argument) -> Score:
    """The tables have the same rows, columns and texts."""
    a, b = (document.tables for document in _two(result, expected))
    if len(a) != len(b):
        return differ("the number of tables", len(a), len(b))
    for place, (one, other) in enumerate(zip(a, b, strict=True), 1):
        got, wanted = _table(one), _table(other)
        if got != wanted:
            return differ(f"table {place}", got, wanted)
    return Score(1.0)


def _table(table: Any) -> list[list[str]]:
    width = len(table.columns)
    cells = [cell.text.strip() for cell in table._cells]
    return [cells[i * width : (i + 1) * width] for i in range(len(table.rows))]


@metric(unsupported=_docx)
def compare_docx_images(result: Argument, expected: Argument) -> Score:
    """Both documents have the same pictures, pixel by pixel, in the order of their relations."""
    got, wanted = (_pictures(as_file(v, role)) for v, role in ((result, "result"), (expected, "expected")))
    if len(got) != len(wanted):
        return differ("the number of pictures", len(got), len(wanted))
    for place, (a, b) in enumerate(zip(got, wanted, strict=True), 1):
        if a != b:
            return Score(0.0, f"picture {place} differs")
    return Score(1.0)


def _pictures(file: InputFile) -> list[bytes]:
    relations = open_document(file).part.rels.values()
    parts = [r.target_part.blob for r in relations if "image" in r.reltype and not r.is_external]
    return [open_image(InputFile(-1, file.name, file.role, blob)).tobytes() for blob in parts]


@metric(unsupported=_docx)
def compare_line_spacing(result: Argument, expected: Argument) -> Score:
    """The text is as expected, and each paragraph has the expected line spacing."""
    text = compare_docx_files(result, expected)
    if text.score < 1:
        return text
    got, wanted = (
        [p.paragraph_format.line_spacing for p in document.paragraphs] for document in _two(result, expected)
    )
    return Score(1.0) if got == wanted else differ("the line spacing", got, wanted)


@metric(unsupported=_docx)
def compare_insert_equation(result: Argument, expected: Argument) -> Score:
    """The text is as expected, and at some place both documents have an embedded object."""
    text = compare_docx_files(result, expected)
    if text.score < 1:
        return text
    for pair in _pairs(*_two(result, expected)):
        if all(run.element.find(f".//{_W}object") is not None for run in pair):
            return Score(1.0)
    return Score(0.0, "no equation is where one is expected")


@metric(unsupported=_docx)
def compare_font_names(result: Argument, expected: Argument) -> Score:
    """All text has the font ``font_name``."""
    wanted = rules_of(expected)["font_name"]
    if not any(run.text.strip() for run in _runs(open_document(as_file(result, "result")))):
        return Score(0.0, "the document has no text")
    for run in _runs(open_document(as_file(result, "result"))):
        if run.font.name != wanted:
            return differ("a font", run.font.name, wanted)
    return Score(1.0)


@metric(unsupported=_docx, needs_expected=False)
def is_first_line_centered(result: Argument, expected: Argument) -> Score:
    """The first paragraph is centred."""
    rows = open_document(as_file(result, "result")).paragraphs
    centred = rows and rows[0].paragraph_format.alignment == CENTER
    return Score(1.0) if centred else Score(0.0, "the first paragraph is not centred")


@metric(unsupported=_docx)
def check_tabstops(
    result: Argument, expected: Argument, word_number_split_by_tabstop: int | None = None, index: int = 0
) -> Score:
    """1 − the tab stops' mean distance, over the width of the text, to those expected.

    ``word_number_split_by_tabstop``: each paragraph has so many words in its part ``index`` between tabs.
    """
    documents = _two(result, expected)
    a, b = ([p for p in document.paragraphs if p.text.strip()] for document in documents)
    if not a or len(a) != len(b):
        return differ("the number of paragraphs", len(a), len(b))
    if word_number_split_by_tabstop is not None:
        for paragraph in a:
            parts = paragraph.text.split("\t")
            words = parts[index].split() if -len(parts) <= index < len(parts) else []
            if len(words) != word_number_split_by_tabstop:
                return differ("the words before a tab", len(words), word_number_split_by_tabstop)
    page = documents[1].sections[0]
    width, off = page.page_width - page.left_margin - page.right_margin, 0.0
    for one, other in zip(a, b, strict=True):
        got, wanted = _tabs(one), _tabs(other)
        if [kind for kind, _ in got] != [kind for kind, _ in wanted]:
            return differ("the tab stops", got, wanted)
        off += sum(abs(x[1] - y[1]) for x, y in zip(got, wanted, strict=True)) / width
    return Score(1 - off / len(a), f"the tab stops are off by {off / len(a):.4f} of the width")


def _tabs(paragraph: Any) -> list[tuple[int, int]]:
    stops = [(int(stop.alignment), int(stop.position)) for stop in paragraph.paragraph_format.tab_stops]
    return [stop for stop in stops if stop[0] != CLEAR and stop != (LEFT, 0)]


@metric(unsupported=_docx)
def compare_contains_image(result: Argument, expected: Argument) -> Score:
    """Pictures stand where they are expected."""
    for a, b in _pairs(*_two(result, expected)):
        if _has_picture(a) != _has_picture(b):
            return Score(0.0, "a picture is missing, or where none is expected")
    return Score(1.0)


def _has_picture(run: Any) -> bool:
    return any(str(element.tag).endswith("}graphicData") for element in run._element.iter())


@metric(unsupported=_docx, needs_expected=False)
def evaluate_conversion(result: Argument, expected: Argument) -> Score:
    """No run of text, in tables or outside, is in capitals."""
    document = open_document(as_file(result, "result"))
    for run in (*cell_runs(document), *_runs(document)):
        if run.text.isupper():
            return Score(0.0, f"{run.text[:80]!r} is in capitals")
    return Score(1.0)


@metric(unsupported=_docx, needs_expected=False)
def evaluate_spacing(result: Argument, expected: Argument) -> Score:
    """The first three paragraphs have a line spacing of 1, 2 and 1.5."""
    rows = open_document(as_file(result, "result")).paragraphs[:3]
    got = [paragraph.paragraph_format.line_spacing for paragraph in rows]
    return Score(1.0) if got == [1.0, 2.0, 1.5] else differ("the line spacing", got, [1.0, 2.0, 1.5])


@metric(unsupported=_docx)
def check_italic_font_size_14(result: Argument, expected: Argument) -> Score:
    """The text is as expected, and all that is italic has a size of 14 points."""
    text = compare_docx_files(result, expected)
    if text.score < 1:
        return text
    for run in _runs(open_document(as_file(result, "result"))):
        if run.italic and (run.font.size is None or run.font.size.pt != 14):
            return Score(0.0, f"{run.text[:80]!r} is italic and not of 14 points")
    return Score(1.0)


def _trains(texts: list[str]) -> list[str]:
    """Return the second of four entries of each line that has four."""
    parts = [text.split(",") for text in texts]
    return [row[1].strip() for row in parts if len(row) == 4]


@metric(unsupported=_docx)
def check_no_duplicates(result: Argument, expected: Argument) -> Score:
    """The expected document has no train twice, and the same trains as the result: OSWorld's order."""
    before, after = (_trains(_texts(document)) for document in _two(result, expected))
    if not after:
        return Score(0.0, "there are no trains")
    if len(after) != len(set(after)):
        return Score(0.0, "there are duplicates")
    return Score(1.0) if set(after) == set(before) else differ("the trains", after, before)


@metric(unsupported=_docx)
def compare_unique_train_records(result: Argument, expected: Argument) -> Score:
    """Lines of the second of two expected documents, without duplicates, with the trains of the first."""
    if not isinstance(expected, list) or len(expected) < 2:
        raise Unreadable("expected", "this metric needs two expected documents")
    files = as_file(result, "result"), as_file(expected[0], "expected"), as_file(expected[1], "expected")
    got, gold, before = (
        [text.strip() for text in _texts(open_document(file)) if text.strip()] for file in files
    )
    if not set(got) <= set(before):
        return Score(0.0, "there are lines that were not there before")
    trains = _trains(got)
    if len(trains) != len(set(trains)):
        return Score(0.0, "there are duplicates")
    if set(trains) != set(_trains(gold)) or len(got) != len(gold):
        return differ("the lines", got, gold)
    return Score(1.0)


@metric()
def compare_highlighted_text(result: Argument, expected: Argument) -> Score:
    """Both documents have the same highlighted texts."""
    got = _highlighted(as_file(result, "result"))
    wanted = _highlighted(as_file(expected, "expected"))
    return Score(1.0) if got == wanted else differ("what is highlighted", sorted(got), sorted(wanted))


def _highlighted(file: InputFile) -> set[str]:
    found: set[str] = set()
    for run in file.xml(file.member(file.zip(), "word/document.xml")).iter(f"{_W}r"):
        mark, text = run.find(f".//{_W}highlight"), run.find(f".//{_W}t")
        if mark is not None and mark.get(f"{_W}val") != "none" and text is not None:
            found.add(text.text or "")
    return found


@metric(unsupported=_docx)
def compare_references(
    result: Argument,
    expected: Argument,
    reference_indicator: str = "References",
    reference_base_result: float = 0.5,
    content_only: bool = True,
) -> Score:
    """Similarity of the paragraphs after ``reference_indicator``, beyond ``reference_base_result``.

    ``content_only`` stands in a task; nothing but the text is ever compared.
    """
    lists: list[list[str] | None] = []
    for document in _two(result, expected):
        rows = _texts(document)
        start = rows.index(reference_indicator) + 1 if reference_indicator in rows else None
        lists.append(None if start is None else [row for row in rows[start:] if row.strip()])
    got, wanted = lists
    if got is None or wanted is None:
        return Score(float(got is wanted), f"there is no paragraph {reference_indicator!r}")
    if len(got) != len(wanted) or not got:
        return differ("the number of references", len(got), len(wanted))
    mean = sum(similarity(a, b) for a, b in zip(got, wanted, strict=True)) / len(got)
    if mean < reference_base_result + _GAIN:
        return Score(0.0, f"the references are alike by {mean:.3f}")
    return Score((mean - reference_base_result) / (1 - reference_base_result))


@metric(unsupported=_docx)
def fuzzy_place_math(result: Argument, expected: Argument) -> Score:
    """Three words, and how alike each is to the nearest of ``rules.expected``."""
    words = " ".join(_texts(open_document(as_file(result, "result")))).split()
    if len(words) != 3:
        return differ("the words", words[:20], "three")
    answers = [str(answer) for answer in rules_of(expected)["expected"]]
    return Score(sum(max(similarity(word, answer) for answer in answers) for word in words) / 3)


def warm_up() -> None:
    if not is_installed("docx"):
        return
    import docx

    document = docx.Document()
    document.add_paragraph("a").add_run("b").font.strike = True
    document.add_table(1, 1).cell(0, 0).text = "a"
    document.sections[0].footer.paragraphs[0].text = "1"
    written = io.BytesIO()
    document.save(written)
    read = docx.Document(io.BytesIO(written.getvalue()))
    for paragraph in read.paragraphs:
        assert not any(run.font.color.rgb for run in paragraph.runs)
        assert not list(paragraph.paragraph_format.tab_stops)
    assert read.sections[0].footer.paragraphs[0].text == "1"
