"""edit.lines: replace lines of a list that is open in the text editor, among similar lines."""

from __future__ import annotations

import random
from typing import Any

from osgym_tasks.desk import without_last_end
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, execute, key, launch, text_check, upload

_LINES = {1: 6, 2: 10, 3: 16, 4: 24, 5: 36}
_EDITS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_DOERS = ("Anna", "Bilal", "Chen", "Dora", "Emeka", "Fatima", "Goran", "Hana")
_DEEDS = ("orders paper", "waters the plants", "calls the bank", "books the room", "checks the lamps")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
_FILES = ("duties.txt", "rota.txt", "week.txt", "chores.txt")
WORDINGS = (
    "In the file that the text editor shows, {edits}. Leave all other lines as they are and save {path}.",
    "The file {path} is open in the editor. In it, {edits}; change nothing else, and save the file.",
    "Please {edits} in {path}, which you see in the text editor. Save it; the other lines stay.",
    "Plans have changed, so the list that is open is out of date. Please {edits}, and save it. All other "
    "lines stay as they are.",
    "I misread my notes when I wrote this. Could you {edits}? It is the file in the editor; keep every "
    "other line, and save.",
    "Two colleagues have swapped, and more besides. In the open file, {edits}. Save it under its name with "
    "the rest untouched.",
)
TRANSLATIONS = {
    "de": (
        "Der Plan hat sich geändert, und die offene Liste stimmt nicht mehr: {edits}. Alle anderen Zeilen "
        "bleiben, wie sie sind. Speichere die Datei.",
    ),
    "es": (
        "Los planes han cambiado y la lista abierta ya no vale: {edits}. Las demás líneas se quedan como "
        "están. Guarda el archivo.",
    ),
    "zh": ("计划有变，打开的清单已经过时：{edits}。其他各行保持不变。然后保存文件。",),
}
_EDIT = {
    "en": ('replace the line "{}" by "{}"', ", and "),
    "de": ('ersetze die Zeile "{}" durch "{}"', ", und "),
    "es": ('sustituye la línea "{}" por "{}"', ", y "),
    "zh": ('把 "{}" 这一行换成 "{}"', "，"),
}
"""Words for an edit, and between edits, by language."""


def drawn(dice: random.Random, level: int) -> tuple[list[str], list[int], list[str], str]:
    """Draw the lines of a file, the places of those to replace, their new lines, and the file's name."""
    everything = [f"{doer} {deed} on {day}" for doer in _DOERS for deed in _DEEDS for day in _DAYS]
    picked = dice.sample(everything, _LINES[level] + _EDITS[level])
    lines, news = picked[: _LINES[level]], picked[_LINES[level] :]
    places = sorted(dice.sample(range(len(lines)), len(news)))
    return lines, places, news, dice.choice(_FILES)


def named(lines: list[str], places: list[int], news: list[str], language: str = "en") -> dict[str, str]:
    """Return the values that the wordings need besides the path."""
    one, then = _EDIT[language]
    pairs = zip(places, news, strict=True)
    return {"edits": then.join(one.format(lines[at], new) for at, new in pairs)}


def _draft(dice: random.Random, level: int) -> Draft:
    lines, places, news, name = drawn(dice, level)
    path = f"{HOME}/Documents/{name}"
    wanted = _with(lines, places, news)
    beside = [place + 1 if place + 1 < len(lines) and place + 1 not in places else place for place in places]
    if beside == places:  # each is followed by another that changes, or is the last
        beside = [next(at for at in range(len(lines)) if at not in places), *places[1:]]
    near = {
        "not saved": [*edit(places, news), DONE],
        "the line beside": [*edit(beside, news), SAVE, DONE],
    }
    if len(news) > 1:
        near["one line forgotten"] = [*edit(places[:-1], news[:-1]), SAVE, DONE]
    return Draft(
        WORDINGS,
        {"path": path, **named(lines, places, news)},
        [
            upload({path: text_of(lines)}),
            *launch(name, "mousepad", path),
            execute("wmctrl", "-x", "-r", "mousepad.Mousepad", "-e", "0,300,150,1000,700"),
            execute("wmctrl", "-x", "-a", "mousepad.Mousepad"),
        ],
        every(text_check(path, text_of(wanted))),
        Ways(
            [*edit(places, news), SAVE, DONE],
            near,
            right={"no last line end": [*edit(places, news), without_last_end(), SAVE, DONE]},
        ),
        changes=(path,),
        shown=("path",),
        translations=TRANSLATIONS,
        translated={language: named(lines, places, news, language) for language in TRANSLATIONS},
    )


SAVE: list[dict[str, Any]] = [key("ctrl", "s")]


def text_of(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _with(lines: list[str], places: list[int], news: list[str]) -> list[str]:
    changed = dict(zip(places, news, strict=True))
    return [changed.get(at, line) for at, line in enumerate(lines)]


def edit(places: list[int], news: list[str]) -> Steps:
    """Return a step for each line: to the top, down to it, over it."""
    return [
        [
            key("ctrl", "home"),
            *([key("down")] * at),
            key("home"),
            key("shift", "end"),
            {"op": "type", "text": new},
        ]
        for at, new in zip(places, news, strict=True)
    ]


FAMILY = Family("edit.lines", 4, _draft, ("mousepad",))
