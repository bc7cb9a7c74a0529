"""Internal actions are checked before anything is done."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_protocol.actions import (
    ButtonState,
    Click,
    Drag,
    Hold,
    InvalidAction,
    Key,
    KeyState,
    Move,
    Screenshot,
    Scroll,
    Type,
    Wait,
    parse_action,
    parse_actions,
)
from osgym_protocol.keysyms import KEYSYMS, char_keysym, key_keysym
from osgym_protocol.limits import MAX_SCROLL_CLICKS

SCREEN = (1920, 1080)
CTRL, SHIFT, RETURN = KEYSYMS["Control_L"], KEYSYMS["Shift_L"], KEYSYMS["Return"]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"op": "click"}, Click(None, 1, 1, ())),
        (
            {"op": "click", "x": 3, "y": 4, "button": "right", "count": 2, "modifiers": ["ctrl"]},
            Click((3, 4), 3, 2, (CTRL,)),
        ),
        ({"op": "click", "button": "back"}, Click(None, 8, 1, ())),
        ({"op": "move", "x": 0, "y": 1079}, Move((0, 1079))),
        ({"op": "drag", "path": [[1, 2], [3, 4]]}, Drag(((1, 2), (3, 4)), 1, ())),
        ({"op": "scroll", "dy": 3}, Scroll(None, 0, 3, ())),
        ({"op": "scroll", "x": 5, "y": 6, "dx": -2, "modifiers": ["shift"]}, Scroll((5, 6), -2, 0, (SHIFT,))),
        ({"op": "scroll", "dy": 50, "unit": "px"}, Scroll(None, 0, 1, ())),
        ({"op": "scroll", "dy": -240, "dx": 200, "unit": "px"}, Scroll(None, 2, -2, ())),
        ({"op": "type", "text": "a\r\nb", "press_enter": True}, Type("a\nb\n")),
        ({"op": "key", "keys": ["ctrl", "S"]}, Key((CTRL, ord("s")), 1)),
        ({"op": "key", "keys": ["A"]}, Key((ord("A"),), 1)),
        ({"op": "key", "keys": ["enter"], "repeat": 3}, Key((RETURN,), 3)),
        ({"op": "hold", "keys": ["Shift_L"], "duration_ms": 20}, Hold((SHIFT,), 20.0)),
        ({"op": "key_down", "key": "shift"}, KeyState(SHIFT, True)),
        ({"op": "key_up", "key": "shift"}, KeyState(SHIFT, False)),
        ({"op": "button_down", "x": 1, "y": 1}, ButtonState((1, 1), 1, True)),
        ({"op": "button_up", "button": "middle"}, ButtonState(None, 2, False)),
        ({"op": "wait", "duration_ms": 5}, Wait(5.0)),
        ({"op": "screenshot"}, Screenshot()),
        ({"op": "click", "x": None, "y": None}, Click(None, 1, 1, ())),
    ],
)
def test_every_action_is_parsed(raw: dict[str, Any], expected: object) -> None:
    """Each action of the table becomes one value."""
    assert parse_action(raw, SCREEN) == expected


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"op": "fly"}, "unknown action 'fly'"),
        ({}, "field op"),
        ("click", "field op"),
        ({"op": "click", "x": 1920, "y": 0}, "outside the screen"),
        ({"op": "click", "x": -1, "y": 0}, "outside the screen"),
        ({"op": "click", "x": 1}, "whole pixels"),
        ({"op": "click", "x": 1.5, "y": 1}, "whole pixels"),
        ({"op": "click", "x": True, "y": 1}, "whole pixels"),
        ({"op": "click", "button": "side"}, "button must be"),
        ({"op": "click", "count": 0}, "count must be"),
        ({"op": "click", "modifiers": ["a"]}, "not a modifier"),
        ({"op": "click", "colour": "red"}, "unknown field 'colour'"),
        ({"op": "move"}, "whole pixels"),
        ({"op": "drag", "path": [[1, 2]]}, "at least two points"),
        ({"op": "drag", "path": [[1, 2], [1920, 3]]}, "outside the screen"),
        ({"op": "drag", "path": [[1, 2], 3]}, "a point of the path"),
        ({"op": "scroll", "dy": 1.5}, "dy must be"),
        ({"op": "scroll", "dy": MAX_SCROLL_CLICKS + 1}, "dy must be"),
        ({"op": "scroll", "dy": 1, "unit": "miles"}, "unit must be"),
        ({"op": "type", "text": 3}, "text must be"),
        ({"op": "type", "text": "a\x00b"}, "no key produces the character U+0000"),
        ({"op": "type", "text": "\ud800"}, "no key produces the character U+D800"),
        ({"op": "type", "text": "a", "press_enter": 1}, "press_enter must be"),
        ({"op": "key", "keys": []}, "keys must be"),
        ({"op": "key", "keys": ["warp"]}, "unknown key 'warp'"),
        ({"op": "key", "keys": ["a"], "repeat": 10_000}, "repeat must be"),
        ({"op": "hold", "keys": ["a"]}, "duration_ms must be"),
        ({"op": "wait", "duration_ms": 1e9}, "duration_ms must be"),
        ({"op": "wait", "duration_ms": float("nan")}, "duration_ms must be"),
    ],
)
def test_what_makes_no_sense_is_refused(raw: Any, words: str) -> None:
    """A refused action says what is wrong with it."""
    with pytest.raises(InvalidAction, match=words.replace("+", r"\+")):
        parse_action(raw, SCREEN)


def test_the_first_refused_action_is_named() -> None:
    """The index of the bad action is known, and good ones before it do not matter."""
    with pytest.raises(InvalidAction) as caught:
        parse_actions([{"op": "screenshot"}, {"op": "move", "x": 5000, "y": 0}], SCREEN)
    assert caught.value.index == 1


def test_waits_of_a_list_are_bounded_together() -> None:
    """Many short waits cannot make one endless step."""
    with pytest.raises(InvalidAction, match="in all"):
        parse_actions([{"op": "wait", "duration_ms": 40_000}] * 2, SCREEN)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@given(st.recursive(LEAVES, st.lists, max_leaves=5))
def test_garbage_is_refused_and_nothing_else(value: Any) -> None:
    """Whatever is in the fields, the answer is an action or InvalidAction."""
    for op, field in [("click", "x"), ("drag", "path"), ("type", "text"), ("key", "keys"), ("scroll", "dy")]:
        try:
            parse_action({"op": op, field: value}, SCREEN)
        except InvalidAction as exc:
            assert exc.message


@pytest.mark.parametrize(
    ("name", "keysym"),
    [
        ("ctrl", 0xFFE3),
        ("Control_L", 0xFFE3),
        ("CONTROL_l", 0xFFE3),
        ("enter", 0xFF0D),
        ("Return", 0xFF0D),
        ("esc", 0xFF1B),
        ("pgdn", 0xFF56),
        ("PageUp", 0xFF55),
        ("win", 0xFFEB),
        ("cmd", 0xFFEB),
        ("f12", 0xFFC9),
        ("del", 0xFFFF),
        ("plus", 0x2B),
        ("+", 0x2B),
        (" ", 0x20),
        ("space", 0x20),
        ("ä", 0xE4),
        ("adiaeresis", 0xE4),
        ("€", 0x010020AC),
        ("U+20AC", 0x010020AC),
        ("kp_5", 0xFFB5),
        ("volumeup", 0x1008FF13),
    ],
)
def test_key_names(name: str, keysym: int) -> None:
    """X names, aliases and characters, whatever their case."""
    assert key_keysym(name) == keysym


def test_characters_with_keys_of_their_own() -> None:
    """Newline and tab are keys; Latin-1 is itself; the rest is Unicode."""
    assert [char_keysym(c) for c in "\n\tß😀"] == [0xFF0D, 0xFF09, 0xDF, 0x0101F600]
