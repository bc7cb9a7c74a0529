"""What tasks need, told before anything runs: the table, its words, programs in an image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from osgym_cli.task.check import check
from osgym_host.tasks.downloads import cache_name
from osgym_host.tasks.errors import UnsupportedTask
from osgym_host.tasks.needs import Needs, Verdict, needs_of, programs_of
from osgym_host.tasks.parse import parse_task
from osgym_host.tasks.shipped import default_folder
from osgym_protocol.codes import Evidence

RULE = {"type": "rule", "rules": {"expected": "x"}}


def step(kind: str, **parameters: Any) -> dict[str, Any]:
    """A setup step."""
    return {"type": kind, "parameters": parameters}


def task(*config: dict[str, Any], **evaluator: Any) -> dict[str, Any]:
    """A task."""
    check = {"func": "exact_match", "result": {"type": "vm_terminal_output"}, "expected": RULE}
    return {"id": "t", "instruction": "", "config": list(config), "evaluator": {**check, **evaluator}}


def nothing(name: str) -> bool:
    """An image without programs."""
    return False


def test_what_is_missing_is_told_as_at_a_reset() -> None:
    """One function finds the words for both."""
    made = task(step("levitate", height=3), func="compare_souls", result={"type": "soul"})
    with pytest.raises(UnsupportedTask) as caught:
        parse_task(made)
    found = needs_of(made, nothing)
    assert found.missing == caught.value.features
    assert found.verdict is Verdict.MISSING
    assert set(found.missing) == {"setup step levitate", "metric compare_souls", "getter soul"}


@pytest.mark.parametrize(
    ("made", "verdict", "word"),
    [
        (task(), Verdict.RUNS, ""),
        (task(step("googledrive", settings_file="x")), Verdict.ACCOUNT, "(needs a Google account)"),
        (task(step("launch", command=["code", "/home/user/a"])), Verdict.PROGRAM, "code (not in Debian;"),
        (task(step("launch", command="A=1 sudo gimp x.png", shell=True)), Verdict.PROGRAM, "program gimp"),
        (task(step("execute", command=["sudo", "-n", "gimp", "-n"])), Verdict.PROGRAM, "program gimp"),
        (
            task(step("execute", command="export A='x y'\ngnome-terminal --maximize", shell=True)),
            Verdict.PROGRAM,
            "program gnome-terminal",
        ),
        (task(step("execute", command="export A='x y'", shell=True)), Verdict.RUNS, ""),
        (task(step("proxy")), Verdict.ACCOUNT, "setup step proxy (needs an account at an HTTP proxy)"),
        (task(step("execute", command="cd /home/user && ./setup.sh", shell=True)), Verdict.RUNS, ""),
        (task(step("execute", command=["/home/user/setup.sh"])), Verdict.RUNS, ""),
        (task(step("chrome_open_tabs", urls_to_open=["https://a.org"])), Verdict.INTERNET, "opens https://a.org"),
        (task(step("chrome_open_tabs", urls_to_open=["http://127.0.0.1:8000"])), Verdict.RUNS, ""),
        (task(result={"type": "active_tab_info"}), Verdict.INTERNET, "active_tab_info reads a page"),
        (
            task(
                result={"type": "active_tab_info"}, func="is_expected_active_tab",
                expected={"type": "rule", "rules": {"type": "url", "url": "chrome://settings"}},
            ),
            Verdict.RUNS,
            "",
        ),
        (
            task(step("download", files=[{"url": "https://a.org/x.png", "path": "/home/user/x.png"}])),
            Verdict.FETCHES,
            "1 file to fetch once",
        ),
        ({"id": 3}, Verdict.INVALID, "not in OSWorld's format"),
        ([], Verdict.INVALID, "a JSON object"),
    ],
)  # fmt: skip
def test_verdicts(made: object, verdict: Verdict, word: str) -> None:
    """The first thing to say of a task, and what it is for."""
    found = needs_of(made, nothing)
    assert found.verdict is verdict, found
    assert word in "; ".join(found.words)


def test_without_an_image_no_program_is_called_missing() -> None:
    """It was not looked up."""
    assert needs_of(task(step("launch", command=["code"])), None).verdict is Verdict.RUNS


def test_a_command_that_installs_needs_the_internet() -> None:
    """By name; the program that does it may be there."""
    made = task(step("execute", command="python3 -m pip install x", shell=True))
    assert needs_of(made, lambda name: True).internet == ("a command runs pip install",)
    local = task(step("execute", command=["pip", "install", "/home/user/x.whl"]))
    assert needs_of(local, lambda name: True).internet == ()


def test_files_that_are_here_are_not_fetched(tmp_path: Path) -> None:
    """In our layout of the cache, and in OSWorld's."""
    url, gold = "https://a.org/x.png", "https://a.org/gold.png"
    made = task(
        step("download", files=[{"url": url, "path": "/home/user/x.png"}]),
        expected={"type": "cloud_file", "path": gold, "dest": "gold.png"},
    )
    found = needs_of(made, nothing, tmp_path)
    assert found.fetches == 2
    assert found.to_fetch == (
        (gold, cache_name(gold, "gold.png")),
        (url, cache_name(url, "/home/user/x.png")),
    )
    (tmp_path / cache_name(url, "/home/user/x.png")).touch()
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "gold.png").touch()
    assert needs_of(made, nothing, tmp_path).verdict is Verdict.RUNS
    (tmp_path / "t" / "gold.png").unlink()
    (tmp_path / "t" / cache_name(gold, "gold.png")).touch()
    assert needs_of(made, nothing, tmp_path).verdict is Verdict.RUNS


def test_programs_are_looked_up_inside_the_image(tmp_path: Path) -> None:
    """Links lead where they would lead inside, never out, and never in a circle."""
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/real").touch()
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "usr/bin/here").touch()
    (tmp_path / "usr/bin/linked").symlink_to("/opt/real")
    (tmp_path / "usr/bin/up").symlink_to("../../../../opt/real")
    (tmp_path / "usr/bin/dangling").symlink_to("/etc/passwd")
    (tmp_path / "usr/bin/circle").symlink_to("circle")
    has = programs_of(tmp_path)
    names = ("here", "linked", "up", "/bin/here", "dangling", "circle", "none", "/etc/passwd")
    assert [has(name) for name in names] == [True] * 4 + [False] * 4


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(JSON, st.sampled_from(["launch", "download", "chrome_open_tabs", "execute", "sleep"]))
def test_no_task_file_breaks_the_check(value: Any, kind: str) -> None:
    """It has a verdict, whatever stands in it."""
    for made in (value, task({"type": kind, "parameters": value}), task(result=value), task(expected=value)):
        assert isinstance(needs_of(made, nothing), Needs)


def test_the_command_prints_a_table_and_json(tmp_path: Path) -> None:
    """Each file has a row, the summary adds up, and control characters are shown, not sent."""
    (tmp_path / "a.json").write_text(json.dumps(task()))
    (tmp_path / "b.json").write_text(json.dumps(task(func="evil\x1b[31m")))
    (tmp_path / "c.json").write_text("{")
    (tmp_path / "a.oracle.json").write_text("{}")
    where = [str(tmp_path), "--data-dir", str(tmp_path)]
    shown = CliRunner().invoke(check, where)
    assert shown.exit_code == 1, shown.output
    assert "\x1b" not in shown.output and "metric evil" in shown.output
    assert "programs were not looked up" in shown.output
    told = json.loads(CliRunner().invoke(check, [*where, "--json"]).output)
    assert told["image"] is None
    assert {k: v for k, v in told["summary"].items() if v} == {"runs here": 1, "missing": 1, "not a task": 1}
    assert [row["verdict"] for row in told["tasks"]] == ["runs here", "missing", "not a task"]
    assert CliRunner().invoke(check, [str(tmp_path / "none")]).exit_code == 2
    assert CliRunner().invoke(check, [str(tmp_path / "a.json"), *where[1:]]).exit_code == 0


def test_the_tasks_of_this_project_need_nothing_else() -> None:
    """Besides programs, which an image has or has not."""
    files = [path for path in default_folder().glob("*/*.json") if not path.name.endswith(".oracle.json")]
    assert files
    for path in files:
        found = needs_of(json.loads(path.read_text()), None)
        assert found.verdict is Verdict.RUNS, (path, found)


@pytest.mark.parametrize(
    ("result", "expected", "evidence"),
    [
        ({"type": "vm_file", "path": "/a", "dest": "a"}, None, Evidence.HOST),
        ({"type": "vm_command_line", "command": "true"}, None, Evidence.GUEST),
        ({"type": "vm_file", "path": "/a", "dest": "a"}, {"type": "vm_window_titles"}, Evidence.GUEST),
        ({"type": "cookie_data", "dest": "a"}, None, Evidence.HOST),
        ({"type": "active_tab_info"}, None, Evidence.GUEST),
    ],
)
def test_what_a_check_rests_on(result: object, expected: object, evidence: Evidence) -> None:
    """The evidence is the guest's if programs are asked for either side, and the host's for files alone."""
    wanted = expected or {"type": "rule", "rules": {"expected": "a"}}
    assert needs_of(task(result=result, expected=wanted), nothing).evidence is evidence
    assert needs_of([], nothing).evidence is None
