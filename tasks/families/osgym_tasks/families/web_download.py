"""web.download: download files of a site, chosen by version and platform, into a folder.

The check reads that folder, so a download by curl in a terminal is allowed as well.
"""

from __future__ import annotations

import random
from typing import Any

from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, form_counts, key, tree_check
from osgym_tasks.web import APPS, Served, typed, visit

_VERSIONS = {1: 2, 2: 4, 3: 5, 4: 7, 5: 9}
_PROGRAMS = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_WANTED = {1: 1, 2: 1, 3: 1, 4: 2, 5: 4}
_NAMES = ("anvil", "bobbin", "chisel", "dowel", "easel", "funnel", "gimlet", "hopper")
_PLATFORMS = ("linux-arm64", "linux-x64", "macos", "windows")
_SITES = ("Tool Archive", "Release Server", "Download Mirror", "Software Shelf")
_FOLDER = f"{HOME}/Downloads"
_WORDINGS = (
    "From the site that is open in the browser, download {files} to {folder}, each under the name that it "
    "has there. Nothing else is to be in that folder.",
    "Download {files} from the open site into {folder}. Keep each file's name, and leave nothing else there.",
    "Please get {files} from the site in the browser into {folder}, each file as it is called, and no "
    "other file.",
    "I have to install some things without a network later. From the open site, please download {files} to "
    "my Downloads folder, under the names they have there. Nothing else should be in it.",
    "A colleague needs {files}. Could you get that from the site in the browser into the Downloads folder? "
    "Keep the names, and have no other file there in the end.",
    "For the new machines we need {files}, from the site that you see. Downloads is the right folder; "
    "leave the names as they are, and nothing else in it.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    programs = dice.sample(_NAMES, _PROGRAMS[level])
    files: dict[str, str] = {}
    pages, choices = [], []
    for program in programs:
        releases = _releases(dice, level)
        names = []
        for version, platform in releases:
            name = f"{program}-{version}-{platform}.tar"
            names.append(name)
            files[name] = f"{name} {dice.getrandbits(64):016x}\n"
        dice.shuffle(names)
        lines = [f"/files/{name} {name}" for name in names]
        pages.append(
            {"slug": program, "title": program.title(), "group_": "Programs", "body": "\n".join(lines)}
        )
        platform = dice.choice([of for _, of in releases])
        choices.append(_choice(level, program, platform, releases))
    wanted = [name for _, name, _ in choices[: _WANTED[level]]]
    wrong = [*wanted[:-1], choices[_WANTED[level] - 1][2]]
    tables: dict[str, Any] = {"files": [{"path": path, "text": text} for path, text in files.items()]}
    served = Served(
        dice, "forms", dice.choice(_SITES), {**tables, "pages": pages, "questions": [], "answers": []}
    )
    near = {
        "another version or platform": [*_get(wrong), DONE],
        "one more": [*_get([*wanted, choices[_WANTED[level] - 1][2]]), DONE],
    }
    if len(wanted) > 1:
        near["one forgotten"] = [*_get(wanted[:-1]), DONE]
    return Draft(
        _WORDINGS,
        {"files": " and ".join(said for said, _, _ in choices[: _WANTED[level]]), "folder": _FOLDER},
        served.config("/pages"),
        every(tree_check(_FOLDER, {name: files[name] for name in wanted})),
        Ways([*_get(wanted), DONE], near),
        shown=("folder",),
        changes=(_FOLDER,),
        allows={**form_counts(_WHY), "text: last newline *": _WHY},
    )


_WHY = "a download has the bytes that the server sent"


def _releases(dice: random.Random, level: int) -> list[tuple[str, str]]:
    """Draw versions of which the tenth is newer than the ninth, and previews that are newer than all."""
    major, first = dice.randrange(1, 5), dice.randrange(7, 10)
    versions = [f"{major}.{first + number}" for number in range(_VERSIONS[level])]
    if level >= 3:
        versions.append(f"{major + 1}.0-preview")
    platforms = sorted(dice.sample(_PLATFORMS, 1 if level == 1 else min(4, level)))
    return [(version, platform) for version in versions for platform in platforms]


def _choice(level: int, program: str, platform: str, releases: list[tuple[str, str]]) -> tuple[str, str, str]:
    """Return the description of a file, its name, and the name of a similar file."""
    versions = [version for version, its_platform in releases if its_platform == platform]
    finished = [version for version in versions if "preview" not in version]
    name = f"{program}-{finished[-1]}-{platform}.tar"
    if level <= 2:
        return f"the file {name}", name, f"{program}-{finished[-2]}-{platform}.tar"
    said = f"the newest version of {program} for {platform} that is no preview"
    return said, name, f"{program}-{versions[-1] if level % 2 else finished[-2]}-{platform}.tar"


def _get(names: list[str]) -> Steps:
    """Return steps on each program's page; finding the name moves the focus to its link."""
    steps: Steps = []
    for name in names:
        program = name.partition("-")[0]
        steps += [
            *visit(f"/pages/{program}", program.title()),
            [key("ctrl", "f"), typed(name), {"op": "wait", "duration_ms": 500}],
            [key("escape"), key("enter"), {"op": "wait", "duration_ms": 1000}],
        ]
    return steps


FAMILY = Family("web.download", 4, _draft, APPS, "full")
