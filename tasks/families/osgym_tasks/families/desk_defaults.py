"""desk.defaults: choose the application that opens files of a type, in the file manager."""

from __future__ import annotations

import random

from osgym_tasks.desk import file_manager, home, sentence, shell_output
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key, tree_check, upload

_TEXT = ("featherpad", "libreoffice-writer", "org.xfce.mousepad")
_OFFERED = {
    "txt": ("text/plain", _TEXT, 2),
    "md": ("text/markdown", _TEXT, 2),
    "json": ("application/json", _TEXT, 2),
    "py": ("text/x-python", _TEXT, 2),
    "log": ("text/x-log", _TEXT, 2),
    "csv": ("text/csv", ("libreoffice-calc", *_TEXT), 0),
    "html": ("text/html", ("chromium", "google-chrome", *_TEXT), 0),
}
"""Applications by ending: the type, the file manager's offers to open it, and the initial one of these."""
_SAID = {
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
_WORDINGS = (
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
_TRANSLATIONS = {
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


def _draft(dice: random.Random, level: int) -> Draft:
    root = home(f"Documents/{dice.choice(('Samples', 'Inbox', 'Mixed', 'Various'))}")
    endings = dice.sample(tuple(_OFFERED), _TYPES[level])
    picked = {ending: _other(dice, ending) for ending in endings}
    names = [f"{stem}{number}.{ending}" for stem in _STEMS for number in (1, 2) for ending in _OFFERED]
    neighbour = next(ending for ending in _OFFERED if ending not in endings)
    drawn = {f"{dice.choice(_STEMS)}0.{ending}" for ending in (*endings, neighbour)} | {
        *dice.sample(names, _FILES[level])
    }
    files = {name: f"{name} {dice.randrange(10**6)}\n" for name in sorted(drawn)}
    first = {ending: offered[at] for ending, (_, offered, at) in _OFFERED.items()}
    after = first | picked
    types = {ending: kind for ending, (kind, _, _) in _OFFERED.items()}
    look = "".join(f"xdg-mime query default {types[ending]}; " for ending in types)
    near = {
        "another type": _ways(files, {neighbour: _other(dice, neighbour)}),
        "another application": _ways(files, {**picked, endings[0]: _third(endings[0], picked[endings[0]])}),
    }
    if len(endings) > 1:
        near["one forgotten"] = _ways(files, {ending: picked[ending] for ending in endings[1:]})
    said = {
        language: sentence((one.format(ending, _SAID[app]) for ending, app in picked.items()), language)
        for language, one in _CHOICE.items()
    }
    return Draft(
        _WORDINGS,
        {"root": root, "choices": said["en"]},
        [upload({f"{root}/{name}": text for name, text in files.items()}), *file_manager(root)],
        every(
            shell_output(look, "".join(f"{after[ending]}.desktop\n" for ending in types)),
            tree_check(root, files),
        ),
        Ways(_ways(files, picked), near),
        changes=[],
        shown=("root",),
        translations=_TRANSLATIONS,
        translated={language: {"choices": said[language]} for language in _TRANSLATIONS},
    )


def _other(dice: random.Random, ending: str) -> str:
    _, offered, at = _OFFERED[ending]
    return dice.choice([app for app in offered if app in _SAID and app != offered[at]])


def _third(ending: str, app: str) -> str:
    _, offered, at = _OFFERED[ending]
    return next(one for one in offered if one in _SAID and one not in (app, offered[at]))


def _ways(files: dict[str, str], picked: dict[str, str]) -> Steps:
    """Return steps in the properties of a file of each type, which have a list of applications.

    Plain text comes last: its choice also changes the order of the lists of its subtypes.
    """
    steps: Steps = []
    for ending, app in sorted(picked.items(), key=lambda choice: choice[0] == "txt"):
        _, offered, at = _OFFERED[ending]
        far = offered.index(app) - at
        name = next(name for name in files if name.endswith(f".{ending}"))
        # Each a step of its own: the search selects what it found only when the window has come to rest.
        steps += [[{"op": "type", "text": name}], [key("esc")], [key("alt", "enter")]]
        steps.append([*[key("tab")] * 4, *[key("down" if far > 0 else "up")] * abs(far), key("alt", "o")])
    return [*steps, DONE]


FAMILY = Family("desk.defaults", 4, _draft, ("pcmanfm",), flavor="full")
