"""files.move_rule: move the files that a rule names into a folder, and no others."""

from __future__ import annotations

import random

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, launch, line, outputs, upload

_STEMS = {1: 3, 2: 5, 3: 8, 4: 12, 5: 18}
_NAMES = (
    "anchor", "basket", "candle", "drawer", "engine", "feather", "garden", "hammer", "island", "jacket",
    "kettle", "ladder", "mirror", "needle", "orange", "pencil", "quartz", "ribbon", "saddle", "tunnel",
)  # fmt: skip
_ENDINGS = ("txt", "csv", "md", "log")
_STARTS = ("draft", "final", "scan", "copy")
_ROOTS = ("inbox", "desk", "mixed", "pile")
_TARGETS = ("Sorted", "Archive", "Ready", "Later")
_WORDINGS = (
    "Move {rule}. Make folders that are missing; all other files of {root} "
    "stay where they are, and none is changed.",
    "Tidy up {root}: move {rule}. Folders that do not exist yet are to be made. Nothing else moves or "
    "changes.",
    "Please move {rule}, making folders that are not there. Every other file in {root} stays as it is.",
    "Of the files in {root}, move {rule}. Create the folders that this takes, and touch no other file.",
    "{root} needs order. Move {rule}; make missing folders, and leave the rest unchanged where it is.",
    "I want the following moved within {root}, into folders that you make if need be: {rule}. The other "
    "files stay and keep their content.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    root = f"{HOME}/{dice.choice(_ROOTS)}"
    first, second = (f"{root}/{name}" for name in dice.sample(_TARGETS, 2))
    ending, other, third = dice.sample(_ENDINGS, 3)
    start, another = dice.sample(_STARTS, 2)
    files = _files(dice, level, (start, another), (ending, other, third))
    if level == 1:
        only = f"{start}-first.{ending}"
        rules = [(f"the file {root}/{only} to the folder {first}", only, f"{start}-first.*", first)]
    elif level == 2:
        rules = [(f"all files of {root} whose names end in .{ending} to {first}", f"*.{ending}",
                  f"*.{ending}*", first)]  # fmt: skip
    else:
        rules = [_both(root, start, ending, first)]
    if level >= 4:
        rules.append(_both(root, another, other, first if level == 4 else second))
    moved: dict[str, str] = {}
    for _, glob, _, target in rules:
        chosen = [name for name in files if _fits(name, glob)]
        moved |= {f"{root}/{name}": f"{target}/{name}" for name in chosen}
    before = {f"{root}/{name}": text for name, text in files.items()}
    after = {moved.get(path, path): text for path, text in before.items()}
    right = [(glob, target) for _, glob, _, target in rules]
    wide = [*right[:-1], (rules[-1][2], rules[-1][3])]
    near = {"others too": _ways(root, wide), "copied": _ways(root, right, "cp")}
    if len(right) > 1:
        near["one rule forgotten"] = _ways(root, right[:-1])
    return Draft(
        _WORDINGS,
        {"root": root, "rule": ", and ".join(rule for rule, *_ in rules)},
        [upload(before), *launch("Terminal", "xfce4-terminal", "--geometry=100x30+200+120")],
        outputs({_listing(root): "".join(f"{path} {after[path]}" for path in sorted(after))}),
        Ways(_ways(root, right), near),
        changes=[*moved, first, second],
    )


def _listing(root: str) -> tuple[str, ...]:
    """Return a command that lists every file with its content, one line each."""
    each = 'while read -r name; do printf "%s " "$name"; cat "$name"; done'
    return ("bash", "-c", f"find {root} -type f | LC_ALL=C sort | {each}")


def _files(
    dice: random.Random, level: int, starts: tuple[str, str], endings: tuple[str, str, str]
) -> dict[str, str]:
    """Draw contents by name; each rule has a match and a file that misses it in either part."""
    names = dice.sample(_NAMES, _STEMS[level])
    found = {f"{start}-first.{ending}" for start in starts for ending in endings}
    found |= {f"{dice.choice(starts)}-{name}.{dice.choice(endings)}" for name in names}
    found.add(f"{starts[0]}-first.{endings[0]}.old")
    return {name: f"{name} {dice.randrange(10**6)}\n" for name in sorted(found)}


def _both(root: str, start: str, ending: str, target: str) -> tuple[str, str, str, str]:
    rule = f"all files of {root} whose names begin with {start}- and end in .{ending} to {target}"
    return rule, f"{start}-*.{ending}", f"*.{ending}", target


def _fits(name: str, glob: str) -> bool:
    head, star, tail = glob.partition("*")
    return name.startswith(head) and name.endswith(tail) if star else name == glob


def _ways(root: str, rules: list[tuple[str, str]], how: str = "mv") -> Steps:
    folders = sorted({target for _, target in rules})
    steps = [line(f"cd {root}"), line(f"mkdir -p {' '.join(folders)}")]
    return [*steps, *(line(f"{how} {glob} {target}/") for glob, target in rules), DONE]


FAMILY = Family("files.move_rule", 3, _draft, ("xfce4-terminal",))
