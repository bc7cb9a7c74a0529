"""Task files on disk, each with its oracle, which demo, benchmarks and tests run.

``<folder>/<app>/<id>.json`` is a task in OSWorld's format; beside it ``<id>.oracle.json`` says how to
solve it: ``{"notes", "oracle": [[action, …], …], "near": [[…], …]}``, one inner list for each step, or
``{"actions": […], "settle": "certain"}`` for one after which the next acts on the final screen only. An
action may say ``"at": {"role", "name", "nth", "app"}``, an element of the accessibility tree, in the
place of ``x`` and ``y``. The oracle earns 1.0; ``near`` is plausible, wrong, and earns 0.0,
as does each way of ``wrong``, an object of ways by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osgym_protocol.targets import has_targets, is_target, placed_on, reaching
from osgym_protocol.task_files import inline_files


class Step(tuple[dict[str, Any], ...]):
    """The actions of one step.

    Attributes:
        certain: the step after it acts on the final screen only.
    """

    certain = False


Steps = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class ShippedTask:
    """One task with its ways to act.

    Attributes:
        name: ``app/id``.
        task: the task file's content, with the files it uploads carried inside.
        flavor: the smallest golden image that has its applications.
        wrong: other ways, by name, that must earn 0.0.
    """

    name: str
    task: dict[str, Any] = field(repr=False)
    flavor: str
    apps: tuple[str, ...]
    oracle: Steps = field(repr=False)
    near: Steps = field(repr=False)
    notes: str = ""
    wrong: Mapping[str, Steps] = field(default_factory=dict, repr=False)


def default_folder() -> Path:
    """Return the folder of task files that this package brings."""
    return Path(__file__).parents[1] / "data" / "tasks"


def load_task(path: Path) -> ShippedTask:
    """Read a task file and its oracle.

    Files named by ``upload_file`` and ``local_path`` are put into the task, so that it can be sent to a host
    that has no such folder.

    Raises:
        OSError: the task or its oracle cannot be read.
        ValueError: not JSON, a file that it names is missing, or an oracle that is not lists of actions.
    """
    task = json.loads(path.read_text(encoding="utf-8"))
    steps = json.loads(path.with_suffix(".oracle.json").read_text(encoding="utf-8"))
    inline_files(task, path)
    oracle, near = steps_of(steps["oracle"]), steps_of(steps["near"])
    wrong = {str(name): steps_of(way) for name, way in steps.get("wrong", {}).items()}
    extras = task.get("osgym", {})
    return ShippedTask(
        name=f"{path.parent.name}/{path.stem}",
        task=reaching(task)
        if has_targets([*oracle, *near, *(step for way in wrong.values() for step in way)])
        else task,
        flavor=extras.get("flavor", "full"),
        apps=tuple(extras.get("apps", ())),
        oracle=oracle,
        near=near,
        notes=steps.get("notes", ""),
        wrong=wrong,
    )


def steps_of(value: Any) -> Steps:
    """Read a way to act.

    Raises:
        ValueError: not a list of steps, each a list of actions.
    """
    if not isinstance(value, list):
        raise ValueError("a recorded way to act must be a list of steps, each a list of actions with an op")
    return tuple(_step(step) for step in value)


def _step(value: Any) -> Step:
    certain = isinstance(value, dict) and value.get("settle") == "certain"
    if isinstance(value, dict) and (not certain or value.keys() != {"actions", "settle"}):
        raise ValueError(
            'a step that is an object must have "actions", and "settle" with the value "certain"'
        )
    actions = value["actions"] if certain else value
    if not isinstance(actions, list) or not all(isinstance(a, dict) and "op" in a for a in actions):
        raise ValueError("a recorded way to act must be a list of steps, each a list of actions with an op")
    if not all(is_target(action["at"]) for action in actions if "at" in action):
        raise ValueError('"at" must be {"role", "name"}, optionally with "nth", a number from 0, and "app"')
    step = Step(actions)
    step.certain = certain
    return step


async def next_actions(obs: Any, steps: Steps, step: int) -> list[dict[str, Any]]:
    """Return the actions of a step, once the screen is the one that they are made for.

    A step that points at elements acts on the final screen; they are looked up there, for some seconds.

    Args:
        obs: an `AsyncObservation`, of the step before.

    Raises:
        OSGymError: as `obs.final` and `obs.episode.a11y`.
        TargetMissing: what it points at does not show.
    """
    pointing = has_targets([steps[step]])
    if step and (pointing or steps[step - 1].certain):
        await obs.final()
    if not pointing:
        return list(steps[step])
    return await placed_on(obs.episode, steps[step])


def load_shipped(folder: Path | None = None, *, flavor: str = "full") -> list[ShippedTask]:
    """Return all tasks of a folder that an image of this flavor can run, by name.

    Args:
        folder: None means `default_folder`.

    Raises:
        OSError, ValueError: as `load_task`.
    """
    folder = folder or default_folder()
    paths = sorted(p for p in folder.glob("*/*.json") if not p.name.endswith(".oracle.json"))
    tasks = [load_task(path) for path in paths]
    return [t for t in tasks if flavor == "full" or t.flavor == flavor]
