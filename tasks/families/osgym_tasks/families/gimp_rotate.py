"""gimp.rotate: rotate or mirror pictures in GIMP and export them."""

from __future__ import annotations

import random

from PIL import Image

from osgym_tasks.family import Draft, Family
from osgym_tasks.gimp import PICTURES, Edit, edits_draft, menu, scene

_TURNS = {
    "turn {name} by 90 degrees clockwise": ("c", Image.Transpose.ROTATE_270),
    "turn {name} by 90 degrees counter-clockwise": ("w", Image.Transpose.ROTATE_90),
    "turn {name} by 180 degrees": ("1", Image.Transpose.ROTATE_180),
    "mirror {name} horizontally, so that left and right change places": (
        "h",
        Image.Transpose.FLIP_LEFT_RIGHT,
    ),
    "mirror {name} vertically, so that top and bottom change places": ("v", Image.Transpose.FLIP_TOP_BOTTOM),
}
_FLIPS = {
    "h": ("horizontally", Image.Transpose.FLIP_LEFT_RIGHT),
    "v": ("vertically", Image.Transpose.FLIP_TOP_BOTTOM),
}
_WORDINGS = (
    "The picture {first} is open. Do this: {edits}. Leave the files you began with as they are.",
    "GIMP shows {first}. Please {edits}. The files from before stay unchanged.",
    "{first} is open in GIMP. Your work: {edits}. Do not overwrite what was there before.",
    "I held the camera the wrong way. Please {edits}. You see the first one; the original files must not "
    "change.",
    "For the album, pictures must lie another way: {edits}. I have opened one already. Don't overwrite "
    "what was there before.",
    "The exhibition wants a different side up. Could you {edits}? The picture is open, and the originals "
    "stay.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    edits = []
    for _ in range(PICTURES[level]):
        said, (letter, turn) = dice.choice(sorted(_TURNS.items()))
        other = dice.choice([one for one, _ in _TURNS.values() if one != letter])
        before = scene(dice, dice.randrange(28, 33) * (10 if level == 1 else 15), dice.randrange(24, 28) * 10)
        after, keys, wrong = before.transpose(turn), menu("i", "t", letter), menu("i", "t", other)
        if level > 1:  # a second one, that does not take the first back
            flip = dice.choice([flip for flip in sorted(_FLIPS) if flip != letter])
            said, after = f"{said}, then mirror it {_FLIPS[flip][0]}", after.transpose(_FLIPS[flip][1])
            wrong, keys = keys, [*keys, *menu("i", "t", flip)]
        edits.append(Edit(said, keys, wrong, before, after))
    return edits_draft(dice, _WORDINGS, edits)


FAMILY = Family("gimp.rotate", 5, _draft, ("gimp",), "full")
