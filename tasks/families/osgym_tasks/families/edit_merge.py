"""edit.merge: join files that are open in the text editor into a new one, in a stated order."""

from __future__ import annotations

import random

from osgym_tasks.desk import home, mousepad, sentence, without_last_end
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key, text_check, upload

_FILES = {1: 2, 2: 3, 3: 4, 4: 5, 5: 6}
_JOINED = {1: 2, 2: 2, 3: 3, 4: 4, 5: 5}
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
    "Join {files}, in this order, into a new file {path}, with nothing between them. "
    "Save it; the files that are open stay unchanged.",
    "Make {path} out of {files}: their whole text one after the other in this order, and nothing else. Do "
    "not change these files.",
    "Please put the text of {files} together in this order and save it as {path}. Add nothing, and leave "
    "the files themselves as they are.",
    "I need a file {path} with the lines of {files}, one file after the other as I name them. Add no "
    "lines, and keep the files unchanged.",
    "Merge {files} into {path}. The order is as I say it, every line is kept and none is added; the single"
    " files stay as they are.",
    "The text editor has files open. Copy the text of {files} into one new file, one after the other in "
    "this order, without anything in between, and save it as {path}. Leave the single files unchanged.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    folder = home(f"Documents/{dice.choice(('thesis', 'report', 'book', 'paper'))}")
    names = dice.sample(_NAMES, _FILES[level])
    files = {f"{folder}/{name}.txt": _text(dice, name, _LINES[level]) for name in names}
    tabs = list(files)
    joined = dice.sample(tabs, _JOINED[level])
    if joined == [path for path in tabs if path in joined]:  # as they are in the window: no order to see to
        joined.reverse()
    path = f"{folder}/{dice.choice(('whole', 'joined', 'final', 'complete'))}.txt"
    way = _ways(tabs, joined, path)
    as_open = [one for one in tabs if one in joined]
    near = {
        "in the order of the window": _ways(tabs, as_open, path),
        "not saved": [*way[:-4], DONE],
        "one forgotten": _ways(tabs, joined[:-1], path),
    }
    return Draft(
        _WORDINGS,
        {"files": sentence(joined), "path": path},
        [upload(files), *mousepad(*tabs)],
        every(text_check(path, "".join(files[one] for one in joined))),
        Ways(way, near, right={"no last line end": [*way[:-4], without_last_end(), *way[-4:]]}),
        changes=(path,),
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


FAMILY = Family("edit.merge", 3, _draft, ("mousepad",))
