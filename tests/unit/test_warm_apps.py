"""Programs that run before anybody asks for them: names, which set-ups use them, what is cleaned up."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from osgym_host.core.warm_apps import (
    CHROMIUM,
    NAMES,
    OFFICE,
    WarmApp,
    end_script,
    hand_over_script,
    parse_warm_apps,
    start_command,
    start_script,
)
from osgym_host.settings.sources import SettingsError, load
from osgym_host.tasks.parse import parse_task
from osgym_host.tasks.shipped import load_shipped
from osgym_host.tasks.warm_use import used_apps

EVALUATOR = {
    "func": "exact_match",
    "result": {"type": "vm_command_line", "command": ["cat", "x"]},
    "expected": {"type": "rule", "rules": {"expected": "1"}},
}
OPEN_CALC = {"type": "launch", "parameters": {"command": ["libreoffice", "--calc", "/home/user/a.xlsx"]}}
OPEN_PAGE = {"type": "launch", "parameters": {"command": ["google-chrome", "--no-first-run", "file:///a"]}}
BOTH = parse_warm_apps(["calc", "chromium"])


def step(kind: str, **parameters: Any) -> dict[str, Any]:
    """A setup step."""
    return {"type": kind, "parameters": parameters}


def used(*steps: dict[str, Any], apps: tuple[WarmApp, ...] = BOTH, has_clock: bool = False) -> list[str]:
    """Names of the programs that a set-up of these steps uses."""
    task = parse_task({"id": "t", "config": list(steps), "evaluator": EVALUATOR})
    return [app.program.name for app in used_apps(task, apps, has_clock=has_clock)]


def upload(path: str) -> dict[str, Any]:
    """A step that puts a file there."""
    return step("upload_file", files=[{"path": path, "text": "x"}])


def test_the_office_suite_is_one_program() -> None:
    """However many of its applications are named."""
    assert parse_warm_apps(["calc", "writer", "impress"]) == (WarmApp(OFFICE),)
    assert parse_warm_apps([]) == ()


def test_options_are_those_of_tasks_in_any_order() -> None:
    """What every start has says nothing."""
    (app,) = parse_warm_apps(["chromium --remote-debugging-port=1337 --no-first-run --incognito"])
    assert app == WarmApp(CHROMIUM, frozenset({"--remote-debugging-port=1337", "--incognito"}))
    assert start_command(app)[-2:] == ["--incognito", "--remote-debugging-port=1337"]
    assert app.takes(["google-chrome", "--incognito", "file:///x", "--remote-debugging-port=1337"])
    assert not app.takes(["google-chrome", "file:///x"])


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("gimp", "valid names: calc, writer, impress, chromium"),
        ("calc --headless", "cannot be started with '--headless'"),
        ("chromium file:///x", "cannot be started with 'file:///x'"),
        ("chromium --user-data-dir=/tmp/x", "cannot be started with"),
        ("chromium --headless=new", "cannot be started with"),
        ("chromium,chromium --incognito", "one set of options"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(entry: str, said: str) -> None:
    """With the names that can."""
    with pytest.raises(SettingsError, match="warm_apps: .*" + said):
        load(environment={"OSGYM_WARM_APPS": entry})


def test_clones_need_desktops_without_connections() -> None:
    """A connection that is open cannot be cloned."""
    with pytest.raises(SettingsError, match="warm_clones=on needs egress=none"):
        load(environment={"OSGYM_WARM_CLONES": "on", "OSGYM_EGRESS": "open"})
    with pytest.raises(SettingsError, match="branching=on needs egress=none"):
        load(environment={"OSGYM_BRANCHING": "on", "OSGYM_EGRESS": "open"})


@pytest.mark.parametrize(
    ("command", "takes"),
    [
        (["libreoffice", "--calc", "/home/user/a.xlsx"], True),
        (["soffice", "/home/user/a.odt"], True),
        (["localc", "--norestore", "/home/user/a.ods"], True),
        (["libreoffice", "--writer"], True),
        (["libreoffice"], False),  # shows the start centre, which a second start does not
        (["soffice", "--nologo", "--norestore"], False),
        (["libreoffice", "--calc", "/home/user/a.csv"], False),  # asks how to read it
        (["libreoffice", "/home/user/Documents"], False),
        (["libreoffice", "--headless", "--convert-to", "pdf", "/home/user/a.odt"], False),
        (["libreoffice", "-env:UserInstallation=file:///tmp/x", "--calc"], False),
        (["google-chrome", "file:///a"], False),
    ],
)
def test_what_the_office_suite_takes_when_it_runs(command: list[str], takes: bool) -> None:
    """Only what opens as it would have at a start."""
    assert WarmApp(OFFICE).takes(command) is takes


@pytest.mark.parametrize(
    ("steps", "names"),
    [
        ([OPEN_CALC], ["libreoffice"]),
        ([OPEN_PAGE], ["chromium"]),
        ([upload("/home/user/a.xlsx"), OPEN_CALC, OPEN_PAGE], ["libreoffice", "chromium"]),
        ([step("open", path="/home/user/A.DOCX")], ["libreoffice"]),
        ([step("open", path="/home/user/a.html")], []),
        ([step("launch", command=["mousepad"]), OPEN_CALC], ["libreoffice"]),
        ([step("execute", command=["wmctrl", "-l"]), step("sleep", seconds=1), OPEN_CALC], ["libreoffice"]),
        # What comes before may have changed what the program read when it started.
        ([upload("/home/user/.config/libreoffice/4/user/registrymodifications.xcu"), OPEN_CALC], []),
        ([upload("/etc/libreoffice/registry/x.xcd"), OPEN_CALC], []),
        ([upload("~/a.xlsx"), OPEN_CALC], []),
        ([step("execute", command="true", shell=True), OPEN_CALC], []),
        ([step("launch", command=["gimp", "-i", "-b", "(anything)"]), OPEN_CALC], []),
        ([step("launch", command=["vlc", "--sout", "file:/home/user/.config/x"]), OPEN_CALC], []),
        ([step("execute", command=["python3", "x.py"]), OPEN_CALC], []),
        ([step("execute", command=["sed", "-i", "s/a/b/", "x"]), OPEN_CALC], []),
        ([step("update_browse_history", history=[]), OPEN_PAGE], []),
        (
            [
                step("execute_with_verification", command=["true"], verification={"command_success": "x"}),
                OPEN_PAGE,
            ],
            [],
        ),
        # What comes after finds it as it always does.
        ([OPEN_CALC, step("execute", command=["python3", "x.py"]), OPEN_PAGE], ["libreoffice"]),
        ([step("launch", command="libreoffice --calc /home/user/a.xlsx", shell=True)], []),
        ([], []),
    ],
)
def test_which_set_ups_use_them(steps: list[dict[str, Any]], names: list[str]) -> None:
    """Where nothing before their start could have changed how they start."""
    assert used(*steps) == names


def test_a_desktop_with_its_own_time_uses_none() -> None:
    """What runs already has another."""
    assert used(OPEN_CALC, has_clock=True) == []
    task = {"id": "t", "config": [OPEN_CALC], "evaluator": EVALUATOR}
    clocked = parse_task({**task, "osgym": {"clock": {"start": "2026-01-01T00:00:00Z"}}})
    assert used_apps(clocked, BOTH, has_clock=False) == []
    assert used_apps(None, BOTH, has_clock=False) == []


def test_the_shipped_tasks_over_these_programs_use_them() -> None:
    """Else warm programs would help nobody here."""
    found = {
        entry.name: [a.program.name for a in used_apps(parse_task(entry.task), BOTH, has_clock=False)]
        for entry in load_shipped()
    }
    office = [name for name in found if name.startswith("libreoffice_")]
    browser = ["chrome/bookmark"]  # the other one starts it with a debugging port
    assert len(office) == 3
    assert {name for name, apps in found.items() if apps == ["libreoffice"]} == set(office)
    assert {name for name, apps in found.items() if apps == ["chromium"]} == set(browser)
    assert all(apps == [] for name, apps in found.items() if name not in (*office, *browser))


def run(script: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a script with stand-ins for what would end real programs."""
    tools = home.parent / "tools"
    tools.mkdir(exist_ok=True)
    for name, body in {"pkill": "true", "pidwait": 'exit "${LEFT:-1}"'}.items():
        (tools / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {home.parent}/called\n{body}\n')
        (tools / name).chmod(0o755)
    environment = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home.parent), "PATH": f"{tools}:/usr/bin:/bin"}
    return subprocess.run(
        ["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, timeout=20, check=False
    )


def marks(home: Path) -> dict[str, tuple[int, int]]:
    """Mode and time of all that is there."""
    found = [home, *sorted(home.rglob("*"))]
    return {str(p.relative_to(home)): (p.stat().st_mode, p.stat().st_mtime_ns) for p in found}


def test_a_program_that_is_not_used_leaves_its_folders_as_they_were(tmp_path: Path) -> None:
    """What it wrote is gone, what it changed is as before, with modes and times, and no copy is left."""
    home = tmp_path / "home"
    profile = home / ".config/libreoffice/4"
    profile.mkdir(parents=True)
    (profile / "settings").write_text("first")
    home.chmod(0o700)
    for path in (profile / "settings", profile, profile.parent, home / ".config", home):
        os.utime(path, ns=(10**18, 10**18))
    before = marks(home)
    for app in BOTH:
        assert run(start_script(app), home).returncode == 0
    (profile / "settings").write_text("changed")
    (profile / ".lock").touch()
    (home / ".config/google-chrome/Default").mkdir(parents=True)
    done = run(hand_over_script([], BOTH), home)
    assert (done.returncode, done.stderr) == (0, "")
    assert (profile / "settings").read_text() == "first"
    assert marks(home) == before
    assert not (tmp_path / "osgym-warm").exists()
    called = (tmp_path / "called").read_text()
    for app in BOTH:
        assert f"pkill -KILL -x {app.program.processes}" in called


def test_a_program_that_did_not_come_up_ends_alone(tmp_path: Path) -> None:
    """Others that run go on, and one that was never started leaves its folders alone."""
    home = tmp_path / "home"
    (home / ".config/libreoffice").mkdir(parents=True)
    (home / ".config/google-chrome").mkdir()
    office, browser = BOTH
    assert run(start_script(office), home).returncode == 0
    (home / ".config/libreoffice/new").touch()
    assert run(end_script(browser), home).returncode == 0
    assert (home / ".config/google-chrome").exists()
    assert not (tmp_path / "called").exists()
    assert run(end_script(office), home).returncode == 0
    assert not (home / ".config/libreoffice/new").exists()
    assert not (tmp_path / "osgym-warm").exists(), "no program is left, and no trace of one"


def test_a_copy_that_was_not_finished_is_not_put_back(tmp_path: Path) -> None:
    """It would take away what was there."""
    home = tmp_path / "home"
    (home / ".config/libreoffice").mkdir(parents=True)
    (home / ".config/libreoffice/settings").touch()
    broken = start_script(BOTH[0]).replace("cp -a", "false")
    assert run(broken, home).returncode != 0
    assert run(hand_over_script([], BOTH), home).returncode == 0
    assert (home / ".config/libreoffice/settings").exists()


def test_a_program_that_is_used_stays(tmp_path: Path) -> None:
    """Only the copies go."""
    home = tmp_path / "home"
    (home / ".config/libreoffice").mkdir(parents=True)
    for app in BOTH:
        assert run(start_script(app), home).returncode == 0
    (home / ".config/libreoffice/new").touch()
    assert run(hand_over_script(BOTH, []), home).returncode == 0
    assert (home / ".config/libreoffice/new").exists()
    assert not (tmp_path / "osgym-warm").exists()
    assert not (tmp_path / "called").exists()


def test_one_that_does_not_end_is_said(tmp_path: Path) -> None:
    """The desktop is not clean then."""
    home = tmp_path / "home"
    home.mkdir()
    assert run(start_script(BOTH[0]), home).returncode == 0
    assert run("LEFT=124; export LEFT\n" + hand_over_script([], BOTH[:1]), home).returncode == 2


def test_names_are_those_of_the_image() -> None:
    """Each starts a program that the golden image has by that name."""
    golden = (Path(__file__).parents[2] / "images/golden.toml").read_text()
    for program in {id(p): p for p in NAMES.values()}.values():
        assert f'"{program.start[0]}"' in golden
        assert all(f'"{command}"' in golden for command in program.commands)
