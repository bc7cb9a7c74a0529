"""What policies return, as actions: taken, or refused as InvalidAction, and nothing else ever."""

from __future__ import annotations

import array
import decimal
import enum
import fractions
import json
import math
from collections import OrderedDict, UserDict, deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_protocol.limits import MAX_ACTIONS, MAX_BODY_BYTES, MAX_PATH_POINTS, MAX_TEXT_CHARS
from osgym_sdk import InvalidAction
from osgym_sdk._inputs.actions import MAX_DEPTH, as_actions


class Scalar:
    """A number as numpy's are: neither an int nor a float, with `item`, `tolist` and `__index__`."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def tolist(self) -> Any:
        return self.value

    def __index__(self) -> int:
        return int(self.value)


class Side(enum.IntEnum):
    LEFT = 3


class Word(str):
    __slots__ = ()


def click(x: Any, y: Any = 2) -> dict[str, Any]:
    """An internal action with any value in it."""
    return {"op": "click", "x": x, "y": y}


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (5, 5),
        (5.0, 5),
        (-0.0, 0),
        (1.5, 1.5),
        (Side.LEFT, 3),
        (Scalar(7), 7),
        (Scalar(7.0), 7),
        (Scalar([1, 2]), [1, 2]),
        (decimal.Decimal("4.0"), 4),
        (fractions.Fraction(1, 2), 0.5),
        (array.array("i", [1, 2]), [1, 2]),
        (deque([1, 2]), [1, 2]),
        (range(2), [0, 1]),
        ((1, [2, (3,)]), [1, [2, [3]]]),
        (True, True),
        (None, None),
        (Word("é"), "é"),
        (OrderedDict(a=1), {"a": 1}),
        (UserDict(a=1.0), {"a": 1}),
    ],
)
def test_what_stands_for_a_number_a_list_or_an_object_is_taken(value: Any, plain: Any) -> None:
    """By what it can do, not by its type; whole floats are whole numbers."""
    [action] = as_actions(click(value))
    assert action == {"op": "click", "x": plain, "y": 2}
    assert type(action["x"]) is type(plain)  # type: ignore[index] # it is an object


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        -math.inf,
        decimal.Decimal("NaN"),
        decimal.Decimal("sNaN"),
        Scalar(math.nan),
        10**5000,
        -(10**30),
        1e300,
        b"5",
        bytearray(b"5"),
        memoryview(b"5"),
        {1, 2},
        {1: 2},
        object(),
        (x for x in [1]),
        1j,
        "\ud800",
        {"\udfff": 1},
        print,
        int,
        [[object()]],
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_json_is_this_actions_fault(value: Any) -> None:
    """Refused before anything is sent, as InvalidAction with its place in the list."""
    with pytest.raises(InvalidAction) as caught:
        as_actions(["wait()", click(value)])
    assert caught.value.details == {"index": 1}
    assert len(caught.value.message) < 600


@pytest.mark.parametrize("bad", [5, 5.0, None, b"a", True, object(), iter(["a"]), {"a"}, Scalar(5), range(2)])
def test_what_is_neither_text_nor_object_is_refused(bad: Any) -> None:
    """Also inside a list."""
    for decision in (bad, [bad], ("a", bad)):
        with pytest.raises(InvalidAction, match="an action must be text or an object"):
            as_actions(decision)


class Hostile:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise OSError("no")


class Unwilling:
    def __float__(self) -> float:
        raise ZeroDivisionError


class Endless(Mapping[str, Any]):
    def __getitem__(self, key: str) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        while True:
            yield ""

    def __len__(self) -> int:
        return 1


class Itself:
    def tolist(self) -> Any:
        return self


def test_objects_that_fight_back() -> None:
    """Whatever they raise, however deep, endless or large they are: one InvalidAction, soon."""
    deep: Any = []
    for _ in range(MAX_DEPTH * 1000):
        deep = [deep]
    ring: list[Any] = []
    ring.append(ring)
    for bad in (Hostile(), click(Hostile()), Endless(), click(Itself()), click(deep), click(ring), ring):
        with pytest.raises(InvalidAction):
            as_actions(bad)
    for large in ("a" * (MAX_TEXT_CHARS + 1), click("é" * MAX_BODY_BYTES), click(range(10**9)), range(10**9)):
        with pytest.raises(InvalidAction):
            as_actions(large)
    with pytest.raises(InvalidAction, match=f"at most {MAX_ACTIONS}"):
        as_actions(["wait()"] * (MAX_ACTIONS + 1))
    path = [[1919, 1079]] * MAX_PATH_POINTS
    assert as_actions([{"op": "drag", "path": path}] * 8)  # what the host takes is not refused here


def test_numbers_and_arrays_of_numpy() -> None:
    """The real ones: scalars, arrays, texts, booleans."""
    action = {
        "op": numpy.str_("drag"),
        "path": numpy.array([[1, 2], [3.0, 4]]),
        "n": [numpy.int64(5), numpy.float32(6.0), numpy.uint8(7), numpy.array(8), numpy.bool_(True)],
    }
    plain = {"op": "drag", "path": [[1, 2], [3, 4]], "n": [5, 6, 7, 8, True]}
    assert as_actions(action) == (plain,)
    assert json.dumps(as_actions(action)[0]) == json.dumps(plain)
    assert as_actions(numpy.array(["wait()", "finish()"])) == ("wait()", "finish()")
    assert as_actions(numpy.array("wait()")) == ("wait()",)
    assert type(as_actions(numpy.str_("wait()"))[0]) is str
    for bad in (
        numpy.nan,
        numpy.float64("inf"),
        numpy.complex64(1),
        numpy.datetime64("2020"),
        numpy.bytes_(b""),
    ):
        with pytest.raises(InvalidAction):
            as_actions(click(bad))


def test_it_is_a_copy() -> None:
    """What the policy changes afterwards is neither sent nor in the trajectory."""
    keys = ["ctrl"]
    given_action = {"op": "key", "keys": keys}
    taken = as_actions(given_action)
    keys.append("x")
    assert taken == ({"op": "key", "keys": ["ctrl"]},)


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=8)
    | st.binary(max_size=4)
    | st.complex_numbers()
    | st.decimals()
    | st.builds(Scalar, st.integers() | st.floats() | st.lists(st.integers(), max_size=2))
    | st.sampled_from([object(), Unwilling(), Itself(), int, math.nan, Side.LEFT, ..., b""])
)
garbage = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.sets(st.integers(), max_size=3)
        | st.dictionaries(st.sampled_from(["op", "x", "y", "keys", "text", "action_type"]), inner, max_size=4)
        | st.dictionaries(st.none() | st.integers() | st.text(max_size=3), inner, max_size=3)
        | st.builds(UserDict, st.dictionaries(st.text(max_size=3), inner, max_size=3))
    ),
    max_leaves=12,
)
"""Anything that a policy might return."""


@given(garbage)
def test_garbage_is_json_or_an_invalid_action(value: Any) -> None:
    """Nothing else is raised, and what is taken can be encoded as the host reads it."""
    try:
        taken = as_actions(value)
    except InvalidAction as error:
        assert len(str(error)) < 2000
        return
    text = json.dumps(taken, ensure_ascii=False, allow_nan=False)
    assert json.loads(text.encode()) == [*taken]
    assert all(isinstance(action, (str, dict)) for action in taken)
