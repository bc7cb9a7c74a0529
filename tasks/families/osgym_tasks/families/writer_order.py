"""writer.order: move paragraphs of a text to other places."""

from __future__ import annotations

import random

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key
from osgym_tasks.writer import (
    SAVE,
    at_paragraph,
    docx_bytes,
    opened,
    path_of,
    rest_kept,
    sentences,
    wanted_text,
)

_PARAGRAPHS = {1: 5, 2: 8, 3: 12, 4: 18, 5: 28}
_MOVES = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4}
_WORDINGS = (
    "In {path}, which is open in Writer, change the order of the paragraphs: {moves}. All others keep "
    "their order. Save it as docx.",
    "Please move paragraphs in the open document {path}: {moves}. The rest stays where it is; save it in "
    "the format that it has.",
    "The paragraphs of {path} are in the wrong order. Do this: {moves}. Leave the others alone, change no "
    "text and save the docx file.",
    "My notes follow the talk no longer. In the document that is open, please {moves}. Nothing is to be "
    "lost or to stand there twice. Save it as the docx that it is.",
    "Reading this aloud, I found that some parts come too early. Could you {moves}? All other paragraphs "
    "stay as and where they are. Save the open file in its format.",
    "My editor sent suggestions for the text that you see: {moves}. Do it like that, change no words, and "
    "save the docx file.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    rows = sentences(dice, _PARAGRAPHS[level])
    pairs: list[tuple[str, str]] = []
    while len(pairs) < _MOVES[level]:
        what, below = dice.sample([row for row in rows if all(row not in pair for pair in pairs)], 2)
        now = _after(rows, pairs)
        if now.index(what) != now.index(below) + 1:
            pairs.append((what, below))
    path = path_of(dice)
    near = {
        "above, not below": [*_move(rows, pairs, above=True), *SAVE, DONE],
        "copied": [*_move(rows, pairs, cut="c"), *SAVE, DONE],
    }
    if len(pairs) > 1:
        near["one forgotten"] = [*_move(rows, pairs[:-1]), *SAVE, DONE]
    else:
        near["not saved"] = [*_move(rows, pairs), DONE]
    told = [f'move the paragraph "{what}" to directly below "{below}"' for what, below in pairs]
    return Draft(
        _WORDINGS,
        {"path": path, "moves": ", then ".join(told)},
        opened(path, docx_bytes(["Notes", *rows, "End of the notes"])),
        every(wanted_text(path, ["Notes", *_after(rows, pairs), "End of the notes"]), rest_kept(path)),
        Ways([*_move(rows, pairs), *SAVE, DONE], near),
        changes=[path],
        shown=("path",),
    )


def _after(rows: list[str], pairs: list[tuple[str, str]]) -> list[str]:
    rows = list(rows)
    for what, below in pairs:
        rows.remove(what)
        rows.insert(rows.index(below) + 1, what)
    return rows


def _move(rows: list[str], pairs: list[tuple[str, str]], *, above: bool = False, cut: str = "x") -> Steps:
    """Return steps that cut a whole line with its end and paste it at the beginning of another."""
    steps: Steps = []
    rows = list(rows)
    for what, below in pairs:
        select = [*at_paragraph(rows.index(what) + 1), key("shift", "end"), key("shift", "right")]
        steps.append([*select, key("ctrl", cut)])
        if cut == "x":
            rows.remove(what)
        place = rows.index(below) + (1 if above else 2)
        steps.append([*at_paragraph(place), key("ctrl", "v")])
        rows.insert(place - 1, what)
    return steps


FAMILY = Family("writer.order", 3, _draft, ("libreoffice_writer",), "full")
