"""What models say, in the form of each provider or paper, to internal actions and back. Pure functions.

Nothing is run, fetched or guessed: what cannot be read for certain is :class:`UnreadableAction`, and then
no part of the output becomes an action. Each grammar is a module, imported when it is first used;
`GRAMMARS` is the table of them. The guest agent does not have this package: only clients and hosts read
models' outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, cast

from osgym_protocol.grammars.base import (
    Call,
    CannotRender,
    Context,
    Ending,
    Parsed,
    UnreadableAction,
    shown,
)
from osgym_protocol.grammars.space import Coordinates, Space, smart_resize


@dataclass(frozen=True, slots=True)
class Grammar:
    """One line of the table.

    Attributes:
        name: what callers write.
        versions: those that `Context.version` may name; the first is the newest.
        coordinates: what its coordinates are where the context does not say; ``image``: pixels of the image
            that the model saw.
    """

    name: str
    versions: tuple[str, ...]
    coordinates: str

    def module(self) -> ModuleType:
        """Return its module."""
        return import_module(f"{__name__}.{self.name}")


DOCUMENTATION_READ_ON = "2026-11-22"
"""When the providers' documentation was read; each module says which, and of which date that is."""

GRAMMARS: dict[str, Grammar] = {
    grammar.name: grammar
    for grammar in (
        Grammar("osgym", (), "pixel"),
        Grammar("computer13", (), "image"),
        Grammar("openai", ("computer", "computer_use_preview"), "image"),
        Grammar(
            "anthropic",
            ("computer_toolset_20260801", "computer_20251124", "computer_20250124", "computer_20241022"),
            "image",
        ),
        Grammar("gemini", ("3.5", "2.5"), "norm1000"),
        Grammar("qwen", ("qwen3-vl", "qwen2.5-vl"), "norm1000"),
        Grammar("uitars", ("1.5", "1.0"), "norm1000"),
        Grammar("glm", (), "norm1000"),
        Grammar("opencua", ("qwen2.5", "agentnet"), "image"),
        Grammar("pyautogui", (), "image"),
    )
}


def parse(output: Any, context: Context, grammar: str = "auto") -> Parsed:
    """Return what a model's output says.

    Args:
        output: text, JSON as text or as objects, or the objects of a provider's SDK.
        context: screen, coordinates, version.
        grammar: one of `GRAMMARS`, or ``auto``: told by the shape of the output, never by its numbers.

    Raises:
        UnreadableAction: it cannot be read for certain; nothing of it is an action.
        ValueError: there is no such grammar, or it has no such version.
    """
    if grammar == "auto":
        from osgym_protocol.grammars.detect import detect

        _check_version(context)
        grammar = detect(output)
        if context.version is not None and context.version not in GRAMMARS[grammar].versions:
            why = f"it is in the grammar {grammar}, which has no version {context.version}"
            raise UnreadableAction("auto", why)
    return cast(Parsed, _module(grammar, context).parse(output, context))


def render(
    actions: Sequence[Mapping[str, Any]],
    context: Context,
    grammar: str,
    ending: Ending | None = None,
    text: str = "",
) -> Any:
    """Return the output of a model that says these internal actions, for data sets.

    Args:
        actions: in pixels of the screen.
        context: screen, coordinates, version.
        grammar: one of `GRAMMARS`.
        ending: how the model ends with it.
        text: its answer or question.

    Raises:
        CannotRender: the grammar has no words for it.
        ValueError: there is no such grammar, or it has no such version.
    """
    module = _module(grammar, context)
    for action in actions:
        _check_chord(action)
    return module.render(actions, context, ending, text)


def _check_chord(action: Mapping[str, Any]) -> None:
    """Check that a chord would be read back: of a model, keys that make no chord are refused."""
    from osgym_protocol.grammars.chords import ChordError, check_chord

    keys = action.get("keys")
    if isinstance(keys, list) and len(keys) > 1:
        try:
            check_chord(keys)
        except ChordError as exc:
            raise CannotRender(f"no model says {shown(keys)} as a chord: {exc}") from None


def _check_version(context: Context) -> None:
    """Check that some grammar has the version."""
    versions = [version for grammar in GRAMMARS.values() for version in grammar.versions]
    if context.version is not None and context.version not in versions:
        raise ValueError(
            f"no grammar has a version {context.version!r:.60}; there are: {', '.join(versions)}"
        )


def _module(name: str, context: Context) -> ModuleType:
    grammar = GRAMMARS.get(name)
    if grammar is None:
        raise ValueError(f"there is no action grammar {name!r:.60}; there are auto, {', '.join(GRAMMARS)}")
    if context.version is not None and context.version not in grammar.versions:
        known = ", ".join(grammar.versions) or "none"
        raise ValueError(f"{name} has no version {context.version!r:.60}; there are: {known}")
    return grammar.module()


__all__ = [
    "GRAMMARS",
    "Call",
    "CannotRender",
    "Context",
    "Coordinates",
    "Ending",
    "Grammar",
    "Parsed",
    "Space",
    "UnreadableAction",
    "parse",
    "render",
    "smart_resize",
]
