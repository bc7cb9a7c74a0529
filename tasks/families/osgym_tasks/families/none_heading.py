"""none.heading: as writer.styles, but the text lacks one of the headings, so only failing is right.

Another heading stands in its place, which must keep its style.
"""

from __future__ import annotations

import random

from osgym_tasks.families.writer_styles import TOPICS, TRANSLATIONS, WORDINGS, apply, drawn, named
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, FAIL, infeasible, key
from osgym_tasks.writer import CALM, SAVE, docx_bytes, opened


def _draft(dice: random.Random, level: int) -> Draft:
    rows, styles, path = drawn(dice, level)
    gone = dice.choice(list(styles))
    there = [*rows]
    there[gone] = dice.choice([topic for topic in TOPICS if topic not in rows])
    others = {at: rank for at, rank in styles.items() if at != gone}
    near = {
        "another heading": [*apply(styles), *SAVE, DONE],
        "another heading, then given up": [*apply(styles), *SAVE, FAIL],
    }
    if others:
        near["the others only"] = [*apply(others), *SAVE, DONE]
    else:
        near["done without a change"] = [*_looked_for([rows[gone]]), DONE]
    return Draft(
        WORDINGS,
        {"path": path, **named(rows, styles)},
        opened(path, docx_bytes(there)),
        infeasible(),
        Ways([*_looked_for([rows[at] for at in styles]), FAIL], near),
        changes=(),
        shown=("path",),
        translations=TRANSLATIONS,
        translated={language: named(rows, styles, language) for language in TRANSLATIONS},
    )


def _looked_for(headings: list[str]) -> Steps:
    """Return steps that search the text for each heading."""
    return [[key("ctrl", "f"), CALM, {"op": "type", "text": one, "press_enter": True}, CALM, key("esc")]
            for one in headings]  # fmt: skip


FAMILY = Family("none.heading", 1, _draft, ("libreoffice_writer",), "full")
