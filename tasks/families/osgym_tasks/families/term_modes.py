"""term.modes: set the permissions of some files of a tree, and of no others."""

from __future__ import annotations

import random
from typing import Any

from osgym_tasks.desk import sentence, terminal
from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.pieces import DONE, HOME, every, execute, line, output_check, tree_check, upload

_FILES = {1: 4, 2: 8, 3: 12, 4: 20, 5: 30}
_RULES = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_FOLDERS = {1: (".",), 2: (".", "old"), 3: (".", "old", "lib"), 4: (".", "old", "lib", "lib/more")}
_STEMS = ("build", "check", "clean", "copy", "count", "fetch", "list", "pack", "print", "send", "sort")
_ENDINGS = ("sh", "py", "txt", "conf", "log", "md", "key")
_MODES = ("700", "640", "600", "755", "444")
_BEFORE = "664"
_WORDINGS = (
    "Set the permissions of files in {folder}/{root} and in the folders below it: {rules} (octal). Those "
    "of other files and of folders stay as they are.",
    "Set octal modes below {folder}/{root}, at any depth: {rules}. Leave other files and all folders alone.",
    "Under {folder}/{root}, subfolders too, files need other octal modes: {rules}. Change no other file "
    "and no folder.",
    "Our admin complained about the permissions in {root}, which is in my home folder. Please set them, in "
    "all its subfolders as well: {rules}. These are octal modes. Don't change other files or the folders "
    "themselves.",
    "I am about to hand over {root}, which is in the terminal's folder, and the permissions are not right "
    "yet. Everywhere in it I need {rules}, as octal modes. Whatever has another ending keeps its mode, and "
    "so do the folders.",
    "Could you tighten up {root} in my home folder for me? However deep a file lies, by its ending it gets "
    "its octal mode: {rules}. Other files and the folders keep theirs.",
)
_TRANSLATIONS = {
    "de": (
        "Die Rechte im Ordner {root} in meinem persönlichen Ordner stimmen nicht. Setze sie bitte, auch in "
        "allen Unterordnern, oktal so: {rules}. Die Rechte anderer Dateien und der Ordner bleiben.",
    ),
    "es": (
        "Los permisos de la carpeta {root}, en mi carpeta personal, no están bien. Cámbialos, también en "
        "todas las subcarpetas, a estos modos octales: {rules}. Los demás archivos y las carpetas "
        "conservan los suyos.",
    ),
    "zh": (
        "主目录下 {root} 文件夹里的权限不对。请按八进制设置权限，包括所有子文件夹：{rules}。其他文件和文件"
        "夹本身的权限保持不变。",
    ),
}
_RULE = {
    "en": "{} for all files whose names end in {}",
    "de": "{} für alle Dateien mit der Endung {}",
    "es": "{} para todos los archivos que terminan en {}",
    "zh": " {} 用于所有以 {} 结尾的文件",
}


def _draft(dice: random.Random, level: int) -> Draft:
    root = dice.choice(("tools", "scripts", "project", "work"))
    *endings, other = dice.sample(_ENDINGS, _RULES[level] + 1)
    modes = {ending: dice.choice(_MODES) for ending in endings}
    folders = _FOLDERS[min(level, 4)]
    listed = _paths(dice, level, folders, endings, other)
    chosen = [path for path in listed if path.rpartition(".")[2] in modes]
    tree = "".join(sorted(f"{path} {modes.get(path.rpartition('.')[2], _BEFORE)}\n" for path in listed))
    texts = {path: f"# {path}\n" for path in listed}
    kinds = "".join(sorted(f"{folder} 755\n" for folder in folders if folder != "."))
    show = "find . -type {} -mindepth 1 -printf '%P %m\\n' | LC_ALL=C sort"
    look = f"cd {HOME}/{root} && {show}"

    def change(ending: str, which: str = "") -> list[dict[str, Any]]:
        named = which or f"-name '*.{ending}'"
        return line(f"find {root} -type f {named} -exec chmod {modes[ending]} {{}} +")

    last = endings[-1]
    begin = [change(ending) for ending in endings[:-1]]
    oracle = [*begin, change(last), DONE]
    near = {
        "every file": [*begin, change(last, "-name '*'"), DONE],
        "a file forgotten": [*begin, change(last, f"-name '*.{last}' ! -name 'first.*'"), DONE],
        "the content lost": [line(f"truncate -s 0 {root}/second.{last}"), *oracle],
    }
    if len(folders) > 1:
        near["subfolders forgotten"] = [*begin, line(f"chmod {modes[last]} {root}/*.{last}"), DONE]
    if begin:
        near["one rule forgotten"] = [*begin, DONE]
    top = f"{HOME}/{root}"
    rules = [(mode, f".{ending}") for ending, mode in modes.items()]
    return Draft(
        _WORDINGS,
        {"folder": HOME, "root": root, "rules": sentence(_RULE["en"].format(*rule) for rule in rules)},
        [
            upload({f"{top}/{path}": text for path, text in texts.items()}),
            execute("find", top, "-type", "d", "-exec", "chmod", "755", "{}", "+"),
            execute("find", top, "-type", "f", "-exec", "chmod", _BEFORE, "{}", "+"),
            *terminal(),
        ],
        every(
            output_check(("bash", "-c", look.format("f")), tree),
            output_check(("bash", "-c", look.format("d")), kinds),
            tree_check(top, texts),
        ),
        Ways(oracle, near),
        changes=[f"{top}/{path}" for path in chosen],
        shown=("folder",),
        translations=_TRANSLATIONS,
        translated={
            language: {"rules": sentence((_RULE[language].format(*rule) for rule in rules), language)}
            for language in _TRANSLATIONS
        },
    )


def _paths(
    dice: random.Random, level: int, folders: tuple[str, ...], endings: list[str], other: str
) -> list[str]:
    """Draw paths, with all that could be mistaken for each ending."""
    paths = {f"./third.{other}"}
    for ending in endings:
        paths |= {f"{folders[-1]}/first.{ending}", f"./second.{ending}", f"./{ending}.{other}"}
    while len(paths) < _FILES[level] + len(folders):
        stem = f"{dice.choice(_STEMS)}{dice.randrange(100)}"
        paths.add(f"{dice.choice(folders)}/{stem}.{dice.choice(_ENDINGS)}")
    return sorted(path.removeprefix("./") for path in paths)


FAMILY = Family("term.modes", 4, _draft, ("xfce4-terminal",))
