"""Metrics over one property of a presentation, and over Impress's settings and window."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

from osgym_host.tasks.metric_plugin import (
    Argument,
    InputFile,
    Score,
    as_file,
    as_text,
    differ,
    metric,
    rules_of,
)
from osgym_osworld.formats.office import open_presentation
from osgym_osworld.metrics.settings import registry_value
from osgym_osworld.metrics.slides_compare import INHERITED, PICTURE, SOLID
from osgym_osworld.packages import needs

_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_HALF_INCH_EMU = 457_200
_BRIGHTER = 50
"""A channel is brighter than another by more than this, or black below it."""

_pptx = needs("pptx")


def _part(file: InputFile, name: str) -> Any:
    archive = file.zip()
    return file.xml(file.member(archive, name)) if name in archive.namelist() else None


@metric()
def check_transition(result: Argument, expected: Argument) -> Score:
    """The slide in the file of number ``slide_idx`` + 1 has a transition of ``transition_type``."""
    rules, file = rules_of(expected), as_file(result, "result")
    root = _part(file, f"ppt/slides/slide{int(rules['slide_idx']) + 1}.xml")
    if root is None:
        return Score(0.0, f"there is no slide {int(rules['slide_idx']) + 1}")
    transition = root.find(f".//{_P}transition")
    if transition is None:
        return Score(0.0, "the slide has no transition")
    if transition.find(f".//{_P}{rules['transition_type']}") is not None:
        return Score(1.0)
    kinds = [child.tag.rpartition("}")[2] for child in transition]
    return differ("the transition", kinds, rules["transition_type"])


@metric(needs_expected=False)
def check_left_panel(result: Argument, expected: Argument) -> Score:
    """Impress's panel of slides is in the accessibility tree."""
    if isinstance(result, InputFile):
        root = result.xml(result.data())
    else:
        root = InputFile(-1, "tree", "result").xml(as_text(result).encode())
    if any(frame.get("name") == "Slides View" for frame in root.iter("document-frame")):
        return Score(1.0)
    return Score(0.0, "there is no Slides View")


@metric(needs_expected=False)
def check_presenter_console_disable(result: Argument, expected: Argument) -> Score:
    """Impress's presenter console is switched off."""
    path = "/org.openoffice.Office.Impress/Misc/Start"
    got = registry_value(as_file(result, "result"), path, "EnablePresenterScreen")
    return Score(1.0) if (got or "").lower() == "false" else differ("EnablePresenterScreen", got, "false")


@metric(unsupported=_pptx, needs_expected=False)
def check_slide_orientation_Portrait(result: Argument, expected: Argument) -> Score:
    """Slides are higher than wide."""
    deck = open_presentation(as_file(result, "result"))
    size = deck.slide_width, deck.slide_height
    return Score(1.0) if None not in size and size[0] < size[1] else differ("the size", size, "portrait")


@metric(unsupported=_pptx)
def check_strikethrough(result: Argument, expected: Argument) -> Score:
    """Paragraphs ``paragraph_index_s`` of shapes ``shape_index_s`` of slides ``slide_index_s`` are struck."""
    rules = rules_of(expected)
    slides = list(open_presentation(as_file(result, "result")).slides)
    for slide in rules["slide_index_s"]:
        for shape in rules["shape_index_s"]:
            for paragraph in rules["paragraph_index_s"]:
                try:
                    run = list(slides[slide].shapes)[shape].text_frame.paragraphs[paragraph].runs[0]
                except (IndexError, AttributeError):
                    return Score(0.0, f"slide {slide}, shape {shape}, paragraph {paragraph} has no text")
                if "strike" not in run.font._element.attrib:
                    return Score(0.0, f"slide {slide}, shape {shape}, paragraph {paragraph} is not struck")
    return Score(1.0)


@metric(unsupported=_pptx)
def check_image_stretch_and_center(result: Argument, expected: Argument) -> Score:
    """The first picture of the expected first slide fills the slide, within half an inch, in its middle."""
    before = open_presentation(as_file(expected, "expected"))
    after = open_presentation(as_file(result, "result"))
    if not (len(before.slides) and len(after.slides)):
        return Score(0.0, "there is no slide")
    width, height = before.slide_width, before.slide_height
    wanted = [shape for shape in before.slides[0].shapes if shape.shape_type == PICTURE]
    if not wanted:
        return Score(0.0, "the expected slide has no picture")
    blob = wanted[0].image.blob
    pictures = [s for s in after.slides[0].shapes if s.shape_type == PICTURE and s.image.blob == blob]
    if not pictures:
        return Score(0.0, "the picture is not on the slide")
    picture = pictures[-1]
    off = (
        picture.width - width,
        picture.height - height,
        picture.left - (width - picture.width) / 2,
        picture.top - (height - picture.height) / 2,
    )
    if all(abs(length) <= _HALF_INCH_EMU for length in off):
        return Score(1.0)
    return Score(0.0, f"the picture is off by {[round(v) for v in off]} EMU (width, height, left, top)")


@metric(unsupported=_pptx)
def evaluate_presentation_fill_to_rgb_distance(result: Argument, expected: Argument) -> Score:
    """1 − the mean distance of the slides' backgrounds to ``rgb``; one that is ``original_rgb`` is far."""
    rules = rules_of(expected)
    deck = open_presentation(as_file(result, "result"))
    if not len(deck.slides):
        return Score(0.0, "there is no slide")
    original = rules.get("original_rgb")
    distances = [_distance(_background(slide), rules["rgb"], original) for slide in deck.slides]
    return Score(1 - sum(distances) / len(distances), f"the slides' distances: {distances[:20]}")


def _background(slide: Any) -> tuple[int, int, int] | None:
    fill = slide.background.fill
    if fill.type == INHERITED:
        fill = slide.slide_layout.slide_master.background.fill
    return getattr(fill.fore_color, "rgb", None) if fill.type == SOLID else None


def _distance(got: tuple[int, int, int] | None, wanted: Any, original: Any) -> float:
    if got is None or (original is not None and tuple(got) == tuple(original)):
        return 1.0
    squares = sum((a - b) ** 2 for a, b in zip(got, wanted, strict=True))
    return sqrt(squares) / sqrt(3 * 255**2)


_COLOURS: dict[str, Callable[[int, int, int], bool]] = {
    "red": lambda r, g, b: r > g + _BRIGHTER and r > b + _BRIGHTER,
    "green": lambda r, g, b: g > r + _BRIGHTER and g > b + _BRIGHTER,
    "blue": lambda r, g, b: b > g + _BRIGHTER and b > r + _BRIGHTER,
    "black": lambda r, g, b: max(r, g, b) < _BRIGHTER,
}


@metric()
def check_page_number_colors(result: Argument, expected: Argument) -> Score:
    """The second to last fill of the first master, where slides' numbers are, is of ``color``."""
    name, file = rules_of(expected)["color"], as_file(result, "result")
    root = _part(file, "ppt/slideMasters/slideMaster1.xml")
    fills = [] if root is None else root.findall(f".//{_A}solidFill//{_A}srgbClr")
    value = fills[-2].get("val") or "" if len(fills) > 1 else ""
    if len(value) != 6:
        return Score(0.0, "the master has no such colour")
    red, green, blue = bytes.fromhex(value)
    known = _COLOURS.get(name)
    return Score(1.0) if known is None or known(red, green, blue) else differ("the colour", value, name)


@metric(unsupported=_pptx, needs_expected=False)
def check_slide_numbers_color(result: Argument, expected: Argument) -> Score:
    """A slide shows a number, and the master's number is red."""
    deck = open_presentation(as_file(result, "result"))
    shown = any(getattr(shape, "text", "").isdigit() for slide in deck.slides for shape in slide.shapes)
    if not shown:
        return Score(0.0, "no slide shows a number")
    for master in deck.slide_masters:
        for holder in master.placeholders:
            if holder.has_text_frame and holder.text_frame.text == "<number>":
                color = holder.text_frame.paragraphs[0].font.color
                rgb = getattr(color, "rgb", None)
                return Score(1.0) if rgb == (255, 0, 0) else differ("the number's colour", rgb, "FF0000")
    return Score(0.0, "the master has no number")
