"""Conversion of a policy's output to actions as plain JSON, or to the error that says what is wrong.

Policies are models and other people's code: they return numbers of numpy, whole floats, bytes, objects of
their own. Whatever comes is translated or refused here, as this step's `InvalidAction`, before anything is
encoded or sent. numpy is not imported: its numbers and arrays are known by their methods.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from osgym_protocol.limits import MAX_ACTIONS, MAX_BODY_BYTES, MAX_TEXT_CHARS
from osgym_sdk._exceptions import InvalidAction

Action = str | Mapping[str, Any]
Actions = Action | Sequence[Action]

MAX_DEPTH = 16
"""Depth of lists and objects in an action; actions of OSGym have three levels."""
MOST = 2**63
"""Numbers beyond this are nobody's coordinate; the host refuses them too."""
_BUDGET_BYTES = MAX_BODY_BYTES - 64 * 1024
"""Size of a step's actions as JSON that a host still reads."""
_BYTES_PER_CHAR = 6
"""At most: ``\\u0000``."""
_BYTES_PER_VALUE = 25
"""Upper bound of one value as JSON: a number or a pair of brackets, and its separator."""


def as_actions(actions: Any) -> tuple[Action, ...]:
    """Return one action or several as a tuple of texts and plain JSON objects.

    Numbers of numpy and their kind become numbers, arrays become lists, whole floats become whole numbers.
    It is always a copy: what the caller changes afterwards is not sent.

    Raises:
        InvalidAction: something else is in it; ``details["index"]`` says in which action. Nothing else is
            raised, whatever the objects do when they are looked at.
    """
    budget = _Budget()
    index: int | None = None
    taken: list[Action] = []
    try:
        for index, item in enumerate(_listed(actions)):  # noqa: B007 - the errors name it
            taken.append(_action(item, budget))
    except Exception as exc:  # noqa: BLE001 - whatever objects of other people raise
        raise _refused(exc, index) from (exc.__cause__ if isinstance(exc, InvalidAction) else exc)
    return tuple(taken)


def _refused(error: Exception, index: int | None) -> InvalidAction:
    """Turn whatever objects of other people raise when they are looked at into this action's fault."""
    details = {} if index is None else {"index": index}
    place = "" if index is None else f"action {index}: "
    if isinstance(error, InvalidAction):
        return InvalidAction(f"{place}{error.message}", details=details)
    text = f"{place}the output cannot be read: {type(error).__name__}: {error}"[:500]
    return InvalidAction(text, details=details)


def _listed(actions: Any) -> list[Any]:
    value = _dumped(actions)
    if isinstance(value, (str, Mapping)):
        return [value]
    if not isinstance(value, (list, tuple)) and callable(getattr(value, "tolist", None)):
        value = value.tolist()
        if isinstance(value, str):  # a text of numpy
            return [value]
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray, memoryview)):
        raise InvalidAction(f"an action must be text or an object, not {_kind(actions)}")
    if len(value) > MAX_ACTIONS:
        raise InvalidAction(f"a step must have at most {MAX_ACTIONS} actions, not {len(value)}")
    return [value[index] for index in range(len(value))]


def _dumped(value: Any) -> Any:
    """Return an object of a provider's SDK as the JSON that it stands for."""
    if isinstance(value, (str, Mapping, Sequence)) or not callable(getattr(value, "model_dump", None)):
        return value
    return value.model_dump(exclude_none=True, mode="json")


def _action(item: Any, budget: _Budget) -> Action:
    item = _dumped(item)
    if isinstance(item, str):
        if len(item) > MAX_TEXT_CHARS:
            raise InvalidAction(
                f"the action has {len(item)} characters; at most {MAX_TEXT_CHARS} are allowed"
            )
        return budget.text(item)
    if isinstance(item, Mapping):
        return budget.object(item, MAX_DEPTH)
    raise InvalidAction(f"an action must be text or an object, not {_kind(item)}")


class _Budget:
    """Translates values, and bounds how many bytes they have together as JSON."""

    def __init__(self) -> None:
        self._left = _BUDGET_BYTES

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise InvalidAction("the actions of the step are too large")

    def text(self, value: str) -> str:
        plain = str.__str__(value)
        self._spend(_BYTES_PER_CHAR * len(plain))
        if not plain.isascii():
            try:
                plain.encode()
            except UnicodeEncodeError:
                raise InvalidAction(
                    "a text has half of a surrogate pair, which is not valid Unicode and cannot be typed"
                ) from None
        return plain

    def object(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        self._check_depth(depth)
        plain: dict[str, Any] = {}
        for key in value:
            if not isinstance(key, str):
                raise InvalidAction(f"the name of a field must be text, not {_kind(key)}")
            plain[self.text(key)] = self.value(value[key], depth - 1)
        return plain

    def value(self, value: Any, depth: int) -> Any:
        self._spend(_BYTES_PER_VALUE)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int):
            return _whole(int.__index__(value))
        if isinstance(value, float):
            return _number(float.__float__(value))
        if isinstance(value, Mapping):
            return self.object(value, depth)
        if isinstance(value, (bytes, bytearray, memoryview)):
            raise InvalidAction(f"{_kind(value)} stands where text or a number is expected; decode it")
        return self._unfamiliar(value, depth)

    def _unfamiliar(self, value: Any, depth: int) -> Any:
        """Take numbers, arrays and lists by what they can do."""
        self._check_depth(depth)
        if not isinstance(value, (list, tuple)) and callable(getattr(value, "tolist", None)):
            return self.value(value.tolist(), depth - 1)  # arrays and numbers of numpy, torch, jax, ...
        if isinstance(value, Sequence):
            if _BYTES_PER_VALUE * len(value) > self._left:  # before a long one is gone through
                self._spend(_BUDGET_BYTES)
            return [self.value(value[index], depth - 1) for index in range(len(value))]
        if hasattr(type(value), "__index__"):
            return _whole(operator.index(value))
        if hasattr(type(value), "__float__"):
            return _number(float(value))
        raise InvalidAction(f"{_kind(value)} is not JSON")

    def _check_depth(self, depth: int) -> None:
        if depth <= 0:
            raise InvalidAction(f"lists and objects must be nested at most {MAX_DEPTH} levels deep")


def _whole(value: int) -> int:
    if not -MOST <= value <= MOST:
        raise InvalidAction("a number is too large")
    return value


def _number(value: float) -> int | float:
    if not math.isfinite(value):
        raise InvalidAction(f"{value} is not a finite number")
    return _whole(int(value)) if value.is_integer() else value


def _kind(value: Any) -> str:
    return "nothing (None)" if value is None else type(value).__name__[:100]
