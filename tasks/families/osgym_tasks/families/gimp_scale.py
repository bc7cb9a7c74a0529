"""gimp.scale: scale pictures in GIMP to sizes in pixels and export them."""

from __future__ import annotations

import random

from PIL import Image

from osgym_tasks.family import Draft, Family
from osgym_tasks.gimp import PICTURES, SCALED_EDGE_PX, Edit, edits_draft, scale, scene

_WORDINGS = (
    "The picture {first} is open. Do this: {edits}. Leave the files you began with as they are.",
    "GIMP shows {first}. Please {edits}. The files from before stay unchanged.",
    "{first} is open in GIMP. Your work: {edits}. Do not overwrite what was there before.",
    "My mail program says the pictures are too large. Please {edits}. You see the first one; the original "
    "files must not change.",
    "The web page has fixed places for pictures, so {edits}. I have opened one already. Don't overwrite "
    "what was there before.",
    "The print shop needs exact sizes. Could you {edits}? The picture is open, and the originals stay.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    edits = []
    for _ in range(PICTURES[level]):
        unit = dice.randrange(9, 13)
        width, height = unit * 40, unit * 30
        part = dice.choice([n for n in range(8, 34) if n != 20])
        new = (unit * part * 2, unit * dice.randrange(12, 50))
        if level == 1:  # by an even number, so that the height is a whole one too
            part = dice.choice([n for n in range(8, 34, 2) if n != 20])
            new = (unit * part * 2, unit * part * 3 // 2)
        before = scene(dice, width, height)
        if level == 1:
            keys = scale(new[0], None)
            said = (
                f"scale {{name}} to a width of {new[0]} pixels, keeping its proportions (so {new[1]} high),"
            )
            wrong = scale(new[0] + 10, None)
        else:
            keys, wrong = scale(*new), scale(new[0], None)
            said = (
                f"scale {{name}} to {new[0]} by {new[1]} pixels (width by height), stretching it if need be,"
            )
            if new[1] * 4 == new[0] * 3:
                wrong = scale(new[1], new[0])
        edits.append(
            Edit(
                said,
                keys,
                wrong,
                before,
                before.resize(new, Image.Resampling.BICUBIC),
                tolerance=6,
                edge_px=SCALED_EDGE_PX,
            )
        )
    return edits_draft(dice, _WORDINGS, edits)


FAMILY = Family("gimp.scale", 5, _draft, ("gimp",), "full")
