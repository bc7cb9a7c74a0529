"""``compare_pptx_files``: two presentations are equal in the properties that the task names.

The options and what they mean are OSWorld's, its oddities too: tasks and their gold files rely on them.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from osgym_host.tasks.metric_plugin import Argument, Score, as_file, is_installed, metric
from osgym_osworld.formats.office import open_presentation
from osgym_osworld.packages import needs

_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
PICTURE, FREEFORM, TABLE = 13, 5, 19
"""``MSO_SHAPE_TYPE`` of python-pptx."""
SOLID, INHERITED = 1, 5
"""``MSO_FILL``: one colour; none of its own."""
LEFT = 1
"""``PP_ALIGN.LEFT``, which a paragraph has that says nothing."""

_BELOW_EMU, _RIGHT_OF_EMU, _ABOVE_EMU = 3_600_000, 4_320_000, 1_980_000
"""Half-way down, half-way across, and the top of a slide, of the tasks that move one thing there."""


@dataclass(frozen=True, slots=True)
class Examined:
    """Compared properties of two presentations: OSWorld's options without their ``examine_``."""

    number_of_slides: bool = True
    shape: bool = True
    text: bool = True
    indent: bool = True
    font_name: bool = True
    font_size: bool = True
    font_bold: bool = True
    font_italic: bool = True
    color_rgb: bool = True
    font_underline: bool = True
    strike_through: bool = True
    alignment: bool = True
    title_bottom_position: bool = False
    table_bottom_position: bool = False
    right_position: bool = False
    top_position: bool = False
    shape_for_shift_size: bool = False
    image_size: bool = False
    modify_height: bool = False
    bullets: bool = True
    background_color: bool = True
    note: bool = True
    tolerance: float = 0.005

    def near(self, a: int | None, b: int | None) -> bool:
        """Return whether two lengths differ by no more than a part of the larger."""
        if a == b:
            return True
        if not a or not b:
            return False
        return abs(a - b) / max(abs(a), abs(b)) <= self.tolerance

    def same_place(self, a: Any, b: Any) -> bool:
        """Return whether two shapes have the same place and size."""
        return all(
            self.near(getattr(a, name), getattr(b, name)) for name in ("left", "top", "width", "height")
        )


@metric(unsupported=needs("pptx"))
def compare_pptx_files(
    result: Argument,
    expected: Argument,
    examine_number_of_slides: bool = True,
    examine_shape: bool = True,
    examine_text: bool = True,
    examine_indent: bool = True,
    examine_font_name: bool = True,
    examine_font_size: bool = True,
    examine_font_bold: bool = True,
    examine_font_italic: bool = True,
    examine_color_rgb: bool = True,
    examine_font_underline: bool = True,
    examine_strike_through: bool = True,
    examine_alignment: bool = True,
    examine_title_bottom_position: bool = False,
    examine_table_bottom_position: bool = False,
    examine_right_position: bool = False,
    examine_top_position: bool = False,
    examine_shape_for_shift_size: bool = False,
    examine_image_size: bool = False,
    examine_modify_height: bool = False,
    examine_bullets: bool = True,
    examine_background_color: bool = True,
    examine_note: bool = True,
    approximately_tolerance: float = 0.005,
    enable_debug: bool = True,
) -> Score:
    """Two presentations (pptx) are the same, slide by slide and shape by shape."""
    given = {k.removeprefix("examine_"): v for k, v in locals().items() if k.startswith("examine_")}
    examined = Examined(**given, tolerance=float(approximately_tolerance))
    got = open_presentation(as_file(result, "result"))
    wanted = open_presentation(as_file(expected, "expected"))
    found = next(differences(got, wanted, examined), None)
    return Score(1.0) if found is None else Score(0.0, found)


def differences(got: Any, wanted: Any, examined: Examined | None = None) -> Iterator[str]:
    """Yield the differences of two presentations as sentences, of which only the first is reliable."""
    examined = examined or Examined()
    if examined.number_of_slides and len(got.slides) != len(wanted.slides):
        yield f"found {len(got.slides)} slides, wanted {len(wanted.slides)}"
    for number, (a, b) in enumerate(zip(got.slides, wanted.slides, strict=False), 1):
        for what in _slide(a, b, number, examined):
            yield f"slide {number}: {what}"


def _slide(got: Any, wanted: Any, number: int, examined: Examined) -> Iterator[str]:
    if examined.background_color and _background(got) != _background(wanted):
        yield "the background's colour differs"
    if examined.note and _notes(got) != _notes(wanted):
        yield "the notes differ"
    if len(got.shapes) != len(wanted.shapes):
        yield f"found {len(got.shapes)} shapes, wanted {len(wanted.shapes)}"
    bullets = _bullets_differ(got, wanted) if examined.bullets else iter(())
    for place, (a, b) in enumerate(zip(got.shapes, wanted.shapes, strict=False), 1):
        for what in itertools.chain(_places(a, b, number, examined), _content(a, b, examined, bullets)):
            yield f"shape {place}: {what}"
    yield from _grouped_texts(got, wanted, examined)


def _background(slide: Any) -> object:
    fill = slide.background.fill
    if fill.type == INHERITED:
        fill = slide.slide_layout.slide_master.background.fill
    return _rgb(fill.fore_color) if fill.type == SOLID else None


def _rgb(color: Any) -> object:
    """Return the colour as three bytes, or the name of a theme's colour, which has none."""
    rgb = getattr(color, "rgb", None)
    return rgb if rgb is not None else getattr(color, "theme_color", None)


def _notes(slide: Any) -> str:
    frame = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
    return "" if frame is None else str(frame.text).strip()


def _has_text(shape: Any) -> bool:
    return hasattr(shape, "text") and hasattr(shape, "text_frame")


def _places(a: Any, b: Any, slide: int, examined: Examined) -> Iterator[str]:
    """Yield the differences in position and size of two shapes.

    The tasks that move one thing to a half of the slide give the untouched file as the expected one: the
    shape has to stand further there than it did.
    """
    same = examined.same_place(a, b)
    texts = _has_text(a), _has_text(b)
    same_text = all(texts) and a.text == b.text
    tables = a.shape_type == TABLE and b.shape_type == TABLE
    pictures = a.shape_type == PICTURE and b.shape_type == PICTURE
    if examined.title_bottom_position and (
        a.text == "Product Comparison" and not _beyond(a.top, b.top, _BELOW_EMU) if same_text else not same
    ):
        yield "the title is not at the bottom, or something else moved"
    if examined.table_bottom_position and (
        not _beyond(a.top, b.top, _BELOW_EMU) if slide == 3 and tables else not same
    ):
        yield "the table is not at the bottom, or something else moved"
    moved_right = examined.right_position and slide == 2 and not any(texts)
    if moved_right and not _beyond(a.left, b.left, _RIGHT_OF_EMU):
        yield "it is not on the right"
    moved_up = examined.top_position and slide == 2 and pictures
    if moved_up and (a.top is None or b.top is None or a.top >= b.top or a.top > _ABOVE_EMU):
        yield "the picture is not at the top"
    free = same_text and a.text == "Elaborate on what you want to discuss."
    if (examined.shape and not same) or (examined.shape_for_shift_size and not same and not free):
        yield f"position or size differ: found {_box(a)}, wanted {_box(b)}"
    same_size = examined.near(a.width, b.width) and examined.near(a.height, b.height)
    if examined.image_size and not (same_size if pictures else same):
        yield f"the size differs: found {_box(a)}, wanted {_box(b)}"
    stretched = not any(texts) or (a.shape_type == FREEFORM and b.shape_type == FREEFORM)
    if examined.modify_height and not (examined.near(a.height, b.height) if stretched else same):
        yield f"the height differs: found {_box(a)}, wanted {_box(b)}"


def _beyond(got: int | None, start: int | None, line: int) -> bool:
    return got is not None and start is not None and got > start and got >= line


def _box(shape: Any) -> str:
    return f"{shape.left}, {shape.top}, {shape.width}×{shape.height} EMU"


def _content(a: Any, b: Any, examined: Examined, bullets: Iterator[str]) -> Iterator[str]:
    if a.shape_type == TABLE:
        if b.shape_type == TABLE:
            yield from _tables(a.table, b.table, examined)
        else:
            yield "found a table, wanted none"
    if not (_has_text(a) and _has_text(b)):
        return
    if examined.text and a.text.strip() != b.text.strip():
        yield "the text differs"
    rows = a.text_frame.paragraphs, b.text_frame.paragraphs
    if len(rows[0]) != len(rows[1]):
        yield f"found {len(rows[0])} paragraphs, wanted {len(rows[1])}"
    for place, pair in enumerate(zip(*rows, strict=False), 1):
        for what in _paragraphs(*pair, examined, bullets):
            yield f"paragraph {place}: {what}"


def _paragraphs(a: Any, b: Any, examined: Examined, bullets: Iterator[str]) -> Iterator[str]:
    if examined.alignment and (a.alignment or LEFT) != (b.alignment or LEFT):
        yield "the alignment differs"
    if examined.text and a.text != b.text:
        yield "the text differs"
    levels = a.level, b.level
    if examined.indent and levels[0] != levels[1]:
        yield f"found level {levels[0]}, wanted {levels[1]}"
    if len(a.runs) != len(b.runs):
        yield f"found {len(a.runs)} runs, wanted {len(b.runs)}"
    if a.runs and b.runs:
        yield from bullets
    for one, other in zip(a.runs, b.runs, strict=False):
        yield from _runs(one.font, other.font, examined)


def _runs(a: Any, b: Any, examined: Examined) -> Iterator[str]:
    if examined.font_name and a.name != b.name:
        yield f"found the font {a.name}, wanted {b.name}"
    if examined.font_size and a.size != b.size:
        yield f"found the font size {a.size}, wanted {b.size}"
    if examined.font_bold and bool(a.bold) != bool(b.bold):
        yield "bold differs"
    if examined.font_italic and bool(a.italic) != bool(b.italic):
        yield "italic differs"
    if examined.color_rgb and not _same_color(a, b):
        yield "the font's colour differs"
    if examined.font_underline and not _same_underline(a.underline, b.underline):
        yield "underline differs"
    if examined.strike_through and _strike(a) != _strike(b):
        yield f"found {_strike(a)}, wanted {_strike(b)}"


def _same_color(a: Any, b: Any) -> bool:
    """Return whether two colours are the same; colours of a theme have no bytes and are not compared."""
    one, other = a.color, b.color
    return not (hasattr(one, "rgb") and hasattr(other, "rgb")) or one.rgb == other.rgb


def _same_underline(a: object, b: object) -> bool:
    """Return whether two runs have the same underline; no setting differs from plain underlining only."""
    if a is None or b is None:
        return a is not True and b is not True
    return a == b


def _strike(font: Any) -> str:
    return str(font._element.get("strike", "noStrike"))


def _tables(a: Any, b: Any, examined: Examined) -> Iterator[str]:
    """Compare tables in shape and look of their text, not in the text, as OSWorld does."""
    sizes = [(len(table.rows), len(table.columns)) for table in (a, b)]
    if sizes[0] != sizes[1]:
        yield f"found a table of {sizes[0]} rows and columns, wanted {sizes[1]}"
        return
    for row, column in itertools.product(range(sizes[0][0]), range(sizes[0][1])):
        for what in _cells(a.cell(row, column), b.cell(row, column), examined):
            yield f"row {row + 1}, column {column + 1}: {what}"


def _cells(a: Any, b: Any, examined: Examined) -> Iterator[str]:
    rows = a.text_frame.paragraphs, b.text_frame.paragraphs
    if len(rows[0]) != len(rows[1]):
        yield f"found {len(rows[0])} paragraphs, wanted {len(rows[1])}"
    for one, other in zip(*rows, strict=False):
        if len(one.runs) != len(other.runs):
            yield f"found {len(one.runs)} runs, wanted {len(other.runs)}"
        for x, y in zip(one.runs, other.runs, strict=False):
            if examined.color_rgb and not _same_color(x.font, y.font):
                yield "the font's colour differs"
            looks = [(bool(r.font.bold), bool(r.font.italic)) for r in (x, y)]
            if looks[0] != looks[1] or not _same_underline(x.font.underline, y.font.underline):
                yield "bold, italic or underline differs"


Bullet = tuple[str, str, str]
"""Level, sign and text of a paragraph."""


def _bullets_differ(got: Any, wanted: Any) -> Iterator[str]:
    """Compare the bullets of all paragraphs of two slides, once: at the first text of both.

    When matters: python-pptx gives a paragraph properties when its level is read, and those that have none
    differ. A slide with an empty run is not compared: OSWorld's reader fails on it, which it takes as equal.
    """
    a, b = _bullets(got.part._element), _bullets(wanted.part._element)
    if a is not None and b is not None and a != b:
        yield "the bullets of the slide differ"


def _bullets(root: Element) -> list[Bullet] | None:
    found: list[Bullet] = []
    for paragraph in root.iter(f"{_A}p"):
        texts = [t.text for t in paragraph.iter(f"{_A}t")]
        if None in texts:
            return None
        text = "".join(t for t in texts if t)
        properties = paragraph.find(f"{_A}pPr")
        level, sign = "none", "none"
        if properties is not None:
            level = properties.get("lvl") or "0"
            bullet = properties.find(f"{_A}buChar")
            sign = sign if bullet is None else f"sign {bullet.get('char')}"
        if text.strip():
            found.append((level, sign, text))
    return found


def _grouped_texts(got: Any, wanted: Any, examined: Examined) -> Iterator[str]:
    """Compare the texts inside groups as well."""
    a, b = _text_shapes(got.shapes), _text_shapes(wanted.shapes)
    if len(a) != len(b):
        yield f"found {len(a)} texts, wanted {len(b)}"
    if not examined.alignment:
        return
    for one, other in zip(a, b, strict=False):
        if examined.text and one.text.strip() != other.text.strip():
            yield "a text in a group differs"
        rows = one.text_frame.paragraphs, other.text_frame.paragraphs
        if len(rows[0]) != len(rows[1]):
            yield f"found {len(rows[0])} paragraphs in a text, wanted {len(rows[1])}"
        for x, y in zip(*rows, strict=False):
            if (x.alignment or LEFT) != (y.alignment or LEFT):
                yield "the alignment differs"


def _text_shapes(shapes: Any) -> list[Any]:
    found: list[Any] = []
    for shape in shapes:
        if _has_text(shape):
            found.append(shape)
        if hasattr(shape, "shapes"):
            found.extend(_text_shapes(shape.shapes))
    return found


def warm_up() -> None:
    if not is_installed("pptx"):
        return
    from PIL import Image
    from pptx import Presentation
    from pptx.util import Pt

    deck = Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "a"
    slide.background.fill.solid()
    slide.notes_slide.notes_text_frame.text = "a"
    slide.shapes.add_table(1, 1, Pt(1), Pt(1), Pt(9), Pt(9)).table.cell(0, 0).text = "a"
    picture = io.BytesIO()
    Image.new("RGB", (2, 2)).save(picture, "PNG")
    slide.shapes.add_picture(picture, 0, 0)
    written = io.BytesIO()
    deck.save(written)
    one, other = (Presentation(io.BytesIO(written.getvalue())) for _ in range(2))
    assert next(differences(one, other), None) is None
