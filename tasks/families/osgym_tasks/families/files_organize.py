"""files.organize: move files by their size and their time of change into folders, in the file manager."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from osgym_tasks.desk import file_manager, home
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, execute, key, tree_check

_FILES = {1: 7, 2: 10, 3: 13, 4: 18, 5: 26}
_STEMS = (
    "atlas", "barley", "copper", "dahlia", "ebony", "fjord", "ginger", "hazel", "indigo", "jasper", "krypton",
    "linen", "maple", "nutmeg", "olive", "poplar", "quince", "russet", "saffron", "tulip", "umber", "velvet",
    "walnut", "xenon", "yarrow", "zinc",
)  # fmt: skip
_ENDINGS = ("dat", "raw", "bin", "log")
_FOLDERS = ("Downloads", "Intake", "Unsorted", "Transfer")
_LARGE, _OLD, _SMALL = "Large", "Old", "Small"
_WORDINGS = (
    "Move files of {root}: {rules}. The rest stays where it is, and no file changes.",
    "Tidy up {root}, which the file manager shows. Move {rules}. Leave all other files in place and "
    "unchanged.",
    "Please sort out {root}: move {rules}. Everything else stays there.",
    "My disk is a mess. In the folder that is open, please move {rules}; these folders are there already. "
    "Everything else stays where it is, unchanged.",
    "Before I make a backup, I want less in the open folder. Could you move {rules}? The folders are in "
    "it. Don't move or change other files.",
    "I have put folders into the one that you see, so that things can be sorted: {rules}. Do that for me, "
    "and leave all files that are not meant in place.",
)


@dataclass(frozen=True, slots=True)
class _Rule:
    """Rule for files: folder, sort keys (the outermost first), and end of the list where they are."""

    said: str
    folder: str
    names: list[str]
    sort: str
    from_end: bool


def _draft(dice: random.Random, level: int) -> Draft:
    root = home(f"Data/{dice.choice(_FOLDERS)}")
    limit, year = dice.choice((100, 200, 300)), dice.choice((2023, 2024, 2025))
    files = _files(dice, _FILES[level], limit, year)
    sized = sorted(files, key=lambda name: files[name][0])
    dated = sorted(files, key=lambda name: (files[name][1], *_month_day(sorted(files).index(name))))
    large = [name for name in reversed(sized) if files[name][0] > limit * 1024]
    rest = {name: about for name, about in files.items() if name not in large}
    first = _Rule(f"all files larger than {limit} KiB into its folder {_LARGE}", _LARGE, large, "3", True)
    if level == 2:
        old = [name for name in dated if files[name][1] < year]
        said = f"all files last changed before the year {year} into its folder {_OLD}"
        rules = [_Rule(said, _OLD, old, "2", False)]
    else:
        rules = [first]
    if level >= 3:
        old = [name for name in dated if name in rest and rest[name][1] < year]
        said = f"of the other files those last changed before the year {year} into its folder {_OLD}"
        rules.append(_Rule(said, _OLD, old, "2", False))
        rest = {name: about for name, about in rest.items() if name not in old}
    if level == 5:
        small = [name for name in sized if name in rest and rest[name][0] < 20 * 1024]
        said = f"of those that are left all smaller than 20 KiB into its folder {_SMALL}"
        rules.append(_Rule(said, _SMALL, small, "3", False))
    where = {name: f"{rule.folder}/" for rule in rules for name in rule.names}
    folders = [rule.folder for rule in rules]
    after = {f"{where.get(name, '')}{name}": _content(name, size) for name, (size, _) in files.items()}
    copy = 'touch -r "$f" /tmp/time; head -c $(stat -c %s "$f") /dev/zero > "$f"; touch -r /tmp/time "$f"'
    empty = f"for f in {root}/*.*; do {copy}; done"
    near = {
        "copied": _ways(root, rules, how="c"),
        "one more": _ways(root, rules, more=1),
        "one less": _ways(root, rules, more=-1),
    }
    if len(rules) > 1:
        near["one rule forgotten"] = _ways(root, rules[:-1])
    return Draft(
        _WORDINGS,
        {"root": root, "rules": "; ".join(rule.said for rule in rules)},
        [execute("bash", "-c", _make(root, folders, files)), *file_manager(root)],
        every(tree_check(root, after)),
        Ways(_ways(root, rules), near, spoilt={"the content lost": empty}),
        changes=[f"{root}/{name}" for name in (*folders, *where)],
        shown=("root",),
    )


def _files(dice: random.Random, count: int, limit: int, year: int) -> dict[str, tuple[int, int]]:
    """Draw size in bytes and year of each file, none near a limit; each rule has two files at least."""
    kinds = ["large old", "large", "small old", "old", "small", "small", ""]
    kinds += dice.choices(("large old", "large", "small old", "old", "small", ""), k=count - len(kinds))
    files: dict[str, tuple[int, int]] = {}
    for stem, kind in zip(dice.sample(_STEMS, count), kinds, strict=True):
        if "large" in kind:
            size = limit * 1024 + dice.randrange(30_000, 90_000)
        elif "small" in kind:
            size = dice.randrange(2_000, 14_000)
        else:
            size = dice.randrange(30_000, limit * 1024 - 20_000)
        then = year - 1 - dice.randrange(2) if "old" in kind else year + dice.randrange(2)
        files[f"{stem}.{dice.choice(_ENDINGS)}"] = (size, then)
    return dict(sorted(files.items()))


def _make(root: str, folders: list[str], files: dict[str, tuple[int, int]]) -> str:
    steps = [f"mkdir -p {' '.join(f'{root}/{folder}' for folder in folders)}", f"cd {root}"]
    for at, (name, (size, year)) in enumerate(files.items()):
        month, day = _month_day(at)
        steps.append(f"yes {name} | head -c {size} > {name}; touch -d {year}-{month:02}-{day:02} {name}")
    return " && ".join(steps)


def _content(name: str, size: int) -> bytes:
    """Return what `_make` writes into a file: its name again and again."""
    once = f"{name}\n".encode()
    return (once * (size // len(once) + 1))[:size]


def _month_day(at: int) -> tuple[int, int]:
    return at % 12 + 1, at % 27 + 1


def _ways(root: str, rules: list[_Rule], *, how: str = "x", more: int = 0) -> Steps:
    """Return steps in the sorted list with details, where the files of a rule are together at one end."""
    steps: Steps = [[key("ctrl", "4")]]
    for at, rule in enumerate(rules):
        count = len(rule.names) + (more if at == len(rules) - 1 else 0)
        steps.append([key("ctrl", "alt", rule.sort)])
        far: list[dict[str, Any]] = [key("shift", "up" if rule.from_end else "down")] * (count - 1)
        steps.append([{"op": "type", "text": rule.names[0]}])
        steps += [[key("esc")], *([far] if far else []), [key("ctrl", how)]]
        steps.append([key("ctrl", "l"), {"op": "type", "text": f"{root}/{rule.folder}"}, key("enter")])
        steps.append([key("ctrl", "v")])
        if at < len(rules) - 1:
            steps.append([key("ctrl", "l"), {"op": "type", "text": root}, key("enter")])
    return [*steps, DONE]


FAMILY = Family("files.organize", 4, _draft, ("pcmanfm",))
