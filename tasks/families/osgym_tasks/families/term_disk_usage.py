"""term.disk_usage: find what takes the most bytes in a tree, and write its name into a file."""

from __future__ import annotations

import random

from osgym_tasks.desk import home, terminal
from osgym_tasks.family import Draft, Family, Steps, Ways
from osgym_tasks.pieces import DONE, every, execute, line, text_check

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
_COUNT = {1: (1, 5), 2: (3, 4), 3: (5, 4), 4: (7, 5), 5: (10, 6)}
_MOST = {1: 1, 2: 1, 3: 1, 4: 3, 5: 3}
_WORDINGS = (
    "Find {what}, and write {form}, into {answer}. Change nothing in {root}.",
    "I am looking for {what}. Save {form}, as {answer}, and leave {root} unchanged.",
    "Please look for {what}. Put {form}, into {answer}; {root} has to stay as it is.",
    "Let me know {what}. The answer, {form}, goes into {answer}. Nothing in {root} may change.",
    "Disk space is short: I need to know {what}. Write {form}, to {answer} and do not touch {root}.",
    "{answer} should name {what}: {form}, and nothing else. {root} stays unchanged.",
)


def _draft(dice: random.Random, level: int) -> Draft:
    folders, each = _COUNT[level]
    root = home(dice.choice(("store", "share", "media", "depot")))
    answer = home(f"{dice.choice(('largest', 'answer', 'big', 'space'))}.txt")
    sizes = _sizes(dice, root, dice.sample(_FOLDERS, folders), each, level)
    totals: dict[str, int] = {}
    for path, size in sizes.items():
        totals[path.rpartition("/")[0]] = totals.get(path.rpartition("/")[0], 0) + size
    by_folder = level in (3, 5)
    ranked = sorted(
        totals if by_folder else sizes, key=lambda path: (-(totals if by_folder else sizes)[path], path)
    )
    most = _MOST[level]
    thing = "folder" if by_folder else "file"
    if most == 1:
        measure = "whose files together have the most bytes" if by_folder else "that has the most bytes"
        what, form = f"the {thing} below {root} {measure}", "its whole path on one line"
    else:
        measure = "whose files together have the most bytes" if by_folder else "that have the most bytes"
        what, form = (
            f"the three {thing}s below {root} {measure}",
            "their whole paths, one to a line, the largest first",
        )
    command = f"du -b {root}/*/" if by_folder else f"find {root} -type f -exec du -b {{}} +"
    pick = "| sort -nr | cut -f2 | sed 's,/$,,'"
    near = {
        "the smallest": _ways(f"{command} {pick.replace('-nr', '-n')} | head -{most} > {answer}", answer),
        "one place further": _ways(f"{command} {pick} | head -{most + 1} | tail -{most} > {answer}", answer),
    }
    if by_folder:
        count = f"for d in {root}/*; do printf '%s\\t%s\\n' $(ls $d | wc -l) $d; done"
        near["the most files"] = _ways(f"({count}) {pick} | head -{most} > {answer}", answer)
    if most > 1:
        near["the largest last"] = _ways(f"{command} {pick} | head -{most} | tac > {answer}", answer)
    rows = "".join(f"{size} {path}\\n" for path, size in sizes.items())
    make = 'while read -r size path; do mkdir -p "${path%/*}"; head -c "$size" /dev/zero > "$path"; done'
    right = {
        "a slash after folders": _ways(f"{command} | sort -nr | cut -f2 | head -{most} > {answer}", answer)
    }
    return Draft(
        _WORDINGS,
        {"what": what, "form": form, "answer": answer, "root": root},
        [execute("bash", "-c", f"printf '{rows}' | {make}"), *terminal()],
        every(text_check(answer, "".join(f"{path}\n" for path in ranked[:most]), folders=by_folder)),
        Ways(_ways(f"{command} {pick} | head -{most} > {answer}", answer), near, right if by_folder else {}),
        changes=(answer,),
    )


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


def _ways(command: str, answer: str) -> Steps:
    return [line(command), line(f"cat {answer}"), DONE]


FAMILY = Family("term.disk_usage", 3, _draft, ("xfce4-terminal",))
