"""Tasks by name: files, folders, and names of generators that installed distributions register."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from osgym_certify.subject import Subject, SubjectError, read_subject
from osgym_cli.evals.jobs import find_task_files
from osgym_protocol.plugins import PluginGroup, load_plugin, plugin_names

TaskSource = Callable[[str, Path, Sequence[int], Sequence[int]], Sequence[Path] | None]
"""Function of a name, a folder, seeds and levels. It writes the tasks of that name into the folder, each with
its oracle beside it, and returns their paths; None for a name that it does not know."""


class UnknownName(ValueError):
    """A name is neither a path nor the name of a generator; the message says so."""


def subjects(
    names: Sequence[str], folder: Path, seeds: Sequence[int], levels: Sequence[int]
) -> tuple[list[Subject], list[str]]:
    """Return the tasks of the names, and messages about files that cannot be read.

    Args:
        folder: Folder in which generated tasks are written.

    Raises:
        UnknownName: A name is neither a path nor the name of a generator.
        NoTasks: A path leads to no task.
        OSError: A generated task cannot be written.
    """
    paths: list[Path] = []
    for name in names:
        found = None if Path(name).exists() else _generated(name, folder, seeds, levels)
        paths += find_task_files([name]) if found is None else found
    made: list[Subject] = []
    wrong: list[str] = []
    for path in dict.fromkeys(paths):
        try:
            made.append(read_subject(path, "/".join(path.with_suffix("").parts[-2:])))
        except SubjectError as error:
            wrong.append(str(error))
    return made, wrong


def _generated(name: str, folder: Path, seeds: Sequence[int], levels: Sequence[int]) -> Sequence[Path] | None:
    """Return the paths of the tasks that a generator wrote; None for a pattern of paths."""
    for source in plugin_names(PluginGroup.TASK_SOURCES):
        write: TaskSource = load_plugin(PluginGroup.TASK_SOURCES, source)
        found = write(name, folder, seeds, levels)
        if found is not None:
            return found
    if any(mark in name for mark in "*?[/"):
        return None
    raise UnknownName(
        f"{name[:80]!r} is neither a file nor a folder, and no installed generator has that name"
    )
