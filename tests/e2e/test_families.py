"""`osgym task family` on real desktops: a proof, what is trained on after it, variations, pointing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.host_process import HostProcess, osgym

from osgym_sdk.data import Dataset
from osgym_tasks import FAMILIES, load_tasks
from osgym_tasks.pieces import DONE
from osgym_tasks.record import read_outcomes
from osgym_tasks.targets import click

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(900)]
NAMES = ("edit.lines", "term.count")


def run(host: HostProcess, *argv: str) -> str:
    """A command that must succeed; what it said."""
    done = osgym(*argv, "--host", host.url, timeout_s=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_proved_is_trained_on(
    host: HostProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracles, nothing, near misses and chance earn what they must; the image's own proof is what counts."""
    record = tmp_path / "record.jsonl"
    run(host, "tasks", "verify", *NAMES, "--levels", "1", "--at-once", "2", "--out", str(record))
    chance = ("--policy", "random", "--actions", "40", "--levels", "1", "--at-once", "2")
    assert "0.000" in run(host, "tasks", "baseline", *NAMES, *chance, "--out", str(record))
    outcomes = read_outcomes(record)
    assert {one.reward for one in outcomes if not one.wanted} == {0.0}
    assert all(one.actions and one.setup_s for one in outcomes if one.is_oracle)
    monkeypatch.setenv("OSGYM_HOSTS", host.url)
    assert sorted(one.family for one in load_tasks(record)) == sorted(NAMES)


def test_oracles_solve_varied_tasks_as_a_data_set(host: HostProcess, tmp_path: Path) -> None:
    """With every variation at once."""
    folder = tmp_path / "oracles"
    levels = ("--levels", "2", "--vary", "all", "--at-once", "2")
    assert "2 of them solved" in run(host, "tasks", "record", *NAMES, *levels, "--out", str(folder))
    assert len(list(Dataset.open(folder).episodes())) == 2


def test_written_oracles_may_point_at_elements(host: HostProcess, tmp_path: Path) -> None:
    """Of a menu that opens: `osgym task run` looks them up on the screen of their step."""
    path = FAMILIES["edit.lines"].make(0, 1).write(tmp_path)
    beside = path.with_suffix(".oracle.json")
    ways = json.loads(beside.read_text())
    edit = ways["oracle"][0]
    ways["oracle"] = [edit, [click("menu", "File")], [click("menu-item", "Save")], DONE]
    ways["oracle"][1:3] = [{"actions": step, "settle": "certain"} for step in ways["oracle"][1:3]]
    beside.write_text(json.dumps(ways))
    run(host, "task", "run", str(path), "--policy", "oracle", "--expect", "1", "--out", str(tmp_path / "out"))
