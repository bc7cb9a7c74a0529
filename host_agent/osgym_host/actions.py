"""One entry for every grammar: what a client sent → what the guest is to do, and whether it is the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from osgym_host.errors import OsgymHostError
from osgym_protocol import actions as protocol
from osgym_protocol.codes import Done
from osgym_protocol.grammars import UnreadableAction
from osgym_protocol.grammars.computer13 import WORDS, parse_computer13
from osgym_protocol.grammars.lookalikes import grammar_of_object
from osgym_protocol.grammars.osgym_strings import parse_string
from osgym_protocol.limits import MAX_ACTIONS, MAX_WHY_CHARS

RawAction = dict[str, Any]
ENDINGS = {"done": Done.DONE, "fail": Done.FAIL}
"""Ops by which the policy ends an episode; the host handles them, no guest sees them."""


class BadAction(OsgymHostError):
    """An action that cannot be understood; nothing was done.

    Attributes:
        action: What was given, shortened.
        why: What is wrong with it, one sentence; shortened where it cites what was given.
        index: Its place in the list that was given, when it stood in one.
    """

    def __init__(self, action: object, why: str, index: int | None = None) -> None:
        self.action = _short(action if isinstance(action, str) else repr(action), 200)
        self.why = _short(why, MAX_WHY_CHARS)
        self.index = index
        super().__init__(f"Cannot use the action {self.action!r}: {why}")

    def at(self, index: int) -> BadAction:
        """Return the same error with its place in the list."""
        return type(self)(self.action, self.why, index)


class NoAction(BadAction):
    """What is no text and no object, so that it is an action in no grammar."""


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


@dataclass(frozen=True, slots=True)
class ParsedActions:
    """A step's actions.

    Attributes:
        actions: All of them as JSON objects in internal form, an ending included.
        ending: How the episode ends with this step, None when it goes on.
    """

    actions: tuple[RawAction, ...]
    ending: Done | None


def parse_actions(given: Sequence[Any], screen: tuple[int, int]) -> ParsedActions:
    """Translate the actions of one step, each a string or a dictionary of any grammar, and check them.

    Args:
        screen: Width and height in pixels.

    Raises:
        BadAction: One of them cannot be used, or something follows the ending; nothing may be done.
    """
    raw: list[RawAction] = []
    places: list[int] = []
    for index, item in enumerate(given):
        try:
            translated = _translate(item)
        except UnreadableAction as error:
            raise BadAction(item if isinstance(item, str) else dict(item), error.why, index) from None
        except BadAction as error:
            raise error.at(index) from None
        raw += translated
        places += [index] * len(translated)
        if len(raw) > MAX_ACTIONS:
            raise BadAction("…", f"a step must have at most {MAX_ACTIONS} actions", index)
    ending = _ending(raw, places)
    for_guest = raw if ending is None else raw[:-1]
    try:
        protocol.parse_actions(for_guest, screen)
        protocol.check_encoded_size(for_guest)
    except protocol.InvalidAction as error:
        raise BadAction(raw[error.index], error.message, places[error.index]) from None
    return ParsedActions(tuple(raw), ending)


def _translate(item: Any) -> list[RawAction]:
    """Return the internal form, not checked yet; what is null is as if it were not there."""
    if isinstance(item, str):
        word = WORDS.get(item.strip())
        parsed = [word] if word is not None else parse_string(item)
    elif isinstance(item, Mapping):
        if "op" in item:
            parsed = [dict(item)]
        elif "action_type" in item:
            parsed = parse_computer13(item)
        else:
            looks = grammar_of_object(item)
            hint = "" if looks is None else f"; it looks like {looks}"
            raise BadAction(dict(item), f"the action has neither 'op' nor 'action_type'{hint}")
    else:
        raise NoAction(item, "an action must be text or an object")
    return [{name: value for name, value in action.items() if value is not None} for action in parsed]


def _ending(raw: Sequence[RawAction], places: Sequence[int]) -> Done | None:
    for index, action in enumerate(raw):
        op = action.get("op")
        if isinstance(op, str) and op in ENDINGS:
            if len(action) > 1:
                raise BadAction(action, f"{op} has no fields", places[index])
            if index + 1 < len(raw):
                raise BadAction(raw[index + 1], f"nothing can follow {op!r}", places[index + 1])
            return ENDINGS[op]
    return None
