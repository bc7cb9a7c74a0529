"""`osgym eval run` apart from episodes: tasks, figures, the folder of a run, the page."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from osgym_cli.evals.folder import RunFolder, RunFolderError
from osgym_cli.evals.jobs import NoTasks, find_task_files, make_jobs
from osgym_cli.evals.recording import FolderRecorder
from osgym_cli.evals.report import write_report
from osgym_cli.evals.rows import Prices, Row, read_rows, sum_usage
from osgym_cli.evals.statistics import estimate, pass_at_k, summarize, wilson
from osgym_cli.evals.table import summary_lines, table

HOW = {"agent": "openai", "model": "m", "arguments": {}, "max_steps": 5, "on_invalid": "noop"}


def row(task: str = "a", reward: float | None = 1.0, repeat: int = 1, **more: Any) -> Row:
    """A row; without a reward it is a failure of the infrastructure."""
    kind = None if reward is not None else "infra"
    given: dict[str, Any] = {
        "task": task, "repeat": repeat, "instruction": "do", "reward": reward, "failure_class": kind,
        "failure_code": None if kind is None else "episode_lost", "failure_message": "",
        "termination_reason": "done", "steps": 2, "invalid_actions": 0, "frames": 1, "frames_not_final": 0,
        "attempts": 1, "duration_s": 3.0,
    }  # fmt: skip
    return Row(**{**given, **more})


# Tasks --------------------------------------------------------------------------------------------------


def _task(path: Path, **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"id": "x", "instruction": "do it", **more}))
    return path


def test_tasks_are_found_and_named(tmp_path: Path) -> None:
    """Files, folders and patterns; oracles are none; names and folders are one of a kind."""
    one, two = _task(tmp_path / "app" / "one.json"), _task(tmp_path / "app" / "two!.json")
    deep = _task(tmp_path / "other" / "app" / "one.json")
    _task(tmp_path / "app" / "one.oracle.json")
    assert find_task_files([str(tmp_path / "app")]) == [one, two]
    files = find_task_files([str(one), str(tmp_path / "*" / "*.json"), str(deep)])
    assert files == [one, two, deep]
    jobs = make_jobs(files, 2)
    assert len({job.key for job in jobs}) == len({job.folder for job in jobs}) == 6
    assert [job.repeat for job in jobs] == [1, 1, 1, 2, 2, 2]
    assert jobs[1].task_name == "app/two!" and jobs[1].folder == "app.two.1"
    assert all(not job.folder.startswith(".") and "/" not in job.folder for job in jobs)


def test_files_of_a_task_go_with_it(tmp_path: Path) -> None:
    """What it uploads from here is inside, so that any host can run it."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "note.txt").write_text("hello")
    upload = {"type": "upload_file", "parameters": {"files": [{"local_path": "note.txt", "path": "/x"}]}}
    [job] = make_jobs([_task(tmp_path / "app" / "t.json", config=[upload])], 1)
    assert job.task["config"][0]["parameters"]["files"] == [{"path": "/x", "data_base64": "aGVsbG8="}]


def test_a_task_takes_no_other_file_of_this_machine(tmp_path: Path) -> None:
    """Task files come from strangers, and what they name would be sent to a host."""
    for name in ("/etc/passwd", "../secret", "note.txt"):
        upload = {"type": "upload_file", "parameters": {"files": [{"local_path": name, "path": "/x"}]}}
        (tmp_path / "secret").write_text("s")
        with pytest.raises(NoTasks, match=r"t\.json: config\[0\]\.parameters\.files\[0\]\.local_path: "):
            make_jobs([_task(tmp_path / "app" / "t.json", config=[upload])], 1)


NO_TASKS = ["", "[]", "{}", '{"instruction": 5}', "[" * 100_000]


@pytest.mark.parametrize("content", NO_TASKS)
def test_what_is_no_task(tmp_path: Path, content: str) -> None:
    """One typed error, which names the file."""
    path = tmp_path / "t.json"
    path.write_text(content)
    with pytest.raises(NoTasks, match=r"t\.json"):
        make_jobs([path], 1)
    with pytest.raises(NoTasks, match="no task was found"):
        find_task_files([str(tmp_path / "nothing" / "*.json")])


# Figures ------------------------------------------------------------------------------------------------


def test_pass_at_k_is_the_unbiased_estimate() -> None:
    """1 - C(n-c, k) / C(n, k), averaged over the tasks that were tried often enough."""
    assert pass_at_k({"a": [1.0, 0.0, 0.0, 0.0]}, 2) == pytest.approx(1 - math.comb(3, 2) / math.comb(4, 2))
    assert pass_at_k({"a": [1.0, 0.0], "b": [0.0, 0.0]}, 2) == 0.5


def test_intervals() -> None:
    """Wilson's where tasks were tried once, over tasks where tries of one task depend on each other."""
    assert wilson(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    found = estimate({"a": [1.0, 1.0], "b": [0.0, 0.0], "c": [1.0, 0.0]})
    assert found is not None and found.mean == 0.5 and found.low is not None and found.high is not None
    assert (found.low, found.high) == (0.0, 1.0)  # half a reward, give or take 4.3 standard errors of 0.29
    assert estimate({}) is None
    alone = estimate({"a": [0.3, 0.5]})
    assert alone is not None and alone.low is None


@given(
    st.dictionaries(st.text("abc", min_size=1), st.lists(st.floats(0, 1), min_size=1, max_size=5), max_size=8)
)
def test_an_estimate_is_within_its_interval(values: dict[str, list[float]]) -> None:
    """Whatever the rewards."""
    found = estimate(values)
    if found is not None and found.low is not None and found.high is not None:
        assert -1e-9 <= found.low <= found.mean + 1e-9 and found.mean - 1e-9 <= found.high <= 1 + 1e-9


def test_failures_are_counted_by_whose_fault_they_are() -> None:
    """The model's count as not passed; the others' count nothing; none is a reward of 0."""
    rows = [
        row("a"),
        row("b", None, failure_class="model"),
        row("c", None),
        row("d", None, failure_class="task"),
    ]
    found = summarize(rows)
    assert found.reward is not None and found.reward.mean == 1.0 and found.scored == 1
    assert found.passed is not None and found.passed.mean == 0.5
    assert found.failures == {"infra": 1, "model": 1, "task": 1} and found.pass_at == {}
    text = "\n".join(summary_lines(found, rows))
    assert "passed       50.0%" in text and "1 infra, 1 model, 1 task" in text
    assert table(rows).row_count == 4
    assert summarize([row("a"), row("a", 0.0, 2)]).pass_at == {1: 0.5, 2: 1.0}


def test_a_policy_that_broke_its_desktop_did_not_pass() -> None:
    """Its episode counts with the reward 0; without a lost episode there is no lower bound."""
    rows = [row("a"), row("b", 0.0, failure_class="policy", failure_code="episode_lost")]
    found = summarize(rows)
    assert found.passed is not None and found.passed.mean == 0.5 and found.scored == 2
    assert (found.failures, found.passed_at_least) == ({"policy": 1}, None)
    assert rows[1].is_finished and not rows[1].is_lost
    text = "\n".join(summary_lines(found, rows))
    assert "broke        1 desktops" in text and "at least" not in text and "failures  " not in text


def test_what_the_infrastructure_spoilt_has_a_lower_bound_beside_it(tmp_path: Path) -> None:
    """The lower bound counts lost episodes as not passed; tasks lost repeatedly are listed."""
    rows = [row("a"), row("b", None, losses=2), row("c", None, failure_class="task"), row("d", losses=1)]
    found = summarize(rows)
    assert found.passed is not None and found.passed.mean == 1.0
    assert found.passed_at_least is not None and found.passed_at_least.mean == pytest.approx(2 / 3)
    assert (found.losses, found.lost_again) == (3, {"b": 2})
    text = "\n".join(summary_lines(found, rows))
    assert "at least     66.7%" in text and "lost again   b: 2 times" in text
    assert "losses       3 attempts" in text
    page = write_report(tmp_path, HOW, rows, found).read_text("utf-8")
    assert "at least 66.7%" in page and "b 2 times" in page


def test_tokens_and_what_they_cost() -> None:
    """Summed over whatever infos say of them; unknown prices give no cost."""
    usage = sum_usage([{"usage": {"input_tokens": 10, "x": "y", "output_tokens": -1}}, None, 5, {"usage": 3},
                       {"usage": {"input_tokens": 5, "cached_tokens": 5}}])  # fmt: skip
    assert usage == {"input_tokens": 15, "cached_tokens": 5}
    assert Prices(2.0, 8.0, 1.0).cost_usd({**usage, "output_tokens": 1e6}) == pytest.approx(8 + 25e-6)
    assert Prices(2.0).cost_usd(usage) is None


# The folder of a run ------------------------------------------------------------------------------------


def test_a_run_goes_on(tmp_path: Path) -> None:
    """Finished rows stay, spoilt ones and half a line do not; another model is another run."""
    first = RunFolder.open(tmp_path / "run", HOW, resume=False)
    for one in (row("a"), row("b", None), row("c", None, failure_class="model")):
        first.add(one)
    with first.results.open("a") as file:
        file.write('{"task": "d", "rep')
    with pytest.raises(RunFolderError, match="--resume"):
        RunFolder.open(tmp_path / "run", HOW, resume=False)
    with pytest.raises(RunFolderError, match="model='m', not 'n'"):
        RunFolder.open(tmp_path / "run", {**HOW, "model": "n"}, resume=True)
    again = RunFolder.open(tmp_path / "run", HOW, resume=True)
    assert [one.task for one in again.rows] == ["a", "c"] == [one.task for one in read_rows(again.results)]
    jobs: Any = [SimpleNamespace(key=(name, 1)) for name in "abcd"]
    assert [job.key[0] for job in again.left(jobs)] == ["b", "d"]
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot use"):
        RunFolder.open(tmp_path / "file" / "run", HOW, resume=False)


async def test_a_disk_that_is_full_is_said(tmp_path: Path) -> None:
    """What cannot be written comes out of flush, and nothing else stops."""
    (tmp_path / "file").write_text("")
    recorder = FolderRecorder(tmp_path / "file" / "x", [])
    recording = recorder.record(None)
    frame = SimpleNamespace(data=b"x", hash="h", format=SimpleNamespace(value="png"))
    recording.begin(SimpleNamespace(episode_id="e"), frame, None)
    with pytest.raises(OSError, match="file"):
        await recorder.flush()
    recorder.close()


# The page -----------------------------------------------------------------------------------------------

ATTACK = "</p></title><script>alert(1)</script><a href='javascript:x'>\x1b]0;\u202e\ud800"


def test_nothing_that_others_wrote_is_markup(tmp_path: Path) -> None:
    """Names, instructions, messages, words, thoughts, actions, names of files; hostile lines, too."""
    home = tmp_path / "trajectories" / "a"
    home.mkdir(parents=True)
    Image.new("RGB", (640, 400)).save(home / "000.png")
    (home / "001.png").write_bytes(b"no picture")
    info = {"text": ATTACK, "reasoning": ATTACK}
    steps: list[Any] = [
        {"step": 1, "before": "000.png", "after": "001.png", "actions": [{"op": ATTACK, "text": ATTACK}, 5],
         "info": info, "refused": ATTACK, "final": False},
        {"step": ATTACK, "after": "../../../etc/passwd", "actions": 5, "info": 5}, 7,
    ]  # fmt: skip
    lines = [json.dumps(step) for step in steps] + ["[" * 100_000, "{"]
    (home / "steps.jsonl").write_text("\n".join(lines))
    rows = [
        row(ATTACK, None, instruction=ATTACK, failure_message=ATTACK, failure_code=ATTACK, answer=ATTACK,
            folder="trajectories/a", termination_reason=ATTACK),
        row("gone", folder="trajectories/gone"), row("b", 0.5),
    ]  # fmt: skip
    page = write_report(tmp_path, {**HOW, "model": ATTACK}, rows, summarize(rows)).read_text("utf-8")
    for wrong in ("<script", "<a href='javascript", "</p></title>", "\x1b", "\u202e", "etc/passwd'>"):
        assert wrong not in page, wrong
    assert page.count("&lt;script&gt;") >= 8 and page.count("data:image/jpeg") == 1
    assert page.count("<article>") == 3 == page.count("</article>")
