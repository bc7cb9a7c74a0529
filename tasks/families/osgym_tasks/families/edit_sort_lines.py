"""edit.sort_lines: sort the lines of some sections of an open list, up or down, and leave the others."""

from __future__ import annotations

import random
from typing import Any

from osgym_tasks.desk import BOX_PX, home, sentence
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key, launch, place, text_check, upload

_SECTIONS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}
_SORTED = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3}
_LINES = {1: 4, 2: 5, 3: 6, 4: 8, 5: 10}
_HEADS = ("Pantry", "Cellar", "Garden", "Kitchen", "Garage", "Attic", "Office", "Shed")
_THINGS = (
    "apron", "basket", "candle", "drill", "envelope", "funnel", "gloves", "hammer", "iron", "jar", "kettle",
    "ladder", "mirror", "nails", "oven", "paint", "quilt", "rope", "shovel", "towel", "umbrella", "vase",
    "whisk", "yarn",
)  # fmt: skip
_FILES = ("inventory.txt", "things.txt", "household.txt", "stock.txt")
_WORDINGS = (
    "In the open file {path}, sort the lines below {which}. The heading lines and all other lines keep "
    "their places. Save the file.",
    "The file {path} is open in the text editor. Put the lines below {which} in order; leave the headings "
    "and everything else where it is, and save.",
    "Please sort {path} in part: the lines below {which}. Headings and other lines stay where they are. "
    "Save it.",
    "I can't find anything in my list. Please sort the lines below {which} in the file that is open, and "
    "save it. The headings and all other lines keep their places.",
    "For moving house, I have to go through this list quickly. Could you put the lines below {which} in "
    "order? Leave headings and everything else where it is, and save.",
    "The list in the editor is for my flatmates, and they like order. Sort the lines below {which}; "
    "nothing else moves. Then save the file.",
)
_TRANSLATIONS = {
    "de": (
        "In der offenen Liste finde ich nichts. Sortiere bitte die Zeilen unter {which}. Überschriften und "
        "alle anderen Zeilen bleiben an ihrem Platz. Speichere die Datei.",
    ),
    "es": (
        "No encuentro nada en la lista abierta. Ordena las líneas que están debajo de {which}. Los "
        "encabezados y las demás líneas no se mueven. Guarda el archivo.",
    ),
    "zh": (
        "我在打开的清单里什么都找不到。请给{which}下面的各行排序。标题和其他各行都留在原处。然后保存文件。",
    ),
}
_ORDER = {
    "en": 'the heading "{}" from {} to {}',
    "de": 'der Überschrift "{}" von {} bis {}',
    "es": 'el encabezado "{}" de la {} a la {}',
    "zh": '标题 "{}"（从 {} 到 {}）',
}


def _draft(dice: random.Random, level: int) -> Draft:
    heads = dice.sample(_HEADS, _SECTIONS[level])
    sections = {head: _shuffled(dice, dice.sample(_THINGS, _LINES[level])) for head in heads}
    chosen = sorted(dice.sample(heads, _SORTED[level]), key=heads.index)
    down = {head: level >= 2 and dice.random() < 0.5 for head in chosen}
    wanted = sections | {head: sorted(sections[head], reverse=down[head]) for head in chosen}
    path = home(f"Documents/{dice.choice(_FILES)}")
    which = {
        language: sentence(
            (one.format(f"{head}:", *("ZA" if down[head] else "AZ")) for head in chosen), language
        )
        for language, one in _ORDER.items()
    }
    if len(chosen) == 1 and len(heads) > 1:
        other = next(head for head in heads if head not in chosen)
        beside = _ways(sections, {other: down[chosen[0]]})
    else:
        beside = _ways(sections, {head: not down[head] for head in chosen})
    near = {
        "another section" if len(chosen) == 1 and len(heads) > 1 else "the other way": [*beside, _SAVE, DONE],
        "not saved": [*_ways(sections, down), DONE],
    }
    if len(chosen) > 1:
        near["one forgotten"] = [*_ways(sections, {head: down[head] for head in chosen[1:]}), _SAVE, DONE]
    return Draft(
        _WORDINGS,
        {"path": path, "which": which["en"]},
        [
            upload({path: _text(sections)}),
            *launch(path.rpartition("/")[2], "featherpad", path),
            *place("featherpad.FeatherPad", *BOX_PX),
        ],
        every(text_check(path, _text(wanted))),
        Ways([*_ways(sections, down), _SAVE, DONE], near),
        changes=(path,),
        shown=("path",),
        translations=_TRANSLATIONS,
        translated={language: {"which": which[language]} for language in _TRANSLATIONS},
    )


_SAVE: list[dict[str, Any]] = [key("ctrl", "s")]


def _shuffled(dice: random.Random, things: list[str]) -> list[str]:
    """Return the things in an order that is neither ascending nor descending."""
    while things in (sorted(things), sorted(things, reverse=True)):
        dice.shuffle(things)
    return things


def _text(sections: dict[str, list[str]]) -> str:
    blocks = ("".join(f"{line}\n" for line in (f"{head}:", *things)) for head, things in sections.items())
    return "\n".join(blocks)


def _ways(sections: dict[str, list[str]], down: dict[str, bool]) -> Steps:
    """Return steps that select the lines of each section and sort them by the menu, counted from its end."""
    steps: Steps = []
    lines = _text(sections).split("\n")
    for head, reverse in down.items():
        first = lines.index(f"{head}:") + 1
        select = [key("shift", "down")] * (len(sections[head]) - 1)
        steps.append([key("ctrl", "home"), *[key("down")] * first, *select, key("shift", "end")])
        steps.append([key("alt", "e"), *[key("up")] * (4 if reverse else 5), key("enter")])
    return steps


FAMILY = Family("edit.sort_lines", 3, _draft, ("featherpad",))
