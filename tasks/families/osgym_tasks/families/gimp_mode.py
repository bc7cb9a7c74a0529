"""gimp.mode: invert pictures, convert them to grayscale or indexed colours, and export them."""

from __future__ import annotations

import random

from PIL import Image, ImageOps

from osgym_tasks.family import Draft, Family, Steps
from osgym_tasks.gimp import PICTURES, Edit, edits_draft, menu, scene
from osgym_tasks.pieces import key

WORDINGS = (
    "The picture {first} is open. Do this: {edits}. Leave the files you began with as they are.",
    "GIMP shows {first}. Please {edits}. The files from before stay unchanged.",
    "{first} is open in GIMP. Your work: {edits}. Do not overwrite what was there before.",
    "The printer can't use my pictures as they are. Please {edits}. You see the first one; the original "
    "files must not change.",
    "For our web page I need other versions of what I have open and more: {edits}. Don't overwrite what "
    "was there before.",
    "A friend wants to try something with colours. Could you {edits}? The picture is open, and the "
    "originals stay.",
)
_INVERT: Steps = [[key("alt", "c")], [{**key("down"), "repeat": 10}, key("enter")]]
"""Steps to the 11th entry of the menu of colours, which has no letter of its own."""
_GRAYSCALE = menu("i", "m", "g")
_INDEXED: Steps = [*menu("i", "m", "i"), [key("enter")]]
"""Steps of the dialog, which proposes an optimum palette of up to 256 colours, more than a picture has."""

_D50 = (0.2225, 0.7169, 0.0606)
"""Weights of sRGB's red, green and blue in the luminance, adapted to D50 (ICC, as babl has it)."""


def drawn(dice: random.Random, level: int) -> list[Edit]:
    """Draw pictures, each with what is to be done to it."""
    edits = []
    for _ in range(PICTURES[level]):
        before = scene(dice, dice.randrange(28, 33) * (10 if level == 1 else 15), dice.randrange(24, 28) * 10)
        edits.append(_edit(dice, before, both=level > 1))
    return edits


def _draft(dice: random.Random, level: int) -> Draft:
    return edits_draft(dice, WORDINGS, drawn(dice, level))


def _edit(dice: random.Random, before: Image.Image, *, both: bool) -> Edit:
    """Draw inverted colours, another mode, or both in this order."""
    mode = dice.choice(("L", "P") if both else ("L", "P", "RGB"))
    inverted = both or mode == "RGB"
    after = ImageOps.invert(before) if inverted else before
    orders = ["invert the colours of {name}"] if inverted else []
    if mode != "RGB":
        name = "it" if inverted else "{name}"
        orders.append(f"change the mode of {name} to {'grayscale' if mode == 'L' else 'indexed colours'}")
    keys = [*(_INVERT if inverted else []), *{"L": _GRAYSCALE, "P": _INDEXED, "RGB": []}[mode]]
    wrong = dice.choice((_GRAYSCALE, _INDEXED)) if mode == "RGB" else _INVERT
    if both:
        wrong = dice.choice((_INVERT, _GRAYSCALE if mode == "L" else _INDEXED))  # one of two
    return Edit(
        ", then ".join(orders), keys, wrong, before, _gray(after) if mode == "L" else after, mode, tolerance=3
    )


def _gray(image: Image.Image) -> Image.Image:
    """Return the picture in GIMP's mode "grayscale": the luminance of linear light, relative to D50 white.

    No two colours of our pictures have the same luma, so luma identifies the colour of a pixel.
    """
    table = [0] * 256
    for _, colour in image.getcolors(256) or ():
        assert isinstance(colour, tuple)
        luma = Image.new("RGB", (1, 1), colour).convert("L").tobytes()[0]
        light = sum(part * _linear(value / 255) for part, value in zip(_D50, colour, strict=True))
        table[luma] = round(255 * (1.055 * light ** (1 / 2.4) - 0.055))
    return image.convert("L").point(table)


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


FAMILY = Family("gimp.mode", 5, _draft, ("gimp",), "full")
