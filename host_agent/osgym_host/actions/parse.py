"""One entry for every grammar: what a client sent → what the guest is to do, and whether it is the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from osgym_host.actions.computer13 import WORDS, parse_computer13
from osgym_host.actions.errors import BadAction
from osgym_host.actions.internal import parse_internal
from osgym_host.actions.strings import parse_string

Action = dict[str, Any]

MAX_ACTIONS = 256


class Ending(StrEnum):
    """How the policy ends an episode."""

    DONE = "done"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class ParsedActions:
    """A step's actions.

    Attributes:
        actions: All of them in internal form, an ending included.
        for_guest: What the guest does: those before the ending.
        ending: How the episode ends with this step, None when it goes on.
    """

    actions: tuple[Action, ...]
    for_guest: tuple[Action, ...]
    ending: Ending | None


def parse_actions(given: Sequence[Any]) -> ParsedActions:
    """Translates the actions of one step, each a string or a dictionary of any grammar.

    Raises:
        BadAction: One of them cannot be used, or something follows the ending; nothing may be done.
    """
    actions: list[Action] = []
    for index, item in enumerate(given):
        try:
            actions.extend(_parse(item))
        except BadAction as error:
            raise error.at(index) from None
        if len(actions) > MAX_ACTIONS:
            raise BadAction("…", f"a step has at most {MAX_ACTIONS} actions", index)
    for index, action in enumerate(actions):
        if action["op"] in ("done", "fail"):
            if index != len(actions) - 1:
                raise BadAction(actions[index + 1], f"nothing can follow {action['op']!r}")
            return ParsedActions(tuple(actions), tuple(actions[:index]), Ending(action["op"]))
    return ParsedActions(tuple(actions), tuple(actions), None)


def _parse(item: Any) -> list[Action]:
    if isinstance(item, str):
        word = WORDS.get(item.strip())
        parsed = [dict(word)] if word is not None else parse_string(item)
    elif isinstance(item, Mapping):
        if "op" in item:
            parsed = [dict(item)]
        elif "action_type" in item:
            parsed = parse_computer13(item)
        else:
            raise BadAction(dict(item), "it has neither 'op' nor 'action_type'")
    else:
        raise BadAction(item, "it is neither a text nor an object")
    return [parse_internal(action) for action in parsed]
