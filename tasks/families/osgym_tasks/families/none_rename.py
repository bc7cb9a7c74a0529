"""none.rename: as files.rename, but a file is missing, so only failing is right.

A similar file is there, which must not be renamed in its place.
"""

from __future__ import annotations

import random

from osgym_tasks.families.files_rename import TRANSLATIONS, WORDINGS, begin, drawn, named, ways
from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.pieces import DONE, FAIL, infeasible, key


def _draft(dice: random.Random, level: int) -> Draft:
    root, files, renames = drawn(dice, level)
    gone = dice.choice(list(renames))
    like = gone.replace("-20", f"-{dice.choice((19, 21))}")
    there = {like if name == gone else name: text for name, text in files.items()}
    others = {old: new for old, new in renames.items() if old != gone}
    similar = ways({like if old == gone else old: new for old, new in renames.items()})
    near = {"one like it": similar, "one like it, then given up": [*similar[:-1], FAIL]}
    if others:
        near["the others only"] = ways(others)
    else:
        near["done without a change"] = [[{"op": "type", "text": like}, key("esc")], DONE]
    return Draft(
        WORDINGS,
        {"root": root, **named(renames)},
        begin(root, there),
        infeasible(),
        Ways([*([{"op": "type", "text": name}, key("esc")] for name in renames), FAIL], near),
        changes=(),
        shown=("root",),
        translations=TRANSLATIONS,
        translated={language: named(renames, language) for language in TRANSLATIONS},
    )


FAMILY = Family("none.rename", 4, _draft, ("pcmanfm",))
