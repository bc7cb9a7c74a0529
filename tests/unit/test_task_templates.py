"""Which tasks have a template, what they share one by, and which templates are kept."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osgym_host.core.desktop_budget import BudgetedDesktops, DesktopBudget, OverBudget
from osgym_host.episodes.task_templates import MAX_FAILURES, MAX_REMEMBERED, FailureCounts
from osgym_host.tasks.parse import parse_task
from osgym_host.tasks.registry import STEPS
from osgym_host.tasks.shipped import load_shipped
from osgym_host.tasks.templating import NOT_REPEATABLE, REPEATABLE, host_files, template_key, why_no_template

EVALUATOR = {
    "func": "exact_match",
    "result": {"type": "vm_command_line", "command": ["cat", "x"]},
    "expected": {"type": "rule", "rules": {"expected": "1"}},
}


def task_of(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A task file with these setup steps."""
    return {"id": "t", "config": list(steps), "evaluator": EVALUATOR, **more}


def execute(command: Any) -> dict[str, Any]:
    """A setup step that runs this."""
    return {"type": "execute", "parameters": {"command": command, "shell": isinstance(command, str)}}


def why(task: dict[str, Any], *, has_clock: bool = False, connects: bool = False) -> str | None:
    """Why a task has no template."""
    return why_no_template(parse_task(task), has_clock=has_clock, connects=connects)


def key(task: dict[str, Any], **more: Any) -> str:
    """The key of a task on one host."""
    return template_key(task, **{"image_digest": "d", "screen": (1920, 1080), "files": [[1, 2, 3]], **more})


def test_every_setup_step_is_judged() -> None:
    """A new step must say whether it leaves the same behind each time."""
    assert set(STEPS) == REPEATABLE | set(NOT_REPEATABLE)
    assert not REPEATABLE & set(NOT_REPEATABLE)


@pytest.mark.parametrize(
    "command",
    [
        "echo $RANDOM > n",
        "echo ${RANDOM} > n",
        "date > now",
        ["sh", "-c", "date +%s"],
        ["uuidgen"],
        "head -c 8 /dev/urandom | xxd",
        "mkdir $(mktemp -d)/x",
        "seq 9 | shuf",
        "seq 9 | sort -R",
        "python3 -c 'import random; print(random.random())'",
        "python3 -c 'import time; print(time.time())'",
        "echo $$ > pid",
        "cat /proc/sys/kernel/random/uuid",
    ],
)
def test_commands_that_take_chance_or_the_time_have_no_template(command: Any) -> None:
    """Their state must be made anew; the reason names the step."""
    assert (why(task_of(execute(["true"]), execute(command))) or "").startswith("step 1, execute: ")


@pytest.mark.parametrize(
    "command",
    ["mkdir -p ~/x && echo a,b > budget.csv", ["wmctrl", "-r", "[beach]", "-e", "0,1,2,3,4"], "update"],
)
def test_plain_commands_have_one(command: Any) -> None:
    """Also those in which a word that varies is part of another."""
    assert why(task_of(execute(command))) is None


def test_what_cannot_be_repeated_says_why() -> None:
    """Clocks, the web, egress, tasks that say so, and those with nothing to set up."""
    plain = task_of(execute(["true"]))
    files = [{"url": "https://example.org/a", "path": "/tmp/a"}]
    web = task_of({"type": "download", "parameters": {"files": files}})
    clocked = {**plain, "osgym": {"clock": "2026-01-01T09:00"}}
    verified = {"command": ["true"], "verification": {"command_success": "test $(date +%u) = 1"}}
    reasons = [
        why(web),
        why(clocked),
        why(plain, has_clock=True),
        why(plain, connects=True),
        why({**plain, "osgym": {"template": False}}),
        why(task_of()),
        why_no_template(None, has_clock=False, connects=False),
        why(task_of({"type": "execute_with_verification", "parameters": verified})),
    ]
    assert all(reasons), reasons
    assert "web" in str(reasons[0])
    assert reasons[5] == reasons[6] == "there is no set-up"
    assert why(plain) is None


def test_shipped_tasks_have_templates() -> None:
    """All that are shipped with a set-up, and no two with different ones share theirs."""
    tasks = [entry.task for entry in load_shipped()]
    assert {str(why(dict(task))) for task in tasks if task.get("config")} == {"None"}
    keys = {key(dict(task)) for task in tasks}
    assert len(keys) == len({str((task.get("config"), task.get("osgym"))) for task in tasks})


def test_tasks_of_one_set_up_share_a_key() -> None:
    """By set-up, settings, image, screen and the host's files; not by id, instruction or evaluator."""
    task = task_of(execute(["true"]), osgym={"apps": ["a"], "flavor": "small"})
    other = copy.deepcopy({**task, "id": "u", "instruction": "Other.", "evaluator": {"func": "infeasible"}})
    other["osgym"] = dict(reversed(task["osgym"].items()))
    assert key(task) == key(other)
    different = [
        key({**task, "config": [execute(["false"])]}),
        key({**task, "osgym": {"apps": ["b"]}}),
        key({**task, "snapshot": "s"}),
        key(task, image_digest="e"),
        key(task, screen=(1280, 720)),
        key(task, files=[[1, 2, 4]]),
    ]
    assert len({key(task), *different}) == 1 + len(different)
    assert key(task_of(execute("\ud800"))), "a lone surrogate has a key too"


def test_files_of_the_host_are_found() -> None:
    """Those that are uploaded by a path of the host, in order."""
    files = [{"path": "/a", "local_path": "one.txt"}, {"path": "/b", "text": "x"}]
    more = [{"path": "/c", "local_path": "two.txt"}]
    steps = ({"type": "upload_file", "parameters": {"files": f}} for f in (files, more))
    assert host_files(parse_task(task_of(*steps))) == ["one.txt", "two.txt"]


@dataclass(frozen=True)
class Held:
    """A desktop of which only the size matters."""

    name: str
    mib: float


def test_the_one_used_longest_ago_goes_first() -> None:
    """By count, and by size; a use is what `use` is."""
    held: BudgetedDesktops[Held] = BudgetedDesktops(DesktopBudget(100, 2, displaces=True))

    def put(name: str, mib: float) -> list[str]:
        held.check(mib)
        return [displaced.name for displaced in held.put(name[0], Held(name, mib))]

    assert put("a", 10) == []
    assert put("b", 10) == []
    assert held.use("a") == Held("a", 10)
    assert put("c", 10) == ["b"]
    assert put("d", 95) == ["a", "c"]
    assert (len(held), held.used_mib(), held.use("a")) == (1, 95, None)
    older = held["d"]
    assert put("d2", 95) == ["d"], "an older one of the same key goes"
    assert not held.drop("d", older)
    assert held.drop("d", held["d"])
    with pytest.raises(OverBudget, match="does not fit"):
        put("e", 101)
    with pytest.raises(OverBudget):
        BudgetedDesktops[Held](DesktopBudget(100, 0, displaces=True)).check(1)


def test_what_fails_too_often_is_not_tried_again() -> None:
    """And that is remembered of a bounded number of keys."""
    failures = FailureCounts()
    for _ in range(MAX_FAILURES):
        assert not failures.is_hopeless("a")
        failures.add("a")
    assert failures.is_hopeless("a")
    for number in range(MAX_REMEMBERED):
        failures.add(f"k{number}")
    assert not failures.is_hopeless("a")


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 60), st.booleans()), max_size=40),
)
def test_the_bounds_hold_whatever_happens(count: int, calls: list[tuple[str, float, bool]]) -> None:
    """Every value that was put is kept, or was given back exactly once."""
    held: BudgetedDesktops[Held] = BudgetedDesktops(DesktopBudget(100, count, displaces=True))
    freed: list[Held] = []
    for number, (name, mib, is_put) in enumerate(calls):
        if is_put:
            freed += held.put(name, Held(str(number), mib))
        else:
            held.use(name)
        assert len(held) <= count
        assert held.used_mib() <= 100.001
    put = [str(number) for number, (_, _, is_put) in enumerate(calls) if is_put]
    assert sorted(desktop.name for desktop in [*freed, *held.values()]) == sorted(put)


def test_a_desktop_that_may_displace_none_fits_beside_the_others() -> None:
    """What was found on disk stays, also over the budget; then nothing more fits until it shrinks."""
    held: BudgetedDesktops[Held] = BudgetedDesktops(DesktopBudget(100))
    held.check(100)
    assert held.put("a", Held("a", 60)) == held.put("b", Held("b", 60)) == []
    with pytest.raises(OverBudget):
        held.check()
    assert held.drop("a", held["a"])
    held.check(40)
    with pytest.raises(OverBudget):
        held.check(41)
