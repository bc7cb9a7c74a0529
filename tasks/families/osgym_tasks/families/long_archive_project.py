"""long.archive_project: sort files of projects by a wiki, pack them, list checksums, close tickets.

A terminal may read the services by curl; a change that does not come from a page in a browser is refused.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from osgym_tasks.desk import file_manager, sentence, shell_output, terminal
from osgym_tasks.family import Draft, Family, Steps
from osgym_tasks.long import Check, Legs, Part, Plan
from osgym_tasks.long_parts import Row, Tracker, name_of, tracker, wiki
from osgym_tasks.pieces import HOME, line, tree_check, upload
from osgym_tasks.web import browser, serving
from osgym_tasks.webapps.framework import PORT

_PROJECTS = {1: 2, 2: 3, 3: 4, 4: 5, 5: 7}
_FILES = {1: 5, 2: 5, 3: 5, 4: 6, 5: 7}
_ROOT = f"{HOME}/projects"
_OUT = f"{HOME}/archive"
_TERMINAL = "Terminal"
_STATE = "It was archived as {}.tar.gz."
_FOLDERS = ("contracts", "drawings", "letters", "photos", "reports")
_STEMS = (
    "bridge", "canal", "depot", "engine", "facade", "garage", "hall", "island", "jetty", "kiosk", "lock",
    "mill", "oven", "pump", "quay", "roof", "stairs", "tower",
)  # fmt: skip
_ENDINGS = ("txt", "csv", "md", "xml")
_WORDINGS = (
    "Please archive {projects}; each is a folder of {root}. {sort} {pack} {sums} {wiki} {tickets} Change "
    "nothing else.",
    "We have finished {projects}, and their folders in {root} can be archived. {sort} {pack} {sums} {wiki} "
    "{tickets} All else stays as it is.",
    "Could you put {projects} into the archive? You find them below {root}. {sort} {pack} {sums} {wiki} "
    "{tickets} Leave other things alone.",
    "The folders {projects} in {root} are a mess and have to go to the archive. {sort} {pack} {sums} {wiki} "
    "{tickets} Nothing else is to change.",
    "I need {projects} archived today, all of them folders in {root}. {sort} {pack} {sums} {wiki} {tickets} "
    "Please touch nothing else.",
    "Nobody works on {projects} (see {root}) any more, so archive them. {sort} {pack} {sums} {wiki} "
    "{tickets} Other content remains.",
)


@dataclass(frozen=True, slots=True)
class _Project:
    """A folder of files.

    Attributes:
        files: Contents by name.
        folders: Names of the files that belong into each folder.
    """

    name: str
    files: dict[str, str]
    folders: dict[str, list[str]]

    @property
    def archive(self) -> str:
        """Path of its archive."""
        return f"{_OUT}/{self.name}.tar.gz"

    @property
    def list(self) -> str:
        """Path of its list of checksums."""
        return f"{_OUT}/{self.name}.sha256"

    @property
    def sorted(self) -> dict[str, str]:
        """Contents by path in the sorted folder."""
        return {
            f"{folder}/{name}": self.files[name] for folder, names in self.folders.items() for name in names
        }

    def sums(self, before: str) -> str:
        """Return lines of checksums and paths, these with a beginning, in the order of bytes."""
        rows = ((hashlib.sha256(text.encode()).hexdigest(), path) for path, text in self.sorted.items())
        return "".join(sorted(f"{digest}  {before}{path}\n" for digest, path in rows))


def _project(dice: random.Random, name: str, count: int) -> _Project:
    stems = dice.sample(_STEMS, count)
    names = [f"{stem}-{dice.randrange(100, 1000)}.{dice.choice(_ENDINGS)}" for stem in stems]
    into = dice.sample(_FOLDERS, 2 + (count > 5))
    of = [*into, *(dice.choice(into) for _ in names)][:count]
    dice.shuffle(of)
    folders = {
        one: sorted(name for name, where in zip(names, of, strict=True) if where == one) for one in into
    }
    return _Project(name, {one: f"{one} {dice.randrange(10**6)}\n" for one in sorted(names)}, folders)


def _commands(name: str, check: Check, commands: Sequence[str]) -> Part:
    """Return the part that runs commands in the terminal."""
    return Part(name, 2, check, [], [(_TERMINAL, _lines(commands))])


def _parts(projects: Sequence[_Project]) -> list[Part]:
    """Return the parts of the terminal: the sorted folders, the archives, the lists of checksums."""
    tree = {f"{one.name}/{path}": text for one in projects for path, text in one.sorted.items()}
    moves, packs, sums = [], [], []
    for one in projects:
        moves.append(f"cd {_ROOT}/{one.name}; mkdir {' '.join(one.folders)}; ls")
        moves += [f"mv {name} {folder}/" for folder, names in one.folders.items() for name in names]
        packs.append(f"tar -czf {one.archive} -C {_ROOT}/{one.name} .")
        sums.append(f"cd {_ROOT}/{one.name}; sha256sum */* > {one.list}")
    unpacked = " ".join(one.archive for one in projects)
    unpack = (
        f"for a in {unpacked}; do d=$(mktemp -d); cd $d && tar -xzf $a </dev/null && {_LOOK}; rm -rf $d; done"
    )
    lists = " ".join(one.list for one in projects)
    return [
        _commands("the folders", tree_check(_ROOT, tree), moves),
        _commands("the archives", shell_output(unpack, "".join(one.sums("./") for one in projects)), packs),
        _commands(
            "the checksums",
            shell_output(
                f"for a in {lists}; do {_PLAIN} $a | LC_ALL=C sort; done",
                "".join(one.sums("") for one in projects),
            ),
            sums,
        ),
    ]


_PLAIN = r"LC_ALL=C sed '1s/^\xef\xbb\xbf//; s/\r$//'"
"""Command that prints a text without a byte order mark and with the line ends of Unix."""
_LOOK = "find . -type f -exec sha256sum {} + | LC_ALL=C sort"


def _draft(dice: random.Random, level: int) -> Draft:
    numbers = dice.sample(range(100, 1000), _PROJECTS[level])
    names = [
        f"{stem}-{number}" for stem, number in zip(dice.sample(_STEMS, len(numbers)), numbers, strict=True)
    ]
    projects = [_project(dice, name, _FILES[level]) for name in names]
    pages = {
        f"Project {one.name}": {
            "Files": [f"{folder}: {sentence(some)}" for folder, some in one.folders.items()],
            "State": ["It is in use."],
        }
        for one in projects
    }
    guide = wiki(dice, pages, PORT, "")
    titles = [f"{verb} {name}" for name in names for verb in ("Archive", "Check")]
    tickets: list[Row] = [
        {"title": title, "area": "Storage", "text": "There is no hurry."}
        for title in dice.sample(titles, len(titles))
    ]
    desk = tracker(dice, tickets, PORT + 1, guide.window)
    edits = {
        at: (0, _STATE.format(row["page"].removeprefix("Project ")))
        for at, row in enumerate(guide.rows)
        if row["heading"] == "State"
    }
    work: dict[int, tuple[Row, str]] = {
        at: ({"status": "Closed"}, "Archived.")
        for at, row in enumerate(desk.rows)
        if row["title"].startswith("Archive ")
    }
    parts = [
        replace(guide.part(edits), legs=guide.read(list(pages))),
        *_parts(projects),
        desk.part(work),
    ]
    around = [f"tar -czf {one.archive} -C {_ROOT} {one.name}" for one in projects]
    other = next(at for at in range(len(desk.rows)) if at not in work)
    wrong = {
        "the folder around the files": replace(parts[2], commits=[(_TERMINAL, _lines(around))]),
        "another ticket closed too": replace(
            parts[4],
            commits=[(guide.window, desk.steps({**work, other: ({"status": "Closed"}, "Archived.")}))],
        ),
    }
    lost: Legs = [(_TERMINAL, _lines([f"rm {_OUT}/about.txt"]))]
    plan = Plan([_TERMINAL, guide.window], parts, wrong, {"a file of the archive lost": lost})
    return plan.draft(
        _WORDINGS,
        _named(projects, desk),
        [
            upload(
                {f"{_ROOT}/{one.name}/{name}": text for one in projects for name, text in one.files.items()}
            ),
            upload({f"{_OUT}/about.txt": "Projects that have ended\n"}),
            *serving(guide.served, desk.served),
            *browser(guide.served.url, guide.window, desk.served.url),
            *file_manager(_ROOT),
            *terminal(),
        ],
        (_ROOT, *(path for one in projects for path in (one.archive, one.list))),
    )


def _lines(commands: Sequence[str]) -> Steps:
    return [line(command) for command in commands]


def _named(projects: Sequence[_Project], desk: Tracker) -> dict[str, str]:
    """Return the values that the instruction names."""
    return {
        "projects": sentence(one.name for one in projects),
        "root": _ROOT,
        "sort": 'The wiki in the browser has a page "Project …" for each; its section Files says which '
        "files go into which folder. Make these folders inside the project's folder and move the files.",
        "pack": f"Then pack the content of each project's folder into {_OUT}, as "
        f"{sentence(name_of(one.archive) for one in projects)}; the paths inside begin with the new folders.",
        "sums": "Write the SHA-256 sums of the files of each into "
        f"{sentence(name_of(one.list) for one in projects)} beside the archives (as sha256sum prints them, "
        "with paths that begin with the new folders).",
        "wiki": f'On the page of each project, replace "It is in use." by "{_STATE.format("NAME")}".',
        "tickets": f'In the tracker at {desk.served.url}, set the status of each ticket "Archive NAME" '
        'to Closed, with the note "Archived.".',
    }


FAMILY = Family("long.archive_project", 1, _draft, ("chromium", "pcmanfm", "xfce4-terminal"), "full")
