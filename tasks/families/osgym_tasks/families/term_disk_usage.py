"""term.disk_usage: find what takes the most bytes in folders, and write its path into a file for each."""

from __future__ import annotations

import random

from osgym_tasks.desk import home, sentence, terminal
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, HOME, every, execute, line, text_check

_ROOTS = ("store", "share", "media", "depot", "vault", "attic", "scans", "films")
_ANSWERS = ("largest", "answer", "big", "space", "heavy", "clean")
_FOLDERS = (
    "archive",
    "camera",
    "drafts",
    "exports",
    "figures",
    "guides",
    "history",
    "imports",
    "letters",
    "music",
)
_STEMS = ("amber", "birch", "cedar", "dune", "elm", "fern", "grove", "heath", "iris", "jade", "kelp", "lotus")
_ENDINGS = ("dat", "bin", "raw", "tmp", "img")
_COUNT = {1: (1, 5), 2: (3, 4), 3: (5, 4), 4: (7, 4), 5: (7, 5)}
_PLACES = {1: 1, 2: 1, 3: 2, 4: 3, 5: 4}
_MOST = {1: 1, 2: 1, 3: 1, 4: 3, 5: 3}
_WORDINGS = (
    "Look into {places} in {folder}. For each, find {what}, and write {form}, into its answer file, which "
    "belongs directly into {folder}. Change nothing else.",
    "I am looking for {what}, in {places} of {folder}. Save {form}, in the answer file of each, beside "
    "these folders in {folder}, and leave everything else unchanged.",
    "For {places}, which {folder} holds, find {what}. Put {form}, into the answer file, next to the folder "
    "itself. Nothing else may change.",
    "The disk is nearly full, and I want to know what to clean up. Please look into {places}, which is in "
    "the terminal's folder: I need {what}. Write {form}, into the answer file, right in my home folder, "
    "but don't delete or change anything.",
    "Before I call the owners, could you find out what takes the space? In each case it is {what} that I "
    "want, for {places} in my home folder. Leave {form}, in the answer file, next to the folder. Touch "
    "nothing else.",
    "Our backup is too slow. Look through {places}, in the folder where the terminal is, for {what}, and "
    "save {form}, as the answer file there. All other files stay as they are.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    folders, each = _COUNT[level]
    roots = [home(name) for name in dice.sample(_ROOTS, _PLACES[level])]
    answers = [f"{name}.txt" for name in dice.sample(_ANSWERS, len(roots))]
    sizes = {root: _sizes(dice, root, dice.sample(_FOLDERS, folders), each, level) for root in roots}
    by_folder, most = level in (3, 5), _MOST[level]
    thing = "folder" if by_folder else "file"
    if most == 1:
        measure = "whose files together have the most bytes" if by_folder else "that has the most bytes"
        what, form = f"the {thing} below it {measure}", "the whole path of what you find, on one line"
    else:
        measure = "whose files together have the most bytes" if by_folder else "that have the most bytes"
        what = f"the three {thing}s below it {measure}"
        form = "their whole paths, one to a line, the largest first"
    pick = "| sort -nr | cut -f2 | sed 's,/$,,'"

    def way(root: str, answer: str, how: str, *, command: str = "") -> Steps:
        found = f"du -b {root}/*/" if by_folder else f"find {root} -type f -exec du -b {{}} +"
        return [line(f"{command or found} {how} > {answer}"), line(f"cat {answer}")]

    top = f"head -{most}"
    ways = [way(root, answer, f"{pick} | {top}") for root, answer in zip(roots, answers, strict=True)]
    begin = [step for steps in ways[:-1] for step in steps]
    last, answer = roots[-1], answers[-1]
    near = {
        "the smallest": way(last, answer, f"{pick.replace('-nr', '-n')} | {top}"),
        "one place further": way(last, answer, f"{pick} | head -{most + 1} | tail -{most}"),
    }
    if by_folder:
        count = f"(for d in {last}/*; do printf '%s\\t%s\\n' $(ls $d | wc -l) $d; done)"
        near["the most files"] = way(last, answer, f"{pick} | {top}", command=count)
    if most > 1:
        near["the largest last"] = way(last, answer, f"{pick} | {top} | tac")
    if begin:
        near["one forgotten"] = []
    rows = "".join(f"{size} {path}\\n" for one in sizes.values() for path, size in one.items())
    make = 'while read -r size path; do mkdir -p "${path%/*}"; head -c "$size" /dev/zero > "$path"; done'
    slash = [*begin, *way(last, answer, f"| sort -nr | cut -f2 | {top}"), DONE]
    places = (
        f"the folder {root.rpartition('/')[2]} (answer file {answer})"
        for root, answer in zip(roots, answers, strict=True)
    )
    return Draft(
        _WORDINGS,
        {"what": what, "form": form, "places": sentence(places), "folder": HOME},
        [execute("bash", "-c", f"printf '{rows}' | {make}"), *terminal()],
        every(
            *(
                text_check(home(answer), _largest(sizes[root], by_folder, most), folders=by_folder)
                for root, answer in zip(roots, answers, strict=True)
            )
        ),
        Ways(
            [*begin, *ways[-1], DONE],
            {name: [*begin, *steps, DONE] for name, steps in near.items()},
            {"a slash after folders": slash} if by_folder else {},
        ),
        changes=[home(answer) for answer in answers],
        shown=("folder",),
    )


def _largest(sizes: dict[str, int], by_folder: bool, most: int) -> str:
    """Return the lines of the answer for one folder."""
    totals: dict[str, int] = {}
    for path, size in sizes.items():
        name = path.rpartition("/")[0] if by_folder else path
        totals[name] = totals.get(name, 0) + size
    ranked = sorted(totals, key=lambda path: (-totals[path], path))
    return "".join(f"{path}\n" for path in ranked[:most])


def _sizes(dice: random.Random, root: str, folders: list[str], each: int, level: int) -> dict[str, int]:
    """Draw sizes in bytes, none near another; the folder with the most files is not among the largest."""
    names = [f"{stem}-{number}.{ending}" for stem in _STEMS for number in (1, 2) for ending in _ENDINGS]
    sizes: dict[str, int] = {}
    ranks = dice.sample(range(1, len(folders) + 1), len(folders))
    for folder, rank in zip(folders, ranks, strict=True):
        count = each + (3 * (len(folders) - rank) // 2 if level >= 3 else 0)
        for name in dice.sample(names, count):
            weight = rank * 120_000 // count if level in (3, 5) else dice.randrange(2_000, 60_000)
            sizes[f"{root}/{folder}/{name}"] = weight + dice.randrange(1_000)
    if level not in (3, 5):
        for at, path in enumerate(dice.sample(sorted(sizes), 5)):
            sizes[path] = 80_000 + 9_000 * at + dice.randrange(1_000)
    return sizes


FAMILY = Family("term.disk_usage", 4, _draft, ("xfce4-terminal",))
