"""OSWorld's metrics over marks in documents, and over the cities of a table."""

from __future__ import annotations

import io
import zipfile

import docx
import openpyxl
import pytest
from docx.shared import RGBColor

from osgym_host.tasks.evaluator.inputs import InputFile, Unreadable
from osgym_host.tasks.evaluator.registry import METRICS, Score
from osgym_osworld.metrics.documents_marks import _ciede2000, colour_difference


def given(data: bytes, role: str = "result") -> InputFile:
    """A file as a metric gets it."""
    return InputFile(-1, "f", role, data)


def score(name: str, result: object, expected: object = None, **options: object) -> float:
    """The score of one metric."""
    value = METRICS[name].function(result, expected, **options)
    return value.score if isinstance(value, Score) else float(value)


def written(text: str, background: str = "transparent") -> bytes:
    """An odt file with one span of this background."""
    names = ("office", "text", "style")
    spaces = "".join(f' xmlns:{n}="urn:oasis:names:tc:opendocument:xmlns:{n}:1.0"' for n in names)
    fo = ' xmlns:fo="urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0"'
    xml = (
        f"<office:document-content{spaces}{fo}><office:automatic-styles><style:style style:name='T1'>"
        f"<style:text-properties fo:background-color='{background}'/></style:style></office:automatic-styles>"
        f"<office:body><text:p>a <text:span text:style-name='T1'>{text}</text:span></text:p></office:body>"
        "</office:document-content>"
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("content.xml", xml)
    return buffer.getvalue()


def test_highlighted_words() -> None:
    """The text is there and no yellow is left."""
    gold = given(written("word"), "expected")
    assert score("check_highlighted_words", given(written("word")), gold) == 1
    assert score("check_highlighted_words", given(written("word", "#ffff00")), gold) == 0
    assert score("check_highlighted_words", given(written("other")), gold) == 0
    with pytest.raises(Unreadable, match="UTF-8") as caught:
        score("check_highlighted_words", given(b"\xff\xfe"), gold)
    assert caught.value.role == "result"


def table(*words: tuple[str, tuple[int, int, int] | None]) -> bytes:
    """A docx file with a table of coloured words."""
    document = docx.Document()
    cells = document.add_table(1, len(words)).rows[0].cells
    for cell, (word, colour) in zip(cells, words, strict=True):
        run = cell.paragraphs[0].add_run(word)
        if colour is not None:
            run.font.color.rgb = RGBColor(*colour)
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


def test_coloured_words_in_tables() -> None:
    """Vowels in red, others in blue, nearly so; a word without a colour is neither."""
    gold = given(table(("apple", None), ("pear", None)), "expected")
    right = table(("apple", (255, 0, 0)), ("pear", (0, 0, 255)))
    near = table(("apple", (250, 0, 0)), ("pear", (0, 0, 255)))
    wrong = table(("apple", (0, 0, 255)), ("pear", (0, 0, 255)))
    name = "evaluate_colored_words_in_tables"
    assert [score(name, given(data), gold) for data in (right, near, wrong)] == [1, 1, 0]
    assert score(name, given(near), gold, threshold=0.1) == 0
    assert score(name, gold, gold) == 0


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, -1.0, 2.0), (50.0, 0.0, 0.0), 2.3669),
        ((50.0, 2.49, -0.001), (50.0, -2.49, 0.0009), 7.1792),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_colour_difference_is_the_standards(
    one: tuple[float, float, float], other: tuple[float, float, float], wanted: float
) -> None:
    """Pairs that Sharma, Wu and Dalal published to test implementations with."""
    assert _ciede2000(one, other) == pytest.approx(wanted, abs=1e-4)
    assert colour_difference((255, 0, 0), (255, 0, 0)) == 0


def test_parted_sentences() -> None:
    """Three words and the rest, each as one; broken files are the result's."""

    def text(sentence: str) -> bytes:
        document, buffer = docx.Document(), io.BytesIO()
        document.add_paragraph(sentence)
        document.save(buffer)
        return buffer.getvalue()

    assert score("evaluate_alignment", given(text("one two three\tfour five. Short one."))) == 1
    assert score("evaluate_alignment", given(text("one two  three four"))) == 0
    with pytest.raises(Unreadable):
        score("evaluate_alignment", given(b"PK\3\4"))


def test_cities_in_order() -> None:
    """One name or several for each cell, in order."""

    def book(*names: str | None) -> bytes:
        sheet, buffer = openpyxl.Workbook(), io.BytesIO()
        for row, name in enumerate(names, 2):
            sheet.active.cell(row, 3, name)
        sheet.save(buffer)
        return buffer.getvalue()

    cities: list[str | list[str]] = [f"city {n}" for n in range(20)]
    rules = {"expected": [*cities, ["Montréal", "Montreal"]]}
    names = [f"city {n}, X" for n in range(20)]
    assert score("compare_conference_city_in_order", given(book(*names, "Montreal, Canada")), rules) == 1
    assert score("compare_conference_city_in_order", given(book(*names, "Paris")), rules) == 0
    assert score("compare_conference_city_in_order", given(book(*names, None)), rules) == 0
    with pytest.raises(Unreadable):
        score("compare_conference_city_in_order", given(b"PK\3\4"), rules)
