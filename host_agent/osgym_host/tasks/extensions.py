"""Metrics, readers, getters and setup steps of all installed distributions, imported when they are named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from osgym_protocol.plugins import (
    BrokenPlugin,
    PluginError,
    PluginGroup,
    UnknownPlugin,
    load_plugin,
    plugin_names,
)

T = TypeVar("T")


class ExtensionTable(Mapping[str, T]):
    """Extensions of one entry-point group by name.

    A lookup imports the module of the one extension. It raises `PluginError` if the module cannot be
    imported, if its entry names an object that is not declared, or if two distributions register the name.
    """

    def __init__(self, group: PluginGroup) -> None:
        self.group = group
        self._declared: dict[int, tuple[object, T]] = {}

    def declare(self, target: object, declaration: T) -> None:
        """Store what a decorator declares of the object that an entry will name."""
        self._declared[id(target)] = (target, declaration)

    def __getitem__(self, name: str) -> T:
        try:
            target = load_plugin(self.group, name)
        except UnknownPlugin as error:
            raise KeyError(name) from error
        if id(target) not in self._declared:
            message = f"the extension {name!r} of {self.group.value} lacks the decorator that declares it"
            raise BrokenPlugin(self.group, name, message)
        return self._declared[id(target)][1]

    def find(self, name: str) -> T | None:
        """Return an extension; None if it is not installed or cannot be used."""
        try:
            return self.get(name)
        except PluginError:
            return None

    def __contains__(self, name: object) -> bool:
        return name in plugin_names(self.group)

    def __iter__(self) -> Iterator[str]:
        return iter(plugin_names(self.group))

    def __len__(self) -> int:
        return len(plugin_names(self.group))
