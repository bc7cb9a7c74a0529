"""Layouts of task sets that can be imported, and the detection of a set's layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from osgym_cli.task.imports import cua_gym, gym_anything, opencomputer, osworld, rows
from osgym_cli.task.imports.results import Attempt, ImportOptions
from osgym_cli.task.imports.source import SourceFolder


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout of task sets.

    Attributes:
        find: Returns the places of a set's tasks; none if the set has another layout.
    """

    find: Callable[[SourceFolder], list[str]]
    convert_all: Callable[[SourceFolder, ImportOptions], Iterator[Attempt]]


LAYOUTS: Mapping[str, Layout] = {
    "osworld": Layout(osworld.find, osworld.convert_all),
    "cua-gym": Layout(cua_gym.find, cua_gym.convert_all),
    "gym-anything": Layout(gym_anything.find, gym_anything.convert_all),
    "opencomputer": Layout(opencomputer.find, opencomputer.convert_all),
    "rows": Layout(rows.find, rows.convert_all),
}


def detected(source: SourceFolder) -> dict[str, int]:
    """Return the layouts that a folder's tasks have, each with the number of its tasks.

    Raises:
        SourceError: The folder has too many entries.
    """
    counts = {name: len(layout.find(source)) for name, layout in LAYOUTS.items()}
    return {name: count for name, count in counts.items() if count}
