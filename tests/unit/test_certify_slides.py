"""Other contents of presentations: mutations differ as their names say, equivalents in spelling alone."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import pptx
import pytest
from PIL import Image
from pptx.dml.color import RGBColor
from pptx.util import Inches

from osgym_certify.ends import slides
from osgym_certify.ends.base import Content, GoldenFile, Must
from osgym_certify.ends.ooxml import Package
from osgym_certify.ends.slides_equivalents import EQUIVALENTS
from osgym_certify.ends.slides_mutations import MUTATIONS
from osgym_host.tasks.evaluator.inputs import InputFile
from osgym_osworld.metrics.documents import check_slides_text

TITLE_AND_TEXT = 1
Rows = Sequence[tuple[str, ...]]
BEFORE: Rows = [("Agenda", "Costs", "Staff"), ("Budget", "It grew", "A lot"), ("Risks", "Few", "Known")]
AFTER: Rows = [("Agenda", "Costs", "Staff"), ("Money", "It grew", "By half"), ("Risks", "Few", "Known")]


def sample(rows: Rows) -> bytes:
    """A presentation: titles and lines; on the second slide a picture, notes, and a background."""
    made = pptx.Presentation()
    for title, *lines in rows:
        slide = made.slides.add_slide(made.slide_layouts[TITLE_AND_TEXT])
        slide.shapes.title.text = title
        slide.placeholders[1].text = "\n".join(lines)
    second = made.slides[1]
    picture = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(picture, "PNG")
    second.shapes.add_picture(picture, Inches(1), Inches(1))
    second.notes_slide.notes_text_frame.text = "Speak slowly."
    second.background.fill.solid()
    second.background.fill.fore_color.rgb = RGBColor(0, 0, 255)
    out = io.BytesIO()
    made.save(out)
    return Package.read(out.getvalue()).data()


GOLDEN = GoldenFile("/home/user/talk.pptx", sample(AFTER), sample(BEFORE))


@cache
def made(function: Any, golden: GoldenFile = GOLDEN, seed: int = 0) -> tuple[Content, ...]:
    return tuple(function(golden, random.Random(seed)))


def by_name(name: str, golden: GoldenFile = GOLDEN, seed: int = 0) -> list[bytes]:
    return [one.data for one in made(slides.mutations, golden, seed) if one.name == name]


def texts(data: bytes) -> list[tuple[str, ...]]:
    """The texts of each slide, as python-pptx reads them."""
    return [
        tuple(
            paragraph.text
            for shape in slide.shapes
            if shape.has_text_frame
            for paragraph in shape.text_frame.paragraphs
            if paragraph.text
        )
        for slide in pptx.Presentation(io.BytesIO(data)).slides
    ]


@cache
def facts(data: bytes) -> dict[str, Any]:
    """What python-pptx reads of a presentation, by kind."""
    read = pptx.Presentation(io.BytesIO(data))
    paragraphs = [
        paragraph
        for slide in read.slides
        for shape in slide.shapes
        if shape.has_text_frame
        for paragraph in shape.text_frame.paragraphs
    ]
    runs = [run for paragraph in paragraphs for run in paragraph.runs]
    return {
        "text": texts(data),
        "bold": {bool(run.font.bold) for run in runs},
        "italic": {bool(run.font.italic) for run in runs},
        "size": {run.font.size and run.font.size.pt for run in runs},
        "colour": {str(run.font.color.rgb) if run.font.color.type else None for run in runs},
        "alignment": [paragraph.alignment for paragraph in paragraphs if paragraph.text],
        "shapes": [[shape.shape_type for shape in slide.shapes] for slide in read.slides],
        "places": [[(shape.left, shape.top) for shape in slide.shapes] for slide in read.slides],
        "notes": [slide.has_notes_slide for slide in read.slides],
        "background": [slide.follow_master_background for slide in read.slides],
        "hidden": [slide._element.get("show") for slide in read.slides],
    }


def differences(data: bytes) -> set[str]:
    a, b = facts(data), facts(GOLDEN.data)
    return {kind for kind in a if a[kind] != b[kind]}


SLIDES = {"text", "alignment", "shapes", "places", "notes", "background", "hidden"}
"""Kinds of facts that are read slide by slide."""
DIFFERENCES: dict[str, set[str]] = {
    "one text removed": {"text", "alignment"},
    "one text doubled": {"text", "alignment"},
    "two texts of a slide swapped": {"text"},
    "one word changed": {"text"},
    "case of one letter changed": {"text"},
    "one slide removed": SLIDES,
    "one slide doubled": SLIDES,
    "empty slide added": SLIDES - {"alignment"},
    "two slides swapped": SLIDES - {"alignment", "hidden"},
    "one slide hidden": {"hidden"},
    "one title emptied": {"text", "alignment"},
    "all text bold": {"bold"},
    "all text in 4 pt": {"size"},
    "all text white": {"colour"},
    "alignment of all texts changed": {"alignment"},
    "notes of one slide lost": {"notes"},
    "one picture removed": {"shapes", "places"},
    "one shape removed": {"text", "shapes", "places", "alignment"},
    "background of one slide lost": {"background"},
    "one shape moved off its slide": {"places"},
    "all texts emptied": {"text", "alignment", "bold", "italic", "size", "colour"},
}
"""Kinds of facts that may differ; one of them does."""


def test_each_mutation_differs_in_what_it_says() -> None:
    """And in nothing else, for whatever is drawn; the presentation opens."""
    assert {*MUTATIONS} == {*DIFFERENCES}
    contents = [one for seed in range(3) for one in made(slides.mutations, seed=seed)]
    assert {one.name for one in contents} >= {*MUTATIONS}
    for content in contents:
        assert content.must is Must.EARN_NOTHING
        found = differences(content.data)
        assert found and found <= DIFFERENCES.get(content.name, {"text"}), (content.name, found)


def test_slides_are_moved_whole() -> None:
    """Removed, doubled, swapped, added: all others stay as they are."""
    golden = texts(GOLDEN.data)
    for seed in range(3):
        removed, doubled, swapped, added = (
            texts(by_name(name, seed=seed)[0])
            for name in ("one slide removed", "one slide doubled", "two slides swapped", "empty slide added")
        )
        assert len(removed) == 2 and [one for one in golden if one in removed] == removed
        assert len(doubled) == 4 and list(dict.fromkeys(doubled)) == golden
        assert swapped != golden and Counter(swapped) == Counter(golden)
        assert added == [*golden, ()]


def test_changed_texts_are_put_back() -> None:
    """One in each content."""
    one, two = texts(GOLDEN.data), texts(GOLDEN.data)
    one[1], two[1] = ("Budget", "It grew", "By half"), ("Money", "It grew", "A lot")
    found = [texts(data) for data in by_name("one changed text put back")]
    assert sorted(found) == sorted([one, two])


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([("A", "b", "c", "new")], "one added text removed"),
        ([("A", "c")], "one removed text put back"),
        ([("A", "b")], "one removed text put back"),
    ],
)
def test_added_and_removed_texts_are_put_back(rows: Rows, name: str) -> None:
    """Where they were."""
    plain = ("Second", "x", "y")
    golden = GoldenFile("/a.pptx", sample([*rows, plain]), sample([("A", "b", "c"), plain]))
    assert [texts(data)[0] for data in by_name(name, golden)] == [("A", "b", "c")]


def test_equivalents_read_the_same() -> None:
    """Texts, formats, places, notes, as python-pptx reads them."""
    contents = {one.name: one for one in made(slides.equivalents)}
    assert {*EQUIVALENTS} == {*contents}
    for name, content in contents.items():
        assert content.must is Must.EARN_ALL and differences(content.data) == set(), name


def test_the_metric_of_texts_agrees() -> None:
    """It pays nothing for another text, and all for equivalents."""
    rules = {"rules": {"slides": [[*row] for row in AFTER]}}["rules"]

    def score(data: bytes) -> float:
        return check_slides_text(InputFile(-1, "talk.pptx", "result", data), rules).score

    for content in made(slides.mutations):
        assert (score(content.data) == 0.0) == ("text" in differences(content.data)), content.name
    assert {score(one.data) for one in made(slides.equivalents)} == {1.0}


def test_draws_depend_on_the_seed_alone() -> None:
    """The same seed gives the same contents, another one others."""
    anew = made.__wrapped__  # past the cache
    first, again, other = (anew(slides.mutations, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("data", [b"", b"text", Package({"a.txt": b"a"}).data()])
def test_what_is_no_presentation_has_no_contents(data: bytes) -> None:
    """Nor one that lacks a slide."""
    for function in (slides.mutations, slides.equivalents):
        assert made(function, GoldenFile("/a.pptx", data)) == ()
    damaged = Package.read(GOLDEN.data)
    del damaged.parts["ppt/slides/slide2.xml"]
    assert made(slides.mutations, GoldenFile("/a.pptx", damaged.data())) == ()
