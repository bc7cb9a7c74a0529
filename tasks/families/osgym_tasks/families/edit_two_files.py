"""edit.two_files: copy lines from one file to the end of another, both open in tabs of one editor."""

from __future__ import annotations

import random
from typing import Any

from osgym_tasks.desk import BOX_PX, home, sentence
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key, launch, place, text_check, upload

_LINES = {1: 5, 2: 8, 3: 12, 4: 18, 5: 26}
_COPIED = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4}
_WHO = ("Amara", "Bruno", "Clara", "Diego", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kaya", "Luca")
_WHAT = (
    "brings bread",
    "plays the piano",
    "drives the bus",
    "paints the sign",
    "sells tickets",
    "cooks soup",
)
_FROM = ("volunteers.txt", "offers.txt", "helpers.txt", "signups.txt")
_TO = ("team.txt", "chosen.txt", "saturday.txt", "crew.txt")
_WORDINGS = (
    "Two files are open in the editor. Copy {lines} from {source} to the end of {target}, in this order, "
    "each on a line of its own, and save {target}. {source} stays as it is.",
    "From {source}, copy {lines} and paste the copies, in this order, below the last line of {target}. "
    "Save {target}; do not change {source}.",
    "Please add {lines} from {source} as new last lines to {target}, in the order in which I name them. "
    "Save {target}, and leave {source} unchanged.",
    "Some more people have said yes. Two files are open: please copy {lines} from the one that has them to "
    "the end of the other, in this order and each on a line of its own, and save that one. The first stays "
    "as it is.",
    "I am putting a plan together from a longer list. Could you take over {lines}, in this order, as the "
    "last lines of the other file that is open? Save it. The list itself must not change.",
    "In one of the two open files you find {lines}. The other needs them as well, at its end and in the "
    "order in which I say them. Save only that one, and take nothing out of the first.",
)
_TRANSLATIONS = {
    "de": (
        "Einige haben noch zugesagt. Zwei Dateien sind offen: Kopiere {lines} aus der, in der das steht, "
        "in dieser Reihenfolge ans Ende der anderen, jeweils als eigene Zeile, und speichere diese. Die "
        "erste bleibt, wie sie ist.",
    ),
    "es": (
        "Algunos han dicho que sí a última hora. Hay dos archivos abiertos: copia {lines} del que lo "
        "contiene al final del otro, en este orden y cada cosa en su propia línea, y guarda ese otro. El "
        "primero no debe cambiar.",
    ),
    "zh": (
        "又有几个人答应了。现在打开着两个文件：请把{lines}从含有它们的文件按此顺序复制到另一个文件的末尾，"
        "每个单独一行，并保存后者。前一个文件保持不变。",
    ),
}
_LINE = {"en": 'the line "{}"', "de": 'die Zeile "{}"', "es": 'la línea "{}"', "zh": ' "{}" 这一行'}


def _draft(dice: random.Random, level: int) -> Draft:
    everything = [f"{who} {what}" for who in _WHO for what in _WHAT]
    drawn = dice.sample(everything, _LINES[level] + 4)
    lines, there = drawn[:-4], drawn[-4:][: dice.randrange(2, 5)]
    source, target = home(f"Documents/{dice.choice(_FROM)}"), home(f"Documents/{dice.choice(_TO)}")
    places = dice.sample(range(len(lines)), _COPIED[level])
    named = {
        language: sentence((one.format(lines[at]) for at in places), language)
        for language, one in _LINE.items()
    }
    beside = next(at for at in range(places[0] + 1, places[0] + len(lines)) if at % len(lines) not in places)
    near = {
        "not saved": [*_ways(places), DONE],
        "the line beside": [*_ways([beside % len(lines), *places[1:]]), _SAVE, DONE],
        "moved": [*_ways(places, "x"), _SAVE, [key("alt", "left")], _SAVE, DONE],
    }
    if len(places) > 1:
        near["in another order"] = [*_ways(places[::-1]), _SAVE, DONE]
    return Draft(
        _WORDINGS,
        {"lines": named["en"], "source": source, "target": target},
        [
            upload({source: _text(lines), target: _text(there)}),
            # One after the other: which of two that are asked for at once comes first is chance.
            *launch(source, "featherpad", source),
            *launch(target, "featherpad", target),
            *place("featherpad.FeatherPad", *BOX_PX),
        ],
        every(text_check(target, _text([*there, *(lines[at] for at in places)]))),
        Ways([*_ways(places), _SAVE, DONE], near),
        changes=(target,),
        shown=("source", "target"),
        translations=_TRANSLATIONS,
        translated={language: {"lines": named[language]} for language in _TRANSLATIONS},
    )


_SAVE: list[dict[str, Any]] = [key("ctrl", "s")]


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _ways(places: list[int], how: str = "c") -> Steps:
    """Return steps that copy a line of the first tab to the end of the second; "x" cuts it."""
    steps: Steps = [[key("alt", "left")]]
    gone: list[int] = []
    for at in places:
        down = at - (sum(one < at for one in gone) if how == "x" else 0)
        copy = [key("ctrl", "home"), *[key("down")] * down, key("shift", "down"), key("ctrl", how)]
        # Each a step of its own: on a busy machine the other tab takes keys later than it shows.
        steps += [copy, [key("alt", "right")], [key("ctrl", "end"), key("ctrl", "v")], [key("alt", "left")]]
        gone.append(at)
    return steps[:-1]


FAMILY = Family("edit.two_files", 5, _draft, ("featherpad",))
