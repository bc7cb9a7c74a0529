"""none.program: as desk.defaults, but one of the applications is not installed, so only failing is right.

The file manager offers others for the type, which must not be chosen in its place.
"""

from __future__ import annotations

import random

from osgym_tasks.families.desk_defaults import (
    APPLICATIONS,
    OFFERED,
    TRANSLATIONS,
    WORDINGS,
    begin,
    defaults_check,
    drawn,
    named,
    ways,
)
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, FAIL, infeasible, key, tree_check

_MISSING = ("Bluefish", "Emacs", "Geany", "Kate", "Sublime Text", "Visual Studio Code")
"""Applications that open all of these types, and that no golden image has."""


def _draft(dice: random.Random, level: int) -> Draft:
    root, files, picked, _ = drawn(dice, level)
    gone = dice.choice(list(picked))
    said = {ending: APPLICATIONS[app] for ending, app in picked.items()} | {gone: dice.choice(_MISSING)}
    others = {ending: app for ending, app in picked.items() if ending != gone}
    *similar, done = ways(files, picked)
    near = {
        "another application": [*similar, done],
        "another application, then given up": [*similar, FAIL],
        "the others only" if others else "done without a change": (
            ways(files, others) if others else [*_looked(files, picked), DONE]
        ),
    }
    return Draft(
        WORDINGS,
        {"root": root, **named(said)},
        begin(root, files),
        infeasible(defaults_check({}), tree_check(root, files)),
        Ways([*_looked(files, picked), FAIL], near),
        changes=(),
        shown=("root",),
        translations=TRANSLATIONS,
        translated={language: named(said, language) for language in TRANSLATIONS},
    )


def _looked(files: dict[str, str], picked: dict[str, str]) -> Steps:
    """Return steps that go through the list of applications of each type, and leave it as it is."""
    steps: Steps = []
    for ending in picked:
        name = next(name for name in files if name.endswith(f".{ending}"))
        steps += [[{"op": "type", "text": name}], [key("esc")], [key("alt", "enter")]]
        steps.append([*[key("tab")] * 4, *[key("down")] * len(OFFERED[ending][1]), key("esc")])
    return steps


FAMILY = Family("none.program", 2, _draft, ("pcmanfm",), "full")
