"""The committed tasks: complete, supported, described."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from osgym_host.tasks.parse import parse_task
from osgym_host.tasks.shipped import ShippedTask, default_folder, load_shipped, load_task, next_actions
from osgym_protocol.a11y import A11yTree
from osgym_protocol.a11y_node import A11yNode

TASKS = load_shipped()
POINTER = {"click", "move", "drag", "scroll", "button_down", "button_up"}
OPS = POINTER | {"type", "key", "hold", "key_down", "key_up", "wait", "done", "fail"}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_task_and_oracle_are_whole(task: ShippedTask) -> None:
    """Each task is supported, carries its files, and ends by the policy's word in every way."""
    parsed = parse_task(task.task)
    assert parsed.instruction
    assert parsed.id == task.name.split("/")[1]
    assert "local_path" not in json.dumps(task.task)
    for steps in (task.oracle, task.near, *task.wrong.values()):
        assert {action["op"] for step in steps for action in step} <= OPS
        assert steps[-1][-1]["op"] in {"done", "fail"}
        assert len(steps) <= 30
    assert task.oracle != task.near
    assert task.oracle not in task.wrong.values()


def test_every_task_keeps_the_rest_of_the_home() -> None:
    """Its record is the last step of the set-up, and its check compares the home with it."""
    for task in TASKS:
        assert "check_folder_kept" in task.task["evaluator"]["func"]
        records = [step for step in task.task["config"] if step["type"] == "record_folder"]
        assert records == task.task["config"][-1:]


def test_readme_lists_every_task() -> None:
    """The table in tasks/README.md has each task with its flavor, and no other."""
    text = (default_folder() / "README.md").read_text()
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    listed = {(row[1].strip().strip("`"), row[2].strip()) for row in rows}
    assert listed == {(task.name, task.flavor) for task in TASKS}


def test_small_tasks_are_a_part_of_all() -> None:
    """A small image gets only tasks that it can run."""
    small = load_shipped(flavor="small")
    assert small == [task for task in TASKS if task.flavor == "small"]
    assert 0 < len(small) < len(TASKS)


def test_a_wrong_oracle_is_refused(tmp_path: Path) -> None:
    """Steps that are not lists of actions are an error, not a silent nothing."""
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps({"id": "a", "evaluator": {"func": "infeasible"}}))
    wrong = (
        ([{"x": 1}], "list of actions"),
        ({"actions": [], "settle": "fast"}, "certain"),
        ([{"op": "click", "at": {"role": "label"}}], '"at" must be'),
        ([{"op": "click", "at": {"role": "label", "name": "x", "nth": -1}}], '"at" must be'),
    )
    for step, why in wrong:
        (folder / "a.oracle.json").write_text(json.dumps({"oracle": [step], "near": []}))
        with pytest.raises(ValueError, match=why):
            load_task(folder / "a.json")


async def test_a_step_after_a_certain_one_waits_for_the_final_screen(tmp_path: Path) -> None:
    """It is looked at once more before the next actions are given, and after no other step."""
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps({"id": "a", "evaluator": {"func": "infeasible"}}))
    done = [{"op": "done"}]
    steps = [{"actions": [{"op": "wait"}], "settle": "certain"}, [{"op": "wait"}], done]
    (folder / "a.oracle.json").write_text(json.dumps({"oracle": steps, "near": [done]}))
    task = load_task(folder / "a.json")
    waited: list[int] = []

    class Seen:
        def __init__(self, step: int) -> None:
            self.step = step

        async def final(self) -> None:
            waited.append(self.step)

    given = [await next_actions(Seen(step), task.oracle, step) for step in range(3)]
    assert given == [[{"op": "wait"}], [{"op": "wait"}], done]
    assert waited == [1]


async def test_elements_are_looked_up_on_the_final_screen(tmp_path: Path) -> None:
    """By role and name; the task that points at some lets its player read the tree."""
    folder = tmp_path / "app"
    folder.mkdir()
    task = {"id": "a", "evaluator": {"func": "infeasible"}, "osgym": {"reach": False}}
    (folder / "a.json").write_text(json.dumps(task))
    point = [{"op": "wait"}, {"op": "click", "at": {"role": "push-button", "name": "OK"}, "count": 2}]
    (folder / "a.oracle.json").write_text(json.dumps({"oracle": [point, point], "near": []}))
    shipped = load_task(folder / "a.json")
    assert shipped.task["osgym"] == {"reach": ["a11y"]}
    asked: list[str] = []

    class Seen:
        def __init__(self) -> None:
            self.episode = self

        async def final(self) -> None:
            asked.append("final")

        async def a11y(self) -> A11yTree:
            asked.append("a11y")
            return A11yTree(A11yNode("desktop", children=[A11yNode("push-button", "OK", box=(10, 20, 4, 6))]))

    for step in range(2):
        assert await next_actions(Seen(), shipped.oracle, step) == [
            {"op": "wait"},
            {"op": "click", "count": 2, "x": 12, "y": 23},
        ]
    assert asked == ["a11y", "final", "a11y"]
