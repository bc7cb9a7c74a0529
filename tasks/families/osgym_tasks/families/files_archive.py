"""files.archive: pack the files of a folder that rules name into archives of given kinds and names."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from itertools import combinations

from osgym_tasks.desk import sentence, shell_output, terminal
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, line, tree_check, upload

_FILES = {1: 4, 2: 8, 3: 12, 4: 18, 5: 26}
_COUNT = {1: 1, 2: 1, 3: 2, 4: 3, 5: 5}
_NAMES = ("send", "backup", "parcel", "bundle", "handover", "outgoing", "spring")
_STEMS = (
    "budget", "contract", "diagram", "estimate", "forecast", "glossary", "handbook", "invoice", "journal",
    "letter", "manual", "notice", "outline", "plan", "quote", "review", "schedule", "ticket",
)  # fmt: skip
_ENDINGS = ("txt", "csv", "md", "html", "xml")
_KINDS = ("zip", "tar.gz")
_WORDINGS = (
    "Pack files of {folder}/{root}: {jobs}. Each archive belongs into {folder}. Paths in it begin below "
    "{root}, so that {first} would be at its top. All files in {root} stay as they are.",
    "Make archives in {folder} out of files in {folder}/{root}: {jobs}, and nothing else. Their paths are "
    "to begin below {root}: {first} would be at the top, for example. Leave {root} unchanged.",
    "Pack {jobs}, all from {folder}/{root}. The archives go into {folder}, and the paths inside begin "
    "below {root}, with {first}, for example, at the top. Nothing in {root} may change.",
    "I have to send things from {root} by mail. Please pack {jobs}, and put each archive right into my "
    "home folder, where {root} is, too. Inside I don't want the folder {root} again, so {first} would be "
    "at the top. No other files, and the originals stay.",
    "Before the laptop goes back, could you make me archives out of {root}, which is in the terminal's "
    "folder? I need {jobs}, next to that folder. The paths in an archive start below {root} ({first} at "
    "the top, for instance). Don't change anything in {root}.",
    "The customer wants some of what is in {root} in my home folder: {jobs}. Leave the archives beside "
    "{root}. Their paths begin below it, which means {first} would be at the top, and they hold no other "
    "file. The folder itself stays as it is.",
)


@dataclass(frozen=True, slots=True)
class _Job:
    """An archive: its name without the ending, its kind, and the endings of its files; none: two files."""

    stem: str
    kind: str
    endings: tuple[str, ...]
    deep: bool
    pair: tuple[str, str]

    @property
    def name(self) -> str:
        return f"{self.stem}.{self.kind}"

    @property
    def words(self) -> str:
        if not self.endings:
            return f"the files {self.pair[0]} and {self.pair[1]} into {self.name}"
        said = " or ".join(f".{one}" for one in self.endings)
        below = " in the folder and its subfolders" if self.deep else " directly in the folder"
        return f"all files{below} whose names end in {said} into {self.name}"

    def files(self, names: list[str]) -> list[str]:
        if not self.endings:
            return [*self.pair]
        return [name for name in names if name.endswith(tuple(f".{one}" for one in self.endings))]

    def which(self, endings: tuple[str, ...], *, wide: bool = False) -> str:
        """Return the files with these endings for the shell; wide: also those that have another after it."""
        if not endings:
            return "*" if wide else " ".join(self.pair)
        globs = [f"*.{one}{'*' if wide else ''}" for one in endings]
        if not self.deep:
            return " ".join(globs)
        tests = " -o ".join(f"-name '{glob}'" for glob in globs)
        return f"$(find * -type f \\( {tests} \\))"

    def pack(self, which: str = "") -> Steps:
        """Return steps that pack in the current folder, and list the archive."""
        begun, listed = ("zip -q", "unzip -l") if self.kind == "zip" else ("tar -czf", "tar -tzf")
        path = f"{HOME}/{self.name}"
        return [line(f"{begun} {path} {which or self.which(self.endings)}"), line(f"{listed} {path}")]


def _draft(dice: random.Random, level: int) -> Draft:
    root = dice.choice(("office", "papers", "project", "records"))
    ending, other, third = dice.sample(_ENDINGS, 3)
    folders = ["", "old/", "drafts/"] if level >= 4 else [""]
    jobs = _jobs(dice, level, (ending, other, third))
    names = {f"{folder}first.{ending}" for folder in folders}
    names |= {f"second.{other}", f"third.{third}", f"note.{ending}.{third}", f"last.{ending}"}
    while len(names) < _FILES[level] + 3:
        names.add(f"{dice.choice(folders)}{dice.choice(_STEMS)}.{dice.choice((ending, other, third))}")
    files = {name: f"{name} {dice.randrange(10**6)}\n" for name in sorted(names)}
    enter = line(f"cd {root}")
    begin = [enter, *(step for job in jobs[:-1] for step in job.pack())]
    last = jobs[-1]
    inner = last.which(last.endings)
    around = f"$(cd {root}; ls -d {inner} | sed 's,^,{root}/,')"
    wrong = last.which(last.endings[:1], wide=len(last.endings) < 2)
    near = {
        "the folder around them": [*begin, line("cd"), *last.pack(around), DONE],
        "one ending forgotten" if len(last.endings) > 1 else "other files": [*begin, *last.pack(wrong), DONE],
        "moved": [*begin, *last.pack(), line(f"rm {inner}"), DONE],
    }
    if len(jobs) > 1:
        near["one archive forgotten"] = [*begin, DONE]
    first = f"first.{ending}"
    return Draft(
        _WORDINGS,
        {"folder": HOME, "root": root, "jobs": sentence(job.words for job in jobs), "first": first},
        [upload({f"{HOME}/{root}/{name}": text for name, text in files.items()}), *terminal()],
        every(
            *(
                shell_output(
                    _sums(job.kind, f"{HOME}/{job.name}"),
                    _sum_lines({name: files[name] for name in job.files(list(files))}),
                )
                for job in jobs
            ),
            tree_check(f"{HOME}/{root}", files),
        ),
        Ways([*begin, *last.pack(), DONE], near),
        changes=[f"{HOME}/{job.name}" for job in jobs],
        shown=("folder",),
    )


def _jobs(dice: random.Random, level: int, endings: tuple[str, str, str]) -> list[_Job]:
    """Draw archives; the last one has files of the first ending."""
    stems = dice.sample(_NAMES, _COUNT[level])
    ending, other, _ = endings
    pair = (f"first.{ending}", f"last.{ending}")
    if level == 1:
        return [_Job(stems[0], "zip", (), False, pair)]
    last = (ending, other) if level in (3, 5) else (ending,)
    sets = [(one,) for one in endings] + [*combinations(endings, 2)]
    chosen = [*dice.sample([some for some in sets if some != last], len(stems) - 1), last]
    return [
        _Job(stem, dice.choice(_KINDS), some, level >= 4, pair)
        for stem, some in zip(stems, chosen, strict=True)
    ]


def _sums(kind: str, archive: str) -> str:
    """Return a command that unpacks as that kind only and prints the contents; folders do not count."""
    unpack = f"unzip -qq {archive}" if kind == "zip" else f"tar -xzf {archive}"
    look = "find . -type f -exec sha256sum {} + | LC_ALL=C sort"
    return f"d=$(mktemp -d); cd $d && {unpack} </dev/null && {look}; rm -rf $d"


def _sum_lines(files: dict[str, str]) -> str:
    return "".join(
        sorted(f"{hashlib.sha256(text.encode()).hexdigest()}  ./{name}\n" for name, text in files.items())
    )


FAMILY = Family("files.archive", 4, _draft, ("xfce4-terminal",))
