"""files.find: find files of a tree by what is written in them, and copy them into a folder."""

from __future__ import annotations

import random

from osgym_tasks.desk import file_manager, home, sentence
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, execute, key, tree_check, upload

_FILES = {1: 4, 2: 8, 3: 14, 4: 22, 5: 34}
_FOUND = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3}
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
    "Find below {root} {wanted}, and copy it into {target} under the same name. All files of {root} stay "
    "where and as they are, and nothing else comes into {target}.",
    "Look below {root} for {wanted}. Put a copy into {target}, keeping the name, and "
    "nothing else; leave {root} as it is.",
    "Somewhere below {root} there is {wanted}. Please copy it to {target} without renaming it. Do not "
    "change {root}, and copy nothing else.",
    "I need in {target} a copy, with the same name, of {wanted}, from below {root}. No other file is to be"
    " copied, and none moved or changed.",
    "Search the folders of {root} for {wanted}; then copy what you found into {target}, with its name "
    "kept. {root} must not change, and {target} must hold nothing else.",
    "Copy into {target}, from the folders of {root}, {wanted}. Keep the name, copy nothing else, and leave"
    " all of {root} unchanged.",
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
        _plural(len(found)),
        {"root": root, "target": target, "wanted": said},
        [
            upload({f"{root}/{path}": text for path, text in files.items()}),
            execute("mkdir", "-p", target),
            *file_manager(root),
        ],
        every(tree_check(home("Papers"), {**after, **copies})),
        Ways(_ways(root, target, found), near),
        changes=(target,),
    )


def _plural(count: int) -> tuple[str, ...]:
    """Return the wordings, for one file or for several."""
    if count == 1:
        return _WORDINGS
    news = (
        ("copy it into", "copy them into"),
        ("the same name. All", "their names. All"),
        ("Put a copy into {target}, keeping the name", "Put copies into {target}, keeping the names"),
        ("there is {", "there are {"),
        ("copy it to", "copy them to"),
        ("renaming it", "renaming them"),
        ("a copy, with the same name", "copies, with the same names"),
        ("copy what you found", "copy all that you found"),
        ("its name kept", "their names kept"),
        ("Keep the name,", "Keep the names,"),
    )
    made = list(_WORDINGS)
    for old, new in news:
        made = [wording.replace(old, new) for wording in made]
    return tuple(made)


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


FAMILY = Family("files.find", 3, _draft, ("pcmanfm",))
