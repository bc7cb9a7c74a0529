"""files.move_rule: move the files that rules name into folders, and no others."""

from __future__ import annotations

import random
from dataclasses import dataclass
from fnmatch import fnmatchcase

from osgym_tasks.desk import sentence, terminal
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, execute, line, outputs, upload

_STEMS = {1: 3, 2: 5, 3: 8, 4: 12, 5: 18}
_COUNT = {1: 1, 2: 1, 3: 2, 4: 4, 5: 6}
_FOLDERS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4}
_NAMES = (
    "anchor", "basket", "candle", "drawer", "engine", "feather", "garden", "hammer", "island", "jacket",
    "kettle", "ladder", "mirror", "needle", "orange", "pencil", "quartz", "ribbon", "saddle", "tunnel",
)  # fmt: skip
_ENDINGS = ("txt", "csv", "md", "log")
_STARTS = ("draft", "final", "scan", "copy")
_ROOTS = ("inbox", "desk", "mixed", "pile")
_TARGETS = ("Sorted", "Archive", "Ready", "Later")
_WORDINGS = (
    "Move files of {folder}/{root} into folders below it: {rules}. Make folders that are missing; all "
    "other files stay where they are, and none is changed.",
    "Tidy up {folder}/{root} by moving files into its folders: {rules}. Folders that do not exist yet are "
    "to be made. Nothing else moves or changes.",
    "Move these files of {folder}/{root} into folders of it that you make if need be: {rules}. Every other "
    "file stays as it is.",
    "I can't find anything in {root} any more, the one in the terminal's folder. Could you move {rules}, "
    "all within {root}? Make the folders that are not there yet, and leave the other files where they are.",
    "My home folder has a folder {root} that needs order before I go on holiday: {rules}. The folders "
    "belong right into it, so make them where they are missing. Please move nothing else.",
    "Would you clean up {root} in my home folder for me? Within it, put {rules}. Create what folders this "
    "takes. The rest stays, and no file is to be changed.",
)
_TRANSLATIONS = {
    "de": (
        "Im Ordner {root} in meinem persönlichen Ordner finde ich nichts mehr. Verschiebe bitte innerhalb "
        "dieses Ordners: {rules}. Lege fehlende Ordner dort an. Alle anderen Dateien bleiben, wo und wie "
        "sie sind.",
    ),
    "es": (
        "Ya no encuentro nada en la carpeta {root} de mi carpeta personal. Mueve dentro de ella: {rules}. "
        "Crea ahí las carpetas que falten. Los demás archivos se quedan donde y como están.",
    ),
    "zh": (
        "主目录的 {root} 文件夹太乱了，请在其中移动文件：{rules}。缺少的文件夹就在里面新建。其他文件保持原"
        "位，内容不变。",
    ),
}
_RULES = {
    "en": (
        "the file {0} to {1}",
        "all files whose names end in {0} to {1}",
        "all files whose names begin with {2} and end in {0} to {1}",
    ),
    "de": (
        "die Datei {0} nach {1}",
        "alle Dateien mit der Endung {0} nach {1}",
        "alle Dateien, deren Name mit {2} beginnt und auf {0} endet, nach {1}",
    ),
    "es": (
        "el archivo {0} a {1}",
        "todos los archivos que terminan en {0} a {1}",
        "todos los archivos cuyo nombre empieza por {2} y termina en {0} a {1}",
    ),
    "zh": (
        "文件 {0} 移到 {1}",
        "所有以 {0} 结尾的文件移到 {1}",
        "所有名称以 {2} 开头并以 {0} 结尾的文件移到 {1}",
    ),
}
"""Words for a rule about one file, about an ending, and about beginning and ending, by language."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """Files that go to a folder: one file, those with an ending, or those with a beginning too.

    Attributes:
        glob: Pattern of their names.
        wide: Pattern that matches others, too.
    """

    kind: int
    start: str
    ending: str
    target: str

    @property
    def glob(self) -> str:
        shapes = (f"{self.start}-first.{self.ending}", f"*.{self.ending}", f"{self.start}-*.{self.ending}")
        return shapes[self.kind]

    @property
    def wide(self) -> str:
        return (f"{self.start}-first.*", f"*.{self.ending}*", f"*.{self.ending}")[self.kind]

    def said(self, language: str) -> str:
        what = self.glob if self.kind == 0 else f".{self.ending}"
        return _RULES[language][self.kind].format(what, self.target, f"{self.start}-")


def _draft(dice: random.Random, level: int) -> Draft:
    root = dice.choice(_ROOTS)
    targets = dice.sample(_TARGETS, _FOLDERS[level])
    endings = dice.sample(_ENDINGS, 3)
    *starts, beside = dice.sample(_STARTS, 2 if level < 3 else 4)
    pairs = dice.sample([(start, ending) for start in starts for ending in endings], _COUNT[level])
    rules = [_Rule(min(level, 3) - 1, *pair, dice.choice(targets)) for pair in pairs]
    files = _files(dice, level, [*starts, beside], endings, rules[-1])
    moved: dict[str, str] = {}
    for rule in rules:
        chosen = [name for name in files if fnmatchcase(name, rule.glob) and name not in moved]
        moved |= {name: f"{rule.target}/{name}" for name in chosen}
    top = f"{HOME}/{root}"
    before = {f"{top}/{name}": text for name, text in files.items()}
    after = {f"{top}/{moved.get(name, name)}": text for name, text in files.items()}
    right = [(rule.glob, rule.target) for rule in rules]
    make = level > 1
    near = {
        "others too": _ways(root, [*right[:-1], (rules[-1].wide, rules[-1].target)], make=make),
        "copied": _ways(root, right, "cp", make=make),
    }
    if len(right) > 1:
        near["one rule forgotten"] = _ways(root, right[:-1])
    there = [] if make else [execute("mkdir", "-p", f"{top}/{targets[0]}")]
    return Draft(
        _WORDINGS,
        {"folder": HOME, "root": root, "rules": sentence(rule.said("en") for rule in rules)},
        [upload(before), *there, *terminal()],
        outputs({_listing(top): "".join(f"{path} {after[path]}" for path in sorted(after))}),
        Ways(_ways(root, right, make=make), near),
        changes=[*(f"{top}/{name}" for name in moved), *(f"{top}/{rule.target}" for rule in rules)],
        shown=("folder",),
        translations=_TRANSLATIONS,
        translated={
            language: {"rules": sentence((rule.said(language) for rule in rules), language)}
            for language in _TRANSLATIONS
        },
    )


def _listing(root: str) -> tuple[str, ...]:
    """Return a command that lists every file with its content, one line each."""
    each = 'while read -r name; do printf "%s " "$name"; cat "$name"; done'
    return ("bash", "-c", f"find {root} -type f | LC_ALL=C sort | {each}")


def _files(
    dice: random.Random, level: int, starts: list[str], endings: list[str], last: _Rule
) -> dict[str, str]:
    """Draw contents by name; each rule has a match and a file that misses it in either part."""
    names = dice.sample(_NAMES, _STEMS[level])
    found = {f"{start}-first.{ending}" for start in starts for ending in endings}
    found |= {f"{dice.choice(starts)}-{name}.{dice.choice(endings)}" for name in names}
    found.add(f"{last.start}-first.{last.ending}.old")
    return {name: f"{name} {dice.randrange(10**6)}\n" for name in sorted(found)}


def _ways(root: str, rules: list[tuple[str, str]], how: str = "mv", *, make: bool = True) -> Steps:
    folders = sorted({target for _, target in rules})
    steps = [line(f"cd {root}"), *([line(f"mkdir -p {' '.join(folders)}")] if make else [])]
    return [*steps, *(line(f"{how} {glob} {target}/") for glob, target in rules), DONE]


FAMILY = Family("files.move_rule", 4, _draft, ("xfce4-terminal",))
