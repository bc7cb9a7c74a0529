"""Jobs of a run: each task of the given files, once for each repeat, with a name that is safe in a path."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from osgym_host.logs import escape_controls
from osgym_protocol.task_files import TaskFileError, inline_files, task_digest
from osgym_sdk import ConfigError, certified_digests

MAX_NAME = 100
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
ORACLE = ".oracle.json"


class NoTasks(click.UsageError):
    """A file, folder or pattern names no task that can be read."""

    def __init__(self, message: str) -> None:
        super().__init__(escape_controls(message))


@dataclass(frozen=True, slots=True)
class Job:
    """Episode to run.

    Attributes:
        task_name: Name of its task, as the user knows it.
        repeat: Number of the try, from 1.
        folder: Name of its trajectory's folder, unique in the run.
        task: Task that is sent to the host, with the files that it uploads.
        path: File that the task was read from.
    """

    task_name: str
    repeat: int
    folder: str
    task: dict[str, Any] = field(repr=False)
    path: Path = Path()

    @property
    def key(self) -> tuple[str, int]:
        """Key of the episode, the same in every run."""
        return self.task_name, self.repeat

    @property
    def instruction(self) -> str:
        return str(self.task.get("instruction", ""))


def find_task_files(named: Sequence[str]) -> list[Path]:
    """Find task files by path, by folder (all `*.json` below it) or by pattern.

    Files of oracles (`*.oracle.json`) are left out.

    Raises:
        NoTasks: One of the names leads to no file.
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
                f"{text}: no task was found; name a task file, a folder or a pattern like 'tasks/*/*.json'"
            )
        found += [one for one in here if one not in found]
    return found


def select_jobs(named: Sequence[str], repeat: int, only: Sequence[str]) -> list[Job]:
    """Make the jobs of the task files that are named, if their name contains one of the texts of `only`.

    Raises:
        NoTasks: A name leads to no task, or no task's name contains one of the texts.
    """
    jobs = make_jobs(find_task_files(named), repeat)
    jobs = [job for job in jobs if not only or any(text in job.task_name for text in only)]
    if not jobs:
        raise NoTasks("--only: no task has that text in its name")
    return jobs


def make_jobs(files: Sequence[Path], repeat: int) -> list[Job]:
    """Make `repeat` jobs of each task: first one of all tasks, then the next.

    Raises:
        NoTasks: A file is no task with an instruction.
    """
    tasks = [(_name_of(path, files), _task_in(path), path) for path in files]
    jobs: list[Job] = []
    taken: set[str] = set()
    for number in range(1, repeat + 1):
        for name, task, path in tasks:
            again = f".{number}" if repeat > 1 else ""
            jobs.append(Job(name, number, _folder(name, again, taken), task, path))
    return jobs


def share_certified(tasks: Sequence[dict[str, Any]], record: Path) -> str:
    """Return how many of the tasks a record certifies, as `15 of 17`.

    Raises:
        click.UsageError: The record cannot be read.
    """
    try:
        sound = certified_digests(record)
    except ConfigError as error:
        raise click.UsageError(escape_controls(str(error))) from error
    return f"{sum(task_digest(task) in sound for task in tasks)} of {len(tasks)}"


def _name_of(path: Path, files: Sequence[Path]) -> str:
    """Return the end of the path, as short as no other file ends in it."""
    for parts in range(2, len(path.parts) + 1):
        name = "/".join(path.with_suffix("").parts[-parts:])
        if sum(("/" + "/".join(other.with_suffix("").parts)).endswith(f"/{name}") for other in files) == 1:
            return name
    return "/".join(path.with_suffix("").parts)


def _folder(name: str, again: str, taken: set[str]) -> str:
    """Make a folder name that is unique in `taken` and safe for any name of a task."""
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
            raise NoTasks(f"{path}: a task must be a JSON object with an instruction")
        inline_files(task, path)
    except OSError as exc:
        raise NoTasks(f"{path}: {exc.strerror or exc}") from exc
    except TaskFileError as exc:
        raise NoTasks(f"{path}: {exc}") from exc
    except (ValueError, RecursionError) as exc:
        raise NoTasks(f"{path}: not a task: {exc!r:.200}") from exc
    return task
