"""writer.footnote: footnotes at the ends of paragraphs; words in brackets do not count."""

from __future__ import annotations

import random
from collections.abc import Mapping

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key
from osgym_tasks.writer import (
    CALM,
    SAVE,
    at_paragraph,
    command,
    docx_bytes,
    opened,
    path_of,
    rest_kept,
    sentences,
    wanted_parts,
    wanted_text,
)

_PARAGRAPHS = {1: 4, 2: 7, 3: 11, 4: 16, 5: 22}
_NOTES = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_SOURCES = ("Letter", "Minutes", "Invoice", "Logbook", "Interview", "Receipt", "Survey", "Field notes")
_WORDINGS = (
    "Add footnotes to {path}, which is open in Writer: {notes}. The text itself stays as it is. Save it as "
    "docx.",
    "Please put footnotes into the open document {path}, {notes}. Change nothing in the text, and save in "
    "the same format.",
    "{path} lacks its sources. Insert them as footnotes: {notes}. Leave all paragraphs as they are and "
    "save the docx file.",
    "My professor wants to see sources. Please add real footnotes to the document that is open: {notes}. "
    "Don't change the text itself, and save it as the docx that it is.",
    "Before this goes to print, it needs footnotes: {notes}. Could you insert them into the open document "
    "and save it in its format? All paragraphs stay as they are.",
    "A reader asked where I got this from. Put footnotes into the text that you see, {notes}. Nothing else "
    "is added or changed; save it as docx.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    rows = sentences(dice, _PARAGRAPHS[level])
    places = sorted(dice.sample(range(len(rows) - 1), _NOTES[level]))
    sources = dice.sample(
        [f"{what} of {year}" for what in _SOURCES for year in range(1995, 2025)], len(places)
    )
    notes = dict(zip(places, sources, strict=True))
    path = path_of(dice)
    told = [f'at the end of the paragraph "{rows[at]}" one that reads "{text}"' for at, text in notes.items()]
    first = places[0]
    free = next(at for at in range(first + 1, len(rows)) if at not in notes)
    near = {
        "another paragraph": [*_insert({**dict(list(notes.items())[1:]), free: notes[first]}), *SAVE, DONE],
        "in brackets": [*_brackets(notes), *SAVE, DONE],
    }
    if len(notes) > 1:
        near["one forgotten"] = [*_insert(dict(list(notes.items())[:-1])), *SAVE, DONE]
    else:
        near["not saved"] = [*_insert(notes), DONE]
    return Draft(
        _WORDINGS,
        {"path": path, "notes": ", and ".join(told)},
        opened(path, docx_bytes(rows)),
        every(
            wanted_text(path, rows),
            rest_kept(path),
            wanted_parts(
                path,
                {"path": ".//w:footnoteReference/../..", "values": [rows[at] for at in places]},
                {"path": ".//w:p/w:r[last()]/w:footnoteReference", "count": len(places)},
                {"part": "word/footnotes.xml", "path": ".//w:footnote", "values": ["", "", *sources]},
            ),
        ),
        Ways([*_insert(notes), *SAVE, DONE], near),
        changes=[path],
        shown=("path",),
    )


def _insert(notes: Mapping[int, str]) -> Steps:
    """Return steps to each paragraph's end; Page Up leads from the footnote back into the text."""
    steps: Steps = []
    for at, text in notes.items():
        steps.append([*at_paragraph(at), key("end"), CALM])
        steps += command("footnote")
        steps.append([{"op": "type", "text": text}, CALM])
        steps.append([key("pageup"), CALM])
    return steps


def _brackets(notes: Mapping[int, str]) -> Steps:
    return [
        [*at_paragraph(at), key("end"), CALM, {"op": "type", "text": f" [{text}]"}]
        for at, text in notes.items()
    ]


FAMILY = Family("writer.footnote", 3, _draft, ("libreoffice_writer",), "full")
