"""Tasks of families as files, for commands that find families by their entry point (`osgym.task_sources`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from osgym_tasks.registry import FAMILIES

EVERY = "families"
"""Name that stands for all families."""


def write_tasks(name: str, folder: Path, seeds: Sequence[int], levels: Sequence[int]) -> list[Path] | None:
    """Write the tasks of a family, or of all, each with its oracle beside it; return the tasks' paths.

    Returns:
        None for a name that no family has.

    Raises:
        OSError: A file cannot be written.
        ValueError: There is no such seed or level.
    """
    if name != EVERY and name not in FAMILIES:
        return None
    chosen = FAMILIES.values() if name == EVERY else [FAMILIES[name]]
    return [
        family.make(seed, level).write(folder / family.name)
        for family in chosen
        for level in levels
        for seed in seeds
    ]
