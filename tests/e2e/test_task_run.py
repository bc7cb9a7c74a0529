"""`osgym task new` and `osgym task run` as an author of tasks uses them."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.support.host_process import HostProcess, osgym

from osgym_cli.evals.jobs import Job
from osgym_cli.evals.rows import read_rows
from osgym_cli.evals.scripted import NoScript, by_chance, marked, script_of
from osgym_cli.main import main
from osgym_protocol.actions import parse_actions

SCREEN = (1920, 1080)


def play(
    host: HostProcess, task: Path, policy: str, out: Path, *more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return osgym(
        "task", "run", str(task), "--policy", policy, "--host", host.url, "--out", str(out), *more,
        timeout_s=180,
    )  # fmt: skip


def test_a_new_task_is_right(host: HostProcess, tmp_path: Path) -> None:
    """Its oracle earns 1, also when what it did is played again; its near miss and nothing earn 0."""
    task = tmp_path / "mine" / "greeting.json"
    assert osgym("task", "new", str(task), timeout_s=60).returncode == 0
    checked = osgym("task", "check", str(task), "--image", "small", timeout_s=60)
    assert checked.returncode == 0, checked.stdout
    solved = play(host, task, "oracle", tmp_path / "oracle", "--expect", "1")
    assert solved.returncode == 0, solved.stdout + solved.stderr
    (kept,) = (tmp_path / "oracle" / "trajectories").iterdir()
    again = play(host, task, str(kept / "steps.jsonl"), tmp_path / "again", "--expect", "1")
    assert again.returncode == 0, again.stdout + again.stderr
    assert play(host, task, "near", tmp_path / "near", "--expect", "0").returncode == 0
    wrong = play(host, task, "noop", tmp_path / "noop", "--expect", "1")
    assert (wrong.returncode, wrong.stderr) == (3, "osgym: mine/greeting (1): 0, not 1\n")
    (row,) = read_rows(tmp_path / "noop" / "results.jsonl")
    assert row.reward == 0.0


def test_chance_is_the_same_for_a_seed() -> None:
    """Of one task and repeat; all of it can be sent."""
    jobs = marked([Job("a/b", number, "f", {"instruction": "x"}, Path("b.json")) for number in (1, 2)])
    first = script_of("random", jobs[0], 5)(SCREEN)
    assert first == script_of("random", jobs[0], 5)(SCREEN)
    assert first != script_of("random", jobs[1], 5)(SCREEN)
    assert first != script_of("random", jobs[0], 6)(SCREEN)
    assert [job.task["osgym"] for job in jobs] == [{"script": 0}, {"script": 1}]
    for seed in range(50):
        *steps, done = by_chance(random.Random(seed), SCREEN)
        assert done == ({"op": "done"},)
        for step in steps:
            parse_actions(list(step), SCREEN)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.oracle.json", None, "No such file"),
        ("t.oracle.json", "{}", "the file has no 'oracle'"),
        ("t.oracle.json", "[", "Expecting value"),
        ("t.oracle.json", '{"oracle": 5}', "a list of steps"),
        ("t.oracle.json", '{"oracle": [[5]]}', "a list of actions"),
        ("steps.jsonl", '{"reward": 1}\n', "no line has actions"),
        ("steps.jsonl", '{"actions": [{"op": "wait"}]}\n{"actions": [7]}\n', "line 2"),
        ("steps.jsonl", "nothing\n", "line 1"),
    ],
)
def test_what_cannot_be_played_is_named(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    """With the file, before anything runs."""
    if text is not None:
        (tmp_path / name).write_text(text)
    policy = "oracle" if name.startswith("t.") else str(tmp_path / name)
    with pytest.raises(NoScript, match=message) as raised:
        script_of(policy, Job("t", 1, "t", {}, tmp_path / "t.json"), 0)
    assert name in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "t.json", "--policy", "wise"], "--policy must be one of oracle, near, noop, random"),
        (["run", "t.json", "--policy", "oracle"], "t.oracle.json"),
        (["run", "t.json", "--policy", "nowhere_at_all:act"], "No module named"),
        (["run", "t.json", "--policy", "noop", "--only", "other"], "no task has that text in its name"),
        (["run", "gone.json", "--policy", "noop"], "no task was found"),
        (["new", "t.json"], "already exists"),
        (["new", "t.oracle.json"], "is not a valid name of a task"),
        (["new", "a b.json"], "is not a valid name of a task"),
    ],
)
def test_wrong_usage(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, and what to do."""
    monkeypatch.chdir(tmp_path)
    Path("t.json").write_text(json.dumps({"instruction": "x"}))
    result = CliRunner().invoke(main, ["task", *arguments])
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.output.split())
