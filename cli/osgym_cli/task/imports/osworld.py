"""Task files of OSWorld, which are task files of ours: they are copied, with the files that they name."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from osgym_cli.evals.jobs import ORACLE
from osgym_cli.task.imports.results import Attempt, Conversion, ImportOptions, attempts
from osgym_cli.task.imports.source import SourceError, SourceFolder
from osgym_cli.task.imports.staging import text_parameter
from osgym_protocol.task_files import TaskFileError, inline_files


def find(source: SourceFolder) -> list[str]:
    """Return the names of task files: JSON objects with an evaluator."""
    found = []
    for name in source.names_ending(".json"):
        if name.endswith(ORACLE):
            continue
        try:
            if isinstance(source.object(name).get("evaluator"), dict):
                found.append(name)
        except SourceError:
            continue
    return found


def convert_all(source: SourceFolder, options: ImportOptions) -> Iterator[Attempt]:
    """Yield the copy of each task file."""
    return attempts(source, find(source), lambda place: _convert(source, place, options))


def _convert(source: SourceFolder, place: str, options: ImportOptions) -> Conversion:
    task = copy.deepcopy(source.object(place))
    name = text_parameter(task.get("id"), "id")
    try:
        inline_files(task, source.path(place), missing_ok=True)
    except TaskFileError as error:
        raise SourceError(str(error)) from None
    if "osgym" not in task and "x_osgym" not in task:
        task["osgym"] = {"flavor": options.flavor, "apps": []}
    missing = [f"file {path[:100]}" for path in _named_files(task)]
    return Conversion(task, name, PurePosixPath(place).parent.name or "osworld", tuple(missing))


def _named_files(task: dict[str, Any]) -> Iterator[str]:
    """Yield the files that ``upload_file`` steps still name by path."""
    evaluator = task["evaluator"]
    for steps in (task.get("config"), evaluator.get("postconfig")):
        for step in steps if isinstance(steps, list) else ():
            parameters = step.get("parameters") if isinstance(step, dict) else None
            files = parameters.get("files") if isinstance(parameters, dict) else None
            for file in files if isinstance(files, list) else ():
                if isinstance(file, dict) and isinstance(file.get("local_path"), str):
                    yield file["local_path"]
