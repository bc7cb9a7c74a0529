"""Other contents of documents: mutations differ as their names say and no more, equivalents in spelling."""

from __future__ import annotations

import io
import random
from collections import Counter
from functools import cache
from itertools import groupby
from typing import Any

import docx
import pytest
from docx.shared import Pt
from docx.text.paragraph import Paragraph
from PIL import Image
from tests.support.office_goldens import golden_document, score, task_of

from osgym_certify.ends import document
from osgym_certify.ends.base import Content, GoldenFile, Must
from osgym_certify.ends.document_equivalents import EQUIVALENTS
from osgym_certify.ends.document_mutations import MUTATIONS
from osgym_certify.ends.docx_parts import W, set_in_run, text_of
from osgym_certify.ends.ooxml import Package

BEFORE = ["Notes", "The barn opens on Monday.", "All barns are closed.", "Meet us there.", "The end is near."]
AFTER = ["Notes", "The shed opens on Monday.", "All sheds are closed.", "Meet us there.", "The end is near."]
_FOOTNOTES = (
    f'<w:footnotes xmlns:w="{W[1:-1]}"><w:footnote w:id="2"><w:p><w:r><w:t>Letter of 2001</w:t></w:r></w:p>'
    "</w:footnote></w:footnotes>"
)
_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
PER_PARAGRAPH = {"text", "bold", "italic", "size", "colour", "hidden", "style", "alignment", "spacing"}
RUNS = {"bold", "italic", "size", "colour", "hidden"}
FAMILIES_OF_WRITER = ["format", "order", "replace", "styles"]


def sample(rows: list[str], *, is_golden: bool) -> bytes:
    """A document with a heading, a list, a table, a picture; the golden one has a footnote and bold text."""
    made = docx.Document()
    made.add_heading(rows[0], 1)
    for row in rows[1:]:
        made.add_paragraph(row)
    for item in ("ropes", "gloves"):
        made.add_paragraph(item, style="List Bullet")
    table = made.add_table(2, 2)
    for row, cells in zip(table.rows, (("Item", "Weight"), ("Bread", "850")), strict=True):
        for cell, text in zip(row.cells, cells, strict=True):
            cell.text = text
    picture = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(picture, "PNG")
    made.add_picture(picture)
    if is_golden:
        made.paragraphs[3].runs[0].bold = True
    out = io.BytesIO()
    made.save(out)
    package = Package.read(out.getvalue())
    if is_golden:
        package.put("word/footnotes.xml", _FOOTNOTES.encode())
        package.declare("word/footnotes.xml", _TYPE)
        package.relate("word/document.xml", "footnotes", "word/footnotes.xml")
        run = package.root("word/document.xml").findall(f".//{W}r")[1]
        run.append(run.makeelement(f"{W}footnoteReference", {f"{W}id": "2"}))
    return package.data()


GOLDEN = GoldenFile("/home/user/letter.docx", sample(AFTER, is_golden=True), sample(BEFORE, is_golden=False))


@cache
def made(function: Any, golden: GoldenFile = GOLDEN, seed: int = 0) -> tuple[Content, ...]:
    return tuple(function(golden, random.Random(seed)))


def _facts_of(paragraph: Any) -> dict[str, Any]:
    """What python-docx reads of a paragraph; neighbouring texts of one format are one."""
    runs = [
        (
            run.text,
            (
                bool(run.bold),
                bool(run.italic),
                run.font.size and run.font.size.pt,
                run.font.color.rgb and str(run.font.color.rgb),
                bool(run.font.hidden),
            ),
        )
        for run in paragraph.runs
        if run.text
    ]
    groups = groupby(runs, key=lambda one: one[1])
    looks = [(look, "".join(text for text, _ in same)) for look, same in groups]
    return {
        "text": paragraph.text,
        "bold": [(look[0], text) for look, text in looks],
        "italic": [(look[1], text) for look, text in looks],
        "size": [(look[2], text) for look, text in looks],
        "colour": [(look[3], text) for look, text in looks],
        "hidden": [(look[4], text) for look, text in looks],
        "style": paragraph.style.name,
        "alignment": paragraph.alignment,
        "spacing": paragraph.paragraph_format.line_spacing,
    }


@cache
def facts(data: bytes) -> dict[str, Any]:
    """What python-docx reads of a document, by kind."""
    read = docx.Document(io.BytesIO(data))
    body = [_facts_of(Paragraph(one, read)) for one in read.element.body.iter(f"{W}p")]
    package, section = Package.read(data), read.sections[0]
    notes = package.parts.get("word/footnotes.xml")
    return {
        **{kind: [one[kind] for one in body] for kind in PER_PARAGRAPH},
        "tables": [[[cell.text for cell in row.cells] for row in table.rows] for table in read.tables],
        "pictures": len(read.inline_shapes),
        "page": (section.page_width, section.page_height, section.orientation),
        "margins": (section.left_margin, section.right_margin, section.top_margin),
        "notes": [] if notes is None else [text_of(one) for one in package.root("word/footnotes.xml")],
        "note marks": len(list(read.element.body.iter(f"{W}footnoteReference"))),
        "tracked": len(list(read.element.body.iter(f"{W}ins"))),
        "breaks": len(list(read.element.body.iter(f"{W}br"))),
        "numbering": package.parts.get("word/numbering.xml", b""),
    }


def differences(data: bytes, other: bytes = GOLDEN.data) -> set[str]:
    """The kinds of facts that differ; formats of texts only where the texts are the same."""
    a, b = facts(data), facts(other)
    found = {kind for kind in {*a, *b} if a.get(kind) != b.get(kind)}
    return found - RUNS if "text" in found else found


DIFFERENCES: dict[str, set[str]] = {
    "one paragraph removed": PER_PARAGRAPH - RUNS - {"alignment", "spacing"},
    "one paragraph doubled": PER_PARAGRAPH - RUNS,
    "two paragraphs swapped": {"text"},
    "one word changed": {"text"},
    "case of one letter changed": {"text"},
    "all text bold": {"bold"},
    "all text white": {"colour"},
    "all text in 4 pt": {"size"},
    "all text hidden": {"hidden"},
    "all paragraphs centred": {"alignment"},
    "all lines double-spaced": {"spacing"},
    "one heading lost": {"style"},
    "lists lost": {"style"},
    "kind of lists changed": {"numbering"},
    "one cell of a table emptied": {"text", "tables"},
    "one cell of a table changed": {"text", "tables"},
    "one row of a table removed": {"text", "tables"},
    "tables replaced by tabs": {"text", "tables"},
    "one footnote removed": {"notes", "note marks"},
    "one footnote changed": {"notes"},
    "paragraph added at the end": {"text"},
    "margin of the page changed": {"margins"},
    "page turned": {"page"},
    "page break added": {"text", "breaks"},
    "one picture removed": {"pictures"},
    "insertion left as a tracked change": {"text", "tracked"},
    "all contents removed": {"text", "tables", "pictures"},
}
"""Kinds of facts that differ at least; the number of paragraphs also changes the others of theirs."""
ONLY: set[str] = {name for name, kinds in DIFFERENCES.items() if "text" not in kinds}


def test_each_mutation_differs_in_what_it_says() -> None:
    """And in nothing else, for whatever is drawn; the document opens."""
    assert {*MUTATIONS} == {*DIFFERENCES}
    for seed in range(3):
        contents = {one.name: one for one in made(document.mutations, seed=seed)}
        assert {*contents} >= {*MUTATIONS}
        for name, kinds in DIFFERENCES.items():
            assert contents[name].must is Must.EARN_NOTHING
            found = differences(contents[name].data)
            if name in ONLY:
                assert found == kinds, name
            else:
                allowed = kinds | PER_PARAGRAPH | ({"note marks", "pictures"} if "removed" in name else set())
                assert kinds & found and found <= allowed, (name, found)


def texts(data: bytes) -> list[str]:
    return [one.text for one in docx.Document(io.BytesIO(data)).paragraphs]


def by_name(name: str, golden: GoldenFile = GOLDEN, seed: int = 0) -> list[bytes]:
    return [one.data for one in made(document.mutations, golden, seed) if one.name == name]


def test_paragraphs_are_moved_whole() -> None:
    """Removed, doubled, swapped: all others stay as they are."""
    golden = texts(GOLDEN.data)
    for seed in range(3):
        (removed,) = (texts(one) for one in by_name("one paragraph removed", seed=seed))
        (doubled,) = (texts(one) for one in by_name("one paragraph doubled", seed=seed))
        (swapped,) = (texts(one) for one in by_name("two paragraphs swapped", seed=seed))
        assert sum((Counter(golden) - Counter(removed)).values()) == 1 and len(removed) == len(golden) - 1
        assert [text for text, _ in groupby(doubled)] == golden and len(doubled) == len(golden) + 1
        assert Counter(swapped) == Counter(golden) and swapped != golden


def test_changed_paragraphs_are_put_back() -> None:
    """Two texts and a format, one in each content."""
    back = [facts(one) for one in by_name("one changed paragraph put back")]
    golden, before = facts(GOLDEN.data), facts(GOLDEN.before or b"")
    assert len(back) == 3
    places = []
    for one in back:
        (place,) = [
            at
            for at in range(len(golden["text"]))
            if (one["text"][at], one["bold"][at]) != (golden["text"][at], golden["bold"][at])
        ]
        assert one["text"][place] == before["text"][place] and one["bold"][place] == before["bold"][place]
        places.append(place)
    assert sorted(places) == [1, 2, 3]


@pytest.mark.parametrize(
    ("rows", "name", "wanted"),
    [
        (["a b", "c d", "new"], "one added paragraph removed", ["a b", "c d"]),
        (["c d"], "one removed paragraph put back", ["a b", "c d"]),
    ],
)
def test_added_and_removed_paragraphs_are_put_back(rows: list[str], name: str, wanted: list[str]) -> None:
    """Where they were."""

    def written(lines: list[str]) -> bytes:
        read = docx.Document()
        for line in lines:
            read.add_paragraph(line)
        out = io.BytesIO()
        read.save(out)
        return out.getvalue()

    golden = GoldenFile("/a.docx", written(rows), written(["a b", "c d"]))
    assert [texts(one) for one in by_name(name, golden)] == [wanted]


def test_equivalents_read_the_same() -> None:
    """Texts, formats, styles, tables, pages, as python-docx reads them."""
    contents = {one.name: one for one in made(document.equivalents)}
    assert {*EQUIVALENTS} - {*contents} == {"usual style not stated"}
    for name, content in contents.items():
        assert content.must is Must.EARN_ALL and differences(content.data) == set(), name
    stated = GoldenFile("/a.docx", contents["usual style stated"].data)
    assert "usual style not stated" in {one.name for one in made(document.equivalents, stated)}


def test_bold_by_style_is_not_stated_otherwise() -> None:
    """A run that its style makes bold does not get a switch, one that is bold itself keeps it."""
    (content,) = [
        one.data
        for one in made(document.equivalents)
        if one.name == "plain text stated as neither bold nor italic"
    ]
    runs = [one.runs[0] for one in docx.Document(io.BytesIO(content)).paragraphs[:4]]
    assert [run.bold for run in runs] == [None, False, False, True]


def test_properties_of_runs_are_in_the_order_of_the_schema() -> None:
    """Word refuses others."""
    run = docx.Document().add_paragraph().add_run("a")
    run.font.size, run.italic = Pt(9), True
    set_in_run(run._element, "b", val="1")
    set_in_run(run._element, "color", val="FFFFFF")
    assert [one.tag.removeprefix(W) for one in run._element.rPr] == ["b", "i", "color", "sz"]


def test_draws_depend_on_the_seed_alone() -> None:
    """The same seed gives the same contents, another one others."""
    anew = made.__wrapped__  # past the cache
    first, again, other = (anew(document.mutations, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("data", [b"", b"text", Package({"a.txt": b"a"}).data()])
def test_what_is_no_document_has_no_contents(data: bytes) -> None:
    """Nor a document whose XML is damaged, or has entities."""
    for function in (document.mutations, document.equivalents):
        assert made(function, GoldenFile("/a.docx", data)) == ()
    for wrong in (b"<w:document>", b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'):
        damaged = Package.read(GOLDEN.data)
        damaged.put("word/document.xml", wrong)
        assert made(document.mutations, GoldenFile("/a.docx", damaged.data())) == ()


@pytest.mark.parametrize("family", FAMILIES_OF_WRITER)
def test_the_families_checks_agree(family: str) -> None:
    """They pay nothing for any mutation of their golden documents, and all for equivalents."""
    task = task_of(f"writer.{family}")
    golden = golden_document(task)
    before = golden.before or b""
    assert set(score(task, golden.data, before).values()) == {1.0}
    for content in made(document.mutations, golden):
        assert min(score(task, content.data, before).values()) == 0.0, content.name
    for content in made(document.equivalents, golden):
        assert set(score(task, content.data, before).values()) == {1.0}, content.name
