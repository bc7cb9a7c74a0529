"""Other contents of OpenDocument files (odt, odp): what differs, and what reads the same."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest
from tests.support.office_goldens import score, task_of, uploaded

from osgym_certify.ends import document, slides
from osgym_certify.ends.base import Content, GoldenFile, Must
from osgym_certify.ends.odf_pages import MUTATIONS_OF_PRESENTATIONS
from osgym_certify.ends.odf_parts import DRAW, FO, OFFICE, STYLE
from osgym_certify.ends.odf_texts import EQUIVALENTS, MUTATIONS_OF_DOCUMENTS
from osgym_certify.ends.ooxml import PACKED_OTHERWISE, Package, parse
from osgym_host.tasks.evaluator.inputs import InputFile
from osgym_osworld.metrics.documents import paragraphs
from osgym_osworld.metrics.documents import slides as read_slides
from osgym_tasks.impress import odp_bytes

_SPACE = "urn:oasis:names:tc:opendocument:xmlns:{}:1.0"
_DECLARED = " ".join(
    f'xmlns:{name}="{_SPACE.format(long)}"'
    for name, long in {
        **{name: name for name in ("office", "style", "text", "presentation")},
        "draw": "drawing",
        "fo": "xsl-fo-compatible",
        "svg": "svg-compatible",
        "config": "config",
        "manifest": "manifest",
    }.items()
)
ROWS = [("Agenda", "Costs", "Staff"), ("Money", "It grew", "By half"), ("Risks", "Few", "Known")]
BEFORE = [("Agenda", "Costs", "Staff"), ("Budget", "It grew", "A lot"), ("Risks", "Few", "Known")]
LINES = ["The shed opens.", "All sheds close.", "Bring ropes.", "Bring gloves.", "The end."]
_SETTINGS = (
    f'<office:document-settings {_DECLARED}><config:config-item config:name="ZoomFactor">100'
    "</config:config-item></office:document-settings>"
)
_META = f"<office:document-meta {_DECLARED}><office:meta/></office:document-meta>"
_THUMBNAIL = "Thumbnails/thumbnail.png"
_MANIFEST = (
    f'<manifest:manifest {_DECLARED}><manifest:file-entry manifest:full-path="{_THUMBNAIL}"/>'
    "</manifest:manifest>"
)


def presentation(rows: Sequence[tuple[str, ...]]) -> bytes:
    """A presentation whose second page has a fill, a picture and notes."""
    package = Package.read(odp_bytes(rows))
    root = package.root("content.xml")
    more = parse(
        f'<more {_DECLARED}><style:style style:name="blue" style:family="drawing-page">'
        '<style:drawing-page-properties draw:fill="solid"/></style:style>'
        '<draw:frame svg:x="1cm"><draw:image/></draw:frame>'
        "<presentation:notes><draw:frame><draw:text-box><text:p>Speak slowly.</text:p></draw:text-box>"
        "</draw:frame></presentation:notes></more>".encode()
    )
    style, picture, notes = more
    root.find(f"{OFFICE}automatic-styles").append(style)
    page = root.findall(f".//{DRAW}page")[1]
    page.set(f"{DRAW}style-name", "blue")
    page.extend([picture, notes])
    return _with_all(package)


def text_document(lines: Sequence[str]) -> bytes:
    """A text with a heading, two paragraphs, a list of two items, and a last paragraph with a bold word."""
    first, second, *items, last = lines
    listed = "".join(f"<text:list-item><text:p>{item}</text:p></text:list-item>" for item in items)
    word, _, rest = last.partition(" ")
    content = (
        f"<office:document-content {_DECLARED}><office:automatic-styles>"
        '<style:style style:name="T1" style:family="text"><style:text-properties fo:color="#ff0000"/>'
        "</style:style></office:automatic-styles><office:body>"
        f'<office:text><text:h text:outline-level="1">{first}</text:h><text:p>{second}</text:p>'
        f'<text:list>{listed}</text:list><text:p><text:span text:style-name="T1">{word}</text:span> {rest}'
        "</text:p></office:text></office:body></office:document-content>"
    )
    package = Package(
        {"mimetype": b"application/vnd.oasis.opendocument.text", "content.xml": content.encode()}
    )
    return _with_all(package)


def _with_all(package: Package) -> bytes:
    package.put("settings.xml", _SETTINGS.encode())
    package.put("meta.xml", _META.encode())
    package.put(_THUMBNAIL, b"picture")
    package.put("META-INF/manifest.xml", _MANIFEST.encode())
    return package.data()


TALK = GoldenFile("/home/user/talk.odp", presentation(ROWS), presentation(BEFORE))
LETTER = GoldenFile("/home/user/letter.odt", text_document(LINES))


@cache
def made(function: Any, golden: GoldenFile, seed: int = 0) -> tuple[Content, ...]:
    return tuple(function(golden, random.Random(seed)))


def by_name(function: Any, golden: GoldenFile, name: str, seed: int = 0) -> list[bytes]:
    return [one.data for one in made(function, golden, seed) if one.name == name]


def texts(data: bytes) -> Any:
    """The texts of a file, page by page of a presentation."""
    file = InputFile(-1, "a", "result", data)
    is_talk = b"office:presentation" in Package.read(data).parts["content.xml"]
    return read_slides(file) if is_talk else paragraphs(file)


def elements(data: bytes, path: str, part: str = "content.xml") -> list[Element]:
    root = fromstring(Package.read(data).parts[part])
    prefixes = dict(re.findall(r'xmlns:(\w+)="([^"]+)"', _DECLARED))
    return root.findall(path, prefixes)


SAME_TEXT = {
    "all text bold",
    "all text white",
    "all text in 4 pt",
    "all paragraphs centred",
    "one slide hidden",
    "notes of one slide lost",
    "one picture removed",
    "background of one slide lost",
    "one shape moved off its slide",
    "one heading lost",
    "lists lost",
}
"""Mutations after which all texts are there."""


@pytest.mark.parametrize(
    ("function", "golden", "names"),
    [
        (slides.mutations, TALK, {*MUTATIONS_OF_PRESENTATIONS}),
        (document.mutations, LETTER, {*MUTATIONS_OF_DOCUMENTS}),
    ],
)
def test_mutations_change_the_text_or_its_look(function: Any, golden: GoldenFile, names: set[str]) -> None:
    """As their names say; all of them can be made."""
    contents = [one for seed in range(3) for one in made(function, golden, seed)]
    assert {one.name for one in contents} >= names
    for content in contents:
        assert content.must is Must.EARN_NOTHING
        assert (texts(content.data) == texts(golden.data)) == (content.name in SAME_TEXT), content.name


@pytest.mark.parametrize(("function", "golden"), [(slides.equivalents, TALK), (document.equivalents, LETTER)])
def test_equivalents_have_the_same_text(function: Any, golden: GoldenFile) -> None:
    """And the same number of each element but spans."""
    contents = made(function, golden)
    assert {one.name for one in contents} == {*EQUIVALENTS, *PACKED_OTHERWISE}
    for content in contents:
        assert content.must is Must.EARN_ALL and texts(content.data) == texts(golden.data), content.name

        def counted(data: bytes) -> Counter[str]:
            return Counter(one.tag for body in elements(data, "office:body") for one in body.iter())

        found = counted(content.data) - counted(golden.data)
        assert {tag.rpartition("}")[2] for tag in found} <= {"span"}


def test_pages_are_moved_whole() -> None:
    """Removed, doubled, swapped, added: all others stay as they are."""
    golden = texts(TALK.data)
    for seed in range(3):
        removed, doubled, swapped, added = (
            texts(by_name(slides.mutations, TALK, name, seed)[0])
            for name in ("one slide removed", "one slide doubled", "two slides swapped", "empty slide added")
        )
        assert len(removed) == 2 and [one for one in golden if one in removed] == removed
        assert len(doubled) == 4 and all(one in golden for one in doubled)
        assert swapped != golden and sorted(swapped) == sorted(golden)
        assert added == [*golden, []]


def test_changed_texts_are_put_back() -> None:
    """One in each content."""
    one, two = texts(TALK.data), texts(TALK.data)
    one[1], two[1] = ["Budget", "It grew", "By half"], ["Money", "It grew", "A lot"]
    found = [texts(data) for data in by_name(slides.mutations, TALK, "one changed text put back")]
    assert sorted(found) == sorted([one, two])


@pytest.mark.parametrize(
    ("before", "name"),
    [
        ([*LINES, "More lines."], "one removed paragraph put back"),
        (LINES[:2] + LINES[3:], "one added paragraph removed"),
    ],
)
def test_added_and_removed_paragraphs_are_put_back(before: list[str], name: str) -> None:
    """Where they were; the only paragraph of an item is emptied."""
    golden = GoldenFile("/a.odt", LETTER.data, text_document(before))
    (content,) = by_name(document.mutations, golden, name)
    assert [text for text in texts(content) if text] == before


def test_all_text_gets_a_format() -> None:
    """Also a word that has one of its own."""
    (white,) = by_name(document.mutations, LETTER, "all text white")
    named, coloured = (f"{STYLE}name", f"{FO}color")
    styles = {one.get(named): one[0].get(coloured) for one in elements(white, ".//style:style")}
    assert styles == {"T1": "#ffffff", "Every": "#ffffff"}
    assert len(elements(white, ".//text:span[@text:style-name='Every']")) == len(LINES)
    assert texts(white) == texts(LETTER.data)


def test_parts_of_pages_are_lost() -> None:
    """Picture, notes, fill; a hidden page has a style of its own."""
    counts = {
        "one picture removed": (".//draw:image", 1, 0),
        "one slide hidden": (".//style:drawing-page-properties[@presentation:visibility='hidden']", 0, 1),
        "background of one slide lost": (".//draw:page[@draw:style-name='NoFill']", 0, 1),
    }
    for name, (path, before, after) in counts.items():
        (content,) = by_name(slides.mutations, TALK, name)
        assert (len(elements(TALK.data, path)), len(elements(content, path))) == (before, after), name
    (content,) = by_name(slides.mutations, TALK, "notes of one slide lost")
    assert elements(content, ".//presentation:notes//text:p")[0].text is None


@pytest.mark.parametrize("function", [slides.mutations, slides.equivalents])
def test_each_kind_has_contents_of_its_own(function: Any) -> None:
    """A text is no presentation."""
    assert made(function, LETTER) == () != made(function, TALK)


@pytest.mark.parametrize("family", ["impress.order", "impress.text"])
def test_the_families_checks_agree_about_texts(family: str) -> None:
    """They pay nothing for another text, and all for equivalents."""
    task = task_of(family)
    path, before = uploaded(task)
    rules = next(
        one["rules"] for one in task["evaluator"]["expected"] if one and "slides" in one.get("rules", {})
    )
    golden = GoldenFile(path, odp_bytes([tuple(slide) for slide in rules["slides"]]), before)
    for content in made(slides.mutations, golden):
        found = score(task, content.data, before, only="check_slides_text")["check_slides_text"]
        assert (found == 1.0) == (content.name in SAME_TEXT), content.name
    for content in made(slides.equivalents, golden):
        assert score(task, content.data, before, only="check_slides_text") == {"check_slides_text": 1.0}
