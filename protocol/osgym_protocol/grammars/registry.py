"""The action grammars that installed distributions register in the entry-point group `osgym.grammars`.

An entry names a `Grammar`, which a module of the grammar makes. `GRAMMARS` imports it when it is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, cast

from osgym_protocol.grammars.base import Context, Parsed


class Evidence(IntEnum):
    """Strength of the evidence that an output is in a grammar; the strongest one decides.

    Evidence is names and marks, never numbers: the same point means different pixels in two grammars.
    """

    NONE = 0
    EMBEDDED = 1
    """An object of the grammar in the middle of a text."""
    CALL = 2
    """A call or a field whose name other grammars may have as well."""
    OWN_CALL = 3
    """A call that only this grammar has, somewhere in a text."""
    MARK = 4
    """A field, or a mark in a text, that only this grammar has."""
    WHOLE = 5
    """The whole output can be in no other grammar."""
    FREE_TEXT = 6
    """A call that types any text, another grammar's calls too. It never overrules other evidence."""


def _no_evidence(_output: Any) -> Evidence:
    return Evidence.NONE


@dataclass(frozen=True, slots=True)
class Grammar:
    """One form in which models say actions.

    Attributes:
        name: Name that callers write; the same as that of its entry point.
        versions: Values that `Context.version` may have, the newest first.
        coordinates: Space of its coordinates where the context names none; ``image`` stands for pixels of the
            image that the model saw.
        parse: Function from an output and a context to its meaning. It raises `UnreadableAction` for an
            output that cannot be read for certain.
        render: Function from actions, a context, an ending and its text to an output that says the same. It
            raises `CannotRender` where the grammar has no words for one of them.
        in_text: Evidence that a text is in this grammar. Must be linear in the length of the text.
        in_object: Evidence that an object, or one item of a list of objects, is in this grammar.
    """

    name: str
    versions: tuple[str, ...]
    coordinates: str
    parse: Callable[[Any, Context], Parsed]
    render: Callable[..., Any]
    in_text: Callable[[str], Evidence] = _no_evidence
    in_object: Callable[[Mapping[str, Any]], Evidence] = _no_evidence


class _Grammars(Mapping[str, Grammar]):
    """Installed grammars by name, each imported when it is looked up."""

    def __getitem__(self, name: str) -> Grammar:
        from osgym_protocol.plugins import PluginGroup, load_plugin

        if name not in self:
            raise KeyError(name)
        return cast(Grammar, load_plugin(PluginGroup.GRAMMARS, name))

    def __contains__(self, name: object) -> bool:
        return name in _names()

    def __iter__(self) -> Iterator[str]:
        return iter(_names())

    def __len__(self) -> int:
        return len(_names())


def _names() -> tuple[str, ...]:
    from osgym_protocol.plugins import PluginGroup, plugin_names

    return plugin_names(PluginGroup.GRAMMARS)


GRAMMARS: Mapping[str, Grammar] = _Grammars()
