"""term.find_replace: replace a word in the files of a tree with a given ending, and nowhere else."""

from __future__ import annotations

import random

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, launch, line, tree_check, upload

_FILES = {1: 4, 2: 7, 3: 11, 4: 18, 5: 28}
_LINES = {1: 4, 2: 6, 3: 8, 4: 10, 5: 14}
_FOLDERS = {
    1: (".",),
    2: (".", "api"),
    3: (".", "api", "site"),
    4: (".", "api", "site", "site/parts"),
    5: (".", "api", "site", "site/parts", "old"),
}
_STEMS = ("about", "cache", "index", "login", "mail", "main", "notes", "price", "route", "search", "table")
_ENDINGS = ("conf", "md", "txt", "yaml")
_OLD = ("alpha", "delta", "falcon", "heron", "orion")
_NEW = ("basil", "cedar", "maple", "olive", "willow")
_WORDINGS = (
    'Replace the whole word "{old}", in small letters, by "{new}" '
    "everywhere in the files below {root}, at any depth, whose names end in {ending}. Longer words, "
    "other spellings and other files stay as they are, and no file is added.",
    'All files under {root} and its subfolders that end in {ending} should say "{new}" where they have '
    'the whole lower-case word "{old}", each time. Words that only contain it, capitals and all other '
    "files stay, and no file may be added.",
    'Rename the lower-case word "{old}" to "{new}" in every file ending in {ending} within {root}, '
    "subfolders too, wherever it is a whole word. Change nothing else and leave no new files behind.",
    'Please change each whole word "{old}" (small letters only) into "{new}" in the files of {root} and '
    "the folders below it that end in {ending}. Nothing else there may change, and no copies may be "
    "left.",
    'Under {root}, at every depth, the files that end in {ending} use the word "{old}" in small '
    'letters. Put "{new}" in its place at every occurrence as a whole word; leave longer words, other '
    "spellings and other files alone, and add no files.",
    'I want "{new}" instead of every whole lower-case word "{old}", in all files with names '
    "ending in {ending} anywhere within {root}. Leave everything else there as it is, without backup "
    "files.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    root = f"{HOME}/{dice.choice(('manual', 'service', 'shop', 'website'))}"
    ending, other = dice.sample(_ENDINGS, 2)
    old, new = dice.choice(_OLD), dice.choice(_NEW)
    folders = _FOLDERS[level]
    paths = [f"{folders[-1]}/first.{ending}", f"./second.{ending}", f"./third.{other}", f"./{ending}.{other}"]
    paths += [f"{folder}/{dice.choice(_STEMS)}.{dice.choice(_ENDINGS)}" for folder in folders[1:]]
    while len(set(paths)) < _FILES[level]:
        paths.append(
            f"{dice.choice(folders)}/{dice.choice(_STEMS)}{dice.randrange(9)}.{dice.choice(_ENDINGS)}"
        )
    listed = sorted({path.removeprefix("./") for path in paths})
    rows = {path: _rows(dice, _LINES[level], old) for path in listed}
    before = {path: "".join(f"{' '.join(row)}\n" for row in text) for path, text in rows.items()}
    after = before | {
        path: "".join(f"{' '.join(new if word == old else word for word in row)}\n" for row in text)
        for path, text in rows.items()
        if path.endswith(f".{ending}")
    }
    find, sed = f"find {root} -type f", f"-exec sed -i 's/\\b{old}\\b/{new}/g' {{}} +"
    chosen = f"{find} -name '*.{ending}'"
    near = {
        "parts of words": _ways(f"{chosen} -exec sed -i s/{old}/{new}/g {{}} +"),
        "once a line": _ways(f"{chosen} {sed.replace('/g', '/')}"),
        "every file": _ways(f"{find} {sed}"),
        "capitals too": _ways(f"{chosen} {sed.replace('/g', '/gI')}"),
        "a file forgotten": _ways(f"{chosen} ! -name 'first.*' {sed}"),
        "backups left": _ways(f"{chosen} {sed.replace('-i ', '-i.bak ')}"),
    }
    if len(folders) > 1:
        near["subfolders forgotten"] = _ways(f"{chosen} -maxdepth 1 {sed}")
    return Draft(
        _WORDINGS,
        {"root": root, "ending": f".{ending}", "old": old, "new": new},
        [
            upload({f"{root}/{path}": text for path, text in before.items()}),
            *launch("Terminal", "xfce4-terminal", "--geometry=100x30+200+120"),
        ],
        every(tree_check(root, after)),
        Ways(_ways(f"{chosen} {sed}"), near),
        changes=[f"{root}/{path}" for path in listed if after[path] != before[path]],
    )


def _rows(dice: random.Random, lines: int, old: str) -> list[list[str]]:
    """Draw words in lines that have each case that could be mistaken."""
    rows = [[dice.choice(_STEMS) for _ in range(4)] for _ in range(lines)]
    doubled, part, capital = dice.sample(range(lines), 3)
    rows[doubled][:3:2] = [old, old]
    rows[part][dice.randrange(4)] = f"{old}s"
    rows[capital][dice.randrange(4)] = old.capitalize()
    return rows


def _ways(command: str) -> Steps:
    return [line(command), DONE]


FAMILY = Family("term.find_replace", 3, _draft, ("xfce4-terminal",))
