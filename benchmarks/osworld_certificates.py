"""Certificates of OSWorld's published tasks: those whose check pays a wrong end, or refuses a right one.

Of the task files those are certified that have an oracle in osworld_oracles.toml, and infeasible ones. Files
that a task fetches are made here in their place (tests/support/osworld_stand_ins.py); a mutation is one of a
stand-in.

    osgym image build --flavor osworld
    python -m benchmarks.osworld_certificates --tasks OSWorld/evaluation_examples/examples --at-once 4
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import local_service
from benchmarks.osworld_harness import cases
from benchmarks.osworld_play import INFEASIBLE, Case
from osgym_certify.certificate import Certificate, Kind, Trial, Verdict
from osgym_certify.record import read_record

BESIDE = (
    "other file: ", "other folder: ", "hidden file: ", "empty folder: ", "settings of all programs: ",
    "folder: everything else removed",
)  # fmt: skip
"""Beginnings of the names of ends that damage what no task speaks of."""
LOST = ("file: removed", "file: put back", "file: emptied")
"""Beginnings of the names of ends that lose the golden file itself; a program may write a moved one again."""


def write_case(folder: Path, case: Case) -> bool:
    """Write a task and its oracle; return False, and write nothing, if it has none."""
    if case.task["evaluator"]["func"] == INFEASIBLE:
        ways = {"oracle": [[{"op": "fail"}]]}
    elif case.oracle is not None:
        ways = {"script": case.oracle}
    else:
        return False
    path = folder / case.domain / f"{case.task['id']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(case.task), encoding="utf-8")
    path.with_suffix(".oracle.json").write_text(json.dumps(ways), encoding="utf-8")
    return True


@dataclass(frozen=True, slots=True)
class Wrong:
    """Trials of a task whose reward is wrong.

    Attributes:
        paid: Ends that differ in what the task asks for, and earned 1.
        refused: Ends as good as the golden one that earned less.
        beside: Ends with damage beside the task that earned 1; `tried` of them were tried.
    """

    task: str
    instruction: str
    paid: tuple[Trial, ...]
    refused: tuple[Trial, ...]
    beside: int
    tried: int


def wrong_of(one: Certificate) -> Wrong:
    """Return what is wrong with a task's check."""
    wrong = [trial for trial in one.trials if trial.is_wrong]
    return Wrong(
        one.task,
        " ".join(one.instruction.split()),
        tuple(trial for trial in wrong if trial.must == 0 and not _is_beside(trial)),
        tuple(trial for trial in wrong if trial.must == 1),
        sum(map(_is_beside, wrong)),
        sum(map(_is_beside, one.trials)),
    )


def page(certificates: Sequence[Certificate], found: int) -> str:
    """Return the list of faulty tasks as Markdown, each with the ends that show it."""
    counts = Counter(one.verdict for one in certificates)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    faulty = sorted((one for one in certificates if one.verdict is Verdict.FAULTY), key=lambda one: one.task)
    wrongs = [wrong_of(one) for one in faulty]
    others = [one for one in certificates if one.verdict in (Verdict.UNPROVEN, Verdict.FAILED)]
    images = ", ".join(f"`{image[:16]}`" for image in sorted({one.image for one in certificates}))
    return "\n".join(
        [
            "# Certificates of OSWorld's published tasks",
            "",
            f"{len(certificates)} of {found} tasks that are infeasible or have an oracle: {verdicts}. "
            f"{sum(bool(one.paid) for one in wrongs)} pay an end whose content is wrong, "
            f"{sum(bool(one.refused) for one in wrongs)} refuse an end that is as good as the golden one, "
            f"{sum(bool(one.beside) for one in wrongs)} pay damage to other files or settings of the home.",
            "",
            "`python -m benchmarks.osworld_certificates` made this list on real desktops, "
            f"golden image {images}. Files that a task fetches were made here in their place. "
            "Scored by OSGym's metrics for OSWorld ([compared with desktop-env's own](../docs/osworld.md)).",
            "",
            "| task | wrong content paid | right ends refused | damage beside the task paid |",
            "| --- | --- | --- | --- |",
            *(_row(one) for one in wrongs),
            *(line for one in wrongs for line in _section(one)),
            *(["", "## Without a verdict", ""] if others else []),
            *(f"- {one.task}: {one.verdict}. {one.failure}" for one in others),
            "",
        ]
    )


def _row(one: Wrong) -> str:
    return f"| {one.task} | {len(one.paid) or ''} | {len(one.refused) or ''} | {one.beside} of {one.tried} |"


def _section(one: Wrong) -> list[str]:
    if not one.paid and not one.refused:
        return []
    return [
        "", f"## {one.task}", "", f"> {one.instruction}", "",
        *_listed("Paid", one.paid), *_listed("Refused", one.refused),
    ]  # fmt: skip


def _listed(what: str, trials: Sequence[Trial]) -> list[str]:
    by_path: dict[str, list[str]] = {}
    for trial in trials:
        by_path.setdefault(trial.about, []).append(trial.end)
    return [
        f"- {what}{f', `{path}`' if path else ''}: {'; '.join(dict.fromkeys(ends))}."
        for path, ends in by_path.items()
    ]


def _is_beside(trial: Trial) -> bool:
    """Return whether an end damages only what the task does not speak of.

    A changed line of a program's settings counts as such damage, too: if the task asked for that line, the
    end earned 0 and is not listed.
    """
    is_setting = "/." in trial.about and not trial.end.startswith(LOST)
    return trial.kind is Kind.MUTATION and (is_setting or trial.end.startswith(BESIDE))


def main() -> int:
    """Certify the tasks and write the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", type=Path, required=True, help="folder with OSWorld's task files")
    parser.add_argument("--image", default="osworld", help="golden image")
    parser.add_argument("--only", action="append", default=[], help="tasks whose id begins so")
    parser.add_argument("--count", type=int, help="tasks at most")
    parser.add_argument("--at-once", type=int, default=4, help="tasks certified at once")
    parser.add_argument(
        "--out", type=Path, default=Path("out/osworld"), help="folder of the record and of the list"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as files, tempfile.TemporaryDirectory() as folder:
        found = [case for case in cases(given, Path(files), "") if write_case(Path(folder), case)]
        settings = {"task_files_dir": files, "setup_timeout_s": 600}
        with local_service(given.image, settings, 180) as (url, _):
            program = Path(sys.executable).with_name("osgym")
            words = ["task", "certify", folder, "--host", url, "--at-once", str(given.at_once)]
            subprocess.run([program, *words, "--golden-runs", "2", "--out", given.out], check=False)
    names = {case.task["id"] for case in found}
    certificates = [one for one in read_record(given.out / "certificates.jsonl") if _id(one.task) in names]
    text = page(certificates, len(found))
    (given.out / "certificates.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def _id(name: str) -> str:
    return name.rpartition("/")[2]


if __name__ == "__main__":
    sys.exit(main())
