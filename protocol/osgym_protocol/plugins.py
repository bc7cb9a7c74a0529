"""Extensions that installed distributions register as entry points.

Each kind of extension is one entry-point group, named by `PluginGroup`; the entry's name is the name by which
users ask for it. OSGym registers its own in the same way. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any

from osgym_protocol.codes import TextEnum


class PluginGroup(TextEnum):
    """Entry-point groups, one for each kind of extension."""

    RUNTIMES = "osgym.runtimes"
    METRICS = "osgym.metrics"
    GETTERS = "osgym.getters"
    SETUP_STEPS = "osgym.setup_steps"
    PROVIDERS = "osgym.providers"
    NOTICES = "osgym.notices"
    PUBLISHERS = "osgym.publishers"
    HOST_SOURCES = "osgym.host_sources"
    READERS = "osgym.readers"
    GRAMMARS = "osgym.grammars"
    COMMANDS = "osgym.commands"
    TASK_SOURCES = "osgym.task_sources"


class PluginError(Exception):
    """An extension cannot be used.

    Attributes:
        group: Entry-point group of the extension.
        name: Name of the extension.
    """

    def __init__(self, group: PluginGroup, name: str, message: str) -> None:
        super().__init__(message)
        self.group = group
        self.name = name


class UnknownPlugin(PluginError):
    """No installed distribution registers an extension of this name."""


class DuplicatePlugin(PluginError):
    """Two installed distributions register the same name."""


class BrokenPlugin(PluginError):
    """The extension's module cannot be imported, or lacks the object that its entry names."""


def plugin_names(group: PluginGroup) -> tuple[str, ...]:
    """Names of all installed extensions of a group, sorted, without importing them.

    Raises:
        DuplicatePlugin: Two distributions register the same name.
    """
    return tuple(_entries(group))


def plugin_folders(*groups: PluginGroup) -> tuple[str, ...]:
    """Folders in which the distributions that register extensions of these groups are installed, sorted.

    An isolated interpreter has to add them to `sys.path`: it ignores ``PYTHONPATH`` and the user's folder.

    Raises:
        DuplicatePlugin: Two distributions register the same name.
    """
    entries = (entry for group in groups for entry in _entries(group).values())
    return tuple(sorted({str(entry.dist.locate_file("")) for entry in entries if entry.dist}))


def load_plugin(group: PluginGroup, name: str) -> Any:
    """Import an extension and return the object that its entry names.

    Raises:
        UnknownPlugin: No distribution registers this name.
        DuplicatePlugin: Two distributions register the same name in this group.
        BrokenPlugin: Its import failed; the cause is chained.
    """
    entry = _entry(group, name)
    try:
        return entry.load()
    except (ImportError, AttributeError) as exc:
        raise BrokenPlugin(
            group,
            name,
            f"the extension {name!r} of {group.value} cannot be loaded from the distribution "
            f"{_distribution(entry)!r} ({entry.value}): {exc}",
        ) from exc


def _entry(group: PluginGroup, name: str) -> EntryPoint:
    entries = _entries(group)
    if name not in entries:
        raise UnknownPlugin(
            group,
            name,
            f"no installed distribution registers {name!r} in {group.value}; "
            f"installed: {', '.join(entries) or 'none'}",
        )
    return entries[name]


@functools.cache
def _entries(group: PluginGroup) -> Mapping[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for entry in sorted(importlib.metadata.entry_points(group=group.value), key=lambda entry: entry.name):
        if entry.name in found and found[entry.name].value != entry.value:
            both = " and ".join(sorted(_distribution(each) for each in (found[entry.name], entry)))
            raise DuplicatePlugin(
                group,
                entry.name,
                f"{entry.name!r} of {group.value} is registered twice, by {both}; uninstall one of them",
            )
        found[entry.name] = entry
    return found


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "unknown"
