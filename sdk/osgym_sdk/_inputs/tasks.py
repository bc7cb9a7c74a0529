"""The tasks of a batch: objects, files, folders, patterns → one by one."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import AsyncIterable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from osgym_protocol.task_files import task_digest
from osgym_sdk._exceptions import ConfigError
from osgym_sdk._inputs.certified import certified_digests
from osgym_sdk._inputs.options import read_task, with_files

_T = TypeVar("_T")
Tasks = Iterable[Any] | AsyncIterable[Any] | Mapping[str, Any] | str | os.PathLike[str]


def as_tasks(tasks: Any) -> Iterable[Any] | AsyncIterable[Any]:
    """Return what a batch goes through.

    A folder stands for all ``*.json`` in it and below (but ``*.oracle.json``), a pattern (``tasks/*/*.json``)
    for the files it matches, each in the order of their names; a file for its task, or for the tasks of the
    list in it; an object for itself. In a list or tuple they may be mixed. Anything else that can be iterated
    is passed on: generators are read as there is room.

    Raises:
        ConfigError: it is none of these, or a path leads to no task.
    """
    if isinstance(tasks, (Mapping, str, os.PathLike)):
        return _expanded(tasks)
    if isinstance(tasks, (list, tuple)):
        return [task for given in tasks for task in _expanded(given)]
    if isinstance(tasks, (bytes, bytearray)) or not isinstance(tasks, (Iterable, AsyncIterable)):
        raise ConfigError(
            "tasks must be a list of tasks, or the path of a task file, a folder or a pattern, "
            f"not {type(tasks).__name__}"
        )
    return tasks


def load_tasks(
    path: str | os.PathLike[str], *, certified: str | os.PathLike[str] | None = None
) -> list[dict[str, Any]]:
    """Return the tasks of a file, a folder or a pattern as objects that any host can set up.

    Files that a task names by ``local_path`` (beside it, or ``<app>/files/…`` in the folder above) are put
    into it, so that it no longer needs its folder. Ways to solve a task (``*.oracle.json``) are left out.

    Args:
        path: as for :meth:`AsyncClient.run`: a task file or one with a list of tasks, a folder, or a pattern.
        certified: record of `osgym task certify`; only tasks that it certifies are returned.

    Raises:
        ConfigError: there is no task, or a file cannot be read; it names file and field.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigError(f"the path of task files must be text or a Path, not {type(path).__name__}")
    tasks = []
    for index, found in enumerate(_expanded(path)):
        if isinstance(found, Path):
            tasks.append(read_task(found, missing_ok=False))
        elif isinstance(found, dict):
            tasks.append(with_files(found, Path(path), missing_ok=False))
        else:
            raise ConfigError(f"task file {path}: [{index}] is not a JSON object")
    if certified is None:
        return tasks
    sound = certified_digests(certified)
    return _some(
        [task for task in tasks if task_digest(task) in sound], f"{certified} certifies no task of {path}"
    )


def task_files(folder: Path) -> list[Path]:
    """Return the files of all tasks in a folder and below, in the order of their names.

    Raises:
        ConfigError: there are none.
    """
    found = sorted(filter(_is_task, folder.rglob("*.json")))
    return _some(found, f"the folder {folder} has no *.json files")


def _expanded(task: Any) -> list[Any]:
    if not isinstance(task, (str, os.PathLike)):
        return [task]
    text = os.fspath(task)
    if not isinstance(text, str) or not text or "\0" in text:
        raise ConfigError(f"tasks: {text!r} is not the path of a task file, a folder or a pattern")
    path = Path(text)
    if path.is_dir():
        return task_files(path)
    if not path.exists() and glob.has_magic(text):
        names = sorted(glob.glob(text, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
        found = [Path(name) for name in names if Path(name).is_file() and _is_task(Path(name))]
        return _some(found, f"no task file matches {text}")
    if not path.exists():
        raise ConfigError(
            f"tasks: {path} does not exist; give a task file, a folder or a pattern like tasks/*.json"
        )
    listed = _list_in(path)
    return [path] if listed is None else _some(listed, f"the list in {path} is empty")


def _is_task(path: Path) -> bool:
    """Tell a task's file from the one beside it that says how to solve it."""
    return not path.name.endswith(".oracle.json")


def _list_in(path: Path) -> list[Any] | None:
    """Return the tasks of a file that holds a list; None for any other, which is read when it is run."""
    try:
        with path.open(encoding="utf-8") as file:
            if file.read(64).lstrip()[:1] != "[":
                return None
            file.seek(0)
            listed = json.load(file)
    except (OSError, ValueError):
        return None
    return listed if isinstance(listed, list) else None


def _some(found: list[_T], otherwise: str) -> list[_T]:
    if not found:
        raise ConfigError(f"tasks: {otherwise}")
    return found
