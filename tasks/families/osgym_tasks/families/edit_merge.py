"""edit.merge: join files that are open in the text editor into a new one, in a stated order."""

from __future__ import annotations

import random

from osgym_tasks.desk import home, mousepad, sentence, without_last_end
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key, text_check, upload

_FILES = {1: 2, 2: 3, 3: 4, 4: 6, 5: 8}
_JOINED = {1: 2, 2: 2, 3: 3, 4: 5, 5: 8}
_LINES = {1: 3, 2: 4, 3: 6, 4: 9, 5: 14}
_NAMES = (
    "intro",
    "methods",
    "results",
    "budget",
    "summary",
    "history",
    "outlook",
    "thanks",
    "sources",
    "scope",
)
_TEXTS = (
    "We met twice in spring", "The first part took a week", "Nobody asked for more", "All of it was measured",
    "The sum is given below", "It rained on both days", "Two people helped us", "The plan was changed once",
    "Most of it is new", "See the other part for more",
)  # fmt: skip
_WORDINGS = (
    "In {folder}, join {files}, in this order, into a new file {name} in the same folder, with nothing "
    "between them. The files that are open stay unchanged.",
    "Make {folder}/{name} out of the open files {files}: their whole text one after the other in this "
    "order, and nothing else. Do not change these files.",
    "Please put the text of {files} together in this order and save it as {name} in {folder}, where they "
    "are. Add nothing, and leave the files themselves as they are.",
    "The parts are written, and the printer wants a single file. Please put {files} together, in this "
    "order and with nothing between them, and save that as {name} in the same folder. The parts stay as "
    "they are.",
    "I'd like to read all of it in one go. Could you make {name} out of {files}, which you see in the "
    "tabs? One after the other as I name them, not a line more or less, in the folder where they are. "
    "Don't change the single files.",
    "Our editor wants it in another order: {files}. Save the joined text beside them as {name}. Add "
    "nothing in between, and leave the open files unchanged.",
)
_TRANSLATIONS = {
    "de": (
        "Die Druckerei will eine einzige Datei. Füge die offenen Dateien {files} in dieser Reihenfolge "
        "zusammen, ohne etwas dazwischen, und speichere das Ganze im selben Ordner als {name}. Die "
        "einzelnen Dateien bleiben, wie sie sind.",
    ),
    "es": (
        "La imprenta quiere un solo archivo. Une los archivos abiertos {files} en este orden, sin nada "
        "entre ellos, y guarda el resultado en la misma carpeta como {name}. Los archivos sueltos no deben "
        "cambiar.",
    ),
    "zh": (
        "印刷厂只要一个文件。请把打开的文件 {files} 按这个顺序合并，中间不要加任何内容，在同一文件夹中保存"
        "为 {name}。原来的各个文件保持不变。",
    ),
}


def _draft(dice: random.Random, level: int) -> Draft:
    folder = home(f"Documents/{dice.choice(('thesis', 'report', 'book', 'paper'))}")
    names = dice.sample(_NAMES, _FILES[level])
    files = {f"{folder}/{name}.txt": _text(dice, name, _LINES[level]) for name in names}
    tabs = list(files)
    joined = dice.sample(tabs, _JOINED[level])
    if joined == [path for path in tabs if path in joined]:  # as they are in the window: no order to see to
        joined.reverse()
    path = f"{folder}/{dice.choice(('whole', 'joined', 'final', 'complete'))}.txt"
    short = [one.rpartition("/")[2] for one in joined]
    way = _ways(tabs, joined, path)
    as_open = [one for one in tabs if one in joined]
    near = {
        "in the order of the window": _ways(tabs, as_open, path),
        "not saved": [*way[:-4], DONE],
        "one forgotten": _ways(tabs, joined[:-1], path),
    }
    return Draft(
        _WORDINGS,
        {"files": sentence(short), "name": path.rpartition("/")[2], "folder": folder},
        [upload(files), *mousepad(*tabs)],
        every(text_check(path, "".join(files[one] for one in joined))),
        Ways(way, near, right={"no last line end": [*way[:-4], without_last_end(), *way[-4:]]}),
        changes=(path,),
        shown=("folder",),
        translations=_TRANSLATIONS,
        translated={language: {"files": sentence(short, language)} for language in _TRANSLATIONS},
    )


def _text(dice: random.Random, name: str, lines: int) -> str:
    count = dice.randrange(lines - 1, lines + 2)
    return "".join(f"{dice.choice(_TEXTS)} ({name} {number}).\n" for number in range(1, count + 1))


def _ways(tabs: list[str], joined: list[str], path: str) -> Steps:
    """Return steps from the tab of each file to a new one, the last; Alt and a number shows a tab."""
    new = str(len(tabs) + 1)
    steps: Steps = [[key("ctrl", "n")]]
    for one in joined:
        show = key("alt", str(tabs.index(one) + 1))
        copy = [show, key("ctrl", "a"), key("ctrl", "c")]
        steps.append([*copy, key("alt", new), key("ctrl", "end"), key("ctrl", "v")])
    return [
        *steps,
        [key("ctrl", "s")],
        [key("ctrl", "a"), {"op": "type", "text": path}],
        [key("enter")],
        DONE,
    ]


FAMILY = Family("edit.merge", 4, _draft, ("mousepad",))
