"""What is to be run: tasks from files, each so many times, under names that are safe in a path."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osgym_protocol.task_files import TaskFileError, inline_files

MAX_NAME = 100
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
ORACLE = ".oracle.json"


class NoTasks(ValueError):
    """What was named leads to no task that can be read."""


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to run.

    Attributes:
        task_name: of its task, as the user knows it.
        repeat: from 1.
        folder: of its trajectory, one of a kind.
        task: what is sent to the host, with the files it uploads inside.
        path: the file that it was read from.
    """

    task_name: str
    repeat: int
    folder: str
    task: dict[str, Any] = field(repr=False)
    path: Path = Path()

    @property
    def key(self) -> tuple[str, int]:
        """What tells it from the others, also in another run."""
        return self.task_name, self.repeat

    @property
    def instruction(self) -> str:
        """What the model is told."""
        return str(self.task.get("instruction", ""))


def find_task_files(named: Sequence[str]) -> list[Path]:
    """Return the task files that are meant: files, all `*.json` in folders and below, or patterns.

    Files of oracles (`*.oracle.json`) are none.

    Raises:
        NoTasks: one of them leads to nothing.
    """
    found: list[Path] = []
    for text in named:
        path = Path(text)
        if path.is_dir():
            here = sorted(path.rglob("*.json"))
        elif path.exists():
            here = [path]
        else:
            here = sorted(Path(name) for name in glob.glob(text, recursive=True))  # noqa: PTH207 - absolute, too
        here = [one for one in here if not one.name.endswith(ORACLE)]
        if not here:
            raise NoTasks(
                f"{text}: no task there; name a task file, a folder or a pattern like 'tasks/*/*.json'"
            )
        found += [one for one in here if one not in found]
    return found


def make_jobs(files: Sequence[Path], repeat: int) -> list[Job]:
    """Return every task so many times; first all once, then all again.

    Raises:
        NoTasks: a file is no task with an instruction.
    """
    tasks = [(_name_of(path, files), _task_in(path), path) for path in files]
    jobs: list[Job] = []
    taken: set[str] = set()
    for number in range(1, repeat + 1):
        for name, task, path in tasks:
            again = f".{number}" if repeat > 1 else ""
            jobs.append(Job(name, number, _folder(name, again, taken), task, path))
    return jobs


def _name_of(path: Path, files: Sequence[Path]) -> str:
    """Return the shortest name that no other file has."""
    for parts in range(2, len(path.parts) + 1):
        name = "/".join(path.with_suffix("").parts[-parts:])
        if sum(("/" + "/".join(other.with_suffix("").parts)).endswith(f"/{name}") for other in files) == 1:
            return name
    return "/".join(path.with_suffix("").parts)


def _folder(name: str, again: str, taken: set[str]) -> str:
    """Return a name for a folder, safe whatever the task is called."""
    plain = _UNSAFE.sub("-", name.replace("/", ".")).strip(".-")[:MAX_NAME] or "task"
    made, number = plain + again, 1
    while made.lower() in taken:
        number += 1
        made = f"{plain}-{number}{again}"
    taken.add(made.lower())
    return made


def _task_in(path: Path) -> dict[str, Any]:
    try:
        task = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(task, dict) or not isinstance(task.get("instruction"), str):
            raise NoTasks(f"{path}: no task: it must be a JSON object with an instruction")
        inline_files(task, path)
    except OSError as exc:
        raise NoTasks(f"{path}: {exc.strerror or exc}") from exc
    except TaskFileError as exc:
        raise NoTasks(f"{path}: {exc}") from exc
    except (ValueError, RecursionError) as exc:
        raise exc if isinstance(exc, NoTasks) else NoTasks(f"{path}: no task: {exc!r:.200}") from exc
    return task
