"""Conversion between outputs of models and internal actions; see ``docs/actions.md``."""

from __future__ import annotations

from osgym_protocol.grammars import (
    GRAMMARS,
    Call,
    CannotRender,
    Context,
    Coordinates,
    Ending,
    Grammar,
    Parsed,
    UnreadableAction,
    parse,
    render,
    smart_resize,
)
from osgym_protocol.grammars.calls import calls_of

__all__ = [
    "GRAMMARS",
    "Call",
    "CannotRender",
    "Context",
    "Coordinates",
    "Ending",
    "Grammar",
    "Parsed",
    "UnreadableAction",
    "calls_of",
    "parse",
    "render",
    "smart_resize",
]
