"""`osgym task certify` on real desktops: a sound task is certified, planted faults are found and named."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks import planted_faults as plants
from tests.support.host_process import HostProcess, osgym

from osgym_certify.certificate import Certificate, Gui, Kind, Verdict
from osgym_certify.record import read_record
from osgym_sdk import load_tasks
from osgym_tasks import FAMILIES

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(900)]
FAMILY = "edit.lines"


def written(folder: Path, plant: Callable[[dict[str, Any]], None] | None = None) -> Path:
    """A task of the family, with a fault in it."""
    instance = FAMILIES[FAMILY].make(0, 1)
    path = instance.write(folder / ("sound" if plant is None else plant.__name__))
    if plant is not None:
        task = copy.deepcopy(instance.task)
        plant(task)
        path.write_text(json.dumps(task))
    return path


def certified(host: HostProcess, folder: Path, out: Path, code: int) -> dict[str, Certificate]:
    """The certificates of all tasks in the folder, by the folder of each."""
    words = ("task", "certify", str(folder), "--golden-runs", "2", "--max-ends", "60", "--out", str(out))
    done = osgym(*words, "--host", host.url, timeout_s=800)
    assert done.returncode == code, done.stdout + done.stderr
    return {one.task.split("/")[0]: one for one in read_record(out / "certificates.jsonl")}


def test_sound_tasks_are_certified_and_loaded(host: HostProcess, tmp_path: Path) -> None:
    """With mutations and equivalents of each kind, also of files that are only read; nothing is repeated."""
    written(tmp_path / "tasks")
    FAMILIES["term.modes"].make(1006, 2).write(tmp_path / "tasks" / "only_read")
    found = certified(host, tmp_path / "tasks", tmp_path / "out", 0)
    assert {name: (one.verdict, one.failure) for name, one in found.items()} == {
        "sound": (Verdict.CERTIFIED, ""),
        "only_read": (Verdict.CERTIFIED, ""),
    }
    one = found["sound"]
    assert len(one.of(Kind.MUTATION)) > 20
    ends = {trial.end for trial in one.of(Kind.EQUIVALENT)}
    assert {"another window left open", "text: line ends changed to CRLF"} <= ends
    assert len(one.of(Kind.GOLDEN)) == 2
    assert one.gui is Gui.FREE  # it is text
    record = tmp_path / "out" / "certificates.jsonl"
    lines = record.read_text()
    certified(host, tmp_path / "tasks", tmp_path / "out", 0)
    assert record.read_text() == lines
    assert len(load_tasks(tmp_path / "tasks", certified=record)) == 2
    assert "edit-lines" in (tmp_path / "out" / "certificates.html").read_text()


def test_planted_faults_are_found(host: HostProcess, tmp_path: Path) -> None:
    """A check that is too strict, two that are too lax, and one that no oracle can satisfy."""
    for plant in (plants.bytes_compared, plants.case_ignored, plants.home_not_checked):
        written(tmp_path / "tasks", plant)
    written(tmp_path / "tasks", plants.wrong_value_expected)
    found = certified(host, tmp_path / "tasks", tmp_path / "out", 3)
    verdicts = {name: one.verdict for name, one in found.items()}
    assert verdicts == {
        "bytes_compared": Verdict.FAULTY,
        "case_ignored": Verdict.FAULTY,
        "home_not_checked": Verdict.FAULTY,
        "wrong_value_expected": Verdict.UNPROVEN,
    }
    strict = {trial.kind for trial in found["bytes_compared"].trials if trial.is_wrong}
    assert strict == {Kind.RIGHT, Kind.EQUIVALENT}
    lax = {trial.end for trial in found["case_ignored"].trials if trial.is_wrong}
    assert "text: one word written in the other case" in lax


def test_ends_are_scored_with_what_the_checks_preparation_prints_of_them(
    host: HostProcess, tmp_path: Path
) -> None:
    """The check reads a listing that `postconfig` prints; a file that `postconfig` makes is no golden end."""
    listed, made = "/home/user/box/mail.eml", "/home/user/made.txt"
    task = {
        "id": "keep-mail",
        "instruction": f"Save the mail as {listed}.",
        "evaluator": {
            "postconfig": [
                {"type": "execute", "parameters": {"command": ["touch", made]}},
                {
                    "type": "command",
                    "parameters": {"command": ["ls", "-R", "/home/user/box"], "stdout": "box"},
                },
            ],
            "func": "check_list",
            "result": {"type": "cache_file", "path": "box"},
            "expected": {"type": "rule", "rules": {"expect": ["mail\\.eml"]}},
        },
    }
    script = f"import pathlib\np = pathlib.Path({listed!r})\np.parent.mkdir()\np.write_text('Hello.\\n')\n"
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps(task))
    (folder / "a.oracle.json").write_text(json.dumps({"script": script}))
    ((_, one),) = certified(host, folder, tmp_path / "out", 3).items()
    earned = {(trial.end, trial.about): trial.earned for trial in one.of(Kind.MUTATION)}
    assert earned["file: removed", listed] == 0
    assert earned["file: emptied", listed] == 1  # the listing does not show it
    assert made not in {about for _, about in earned}
