"""Rendering of a step's actions in a model's grammar."""

from __future__ import annotations

import json
from collections.abc import Callable

from osgym_sdk._exceptions import ConfigError
from osgym_sdk._inputs.reading import as_reading
from osgym_sdk.data._dataset import Step
from osgym_sdk.wire import Done

_LOOKS = ("screenshot", "observe")


def make_speaker(grammar: str) -> Callable[[Step], str]:
    """Return a function that renders a step in a grammar (``uitars``, ``qwen/qwen2.5-vl``, …).

    The model's own words are taken where they were recorded and the grammar reads them. What is returned
    raises ConfigError where the grammar has no words for the actions.

    Raises:
        ConfigError: there is no such grammar.
    """
    from osgym_protocol.grammars import CannotRender, Context, Ending, UnreadableAction, parse, render

    reading = None if grammar == "auto" else as_reading(grammar, None)
    if reading is None:
        raise ConfigError("the grammar of an export is one by name, not auto")
    endings = {Done.DONE: Ending.DONE, Done.FAIL: Ending.FAIL}

    def say(step: Step) -> str:
        if not step["screen_width"] or not step["screen_height"]:
            raise ConfigError("the size of the screen was not recorded")
        screen = (step["screen_width"], step["screen_height"])
        size = (step["frame_width"] or screen[0], step["frame_height"] or screen[1])
        context = Context(screen, None, reading.version, size)
        words = step["text"]
        if words:
            try:
                parse(words, context, reading.grammar)
                return str(words)
            except (UnreadableAction, ValueError):
                pass  # a thought beside the actions, or another grammar
        actions = [action for action in step.actions if action.get("op") not in (*_LOOKS, "done", "fail")]
        ending = endings.get(step["done"])
        try:
            said = render(actions, context, reading.grammar, ending)
        except (CannotRender, ValueError, KeyError, TypeError) as exc:
            raise ConfigError(f"{grammar} cannot say {json.dumps(step.actions)[:200]}: {exc}") from exc
        text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=True)
        return f"Thought: {words}\n{text}" if words and reading.grammar == "uitars" else text

    return say
