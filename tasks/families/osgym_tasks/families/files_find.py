"""files.find: find files of a tree by what is written in them, and copy them into a folder."""

from __future__ import annotations

import random

from osgym_tasks.desk import file_manager, home, sentence
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, execute, key, tree_check, upload

_FILES = {1: 4, 2: 8, 3: 14, 4: 22, 5: 34}
_FOUND = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4}
_FOLDERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6}
_NAMES = (
    "Berg",
    "Castro",
    "Dubois",
    "Eriksen",
    "Farkas",
    "Greco",
    "Hoang",
    "Ibrahim",
    "Jensen",
    "Kovac",
    "Lindt",
)
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August")
_WHERE = ("north", "south", "east", "west", "coast", "hills", "river", "valley")
_TOPS = ("invoices", "orders", "receipts", "contracts")
_WORDINGS = (
    "Find below {root}: {wanted}. Copy that into {target}, under the names it has there. All files of "
    "{root} stay where and as they are, and nothing else comes into {target}.",
    "Look below {root} for {wanted}. Put copies into {target}, keeping the names, and nothing else; leave "
    "{root} as it is.",
    "Copy into {target}, from the folders of {root}, {wanted}. Keep the names, copy nothing else, and "
    "leave all of {root} unchanged.",
    "An auditor is coming. Somewhere below the folder that is open there must be {wanted}. Please copy "
    "that to {target}, under the names it has, and nothing else; what is there stays where and as it is.",
    "I have to answer a complaint and need a copy of {wanted} in {target}. You will have to look into the "
    "files below the open folder. Rename, move and change nothing, and copy no other file.",
    "Names of files tell you nothing here. Could you find {wanted} somewhere in the open folder, and put "
    "copies with the same names into {target}? Nothing else goes there, and the originals stay.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    root, target = (
        home(f"Papers/{dice.choice(_TOPS)}"),
        home(f"Papers/{dice.choice(('Selected', 'Answer', 'Outbox'))}"),
    )
    folders = dice.sample(_WHERE, _FOLDERS[level])
    pairs = dice.sample([(name, month) for name in _NAMES for month in _MONTHS], _FILES[level] - 1)
    wanted = pairs[: _FOUND[level]]
    place, twin = next(
        (place, (name, month))
        for place, (name, _) in enumerate(wanted)  # the first of them may have a file of every month
        for month in _MONTHS
        if (name, month) not in pairs
    )
    pairs.append(twin)
    numbers = dice.sample(range(100, 999), len(pairs))
    paths = {
        pair: f"{dice.choice(folders)}/paper{number}.txt" for pair, number in zip(pairs, numbers, strict=True)
    }
    files = {paths[name, month]: f"Customer: {name}\nMonth: {month}\nSum: {dice.randrange(50, 5000)}\n"
             for name, month in dice.sample(pairs, len(pairs))}  # fmt: skip
    found = [paths[pair] for pair in wanted]
    after = {f"{root.rpartition('/')[2]}/{path}": text for path, text in files.items()}
    top = target.rpartition("/")[2]
    copies = {f"{top}/{path.rpartition('/')[2]}": files[path] for path in found}
    said = sentence(f"the file for the customer {name} and the month {month}" for name, month in wanted)
    near = {
        "another month": _ways(root, target, [*found[:place], paths[twin], *found[place + 1 :]]),
        "moved": _ways(root, target, found, "x"),
    }
    if len(found) > 1:
        near["one forgotten"] = _ways(root, target, found[1:])
    return Draft(
        _WORDINGS,
        {"root": root, "target": target, "wanted": said},
        [
            upload({f"{root}/{path}": text for path, text in files.items()}),
            execute("mkdir", "-p", target),
            *file_manager(root),
        ],
        every(tree_check(home("Papers"), {**after, **copies})),
        Ways(_ways(root, target, found), near),
        changes=(target,),
        shown=("root",),
    )


def _ways(root: str, target: str, paths: list[str], how: str = "c") -> Steps:
    steps: Steps = []
    for path in paths:
        folder, _, name = path.rpartition("/")
        steps.append([key("ctrl", "l"), {"op": "type", "text": f"{root}/{folder}"}, key("enter")])
        steps.append([{"op": "type", "text": name}])
        steps.append([key("esc"), key("ctrl", how)])
        steps.append([key("ctrl", "l"), {"op": "type", "text": target}, key("enter")])
        steps.append([key("ctrl", "v")])
    return [*steps, DONE]


FAMILY = Family("files.find", 4, _draft, ("pcmanfm",))
