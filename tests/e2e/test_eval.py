"""`osgym eval run` as a user runs it: real desktops, models' APIs on loopback, what it prints and leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.support.host_process import OSGYM, HostProcess, osgym, wait_until
from tests.support.model_api import KEY, Asked, ModelApi, serving_models, status

from osgym_cli.evals.rows import read_rows
from osgym_cli.main import main
from osgym_host.tasks.shipped import ShippedTask, load_shipped
from osgym_sdk.grammars import Context, render

TASKS = Path(__file__).parents[2] / "tasks"
SCREEN = (1920, 1080)
ATTACK = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\x1b[31m\u202e"


def oracle_of(asked: Asked) -> ShippedTask:
    """The task that a request is about."""
    [task] = [task for task in load_shipped(flavor="small") if task.task["instruction"] in asked.instruction]
    return task


def by_oracle(asked: Asked) -> list[dict[str, Any]]:
    """What OpenAI's model says that knows how to solve the shipped tasks; its words are hostile."""
    steps = [[dict(action) for action in step] for step in oracle_of(asked).oracle]
    words = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": f"step {asked.number} {ATTACK}"}],
    }
    actions = [action for action in steps[asked.number] if action["op"] not in ("done", "fail")]
    if not actions:
        text = ATTACK + ("[INFEASIBLE]" if steps[asked.number][-1]["op"] == "fail" else "Done.")
        return [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]
    said: list[dict[str, Any]] = render(actions, Context(SCREEN, image=asked.size), "openai")
    said[0] |= {"call_id": f"call_{asked.number}", "pending_safety_checks": []}
    return [words, *said]


def evaluate(
    host: str, base: str, out: Path, *args: str, timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return osgym(
        "eval", "run", *args, "--agent", "openai", "--model", "m", "--base-url", f"{base}/v1", "--host", host,
        "--out", str(out), OPENAI_API_KEY=KEY, timeout_s=timeout_s,
    )  # fmt: skip


def in_process(code: int, *args: str) -> str:
    """Run the command in this process; give what it prints."""
    result = CliRunner().invoke(main, ["eval", "run", *args])
    assert result.exit_code == code, result.output
    return result.output


def test_a_model_on_real_desktops(host: HostProcess, tmp_path: Path) -> None:
    """It plays as it says: full rewards, a table, a page without its markup, a folder for each episode."""
    out = tmp_path / "run"
    names = [str(TASKS / "mousepad" / "write-note.json"), str(TASKS / "os" / "no-photoshop.json")]
    with serving_models(ModelApi(by_oracle)) as base:
        done = evaluate(
            host.url, base, out, *names, "--concurrency", "2", "--price-in", "2", "--price-out", "8"
        )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row.task: row for row in read_rows(out / "results.jsonl")}
    assert {row.reward for row in rows.values()} == {1.0} and len(rows) == 2, done.stdout
    assert rows["os/no-photoshop"].termination_reason == "fail"
    note = rows["mousepad/write-note"]
    assert note.usage["requests"] == note.steps and note.cost_usd is not None and note.cost_usd > 0
    folder = out / note.folder
    steps = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    assert len(steps) == note.steps and steps[0]["info"]["reasoning"].startswith("step 0 <script>")
    assert steps[0]["before"] == "000.png" and (folder / steps[-1]["after"]).read_bytes()[:4] == b"\x89PNG"
    assert json.loads((folder / "episode.json").read_text())["reward"] == 1.0
    page = (out / "report.html").read_text()
    assert (
        "<script" not in page
        and "onerror=alert(1)&gt;" in page
        and "\x1b" not in page
        and "\u202e" not in page
    )
    assert page.count("data:image/jpeg;base64,") >= 4 and "default-src 'none'" in page
    assert "passed       100.0%" in done.stdout and "mousepad/write-note" in done.stdout
    assert not list((out / "trajectories").glob(".*"))


def test_it_goes_on_where_it_was(host: HostProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the infrastructure spoilt is run again, what is finished is not; the code says which it was."""
    out = tmp_path / "run"
    task = str(TASKS / "os" / "no-photoshop.json")
    api = ModelApi(by_oracle)
    with serving_models(api) as base:
        api.faults.append(status(401))
        first = evaluate(host.url, base, out, task, "--repeat", "2", "--concurrency", "1")
        assert first.returncode == 1 and "--resume runs them again" in first.stderr, (
            first.stdout + first.stderr
        )
        assert [row.failure_class for row in read_rows(out / "results.jsonl")] == ["infra", None]
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        args = [task, "--agent", "openai", "--model", "m", "--base-url", f"{base}/v1", "--out", str(out)]
        assert "--resume" in in_process(2, *args)
        asked = len(api.requests)
        second = evaluate(host.url, base, out, task, "--repeat", "2", "--resume")
        assert second.returncode == 0 and len(api.requests) == asked + 1, second.stdout + second.stderr
        assert "pass@2" in second.stdout
        assert "max_steps" in in_process(2, *args, "--resume", "--max-steps", "3")
    assert [row.reward for row in read_rows(out / "results.jsonl")] == [1.0, 1.0]


def test_ctrl_c_leaves_a_report(host: HostProcess, tmp_path: Path) -> None:
    """What was done until then is kept, and every desktop is given back."""
    out = tmp_path / "run"
    held = threading.Event()
    held.set()
    api = ModelApi(by_oracle, hold=held)
    argv = [OSGYM, "eval", "run", str(TASKS / "os" / "no-photoshop.json"),
            "--repeat", "3", "--concurrency", "1",
            "--agent", "openai", "--model", "m", "--host", host.url, "--out", str(out)]  # fmt: skip
    with serving_models(api) as base:
        env = {**os.environ, "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{base}/v1"}
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        try:
            wait_until(lambda: read_rows(out / "results.jsonl"), 60, "the first episode")
            held.clear()
            wait_until(lambda: api.busy, 60, "a request that is not answered")
            process.send_signal(signal.SIGINT)
            printed, _ = process.communicate(timeout=30)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 130, printed
    assert (out / "report.html").exists() and json.loads((out / "run.json").read_text())[
        "interrupted"
    ] is True
    assert "--resume continues" in printed and read_rows(out / "results.jsonl")[0].reward == 1.0
    assert not list((out / "trajectories").glob(".*"))
    wait_until(lambda: not host.replicas("leased"), 10, "all leases given back")


def test_a_policy_of_the_users_own(host: HostProcess, tmp_path: Path) -> None:
    """A module makes it, from the arguments; it need say nothing of tokens."""
    (tmp_path / "mine.py").write_text(
        "def make(answer):\n"
        "    return lambda obs, task, step: answer\n"
    )  # fmt: skip
    argv = [OSGYM, "eval", "run", str(TASKS / "os" / "no-photoshop.json"),
            "--agent", "mine:make", "--agent-arg",
            "answer=FAIL", "--host", host.url, "--out", "run"]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row.reward for row in read_rows(tmp_path / "run" / "results.jsonl")] == [1.0]


def test_nobody_serves(tmp_path: Path) -> None:
    """It says how to start a host agent."""
    args = ["--agent", "chat", "--model", "m", "--prompt", "qwen", "--host", "http://127.0.0.1:9"]
    printed = in_process(1, str(TASKS / "os"), *args, "--out", str(tmp_path / "run"))
    assert "osgym host serve" in printed and "--fleet" in printed


WRONG = {
    "no task was found": ["nowhere", "--agent", "openai", "--model", "m"],
    "needs --model": ["{tasks}", "--agent", "openai"],
    "needs --prompt": ["{tasks}", "--agent", "chat", "--model", "m"],
    "OPENAI_API_KEY": ["{tasks}", "--agent", "openai", "--model", "m"],
    "module:factory": ["{tasks}", "--agent", "gpt"],
    "No module named": ["{tasks}", "--agent", "not_there_at_all:make"],
    "name=value": ["{tasks}", "--agent", "openai", "--model", "m", "--agent-arg", "5"],
    "environment": ["{tasks}", "--agent", "openai", "--model", "m", "--agent-arg", "api_key=5"],
    "these arguments": [
        "{tasks}",
        "--agent",
        "chat",
        "--model",
        "m",
        "--prompt",
        "qwen",
        "--agent-arg",
        "x=5",
    ],
    "WIDTHxHEIGHT": ["{tasks}", "--agent", "openai", "--model", "m", "--image-size", "5"],
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_usage(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2, and a line that says what to write; nothing is made."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    args = [part.format(tasks=TASKS / "os") for part in WRONG[text]]
    assert text in in_process(2, *args, "--out", str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
