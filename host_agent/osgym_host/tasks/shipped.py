"""Task files on disk, each with its oracle: what demo, benchmarks and tests run.

``<folder>/<app>/<id>.json`` is a task in OSWorld's format; beside it ``<id>.oracle.json`` says how to
solve it: ``{"notes", "oracle": [[action, …], …], "near": [[…], …]}``, one inner list for each step.
The oracle earns 1.0; ``near`` is plausible, wrong, and earns 0.0.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Steps = tuple[tuple[dict[str, Any], ...], ...]


@dataclass(frozen=True, slots=True)
class ShippedTask:
    """One task with its ways to act.

    Attributes:
        name: ``app/id``.
        task: the task file's content, with the files it uploads carried inside.
        flavor: the smallest golden image that has its applications.
    """

    name: str
    task: dict[str, Any] = field(repr=False)
    flavor: str
    apps: tuple[str, ...]
    oracle: Steps = field(repr=False)
    near: Steps = field(repr=False)
    notes: str = ""


def default_folder() -> Path:
    """Return the folder of task files that this package brings."""
    return Path(__file__).parents[1] / "data" / "tasks"


def load_task(path: Path) -> ShippedTask:
    """Read a task file and its oracle.

    Files named by ``upload_file`` and ``local_path`` (relative to the folder above the application's)
    are put into the task, so that it can be sent to a host that has no such folder.

    Raises:
        OSError: a file is missing.
        ValueError: not JSON, or an oracle that is not lists of actions.
    """
    task = json.loads(path.read_text(encoding="utf-8"))
    steps = json.loads(path.with_suffix(".oracle.json").read_text(encoding="utf-8"))
    root = path.parent.parent
    for step in task.get("config", []):
        if step["type"] == "upload_file":
            for file in step["parameters"]["files"]:
                if (local := file.pop("local_path", None)) is not None:
                    data = (root / local).read_bytes()
                    file["data_base64"] = base64.b64encode(data).decode()
    extras = task.get("osgym", {})
    return ShippedTask(
        name=f"{path.parent.name}/{path.stem}",
        task=task,
        flavor=extras.get("flavor", "full"),
        apps=tuple(extras.get("apps", ())),
        oracle=_steps(steps["oracle"]),
        near=_steps(steps["near"]),
        notes=steps.get("notes", ""),
    )


def _steps(value: list[list[dict[str, Any]]]) -> Steps:
    if not all(isinstance(a, dict) and "op" in a for step in value for a in step):
        raise ValueError("a way to act is a list of steps, each a list of actions with an op")
    return tuple(tuple(step) for step in value)


def load_shipped(folder: Path | None = None, *, flavor: str = "full") -> list[ShippedTask]:
    """All tasks of a folder that an image of this flavor can run, by name.

    Args:
        folder: None means `default_folder`.

    Raises:
        OSError, ValueError: as `load_task`.
    """
    folder = folder or default_folder()
    paths = sorted(p for p in folder.glob("*/*.json") if not p.name.endswith(".oracle.json"))
    tasks = [load_task(path) for path in paths]
    return [t for t in tasks if flavor == "full" or t.flavor == flavor]
