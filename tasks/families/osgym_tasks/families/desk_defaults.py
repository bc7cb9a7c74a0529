"""desk.defaults: choose the application that opens files of a type, in the file manager."""

from __future__ import annotations

import random
from typing import Any

from osgym_tasks.desk import file_manager, home, sentence, shell_output
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key, tree_check, upload

_TEXT = ("featherpad", "libreoffice-writer", "org.xfce.mousepad")
OFFERED = {
    "txt": ("text/plain", _TEXT, 2),
    "md": ("text/markdown", _TEXT, 2),
    "json": ("application/json", _TEXT, 2),
    "py": ("text/x-python", _TEXT, 2),
    "log": ("text/x-log", _TEXT, 2),
    "csv": ("text/csv", ("libreoffice-calc", *_TEXT), 0),
    "html": ("text/html", ("chromium", "google-chrome", *_TEXT), 0),
}
"""Applications by ending: the type, the file manager's offers to open it, and the initial one of these."""
APPLICATIONS = {
    "featherpad": "FeatherPad",
    "libreoffice-writer": "LibreOffice Writer",
    "org.xfce.mousepad": "Mousepad",
    "libreoffice-calc": "LibreOffice Calc",
}
_TYPES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}
_FILES = {1: 2, 2: 6, 3: 10, 4: 15, 5: 22}
_STEMS = (
    "anchor",
    "border",
    "circle",
    "dinner",
    "energy",
    "figure",
    "ground",
    "height",
    "income",
    "junior",
    "kernel",
)
WORDINGS = (
    "The file manager shows {root}. Change default applications, so that {choices}. Other types of files "
    "keep their applications, and the files stay as they are.",
    "Set default applications for the types of the files in {root}, so that from now on {choices}. Do not "
    "change other types of files or any file.",
    "Please see to it that {choices}, by default. There are such files in {root}; they must not change, "
    "nor must the defaults of other types.",
    "Files keep opening in the wrong program. Please change the defaults, so that {choices}. There are "
    "examples in the folder that is open; leave these files and the defaults of all other types alone.",
    "I am setting up this computer for my father. From now on, he wants {choices} by default. Don't change "
    "any other type, nor the files in the open folder.",
    "It annoys me to pick a program each time. Could you make it the default that {choices}? All other "
    "types stay as they are, and so do the files that you see.",
)
TRANSLATIONS = {
    "de": (
        "Meine Dateien gehen immer im falschen Programm auf. Stell die Standardprogramme so ein: {choices}"
        ". Beispiele liegen im offenen Ordner. Ändere weder diese Dateien noch die Standardprogramme "
        "anderer Dateitypen.",
    ),
    "es": (
        "Mis archivos siempre se abren con el programa equivocado. Cambia los programas predeterminados "
        "así: {choices}. En la carpeta abierta hay ejemplos. No cambies esos archivos ni los programas "
        "predeterminados de otros tipos.",
    ),
    "zh": (
        "我的文件总是用错误的程序打开。请这样设置默认程序：{choices}。打开的文件夹里有示例文件。不要改动这"
        "些文件，也不要改动其他类型的默认程序。",
    ),
}
_CHOICE = {
    "en": ".{} files open in {}",
    "de": ".{}-Dateien mit {}",
    "es": "los archivos .{} con {}",
    "zh": ".{} 文件用 {} 打开",
}


def drawn(dice: random.Random, level: int) -> tuple[str, dict[str, str], dict[str, str], str]:
    """Draw a folder, the text of each of its files by name, applications by ending, and another ending."""
    root = home(f"Documents/{dice.choice(('Samples', 'Inbox', 'Mixed', 'Various'))}")
    endings = dice.sample(tuple(OFFERED), _TYPES[level])
    picked = {ending: _other(dice, ending) for ending in endings}
    names = [f"{stem}{number}.{ending}" for stem in _STEMS for number in (1, 2) for ending in OFFERED]
    neighbour = next(ending for ending in OFFERED if ending not in endings)
    there = {f"{dice.choice(_STEMS)}0.{ending}" for ending in (*endings, neighbour)} | {
        *dice.sample(names, _FILES[level])
    }
    files = {name: f"{name} {dice.randrange(10**6)}\n" for name in sorted(there)}
    return root, files, picked, neighbour


def defaults_check(picked: dict[str, str]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the check, for `every`, that types have these applications, and all others the initial ones."""
    after = {ending: offered[at] for ending, (_, offered, at) in OFFERED.items()} | picked
    look = "".join(f"LC_ALL=C gio mime {kind} | sed -n '1s/.*: //p'; " for kind, _, _ in OFFERED.values())
    return shell_output(look, "".join(f"{app}.desktop\n" for app in after.values()))


def named(said: dict[str, str], language: str = "en") -> dict[str, str]:
    """Return the values that the wordings need besides the folder, from names of applications by ending."""
    return {"choices": sentence((_CHOICE[language].format(*pair) for pair in said.items()), language)}


def begin(root: str, files: dict[str, str]) -> list[dict[str, Any]]:
    return [upload({f"{root}/{name}": text for name, text in files.items()}), *file_manager(root)]


def _draft(dice: random.Random, level: int) -> Draft:
    root, files, picked, neighbour = drawn(dice, level)
    endings = list(picked)
    said = {ending: APPLICATIONS[app] for ending, app in picked.items()}
    near = {
        "another type": ways(files, {neighbour: _other(dice, neighbour)}),
        "another application": ways(files, {**picked, endings[0]: _third(endings[0], picked[endings[0]])}),
    }
    if len(endings) > 1:
        near["one forgotten"] = ways(files, {ending: picked[ending] for ending in endings[1:]})
    return Draft(
        WORDINGS,
        {"root": root, **named(said)},
        begin(root, files),
        every(defaults_check(picked), tree_check(root, files)),
        Ways(ways(files, picked), near),
        changes=[],
        shown=("root",),
        translations=TRANSLATIONS,
        translated={language: named(said, language) for language in TRANSLATIONS},
    )


def _other(dice: random.Random, ending: str) -> str:
    _, offered, at = OFFERED[ending]
    return dice.choice([app for app in offered if app in APPLICATIONS and app != offered[at]])


def _third(ending: str, app: str) -> str:
    _, offered, at = OFFERED[ending]
    return next(one for one in offered if one in APPLICATIONS and one not in (app, offered[at]))


def ways(files: dict[str, str], picked: dict[str, str]) -> Steps:
    """Return steps in the properties of a file of each type, which have a list of applications.

    Plain text comes last: its choice also changes the order of the lists of its subtypes.
    """
    steps: Steps = []
    for ending, app in sorted(picked.items(), key=lambda choice: choice[0] == "txt"):
        _, offered, at = OFFERED[ending]
        far = offered.index(app) - at
        name = next(name for name in files if name.endswith(f".{ending}"))
        # Each a step of its own: the search selects what it found only when the window has come to rest.
        steps += [[{"op": "type", "text": name}], [key("esc")], [key("alt", "enter")]]
        steps.append([*[key("tab")] * 4, *[key("down" if far > 0 else "up")] * abs(far), key("alt", "o")])
    return [*steps, DONE]


FAMILY = Family("desk.defaults", 5, _draft, ("pcmanfm",), flavor="full")
