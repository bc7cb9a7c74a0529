"""files.rename: rename files of a folder in the file manager, keeping their endings."""

from __future__ import annotations

import random
from typing import Any

from osgym_tasks.desk import file_manager, home, sentence
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key, tree_check, upload

_FILES = {1: 4, 2: 7, 3: 11, 4: 16, 5: 22}
_RENAMED = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6}
_WHAT = ("agenda", "budget", "minutes", "photo", "recipe", "report", "survey", "timetable", "voucher")
_YEARS = (2023, 2024, 2025, 2026)
_ENDINGS = ("txt", "csv", "md", "html")
_FOLDERS = ("Incoming", "Shared", "Office", "Club")
WORDINGS = (
    "The file manager shows {root}. Rename files in it: {renames}. Nothing else in the folder may change.",
    "The folder {root} is open in the file manager. Please rename there {renames}. Leave all other files "
    "as they are.",
    "Rename in {root} {renames}; the content of the files and all other names stay.",
    "Some names in the open folder are wrong, and my boss has noticed. Please rename {renames}, and leave "
    "everything else there alone.",
    "I mixed up the years and the titles. In the folder that you see, change {renames}. The content of the "
    "files stays, and so do all other names.",
    "For our new filing system, files in this folder need other names: {renames}. Could you do that? "
    "Nothing else may change.",
)
TRANSLATIONS = {
    "de": (
        "Im offenen Ordner stimmen einige Namen nicht. Benenne bitte um: {renames}. Lass alles andere "
        "dort, wie es ist.",
    ),
    "es": (
        "En la carpeta abierta hay nombres equivocados. Cambia estos nombres: {renames}. Deja todo lo "
        "demás como está.",
    ),
    "zh": ("打开的文件夹里有些文件名不对。请重命名：{renames}。其他一切都不要动。",),
}
_RENAME = {"en": "{} to {}", "de": "{} in {}", "es": "{} a {}", "zh": "{} 改为 {}"}


def drawn(dice: random.Random, level: int) -> tuple[str, dict[str, str], dict[str, str]]:
    """Draw a folder, the text of each of its files by name, and new names by old ones."""
    root = home(f"Documents/{dice.choice(_FOLDERS)}")
    count = _RENAMED[level]
    stems = dice.sample([f"{what}-{year}" for what in _WHAT for year in _YEARS], _FILES[level] + count)
    names = [f"{stem}.{dice.choice(_ENDINGS)}" for stem in stems[: _FILES[level]]]
    olds = dice.sample(names, count)
    news = [f"{new}.{old.rpartition('.')[2]}" for new, old in zip(stems[_FILES[level] :], olds, strict=True)]
    files = {name: f"{name} {dice.randrange(10**6)}\n" for name in sorted(names)}
    return root, files, dict(zip(olds, news, strict=True))


def named(renames: dict[str, str], language: str = "en") -> dict[str, str]:
    """Return the values that the wordings need besides the folder."""
    return {"renames": sentence((_RENAME[language].format(*pair) for pair in renames.items()), language)}


def begin(root: str, files: dict[str, str]) -> list[dict[str, Any]]:
    return [upload({f"{root}/{name}": text for name, text in files.items()}), *file_manager(root)]


def _draft(dice: random.Random, level: int) -> Draft:
    root, files, renames = drawn(dice, level)
    after = {renames.get(name, name): text for name, text in files.items()}
    bare = {old: new.rpartition(".")[0] for old, new in renames.items()}
    other = next(name for name in files if name not in renames)
    near = {
        "the ending lost": ways(bare),
        "another file": ways({other: next(iter(renames.values())), **dict(list(renames.items())[1:])}),
    }
    if len(renames) > 1:
        near["one forgotten"] = ways(dict(list(renames.items())[:-1]))
    return Draft(
        WORDINGS,
        {"root": root, **named(renames)},
        begin(root, files),
        every(tree_check(root, after)),
        Ways(ways(renames), near),
        changes=[f"{root}/{name}" for names in renames.items() for name in names],
        shown=("root",),
        translations=TRANSLATIONS,
        translated={language: named(renames, language) for language in TRANSLATIONS},
    )


def ways(renames: dict[str, str]) -> Steps:
    """Return steps that select a file by typing its name, and rename it by F2."""
    steps: Steps = []
    for old, new in renames.items():
        steps.append([{"op": "type", "text": old}])
        steps.append([key("esc"), key("f2")])
        steps.append([key("ctrl", "a"), {"op": "type", "text": new}, key("enter")])
    return [*steps, DONE]


FAMILY = Family("files.rename", 4, _draft, ("pcmanfm",))
