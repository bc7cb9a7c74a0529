"""Readers and writers of models' outputs: from each provider's form to internal actions and back. Pure.

Nothing is run, fetched or guessed: an output that cannot be read for certain raises `UnreadableAction`, and
no part of it becomes an action. `GRAMMARS` has the installed grammars; each is imported when first used.
Only clients and hosts read models' outputs, so the guest agent does not have this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from osgym_protocol.grammars.base import (
    Call,
    CannotRender,
    Context,
    Ending,
    Parsed,
    UnreadableAction,
    shown,
)
from osgym_protocol.grammars.registry import GRAMMARS, Evidence, Grammar
from osgym_protocol.grammars.space import Coordinates, Space, smart_resize

DOCUMENTATION_READ_ON = "2026-11-22"
"""Date on which the providers' documentation was read; each module names its own sources and their dates."""


def parse(output: Any, context: Context, grammar: str = "auto") -> Parsed:
    """Return the meaning of a model's output.

    Args:
        output: Text, JSON as text or as objects, or the objects of a provider's SDK.
        context: Screen, coordinates and version.
        grammar: Name in `GRAMMARS`, or ``auto`` to detect it by the shape of the output, never by its
            numbers.

    Raises:
        UnreadableAction: It cannot be read for certain; no part of it is an action.
        ValueError: There is no such grammar, or it has no such version.
    """
    if grammar == "auto":
        from osgym_protocol.grammars.detect import detect

        _check_version(context)
        grammar = detect(output)
        if context.version is not None and context.version not in GRAMMARS[grammar].versions:
            why = f"the output is in the grammar {grammar}, which has no version {context.version}"
            raise UnreadableAction("auto", why)
    return _grammar(grammar, context).parse(output, context)


def render(
    actions: Sequence[Mapping[str, Any]],
    context: Context,
    grammar: str,
    ending: Ending | None = None,
    text: str = "",
) -> Any:
    """Return the output of a model that says these internal actions, for data sets.

    Args:
        actions: Internal actions in pixels of the screen.
        context: Screen, coordinates and version.
        grammar: Name in `GRAMMARS`.
        ending: Ending that the output says.
        text: Answer or question of the ending.

    Raises:
        CannotRender: The grammar has no words for it.
        ValueError: There is no such grammar, or it has no such version.
    """
    rendering = _grammar(grammar, context)
    for action in actions:
        _check_chord(action)
    return rendering.render(actions, context, ending, text)


def _check_chord(action: Mapping[str, Any]) -> None:
    """Check that a chord would be read back; of a model, keys that make no chord are refused."""
    from osgym_protocol.grammars.chords import ChordError, check_chord

    keys = action.get("keys")
    if isinstance(keys, list) and len(keys) > 1:
        try:
            check_chord(keys)
        except ChordError as exc:
            raise CannotRender(f"no model says {shown(keys)} as a chord: {exc}") from None


def _check_version(context: Context) -> None:
    versions = [version for grammar in GRAMMARS.values() for version in grammar.versions]
    if context.version is not None and context.version not in versions:
        raise ValueError(
            f"no grammar has the version {context.version!r:.60}; valid versions: {', '.join(versions)}"
        )


def _grammar(name: str, context: Context) -> Grammar:
    if name not in GRAMMARS:
        raise ValueError(f"unknown action grammar {name!r:.60}; valid grammars: auto, {', '.join(GRAMMARS)}")
    grammar = GRAMMARS[name]
    if context.version is not None and context.version not in grammar.versions:
        known = ", ".join(grammar.versions) or "none"
        raise ValueError(f"{name} has no version {context.version!r:.60}; valid versions: {known}")
    return grammar


__all__ = [
    "GRAMMARS",
    "Call",
    "CannotRender",
    "Context",
    "Coordinates",
    "Ending",
    "Evidence",
    "Grammar",
    "Parsed",
    "Space",
    "UnreadableAction",
    "parse",
    "render",
    "smart_resize",
]
