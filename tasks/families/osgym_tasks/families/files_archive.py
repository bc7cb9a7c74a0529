"""files.archive: pack the files of a folder that a rule names into an archive of a given kind and name."""

from __future__ import annotations

import hashlib
import random

from osgym_tasks.desk import home, sentence, shell_output, terminal
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, line, tree_check, upload

_FILES = {1: 4, 2: 8, 3: 12, 4: 18, 5: 26}
_STEMS = (
    "budget", "contract", "diagram", "estimate", "forecast", "glossary", "handbook", "invoice", "journal",
    "letter", "manual", "notice", "outline", "plan", "quote", "review", "schedule", "ticket",
)  # fmt: skip
_ENDINGS = ("txt", "csv", "md", "html", "xml")
_PACK = {"zip": "zip -q", "tar.gz": "tar -czf"}
_KIND = {
    "zip": "ZIP archive",
    "tar.gz": "tar archive compressed by gzip",
}
_WORDINGS = (
    "Pack {which} into {archive}, a {kind}. {inside} All files in {root} stay as they are.",
    "Make the {kind} {archive} with {which} in it, and nothing else. {inside} Leave {root} unchanged.",
    "Please put {which} into a new {kind}, {archive}. {inside} Nothing in {root} may change.",
    "I need {archive}, a {kind} that holds {which} and no other file. {inside} Do not change {root}.",
    "Create {archive} as a {kind} out of {which}. {inside} No other file belongs into it, and {root} stays"
    " as it is.",
    "What should go into {archive}, a {kind}: {which}, without any other file. {inside} Keep {root} "
    "unchanged.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    root = home(dice.choice(("office", "papers", "project", "records")))
    kind = "zip" if level == 1 else dice.choice(tuple(_PACK))
    archive = home(f"{dice.choice(('send', 'backup', 'parcel', 'bundle', 'handover'))}.{kind}")
    ending, other, third = dice.sample(_ENDINGS, 3)
    folders = ["", "old/", "drafts/"] if level >= 4 else [""]
    names = {f"{folder}first.{ending}" for folder in folders} | {
        f"second.{other}",
        f"note.{ending}.{third}",
        f"last.{ending}",
    }
    while len(names) < _FILES[level] + 3:
        names.add(f"{dice.choice(folders)}{dice.choice(_STEMS)}.{dice.choice((ending, other, third))}")
    files = {name: f"{name} {dice.randrange(10**6)}\n" for name in sorted(names)}
    if level == 1:
        globs, wide = [f"first.{ending} last.{ending}"], "*"
        which = f"the files {root}/first.{ending} and {root}/last.{ending}"
        fits = [f"first.{ending}", f"last.{ending}"]
    else:
        endings = (ending, other) if level in (3, 5) else (ending,)
        said = sentence(f".{one}" for one in endings).replace(" and ", " or ")
        which = f"all files whose names end in {said} in {root}"
        which += " and its subfolders" if level >= 4 else ""
        fits = [name for name in files if name.endswith(tuple(f".{one}" for one in endings))]
        tests = " -o ".join(f"-name '*.{one}'" for one in endings)
        globs = [
            f"$(find * -type f \\( {tests} \\))" if level >= 4 else " ".join(f"*.{one}" for one in endings)
        ]
        wide = (
            f"$(find * -type f -name '*.{ending}*')"
            if level in (2, 4)
            else f"$(find * -type f -name '*.{ending}')"
        )
    inside = f"Their paths in the archive are to begin below {root}, so that first.{ending} is at its top."
    packed = {name: files[name] for name in fits}
    right = [f"cd {root}", f"{_PACK[kind]} {archive} {globs[0]}"]
    top = root.rpartition("/")[2]
    deep = [f"{_PACK[kind]} {archive} $(cd {root}; ls -d {globs[0]} | sed 's,^,{top}/,')"]
    near = {
        "the folder around them": _ways(deep),
        "one ending forgotten" if level in (3, 5) else "other files": _ways(
            [right[0], f"{_PACK[kind]} {archive} {wide}"]
        ),
        "moved": _ways([*right, f"rm {globs[0]}"]),
    }
    return Draft(
        _WORDINGS,
        {"which": which, "archive": archive, "kind": _KIND[kind], "inside": inside, "root": root},
        [upload({f"{root}/{name}": text for name, text in files.items()}), *terminal()],
        every(shell_output(_sums(kind, archive), _sum_lines(packed)), tree_check(root, files)),
        Ways(_ways(right), near),
        changes=(archive,),
    )


def _sums(kind: str, archive: str) -> str:
    """Return a command that unpacks as that kind only and prints the contents; folders do not count."""
    unpack = f"unzip -qq {archive}" if kind == "zip" else f"tar -xzf {archive}"
    look = "find . -type f -exec sha256sum {} + | LC_ALL=C sort"
    return f"d=$(mktemp -d); cd $d && {unpack} </dev/null && {look}; rm -rf $d"


def _sum_lines(files: dict[str, str]) -> str:
    return "".join(
        sorted(f"{hashlib.sha256(text.encode()).hexdigest()}  ./{name}\n" for name, text in files.items())
    )


def _ways(commands: list[str]) -> Steps:
    return [*map(line, commands), DONE]


FAMILY = Family("files.archive", 3, _draft, ("xfce4-terminal",))
