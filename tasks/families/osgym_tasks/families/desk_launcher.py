"""desk.launcher: write desktop entries with a name, a command and more into the folder of the desktop."""

from __future__ import annotations

import json
import random
import shlex
from typing import Any

from osgym_tasks.desk import home, mousepad, sentence, shell_output
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, key, upload

_KEYS = {1: 0, 2: 1, 3: 2, 4: 3, 5: 3}
_COUNT = {1: 1, 2: 1, 3: 1, 4: 2, 5: 3}
_BESIDE = {1: 1, 2: 2, 3: 4, 4: 6, 5: 9}
_PROGRAMS = (
    ("editor", "Quick Notes", "mousepad", "Write down what comes to mind"),
    ("sums", "Sum Machine", "galculator", "Add up the day"),
    ("pages", "Page Writer", "featherpad", "Write pages of text"),
    ("album", "Photo Album", "ristretto", "Look at the pictures of the club"),
    ("shell", "Command Line", "xterm", "Type commands to the machine"),
    ("lists", "Shopping Lists", "featherpad", "All lists of the week"),
    ("reader", "Log Reader", "mousepad", "Read what the machine has to say"),
)
_ARGUMENTS = ("", " /home/user/Documents", " --help", " /home/user/Desktop/today.txt", " /home/user/list.txt")
_ICONS = ("accessories-text-editor", "accessories-calculator", "image-viewer", "utilities-terminal")
_CATEGORIES = ("Utility;", "Office;", "Graphics;", "System;")
_ALSO = ("Comment", "Icon", "Categories")
_DUMP = """
import configparser, json, sys
p = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=("#",))
p.optionxform = str
p.read(sys.argv[1])
entry = p["Desktop Entry"]
unseen = [key for key in ("Hidden", "NoDisplay") if entry.get(key, "").strip() == "true"]
unseen += [key for key in ("OnlyShowIn", "NotShowIn", "TryExec") if entry.get(key, "").strip()]
print(json.dumps([entry.get(key, "").strip() for key in sys.argv[2:]] + unseen))
"""
"""Script that prints the values of the named keys of an entry, and keys that keep it from being shown."""
_WORDINGS = (
    "Make {entries}. Other files in {folder} stay as they are.",
    "Add {entries}. Leave everything else in {folder} alone.",
    "Please create {entries}. Nothing else in {folder} may change.",
    "I keep forgetting what these programs are called. Could you make me {entries}? The other files in "
    "{folder} stay as they are.",
    "For the people who share this machine, {folder} should get something more: {entries}. Please write "
    "and save that, and change none of the files that are there.",
    "We collect our own starters in {folder}. What is missing is {entries}. Add it, and leave everything "
    "else in the folder alone.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    folder = home("Launchers")
    picked = dice.sample(_PROGRAMS, _COUNT[level])
    entries = {f"{folder}/{stem}.desktop": _entry(dice, level, *about) for stem, *about in picked}
    beside = {
        f"old{number}.desktop": _text(_entry(dice, 4, *dice.choice(_PROGRAMS)[1:]))
        for number in range(_BESIDE[level])
    }
    first = next(iter(entries))
    no_command = {path: dict(entry) for path, entry in entries.items()}
    no_command[first]["Command"] = no_command[first].pop("Exec")
    unseen = {path: {**entry, "Hidden": "true"} for path, entry in entries.items()}
    swapped = {path: dict(entry) for path, entry in entries.items()}
    swapped[first]["Name"] = swapped[first]["Name"].replace(" ", "")
    near = {
        "not saved": [*_ways(entries)[:-4], DONE],
        "no Exec": _ways(no_command),
        "another name": _ways(swapped),
        "hidden": _ways(unseen),
    }
    if len(entries) > 1:
        near["one forgotten"] = _ways(dict(list(entries.items())[1:]))
    there = (*beside, *(path.rpartition("/")[2] for path in entries))
    read = f"python3 -c {shlex.quote(_DUMP)}"
    checks = [
        shell_output(f"{read} {path} {' '.join(entry)}", json.dumps(list(entry.values())) + "\n")
        for path, entry in entries.items()
    ]
    return Draft(
        _WORDINGS,
        {"entries": sentence(_said(path, entry) for path, entry in entries.items()), "folder": folder},
        [upload({f"{folder}/{name}": text for name, text in beside.items()}), *mousepad()],
        every(
            *checks,
            shell_output(f"ls {folder} | LC_ALL=C sort", "".join(sorted(f"{name}\n" for name in there))),
            shell_output(f"cat {folder}/old*.desktop", "".join(beside[name] for name in sorted(beside))),
        ),
        Ways(_ways(entries), near),
        changes=list(entries),
    )


def _entry(dice: random.Random, level: int, name: str, program: str, comment: str) -> dict[str, str]:
    also = {"Comment": comment, "Icon": dice.choice(_ICONS), "Categories": dice.choice(_CATEGORIES)}
    command = program + dice.choice(_ARGUMENTS)
    entry = {"Type": "Application", "Name": name, "Exec": command}
    return entry | {one: also[one] for one in _ALSO[: _KEYS[level]]}


def _text(entry: dict[str, str]) -> str:
    return "[Desktop Entry]\n" + "".join(f"{name}={value}\n" for name, value in entry.items())


def _said(path: str, entry: dict[str, str]) -> str:
    parts = [f'{name} "{value}"' for name, value in entry.items() if name != "Type"]
    return f"the desktop entry {path} of the type Application with {sentence(parts)}"


def _ways(entries: dict[str, dict[str, str]]) -> Steps:
    """Return steps that write each entry in a new tab."""
    steps: Steps = []
    for at, (path, entry) in enumerate(entries.items()):
        before: list[dict[str, Any]] = [key("ctrl", "n")] if at else []
        steps.append([*before, {"op": "type", "text": _text(entry)}])
        steps.append([key("ctrl", "s")])
        steps.append([key("ctrl", "a"), {"op": "type", "text": path}])
        steps.append([key("enter")])
    return [*steps, DONE]


FAMILY = Family("desk.launcher", 4, _draft, ("mousepad",))
