"""The check of what an Impress task leaves alone, on presentations made here and changed part by part."""

from __future__ import annotations

import io
import zipfile

import pytest

from osgym_host.tasks.evaluator.inputs import InputFile, Unreadable
from osgym_osworld.formats.odf_styles import EXTENDED
from osgym_osworld.metrics.slides_kept import check_slides_kept
from osgym_tasks.impress import odp_bytes

SLIDES = [
    ("Welcome", "Costs went down", "Two offers came in"),
    ("Agenda", "Tests are finished"),
    ("Risks", "Fees"),
]
BODY = '<draw:frame draw:style-name="body"'
STYLE = '<style:style style:name="T1" style:family="text"><style:text-properties {}/></style:style>'
PAGE = STYLE.replace("T1", "dp").replace('"text"', '"drawing-page"').replace("text-prop", "drawing-page-prop")
AUTOMATIC = "</office:automatic-styles>"
SPACES = 'xmlns:presentation="urn:oasis:names:tc:opendocument:xmlns:presentation:1.0" office:version'
PICTURE = (
    '<draw:frame svg:x="1cm" svg:y="1cm" svg:width="2cm" svg:height="2cm"><draw:image '
    'xmlns:xlink="http://www.w3.org/1999/xlink" xlink:href="Pictures/a.png"/></draw:frame>'
)
NOTES = (
    "<presentation:notes><draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>"
    "</presentation:notes>"
)


def presentation(
    *changes: tuple[str, str], styles: tuple[str, str] = ("", ""), picture: bytes = b""
) -> bytes:
    """The presentation of these tests with the first places of texts replaced, in content or styles."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(odp_bytes(SLIDES))) as given, zipfile.ZipFile(out, "w") as made:
        for name in given.namelist():
            data = given.read(name).decode()
            data = data.replace("office:version", SPACES, 1) if name == "content.xml" else data
            for old, new in changes if name == "content.xml" else [styles] if name == "styles.xml" else []:
                assert old in data
                data = data.replace(old, new, 1)
            made.writestr(name, data)
        if picture:
            made.writestr("Pictures/a.png", picture)
    return out.getvalue()


def score(after: bytes, before: bytes | None = None, **options: object) -> float:
    """The score of `check_slides_kept`."""
    files = (("result", after), ("expected", presentation() if before is None else before))
    result, expected = (InputFile(-1, "a.odp", role, data) for role, data in files)
    return check_slides_kept(result, expected, **options).score  # type: ignore[arg-type]


def spanned(text: str, formats: str) -> bytes:
    """The presentation with a format of one text's characters."""
    style = STYLE.format(formats)
    return presentation(
        (AUTOMATIC, style + AUTOMATIC), (text, f'<text:span text:style-name="T1">{text}</text:span>')
    )


def paged(properties: str) -> bytes:
    """The presentation with properties of its second slide."""
    style = PAGE.format(properties)
    return presentation(
        (AUTOMATIC, style + AUTOMATIC), ('draw:name="page2"', 'draw:name="page2" draw:style-name="dp"')
    )


def test_the_same_presentation_is_kept() -> None:
    """Also where texts are cut into parts, colours are written out, and nothing is switched off."""
    assert score(presentation()) == 1.0
    assert score(presentation(("Costs went", "<text:span>Costs</text:span> went"))) == 1.0
    for plain in ('fo:font-weight="normal"', 'style:use-window-font-color="true"', 'fo:color="#000000"'):
        assert score(spanned("Agenda", plain)) == 1.0
    assert score(presentation(('svg:x="1.4cm"', 'svg:x="14.01mm"'))) == 1.0


@pytest.mark.parametrize(
    "formats",
    [
        'fo:font-weight="bold"',
        'fo:font-style="italic"',
        'fo:font-size="4pt"',
        'fo:font-size="50%"',
        'fo:font-family="Noto Sans"',
        'fo:color="#ffffff"',
        f'fo:color="#000000" xmlns:loext="{EXTENDED[1:-1]}" loext:opacity="0%"',
        'fo:background-color="#ffff00"',
        'style:text-underline-style="solid"',
        'style:text-line-through-style="solid"',
        'text:display="none"',
        'fo:text-transform="uppercase"',
        'style:text-position="super 58%"',
    ],
)
def test_formats_of_texts_are_compared(formats: str) -> None:
    """Of old texts, and of new ones in their place."""
    assert score(spanned("Tests are finished", formats)) == 0.0
    for plain in (False, True):
        after = spanned("Tests are finished", 'fo:font-weight="normal"' if plain else formats)
        assert score(after, texts={"2.2": ["Tests are finished"]}) == float(plain)
    style = STYLE.format(formats)
    new = presentation(
        (AUTOMATIC, style + AUTOMATIC),
        ("Tests are finished", '<text:span text:style-name="T1">New</text:span>'),
    )
    assert score(new, texts={"2.2": ["New"]}) == 0.0


@pytest.mark.parametrize(
    "properties",
    [
        'presentation:visibility="hidden"',
        'draw:fill="solid" draw:fill-color="#112233"',
        'presentation:background-visible="false"',
        'presentation:background-objects-visible="false"',
        'presentation:transition-style="dissolve"',
    ],
)
def test_a_slide_has_more_than_texts(properties: str) -> None:
    """Visibility, background and transition."""
    assert score(paged(properties)) == 0.0


def test_shapes_are_compared() -> None:
    """Their number, place, size, ground, edge and pictures, and what the master slide has."""
    assert score(presentation(('svg:x="1.4cm"', 'svg:x="30cm"'))) == 0.0
    assert score(presentation(('svg:height="9.1cm"', 'svg:height="0.1cm"'))) == 0.0
    assert score(presentation(('draw:fill="none"', 'draw:fill="solid" draw:fill-color="#000000"'))) == 0.0
    assert score(presentation(('draw:stroke="none"', 'draw:stroke="solid"'))) == 0.0
    assert score(presentation((BODY, '<draw:rect svg:x="1cm"/>' + BODY))) == 0.0
    assert (
        score(presentation(styles=('draw:fill="none"', 'draw:fill="solid" draw:fill-color="#00ff00"'))) == 0.0
    )
    assert score(presentation(styles=('fo:page-height="15.75cm"', 'fo:page-height="21cm"'))) == 0.0
    with_picture = [presentation((BODY, PICTURE + BODY), picture=data) for data in (b"one", b"two")]
    assert score(with_picture[0], with_picture[0]) == 1.0
    assert score(with_picture[1], with_picture[0]) == 0.0
    aligned = (
        '<style:text-properties fo:font-size="24pt"',
        '<style:paragraph-properties fo:text-align="end"/>',
    )
    assert score(presentation((aligned[0], aligned[1] + aligned[0]))) == 0.0


def test_notes_are_compared() -> None:
    """Empty notes, which LibreOffice adds, are none."""
    noted, empty = (
        presentation(("</draw:page>", f"{NOTES.format(text)}</draw:page>")) for text in ("Smile", "")
    )
    assert score(empty) == 1.0
    assert score(noted) == 0.0
    assert score(noted, noted) == 1.0
    assert score(presentation(), noted) == 0.0


def test_texts_and_slides_are_as_the_task_says() -> None:
    """New texts stand in their own shape; slides may be told to move, repeat and go."""
    retold = presentation(("Agenda", "Plan"))
    assert score(retold) == 0.0
    assert score(retold, texts={"2.1": ["Plan"]}) == 1.0
    assert score(retold, texts={"2.1": ["Plans"]}) == 0.0
    assert score(presentation(), texts={"2.1": ["Plan"]}) == 0.0
    first, second, third = SLIDES
    assert score(odp_bytes([third, first, first]), slides=[3, 1, 1]) == 1.0
    assert score(odp_bytes([third, first, second]), slides=[3, 1, 1]) == 0.0
    assert score(odp_bytes([third, first]), slides=[3, 1, 1]) == 0.0
    merged = odp_bytes([("", *first), second, third])
    assert score(merged) == 0.0


def test_what_is_no_presentation_is_told_from_a_wrong_one() -> None:
    """By the party at fault: a result that cannot be read, and a task that names what is missing."""
    for role, other in (("result", b"text"), ("expected", b"text")):
        files = {"result": presentation(), "expected": presentation(), role: other}
        with pytest.raises(Unreadable) as raised:
            check_slides_kept(*(InputFile(-1, "a.odp", name, data) for name, data in files.items()))
        assert raised.value.role == role
    for options in ({"slides": [9]}, {"texts": {"1.7": ["Text"]}}):
        with pytest.raises(Unreadable) as raised:
            score(presentation(), **options) if "texts" in options else score(
                odp_bytes(SLIDES[:1]), **options
            )
        assert raised.value.role == "expected"
