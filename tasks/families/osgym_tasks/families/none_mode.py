"""none.mode: as gimp.mode, but a picture is to have a mode that GIMP lacks, so only failing is right.

GIMP 2.10 has no mode CMYK, and no PNG file can have it.
"""

from __future__ import annotations

import random
from dataclasses import replace

from osgym_tasks.desk import shell_output
from osgym_tasks.families.gimp_mode import WORDINGS, drawn
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.gimp import FOLDER, edits_draft, opened
from osgym_tasks.pieces import DONE, FAIL, infeasible, key


def _draft(dice: random.Random, level: int) -> Draft:
    edits = drawn(dice, level)
    edits[-1] = replace(edits[-1], says="change the mode of {name} to CMYK")
    made = edits_draft(dice, WORDINGS, edits)
    *similar, _ = made.ways.oracle
    sources = [f"{path.rpartition('-')[0]}.png" for path in made.changes]
    looks = [step for at, path in enumerate(sources) for step in (*(opened(path) if at else ()), *_LOOK)]
    near = {
        "another mode": [*similar, DONE],
        "another mode, then given up": [*similar, FAIL],
        "the others only" if len(edits) > 1 else "done without a change": (
            made.ways.near["one forgotten"] if len(edits) > 1 else [*looks, DONE]
        ),
    }
    return replace(
        made,
        evaluator=infeasible(shell_output(f"ls {FOLDER} | wc -l", f"{len(edits)}\n")),
        ways=Ways([*looks, FAIL], near),
        changes=(),
    )


_LOOK: Steps = [[key("alt", "i")], [key("m")], [key("esc"), key("esc")]]
"""Steps that look at the modes of a picture in the menu."""

FAMILY = Family("none.mode", 1, _draft, ("gimp",), "full")
