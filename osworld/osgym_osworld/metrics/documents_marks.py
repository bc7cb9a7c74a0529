"""Metrics over marks in documents: highlighted words, coloured words in tables, parted sentences.

OSWorld's. A colour that is not given by its red, green and blue (none, or one of the theme) is neither red
nor blue; OSWorld's own fails there.
"""

from __future__ import annotations

import math
from functools import cache
from xml.etree.ElementTree import Element

from osgym_host.tasks.metric_plugin import Argument, InputFile, Score, as_file, differ, metric, reader
from osgym_osworld.formats.office import cell_runs, open_document
from osgym_osworld.metrics.documents import compare_docx_files
from osgym_osworld.packages import needs

RED, BLUE = (255, 0, 0), (0, 0, 255)
YELLOW = "#ffff00"
_VOWELS = "aeiou"
_PARTED_WORDS = 3
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_STYLE = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_BACKGROUND = "{urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0}background-color"

Rgb = tuple[int, int, int]

_docx = needs("docx")


@metric()
def check_highlighted_words(result: Argument, expected: Argument) -> Score:
    """An odt file has the expected text, and nothing in it is highlighted in yellow."""
    text = compare_docx_files(result, expected)
    if text.score <= 0:
        return text
    found = _highlighted(as_file(result, "result"))
    return Score(0.0, f"highlighted: {found[:80]!r}") if found is not None else Score(1.0)


@reader
def _highlighted(file: InputFile) -> str | None:
    """Return the first text with a yellow ground in an odt file; None where there is none."""
    archive = file.zip()
    if "content.xml" not in archive.namelist():
        raise file.bad("it has no content.xml")
    root = file.xml(file.member(archive, "content.xml"))
    styles = root.find(f"{_OFFICE}automatic-styles")
    yellow = {
        style.get(f"{_STYLE}name") for style in (styles if styles is not None else ()) if _is_yellow(style)
    }
    for span in root.iter(f"{_TEXT}span"):
        if span.get(f"{_TEXT}style-name") in yellow:
            return "".join(span.itertext())
    return None


def _is_yellow(style: Element) -> bool:
    return any(properties.get(_BACKGROUND) == YELLOW for properties in style)


@metric(unsupported=_docx)
def evaluate_colored_words_in_tables(result: Argument, expected: Argument, threshold: float = 3.5) -> Score:
    """The text is as expected; in tables, words that begin with a vowel are red, all others blue.

    A colour may differ by ``threshold`` in the CIEDE2000 measure.
    """
    text = compare_docx_files(result, expected)
    if text.score <= 0:
        return text
    for run in cell_runs(open_document(as_file(result, "result"))):
        if not run.text:
            continue
        wanted = RED if run.text[0].lower() in _VOWELS else BLUE
        colour = None if run.font.color is None else run.font.color.rgb
        if colour is None or colour_difference(tuple(colour), wanted) > threshold:
            return differ(f"the colour of {run.text[:40]!r}", str(colour), "red" if wanted == RED else "blue")
    return Score(1.0)


@metric(unsupported=_docx, needs_expected=False)
def evaluate_alignment(result: Argument, expected: Argument) -> Score:
    """In each sentence the first three words are one run and the others another; there is such a sentence."""
    parted = 0
    for paragraph in open_document(as_file(result, "result")).paragraphs:
        for sentence in paragraph.text.split("."):
            words = sentence.split()
            if len(words) < _PARTED_WORDS:
                continue
            first, rest = " ".join(words[:_PARTED_WORDS]), " ".join(words[_PARTED_WORDS:])
            at, then = sentence.find(first), sentence.find(rest)
            if at < 0 or then < 0 or at >= then:
                return Score(0.0, f"not parted after three words: {sentence.strip()[:80]!r}")
            parted += 1
    return Score(1.0) if parted else Score(0.0, "no sentence has more than three words")


@cache
def colour_difference(a: Rgb, b: Rgb) -> float:
    """CIEDE2000 (ISO/CIE 11664-6) between two sRGB colours of three bytes, under D65."""
    return _ciede2000(_lab(a), _lab(b))


_TO_XYZ = ((0.412453, 0.357580, 0.180423), (0.212671, 0.715160, 0.072169), (0.019334, 0.119193, 0.950227))
_WHITE = (0.95047, 1.0, 1.08883)
_25_TO_7 = 25.0**7


def _lab(rgb: Rgb) -> tuple[float, float, float]:
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (c / 255 for c in rgb)]
    ratios = [
        sum(m * v for m, v in zip(row, linear, strict=True)) / white
        for row, white in zip(_TO_XYZ, _WHITE, strict=True)
    ]
    x, y, z = (math.cbrt(r) if r > 0.008856 else 7.787 * r + 16 / 116 for r in ratios)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _ciede2000(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean_7 = ((math.hypot(a1, b1) + math.hypot(a2, b2)) / 2) ** 7
    gain = 1.5 - 0.5 * math.sqrt(mean_7 / (mean_7 + _25_TO_7))
    c1, c2 = math.hypot(gain * a1, b1), math.hypot(gain * a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, gain * a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = 0.0 if c1 * c2 == 0 else (h2 - h1 + 180) % 360 - 180
    hue = h1 + h2 if c1 * c2 == 0 else h1 + turn / 2
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    by_hue = (
        1
        - 0.17 * _cos(hue - 30)
        + 0.24 * _cos(2 * hue)
        + 0.32 * _cos(3 * hue + 6)
        - 0.20 * _cos(4 * hue - 63)
    )
    of_light = (l2 - l1) / (1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2))
    of_chroma = (c2 - c1) / (1 + 0.045 * chroma)
    of_hue = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2)) / (1 + 0.015 * chroma * by_hue)
    spread = 30 * math.exp(-((((hue % 360) - 275) / 25) ** 2))
    twist = -2 * math.sqrt(chroma**7 / (chroma**7 + _25_TO_7)) * math.sin(math.radians(2 * spread))
    return math.sqrt(of_light**2 + of_chroma**2 + of_hue**2 + twist * of_chroma * of_hue)


def _cos(degrees: float) -> float:
    return math.cos(math.radians(degrees))
