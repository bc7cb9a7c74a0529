"""term.find_replace: replace words in the files of a tree with given endings, and nowhere else."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any

from osgym_tasks.desk import sentence, terminal
from osgym_tasks.family import Draft, Family, Ways
from osgym_tasks.pieces import DONE, HOME, every, form_counts, line, tree_check, upload

_FILES = {1: 4, 2: 7, 3: 11, 4: 18, 5: 28}
_LINES = {1: 4, 2: 6, 3: 8, 4: 10, 5: 16}
_RULES = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
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
    "Replace words in the files below {folder}/{root}, at any depth: {rules}. Only whole words in small "
    "letters, and in files whose names end like that. Longer words, other spellings and other files stay "
    "as they are, and no file is added.",
    "The files under {folder}/{root} and its subfolders need other words: {rules}. I mean whole lower-case "
    "words, at each place, and no files with other endings. Words that only contain them, capitals and all "
    "other files stay, and no file may be added.",
    "Change each whole lower-case word as follows, everywhere within {folder}/{root}, subfolders too: "
    "{rules}. Change nothing else and leave no new files behind.",
    "We have new names for things, so the texts in the folder {root}, which is in my home folder, must "
    "follow: {rules}. Please change every whole word in small letters, in all subfolders as well. Plurals, "
    "capitals and files with other endings stay, and no copies may be left.",
    "Marketing has changed its mind again. In {root}, which is in the terminal's folder, at every depth: "
    "{rules}, each time it stands there as a whole word in small letters. Leave longer words, other "
    "spellings and other files alone, and add no files.",
    "Before we publish {root} from my home folder, some words have to go: {rules}. Do that in every file "
    "with such an ending, however deep it lies, but only for whole words in small letters. Leave "
    "everything else there as it is, without backup files.",
)
_TRANSLATIONS = {
    "de": (
        "Bei uns heißen einige Dinge jetzt anders. Ersetze deshalb im Ordner {root} in meinem persönlichen "
        "Ordner, auch in allen Unterordnern: {rules}. Gemeint sind nur ganze Wörter in Kleinbuchstaben. "
        "Längere Wörter, andere Schreibweisen und andere Dateien bleiben, und es kommt keine Datei dazu.",
    ),
    "es": (
        "Algunas cosas han cambiado de nombre. En la carpeta {root} de mi carpeta personal, con todas sus "
        "subcarpetas, sustituye: {rules}. Solo palabras completas en minúsculas. Las palabras más largas, "
        "otras grafías y los demás archivos se quedan como están, y no debe quedar ningún archivo nuevo.",
    ),
    "zh": (
        "有些东西改名了。请在主目录的 {root} 文件夹及其所有子文件夹中替换：{rules}。只替换全小写的完整单词，"
        "更长的单词、其他写法和其他文件都保持不变，也不要增加文件。",
    ),
}
_RULE = {
    "en": '"{old}" by "{new}" in files whose names end in {ending}',
    "de": '"{old}" durch "{new}" in Dateien mit der Endung {ending}',
    "es": '"{old}" por "{new}" en los archivos que terminan en {ending}',
    "zh": '在以 {ending} 结尾的文件中把 "{old}" 换成 "{new}"',
}


@dataclass(frozen=True, slots=True)
class _Rule:
    """A word, the word that replaces it, and the ending of the files, without its dot."""

    old: str
    new: str
    ending: str

    def said(self, language: str) -> str:
        return _RULE[language].format(old=self.old, new=self.new, ending=f".{self.ending}")

    def after(self, path: str, text: str) -> str:
        """Return the text of a file that the rule was applied to."""
        return re.sub(rf"\b{self.old}\b", self.new, text) if path.endswith(f".{self.ending}") else text

    def command(self, root: str, *, name: str = "", sed: str = "") -> list[dict[str, Any]]:
        chosen = name or f"-name '*.{self.ending}'"
        change = sed or f"-i 's/\\b{self.old}\\b/{self.new}/g'"
        return line(f"find {root} -type f {chosen} -exec sed {change} {{}} +")


def _draft(dice: random.Random, level: int) -> Draft:
    root = dice.choice(("manual", "service", "shop", "website"))
    *endings, other = dice.sample(_ENDINGS, len(_ENDINGS))
    olds, news = dice.sample(_OLD, _RULES[level]), dice.sample(_NEW, _RULES[level])
    rules = [_Rule(old, new, dice.choice(endings)) for old, new in zip(olds, news, strict=True)]
    listed = _paths(dice, level, [rule.ending for rule in rules], other)
    before = {path: _text(dice, _LINES[level], olds) for path in listed}
    after = dict(before)
    for rule in rules:
        after = {path: rule.after(path, text) for path, text in after.items()}
    last = rules[-1]
    begin = [rule.command(root) for rule in rules[:-1]]
    words = f"s/\\b{last.old}\\b/{last.new}/"
    ending = f"-name '*.{last.ending}'"
    wrong = {
        "parts of words": last.command(root, sed=f"-i s/{last.old}/{last.new}/g"),
        "once a line": last.command(root, sed=f"-i '{words}'"),
        "every file": last.command(root, name="-name '*'"),
        "capitals too": last.command(root, sed=f"-i '{words}gI'"),
        "a file forgotten": last.command(root, name=f"{ending} ! -name 'first.*'"),
        "backups left": last.command(root, sed=f"-i.bak '{words}g'"),
    }
    if level > 1:
        wrong["subfolders forgotten"] = last.command(root, name=f"{ending} -maxdepth 1")
    near = {name: [*begin, step, DONE] for name, step in wrong.items()}
    if begin:
        near["one forgotten"] = [*begin, DONE]
    return Draft(
        _WORDINGS,
        {"folder": HOME, "root": root, "rules": sentence(rule.said("en") for rule in rules)},
        [upload({f"{HOME}/{root}/{path}": text for path, text in before.items()}), *terminal()],
        every(tree_check(f"{HOME}/{root}", after, are_texts=True)),
        Ways([*begin, last.command(root), DONE], near),
        changes=[f"{HOME}/{root}/{path}" for path in listed if after[path] != before[path]],
        shown=("folder",),
        allows=form_counts("all but the words stays as it is"),
        translations=_TRANSLATIONS,
        translated={
            language: {"rules": sentence((rule.said(language) for rule in rules), language)}
            for language in _TRANSLATIONS
        },
    )


def _paths(dice: random.Random, level: int, endings: list[str], other: str) -> list[str]:
    """Draw paths, with all that could be mistaken for each ending."""
    folders = _FOLDERS[level]
    paths = [f"./third.{other}"]
    for ending in endings:
        paths += [f"{folders[-1]}/first.{ending}", f"./second.{ending}", f"./{ending}.{other}"]
    paths += [f"{folder}/{dice.choice(_STEMS)}.{dice.choice(_ENDINGS)}" for folder in folders[1:]]
    while len(set(paths)) < _FILES[level]:
        name = f"{dice.choice(_STEMS)}{dice.randrange(9)}.{dice.choice(_ENDINGS)}"
        paths.append(f"{dice.choice(folders)}/{name}")
    return sorted({path.removeprefix("./") for path in paths})


def _text(dice: random.Random, lines: int, olds: list[str]) -> str:
    """Draw lines of words that have each case of each word that could be mistaken."""
    rows = [[dice.choice(_STEMS) for _ in range(4)] for _ in range(lines)]
    places = iter(dice.sample(range(lines), 3 * len(olds)))
    for old in olds:
        rows[next(places)][:3:2] = [old, old]
        rows[next(places)][dice.randrange(4)] = f"{old}s"
        rows[next(places)][dice.randrange(4)] = old.capitalize()
    return "".join(f"{' '.join(row)}\n" for row in rows)


FAMILY = Family("term.find_replace", 5, _draft, ("xfce4-terminal",))
