"""The corpus of malformed outputs in `malformed_outputs.toml`, with the right answer for each."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osgym_protocol.grammars import Context

PATH = Path(__file__).with_name("malformed_outputs.toml")
SCREEN = (1920, 1080)


@dataclass(frozen=True)
class Malformed:
    """One output and its answer.

    Attributes:
        grammar: the grammar that the model was asked for.
        kind: what is wrong with it.
        output: the text.
        context: the screen, and the version of the grammar.
        position: of the refusal; None where the output is understood.
        message: a part of the refusal's message.
        actions: what is understood.
        ending: how the model ends with it.
    """

    grammar: str
    kind: str
    output: str
    context: Context
    position: str | None = None
    message: str = ""
    actions: tuple[dict[str, Any], ...] = ()
    ending: str | None = None


def load() -> list[Malformed]:
    """Return all entries of the corpus."""
    made: list[Malformed] = []
    for kind in tomllib.loads(PATH.read_text("utf-8"))["kinds"]:
        about = (kind["grammar"], kind["kind"])
        context = Context(SCREEN, version=kind.get("version"))
        for output, position, message in kind.get("refused", ()):
            made.append(Malformed(*about, output, context, position, message))
        for output, actions, *ending in kind.get("understood", ()):
            read = tuple(json.loads(actions))
            made.append(
                Malformed(*about, output, context, actions=read, ending=ending[0] if ending else None)
            )
    return made
