"""Parts that all grammars share: context, result, errors, and the builder of a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from osgym_protocol.actions import InvalidAction, check_encoded_size, parse_actions
from osgym_protocol.grammars.space import Coordinates, Space
from osgym_protocol.keysyms import key_name
from osgym_protocol.limits import MAX_ACTIONS, MAX_SCREEN_SIDE_PX

MAX_OUTPUT_CHARS = 250_000
"""Length of one model's output as text: two and a half times the longest text that can be typed."""
MAX_DEPTH = 32
"""Depth of objects and lists within each other."""
MAX_NODES = 50_000
"""Number of objects, lists and values in one output: the longest path of a drag and its surroundings."""
MAX_CALLS = 256
_SHOWN_CHARS = 120
_THOUGHT_START, _THOUGHT_END = "<think>", "</think>"
UNCLOSED_THOUGHTS = "the thoughts are not closed with </think>, so the output names no action"

Point = tuple[int, int]
RawAction = dict[str, Any]


class UnreadableAction(InvalidAction):
    """A model's output that is refused as a whole.

    Attributes:
        grammar: Grammar by which it was read; ``auto`` when none was detected.
        why: Reason, in one sentence.
        position: Position of the error: ``actions[2].path[0]`` in objects, ``line 3`` in text; empty for the
            whole.
        read: Part of the output at that position, shortened.
        allowed: Values that are allowed there; empty when the reason has them.
        index: Index of the action in the output, from 0.
        message: All of it in one sentence.
    """

    def __init__(
        self, grammar: str, why: str, *, position: str = "", read: str = "", allowed: str = "", index: int = 0
    ) -> None:
        where = f"{grammar}, {position}" if position else grammar
        message = f"{where}: {why}" + (f"; given: {read}" if read else "")
        super().__init__(message + (f"; allowed: {allowed}" if allowed else ""), index)
        self.grammar, self.why, self.position = grammar, why, position
        self.read, self.allowed = read, allowed

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the fields when pickled."""
        return _rebuilt, (self.grammar, self.why, self.position, self.read, self.allowed, self.index)


def _rebuilt(grammar: str, why: str, position: str, read: str, allowed: str, index: int) -> UnreadableAction:
    return UnreadableAction(grammar, why, position=position, read=read, allowed=allowed, index=index)


class CannotRender(ValueError):
    """A grammar has no words for an internal action."""


class Ending(str, Enum):
    """Statement of a model that it stops acting."""

    DONE = "done"
    FAIL = "fail"
    ANSWER = "answer"
    """The task is done, and the text is the answer to its question."""
    ASK_USER = "ask_user"
    """The model wants a human. Without one, the task counts as failed."""


_ENDING_OPS = {Ending.DONE: "done", Ending.ANSWER: "done", Ending.FAIL: "fail", Ending.ASK_USER: "fail"}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool, which its provider wants answered under its id.

    Attributes:
        call_id: Id that the provider gave; empty where it gives none.
        name: Name of the tool or of its member.
        first: Index of its first action; ``first + count`` is behind its last.
        count: Number of actions that it became; 0 where it only asks for something.
        look: Kind of observation that it asks for: ``screenshot``, ``zoom``, ``cursor_position``, or empty.
        region: Part of the screen for a zoom, in pixels: x, y, width, height.
        safety: Safety checks that the provider wants acknowledged, as it gave them.
        dialect: Provider's form of the call, where it has several (``toolset``, ``interactions``…).
    """

    call_id: str
    name: str
    first: int = 0
    count: int = 0
    look: str = ""
    region: tuple[int, int, int, int] | None = None
    safety: tuple[Mapping[str, Any], ...] = ()
    dialect: str = ""


@dataclass(frozen=True, slots=True)
class Parsed:
    """Meaning of a model's output.

    Attributes:
        grammar: Grammar by which it was read.
        actions: Checked internal actions as JSON objects, in pixels of the screen.
        ending: Ending of the episode that the output says; None when the model continues.
        text: Answer, question, or text beside the calls; empty when there is none.
        calls: Tool calls in order; empty for grammars that are plain text.
    """

    grammar: str
    actions: tuple[RawAction, ...]
    ending: Ending | None = None
    text: str = ""
    calls: tuple[Call, ...] = ()

    def for_step(self) -> list[RawAction]:
        """Return the actions of one step: with ``done`` or ``fail`` at the end, and never empty."""
        ending = [] if self.ending is None else [{"op": _ENDING_OPS[self.ending]}]
        return [dict(action) for action in self.actions] + ending or [{"op": "screenshot"}]


@dataclass(frozen=True, slots=True)
class Context:
    """Context in which an output is read.

    Attributes:
        screen: Width and height of the real screen in pixels; actions are in these.
        coordinates: Space of the model's coordinates: ``pixel`` of the screen, ``norm1000`` (0 to 1000 from
            edge to edge), ``norm1`` (0 to 1), or ``(width, height)`` of the image that it saw, or believes to
            have seen. None: the space of the grammar and its version.
        version: Version of the grammar, where it has several; None: any of them, detected in the output.
        image: Width and height of the image that was sent to the model; the screen's by default.
        pointer: Known position of the mouse pointer, for moves that are relative to it.

    Raises:
        ValueError: A value is invalid.
    """

    screen: Point
    coordinates: Coordinates | None = None
    version: str | None = None
    image: Point | None = None
    pointer: Point | None = None

    def __post_init__(self) -> None:
        for name, size in (("screen", self.screen), ("image", self.image)):
            if size is not None and not _is_size(size):
                raise ValueError(f"{name} must be (width, height) in pixels, not {shown(size)}")
        if self.coordinates is not None:
            Space.named(self.coordinates, self.screen)

    def space(self, default: Coordinates | None = None) -> Space:
        """Return the space of the coordinates.

        Args:
            default: Space where the context names none; None: pixels of the image that the model saw.
        """
        named = self.coordinates if self.coordinates is not None else default
        return Space.named(named if named is not None else self.image or self.screen, self.screen)


def _is_size(size: Any) -> bool:
    return (
        isinstance(size, (tuple, list))
        and len(size) == 2
        and all(type(side) is int and 0 < side <= MAX_SCREEN_SIDE_PX for side in size)
    )


def shown(value: object) -> str:
    """Return a value for a message, short and harmless."""
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN_CHARS else value[: _SHOWN_CHARS - 1] + "…")
    if value is None or isinstance(value, (bool, float)):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if value.bit_length() <= 64 else f"a number of {value.bit_length()} bits"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, Sequence):
        return f"a list of {len(value)}"
    return f"a value of type {type(value).__name__[:40]}"


def after_thinking(text: str) -> int | None:
    """Return the position of an answer behind the thoughts that it opens with (`<think>…</think>`).

    A call inside the thoughts is no action. None: the thoughts are not closed.
    """
    end, opened = text.find(_THOUGHT_END), text.lstrip().startswith(_THOUGHT_START)
    if opened:
        return end + len(_THOUGHT_END) if end != -1 else None
    return 0


def _plain(name: str, value: Any) -> Any:
    """Return a field of an action with key names that every guest knows, and with line breaks as ``\\n``."""
    match name, value:
        case "text", str():
            return value.replace("\r\n", "\n").replace("\r", "\n")
        case (("keys" | "key"), str()):
            return key_name(value)
        case (("keys" | "modifiers"), list()):
            return [key_name(key) if isinstance(key, str) else key for key in value]
    return value


class Builder:
    """Collects the actions of one output and checks them all together at the end."""

    def __init__(self, grammar: str, context: Context) -> None:
        self.grammar = grammar
        self.context = context
        self.texts: list[str] = []
        self.calls: list[Call] = []
        self._actions: list[RawAction] = []
        self._positions: list[str] = []
        self._ending: Ending | None = None

    def __len__(self) -> int:
        return len(self._actions)

    @property
    def ended(self) -> bool:
        """Whether the model has said that it stops."""
        return self._ending is not None

    def last(self) -> RawAction | None:
        return self._actions[-1] if self._actions else None

    def drop_last(self) -> None:
        """Remove the newest action, which another one includes."""
        self._actions.pop()
        self._positions.pop()

    def refuse(self, why: str, position: str = "", read: str = "", allowed: str = "") -> UnreadableAction:
        """Return the error for something at ``position``."""
        index = min(len(self._actions), MAX_ACTIONS)
        return UnreadableAction(self.grammar, why, position=position, read=read, allowed=allowed, index=index)

    def add(self, position: str, *actions: RawAction) -> None:
        """Add actions without their fields that are None.

        Raises:
            UnreadableAction: There are too many, or the model has ended before.
        """
        for action in actions:
            if self._ending is not None:
                raise self.refuse(f"nothing can follow {self._ending.value!r}", position)
            if len(self._actions) >= MAX_ACTIONS:
                raise self.refuse(f"a step has at most {MAX_ACTIONS} actions", position)
            self._actions.append({n: _plain(n, value) for n, value in action.items() if value is not None})
            self._positions.append(position)

    def pointer(self) -> Point | None:
        """Return the position at which the actions so far leave the pointer; None where it is unknown."""
        for action in reversed(self._actions):
            if "path" in action:
                x, y = action["path"][-1]
                return x, y
            if "x" in action:
                return action["x"], action["y"]
        return None

    def drag_to(self, end: Point, start: Point | None = None, **more: Any) -> list[RawAction]:
        """Return a drag from a point, or from where the actions so far leave the pointer.

        Where that is unknown, the button is pressed at the pointer, moved and released.

        Args:
            end: End point.
            start: Start point, where the model gives one.
            more: `button` and `modifiers`.
        """
        start = start or self.pointer()
        if start is not None:
            return [{"op": "drag", "path": [list(start), list(end)], **more}]
        return [
            {"op": "button_down", **more},
            {"op": "move", "x": end[0], "y": end[1]},
            {"op": "button_up", **more},
        ]

    def answer(self, nothing: str) -> Parsed:
        """Return the result of an output of tool calls. Text without calls is the model's answer.

        Args:
            nothing: Reason of the refusal when there are neither.

        Raises:
            UnreadableAction: There are neither, or an action is wrong.
        """
        if not self.calls and not self._actions:
            if not any(text.strip() for text in self.texts):
                raise self.refuse(nothing)
            self.end("", Ending.ANSWER)
        return self.result()

    def end(self, position: str, ending: Ending, text: str = "") -> None:
        """Record that the model stops. Raises UnreadableAction if it has stopped before."""
        if self._ending is not None:
            raise self.refuse(f"nothing can follow {self._ending.value!r}", position)
        self._ending = ending
        if text:
            self.texts.append(text)

    def call(self, call: Call) -> None:
        """Record a tool call, after its actions have been added.

        Raises:
            UnreadableAction: There are too many.
        """
        if len(self.calls) >= MAX_CALLS:
            raise self.refuse(f"an output has at most {MAX_CALLS} calls")
        self.calls.append(call)

    def result(self) -> Parsed:
        """Check the actions together and return the result.

        Raises:
            UnreadableAction: A guest would refuse an action, or all together are too large.
        """
        try:
            parse_actions(self._actions, self.context.screen)
            check_encoded_size(self._actions)
        except InvalidAction as exc:
            position = self._positions[exc.index] if exc.index < len(self._positions) else ""
            why = exc.message if len(exc.message) <= 300 else exc.message[:299] + "…"
            raise UnreadableAction(self.grammar, why, position=position, index=exc.index) from None
        return Parsed(
            self.grammar, tuple(self._actions), self._ending, "\n".join(self.texts), tuple(self.calls)
        )
