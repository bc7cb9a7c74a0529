"""term.modes: set the permissions of some files of a tree, and of no others."""

from __future__ import annotations

import random

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, execute, launch, line, output_check, tree_check, upload

_FILES = {1: 4, 2: 8, 3: 12, 4: 20, 5: 30}
_FOLDERS = {1: (".",), 2: (".", "old"), 3: (".", "old", "lib"), 4: (".", "old", "lib", "lib/more")}
_STEMS = ("build", "check", "clean", "copy", "count", "fetch", "list", "pack", "print", "send", "sort")
_ENDINGS = ("sh", "py", "txt", "conf")
_MODES = ("700", "640", "600", "755", "444")
_BEFORE = "664"
_WORDINGS = (
    "Set the permissions of all files in {root} and in the folders below it "
    "whose names end in {ending} to {mode} (octal). Those of other files and of folders stay as they are.",
    "Give every file below {root}, at any depth, whose name ends in {ending} the octal mode {mode}; leave "
    "other files and all folders alone.",
    "All files that end in {ending} under {root}, subfolders too, need the octal mode {mode}. Change no "
    "other file and no folder.",
    "Please change the mode of files ending in {ending} to octal {mode}, everywhere in {root} including its "
    "subfolders, and of nothing else.",
    "Under {root} and its subfolders, files with names that end in {ending} must have the permissions {mode} "
    "(octal). Nothing else may change.",
    "I need mode {mode} (octal) for each file ending in {ending} anywhere within {root}. Other "
    "files and the folders keep theirs.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    root = f"{HOME}/{dice.choice(('tools', 'scripts', 'project', 'work'))}"
    ending, other = dice.sample(_ENDINGS, 2)
    mode = dice.choice(_MODES)
    folders = _FOLDERS[min(level, 4)]
    paths = {f"{folders[-1]}/first.{ending}", f"./second.{ending}", f"./third.{other}", f"./{ending}.{other}"}
    while len(paths) < _FILES[level] + len(folders):
        stem = f"{dice.choice(_STEMS)}{dice.randrange(100)}"
        paths.add(f"{dice.choice(folders)}/{stem}.{dice.choice(_ENDINGS)}")
    listed = sorted(path.removeprefix("./") for path in paths)
    chosen = [path for path in listed if path.endswith(f".{ending}")]
    tree = "".join(sorted(f"{path} {mode if path in chosen else _BEFORE}\n" for path in listed))
    texts = {path: f"# {path}\n" for path in listed}
    kinds = "".join(sorted(f"{folder} 755\n" for folder in folders if folder != "."))
    show = "find . -type {} -mindepth 1 -printf '%P %m\\n' | LC_ALL=C sort"
    look = f"cd {root} && {show}"
    near = {
        "every file": _ways(f"find {root} -type f -exec chmod {mode} {{}} +"),
        "a file forgotten": _ways(f"find {root} -type f -name '*.{ending}' ! -name 'first.*'"
                                  f" -exec chmod {mode} {{}} +"),
    }  # fmt: skip
    right = f"find {root} -type f -name '*.{ending}' -exec chmod {mode} {{}} +"
    near["the content lost"] = [line(f"truncate -s 0 {root}/second.{ending}"), *_ways(right)]
    if len(folders) > 1:
        near["subfolders forgotten"] = _ways(f"chmod {mode} {root}/*.{ending}")
    return Draft(
        _WORDINGS,
        {"root": root, "ending": f".{ending}", "mode": mode},
        [
            upload({f"{root}/{path}": text for path, text in texts.items()}),
            execute("find", root, "-type", "d", "-exec", "chmod", "755", "{}", "+"),
            execute("find", root, "-type", "f", "-exec", "chmod", _BEFORE, "{}", "+"),
            *launch("Terminal", "xfce4-terminal", "--geometry=100x30+200+120"),
        ],
        every(
            output_check(("bash", "-c", look.format("f")), tree),
            output_check(("bash", "-c", look.format("d")), kinds),
            tree_check(root, texts),
        ),
        Ways(_ways(right), near),
        changes=[f"{root}/{path}" for path in chosen],
    )


def _ways(command: str) -> Steps:
    return [line(command), DONE]


FAMILY = Family("term.modes", 3, _draft, ("xfce4-terminal",))
