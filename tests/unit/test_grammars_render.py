"""Internal actions written in each grammar are read back as the same: trajectories become data sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from osgym_protocol.actions import Action, Key, parse_actions
from osgym_protocol.grammars import GRAMMARS, CannotRender, Context, Ending, parse, render

SCREEN = (1920, 1080)
_X, _Y = st.integers(0, SCREEN[0] - 1), st.integers(0, SCREEN[1] - 1)
_POINT = st.tuples(_X, _Y).map(list)
_AT = {"x": _X, "y": _Y}
_BUTTON = st.sampled_from(["left", "middle", "right", "back"])
_KEYS = st.sampled_from(["enter", "ctrl", "shift", "a", "Z", "F5", "Page_Up", "+", " ", "'", "\\", ",", "é"])
_HELD = st.lists(st.sampled_from(["ctrl", "shift", "alt"]), min_size=1, max_size=2, unique=True)
_TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("\n\t'\"\\()&"), max_size=40)


def _of(op: str, needed: dict[str, Any] | None = None, more: dict[str, Any] | None = None) -> Any:
    return st.fixed_dictionaries({"op": st.just(op), **(needed or {})}, optional=more or {})


_CLICKS = st.integers(-9, 9)
ACTION = st.one_of(
    _of("click", _AT, {"button": _BUTTON, "count": st.integers(1, 3)}),
    _of("click", _AT, {"modifiers": _HELD}),
    _of("click"),
    _of("move", _AT),
    _of("drag", {"path": st.lists(_POINT, min_size=2, max_size=2)}),
    _of("drag", {"path": st.lists(_POINT, min_size=3, max_size=5)}, {"button": _BUTTON}),
    _of("scroll", {**_AT, "dy": _CLICKS}),
    _of("scroll", {"dx": _CLICKS}),
    _of("scroll", {"dy": st.sampled_from([5, -5])}),
    _of("type", {"text": _TEXT}, {"press_enter": st.booleans()}),
    _of("key", {"keys": st.lists(_KEYS, min_size=1, max_size=3)}, {"repeat": st.integers(1, 3)}),
    _of("hold", {"keys": st.lists(_KEYS, min_size=1, max_size=2), "duration_ms": st.just(500)}),
    _of("key_down", {"key": _KEYS}),
    _of("key_up", {"key": _KEYS}),
    _of("button_down", {}, {"button": _BUTTON}),
    _of("button_up", _AT),
    _of("wait", {"duration_ms": st.sampled_from([500, 2000, 5000])}),
    _of("screenshot"),
)
LEAST = {"osgym": 8, "computer13": 10, "openai": 8, "anthropic": 12, "gemini": 11, "qwen": 8, "uitars": 9,
         "glm": 8, "opencua": 12, "pyautogui": 12}  # fmt: skip
"""How many of the 18 kinds above each grammar has words for, at least."""
CONTEXTS = [
    Context(SCREEN),
    Context(SCREEN, SCREEN),
    Context(SCREEN, (2560, 1440)),
    Context(SCREEN, image=SCREEN),
]


def checked(actions: Sequence[Any]) -> list[Action]:
    """Return the actions as a guest takes them, a repeated key as so many."""
    made: list[Action] = []
    for action in parse_actions([dict(raw) for raw in actions], SCREEN):
        if isinstance(action, Key):
            made += [Key(action.keysyms, 1)] * action.repeat
        else:
            made.append(action)
    return made


@pytest.mark.parametrize("grammar", GRAMMARS)
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_what_is_written_is_read_back(grammar: str, data: st.DataObject) -> None:
    """In pixels and in any image at least as large as the screen, exactly."""
    context = data.draw(st.sampled_from(CONTEXTS))
    if context.coordinates is None and GRAMMARS[grammar].coordinates == "norm1000":
        context = Context(SCREEN, "pixel")
    actions = []
    for action in data.draw(st.lists(ACTION, min_size=1, max_size=4)):
        try:
            render([action], context, grammar)
        except CannotRender:
            continue
        actions.append(action)
    if not actions:
        return
    if grammar == "glm":  # its answers have one action
        actions = actions[:1]
    output = render(actions, context, grammar)
    again = parse(output, context, grammar)
    assert checked(again.actions) == checked(actions)


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_each_grammar_has_words_for_most_actions(grammar: str) -> None:
    """Nothing is lost in silence: what a grammar cannot say is an error, and most it can."""
    kinds = [
        {"op": "click", "x": 1, "y": 2, "button": "left", "count": 1},
        {"op": "click", "x": 1, "y": 2, "button": "right"},
        {"op": "click", "x": 1, "y": 2, "count": 2},
        {"op": "click", "x": 1, "y": 2, "modifiers": ["ctrl"]},
        {"op": "move", "x": 1, "y": 2},
        {"op": "drag", "path": [[1, 2], [3, 4]]},
        {"op": "drag", "path": [[1, 2], [3, 4], [5, 6]]},
        {"op": "scroll", "x": 1, "y": 2, "dy": 5},
        {"op": "scroll", "dx": 5},
        {"op": "type", "text": "a"},
        {"op": "key", "keys": ["ctrl", "a"]},
        {"op": "key", "keys": ["a"], "repeat": 3},
        {"op": "hold", "keys": ["a"], "duration_ms": 500},
        {"op": "key_down", "key": "shift"},
        {"op": "button_down"},
        {"op": "wait", "duration_ms": 2000},
        {"op": "wait", "duration_ms": 5000},
        {"op": "screenshot"},
    ]
    said = 0
    for action in kinds:
        try:
            output = render([action], Context(SCREEN, "pixel"), grammar)
        except CannotRender:
            continue
        said += 1
        assert checked(parse(output, Context(SCREEN, "pixel"), grammar).actions) == checked([action])
    assert said >= LEAST[grammar]


@pytest.mark.parametrize("grammar", [name for name, g in GRAMMARS.items() if g.coordinates == "norm1000"])
def test_coordinates_of_a_thousand_are_off_by_less_than_one_of_them(grammar: str) -> None:
    """A thousand places cannot name 1920 pixels; the nearest is written, and whole screens are exact."""
    for x in range(0, SCREEN[0], 7):
        output = render([{"op": "move", "x": x, "y": 500}], Context(SCREEN), grammar)
        again = parse(output, Context(SCREEN), grammar).actions[0]
        assert abs(again["x"] - x) < SCREEN[0] / 1000
    exact = Context((1000, 1000))
    for x in range(1000):
        output = render([{"op": "move", "x": x, "y": x}], exact, grammar)
        assert parse(output, exact, grammar).actions[0] == {"op": "move", "x": x, "y": x}


@pytest.mark.parametrize("grammar", GRAMMARS)
@pytest.mark.parametrize("ending", list(Ending))
def test_endings(grammar: str, ending: Ending) -> None:
    """Each ending is read back as itself, or the grammar has no words for it."""
    text = "4 'is' it" if ending is Ending.ANSWER else ""
    try:
        output = render([], Context(SCREEN), grammar, ending, text)
    except CannotRender:
        assert (grammar, ending) not in {
            ("qwen", Ending.DONE),
            ("osgym", Ending.DONE),
            ("uitars", Ending.DONE),
        }
        return
    again = parse(output, Context(SCREEN), grammar)
    if (grammar, ending) == ("uitars", Ending.ANSWER):  # its finished(content) is both
        assert (again.ending, again.text) == (Ending.DONE, text)
        return
    if not (grammar == "osgym" and ending is Ending.ASK_USER):
        assert (again.ending, again.text) == (ending, text)
