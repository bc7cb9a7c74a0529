"""Action grammars: what is understood, what is refused, and that nothing crashes them."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.actions import ENDINGS, BadAction, parse_actions
from osgym_host.episodes.episode_state import EpisodeProgress
from osgym_protocol.actions import Op
from osgym_protocol.codes import Done
from osgym_protocol.limits import MAX_TEXT_CHARS, MAX_WHY_CHARS

SCREEN = (100_001, 100_001)
OPS = [*(op.value for op in Op), *ENDINGS]


def parse(*given_actions: Any) -> list[dict[str, Any]]:
    """All internal actions of a step."""
    return list(parse_actions(given_actions, SCREEN).actions)


@pytest.mark.parametrize(
    ("text", "internal"),
    [
        ("click(100,200)", [{"op": "click", "x": 100, "y": 200}]),
        (" click( 100 , 200 ) ", [{"op": "click", "x": 100, "y": 200}]),
        ("left_double(1,2)", [{"op": "click", "x": 1, "y": 2, "count": 2}]),
        ("right_single(1,2)", [{"op": "click", "x": 1, "y": 2, "button": "right"}]),
        ("move(1,2)", [{"op": "move", "x": 1, "y": 2}]),
        ("drag(1,2,3,4)", [{"op": "drag", "path": [[1, 2], [3, 4]]}]),
        ("scroll(1,2,-50)", [{"op": "scroll", "x": 1, "y": 2, "dy": 50}]),
        ("press(enter)", [{"op": "key", "keys": ["enter"]}]),
        ("hotkey(ctrl, shift, t)", [{"op": "key", "keys": ["ctrl", "shift", "t"]}]),
        ("wait()", [{"op": "wait", "duration_ms": 2000}]),
        ("call_user()", [{"op": "fail"}]),
        ("finish()", [{"op": "done"}]),
        ("click(1,2) & type(a) & finish()",
         [{"op": "click", "x": 1, "y": 2}, {"op": "type", "text": "a"}, {"op": "done"}]),
        ("<|think_start|>x & y()<|think_end|><|action_start|>click(1,2)<|action_end|>",
         [{"op": "click", "x": 1, "y": 2}]),
        ("<|action_start|>finish()<|action_end|>", [{"op": "done"}]),
        ("<|think_start|><|think_end|><|action_start|>click(100,100)<|action_end|>",
         [{"op": "click", "x": 100, "y": 100}]),
    ],
)  # fmt: skip
def test_osgym_strings(text: str, internal: list[dict[str, Any]]) -> None:
    """The grammar of OSGym's server and the wrapped form its README shows."""
    assert parse(text) == internal


@pytest.mark.parametrize(
    "typed",
    ["", "hello", "a, b", "f(x)", "f(x) & g", "((", "))", ")", "a) & b", '"q" \'r\'', "日本語 🎉 ñ",
     "l1\nl2\n", " lead and trail ", "x & y", "& &", "print('a & b(c)')",
     "see f(a) & click(1,2)", "<|action_end|>", "\\n"],
)  # fmt: skip
def test_any_text_can_be_typed(typed: str) -> None:
    """Brackets, joins, quotes, newlines and any script stay what they are, alone and in the wrapped form."""
    assert parse(f"type({typed})") == [{"op": "type", "text": typed}]
    wrapped = f"<|think_start|>t<|think_end|><|action_start|>type({typed})<|action_end|>"
    assert parse(wrapped) == [{"op": "type", "text": typed}]


def test_a_typed_text_ends_where_valid_calls_follow() -> None:
    """`type(a) & press(enter)` is two actions, not one long text."""
    assert [a["op"] for a in parse("type(f(a)) & press(enter) & type(b))")] == ["type", "key", "type"]


MISREAD = [
    ("type(content='hello\\n')", "bare text", "UI-TARS"),
    ("type(content='it's (here)')", "bare text", "UI-TARS"),
    ("type(content=hello)", "bare text", "UI-TARS"),
    ('type( text = "hello" )', "bare text", "keywords"),
    ("type('hello', press_enter=True)", "bare text", None),
    ("type(a) & nosuch(b)", "unknown action 'nosuch'", None),
    ("type(hello); press(enter)", "joined by ' & '", None),
    ("type(hello)\npress(enter)", "joined by ' & '", None),
    ("type(hello)\n\nkey_press('enter')", "did you mean 'press'", None),
    ("type(hello), then press(enter)", "joined by ' & '", None),
    ("type(hello) and then press(enter)", "joined by ' & '", None),
    ("type(hello) press(enter)", "joined by ' & '", None),
    ("type(hello)press(enter)", "joined by ' & '", None),
    ("type(hello) & click(1,2) & enter(3)", "joined by ' & '", None),
    ("<|action_start|>type(a)<|action_end|><|action_start|>click(1,2)<|action_end|>", "joined by", None),
    ("click(start_box='(100,200)')", "expected the end", "UI-TARS"),
    ("click(point='<point>100 200</point>')", "whole numbers", "UI-TARS"),
    ("click(x=100, y=200)", "whole numbers", "keywords"),
    ("click(0.25, 0.5)", "whole numbers", "from 0 to 1"),
    ("scroll(10,10,down)", "whole numbers", "wheel clicks"),
    ("finished(content='done')", "did you mean 'finish'", "UI-TARS"),
    ("finish(done)", "takes no arguments", None),
    ("left_click(1,2)", "did you mean 'click'", None),
    ("hotkey(key='ctrl c')", "unknown key", None),
    ("hotkey(ctrl+c)", "one by one: ctrl, c", None),
    ("press(ctl)", "did you mean ctrl", None),
    ("press(ctrl,c)", "hotkey(...) takes several", None),
    ("pyautogui.click(1, 2)", "expected name", "pyautogui"),
    ("import pyautogui; pyautogui.press('enter')", "expected name", "pyautogui"),
    ('{"action_type": "CLICK", "x": 1, "y": 2}', "expected name", "computer_13"),
    ('{"action": "left_click", "coordinate": [1, 2]}', "expected name", "Anthropic"),
    ("```\nclick(1,2)\n```", "expected name", "send only the action"),
    ("Thought: x\nAction: click(1,2)", "expected name", "send only the action"),
]


@pytest.mark.parametrize(("text", "why", "looks"), MISREAD)
def test_calls_of_other_grammars_are_refused_and_named(text: str, why: str, looks: str | None) -> None:
    """None of them is typed, clicked or waited away; what it looks like is said where that is known."""
    with pytest.raises(BadAction) as caught:
        parse(text)
    assert why in caught.value.why
    assert looks is None or looks in caught.value.why
    assert len(caught.value.why) <= MAX_WHY_CHARS


@pytest.mark.parametrize(
    "typed",
    ["name = 'x'", "PATH=\"/bin\"", "x=5", "if (a) { b(c); }", "foo(bar); click(1,2)", ":) see you",
     "1) a 2) b", "1) see f(x) 2) g(y)", "'quoted'", '"a", "b"', "contents='x'", "a) b", "=content('x')",
     "f(x)\ng(y)",
     "print('hi'); wait()"],
)  # fmt: skip
def test_texts_that_merely_resemble_calls_are_typed(typed: str) -> None:
    """Code with its brackets in pairs, lists, assignments, quotations."""
    assert parse(f"type({typed})") == [{"op": "type", "text": typed}]


def test_a_text_that_is_refused_can_be_typed_in_two_parts_or_as_an_object() -> None:
    """As the refusal says."""
    assert parse("type(hello)) & type(; press(enter))") == [
        {"op": "type", "text": "hello)"},
        {"op": "type", "text": "; press(enter)"},
    ]
    assert parse("type(con) & type(tent='x')") == [{"op": "type", "text": t} for t in ("con", "tent='x'")]
    assert parse({"op": "type", "text": "content='x'"}) == [{"op": "type", "text": "content='x'"}]


@pytest.mark.parametrize(
    "unit",
    [
        ")",
        "(",
        ") ",
        ")\n",
        ")& ",
        "),",
        ") and ",
        ")<|a|>",
        "content='",
        "'a',",
        "a(",
        ")a",
        "\n",
        " ",
        "&",
        "x.",
    ],
)
def test_a_refusal_takes_no_longer_than_its_text(unit: str) -> None:
    """Linear in the length, also for what repeats; the bound is generous."""
    text = (unit * MAX_TEXT_CHARS)[: MAX_TEXT_CHARS - 10]
    for form in (f"type({text})", f"type(a){text}x(", f"type({text}click(1,2)"):
        began = time.process_time()
        with contextlib.suppress(BadAction):
            parse(form)
        assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("action", "looks"),
    [
        ({"action": "left_click", "coordinate": [1, 2]}, "Anthropic"),
        ({"type": "click", "x": 1, "y": 2}, "OpenAI"),
        ({"name": "computer", "arguments": {}}, "a tool call"),
    ],
)
def test_objects_of_other_grammars_are_named(action: dict[str, Any], looks: str) -> None:
    """Beside what is missing in them."""
    with pytest.raises(BadAction, match=f"neither 'op' nor 'action_type'; it looks like {looks}"):
        parse(action)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("click", "expected name"),
        ("click(1,2", "not closed"),
        ("type(abc", "not closed"),
        ("click(1)", "takes 2"),
        ("click(1,2,3)", "takes 2"),
        ("click(1.5,2)", "whole numbers"),
        ("click(a,b)", "whole numbers"),
        ("click(1,2))", "expected the end"),
        ("click(1,2) click(3,4)", "expected the end"),
        ("click(1,2) & ", "expected name"),
        ("clack(1,2)", "unknown action 'clack'"),
        ("import os", "expected name"),
        ("wait(5)", "no arguments"),
        ("hotkey()", "keys"),
        ("press(a,b)", "one key"),
        ("scroll(1,2,up)", "whole numbers"),
        ("finish() & click(1,2)", "nothing can follow"),
        ("<|action_start|>click(1,2)", "action_end"),
        ("<|think_start|>click(1,2)", "action_start"),
        ("type(" + "a" * 100_001 + ")", "at most"),
    ],
)
def test_what_is_wrong_is_said(text: str, why: str) -> None:
    """Never turned into a wait: refused, with the reason."""
    with pytest.raises(BadAction) as caught:
        parse(text)
    assert why in caught.value.why
    assert len(str(caught.value)) < 1000


@given(st.text())
def test_no_text_crashes_the_parser(text: str) -> None:
    """Either actions or a BadAction."""
    for form in (text, f"type({text})", f"click({text})", f"<|action_start|>{text}<|action_end|>"):
        try:
            assert parse_actions([form], SCREEN).actions
        except BadAction as error:
            assert error.index is not None


alphabet = st.text(alphabet="type()click& ,12\n<|>ab", max_size=60)


@given(alphabet)
def test_a_typed_text_comes_back_or_is_cut_at_valid_calls(text: str) -> None:
    """Round trip: what is typed is the text, unless the text itself is an action list."""
    try:
        actions = parse(f"type({text})")
    except BadAction as error:  # the text itself closes, and goes on with another call
        assert ")" in text and "(" in text, error
        return
    if len(actions) == 1:
        assert actions == [{"op": "type", "text": text}]
    else:
        assert text.startswith(actions[0]["text"] + ")")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
names = st.sampled_from([*OPS, "CLICK", "SCROLL", "TYPING", "HOTKEY", "x"])
fields = st.sampled_from(
    ["x", "y", "keys", "key", "path", "text", "dx", "dy", "button", "parameters", "count"]
)


@given(st.dictionaries(fields, json_values, max_size=4), names, st.sampled_from(["op", "action_type", "z"]))
def test_no_dictionary_crashes_the_parser(values: dict[str, Any], name: str, tag: str) -> None:
    """Any JSON object is an action or a BadAction."""
    try:
        for action in parse({tag: name, **values}):
            assert action["op"] in OPS
    except BadAction:
        pass


@given(
    st.integers(0, 5000),
    st.integers(0, 5000),
    st.sampled_from(["click", "left_double", "right_single", "move"]),
)
def test_coordinates_arrive_exactly(x: int, y: int, name: str) -> None:
    """No scaling, no rounding, no clamping."""
    (action,) = parse(f"{name}({x},{y})")
    assert (action["x"], action["y"]) == (x, y)


@pytest.mark.parametrize(
    ("given_action", "internal"),
    [
        ({"action_type": "CLICK", "parameters": {"x": 1, "y": 2, "num_clicks": 2}},
         [{"op": "click", "x": 1, "y": 2, "count": 2}]),
        ({"action_type": "CLICK"}, [{"op": "click"}]),
        ({"action_type": "MOVE_TO", "x": 1, "y": 2}, [{"op": "move", "x": 1, "y": 2}]),
        ({"action_type": "SCROLL", "parameters": {"dx": 1, "dy": 2}}, [{"op": "scroll", "dx": 1, "dy": -2}]),
        ({"action_type": "DRAG_TO", "parameters": {"x": 5, "y": 6}},
         [{"op": "button_down"}, {"op": "move", "x": 5, "y": 6}, {"op": "button_up"}]),
        ({"action_type": "HOTKEY", "parameters": {"keys": ["ctrl", "c"]}},
         [{"op": "key", "keys": ["ctrl", "c"]}]),
        ({"action_type": "KEY_DOWN", "parameters": {"key": "shift"}}, [{"op": "key_down", "key": "shift"}]),
        ({"action_type": "TYPING", "parameters": {"text": "<>é"}}, [{"op": "type", "text": "<>é"}]),
        ({"action_type": "DONE"}, [{"op": "done"}]),
        ("FAIL", [{"op": "fail"}]),
        ("WAIT", [{"op": "wait", "duration_ms": 2000}]),
        ({"op": "scroll", "dy": 120, "unit": "px"}, [{"op": "scroll", "dy": 120, "unit": "px"}]),
        ({"op": "click", "x": 1, "y": 2, "modifiers": ["ctrl"]},
         [{"op": "click", "x": 1, "y": 2, "modifiers": ["ctrl"]}]),
    ],
)  # fmt: skip
def test_dictionaries(given_action: Any, internal: list[dict[str, Any]]) -> None:
    """computer_13 in both forms, its words, and the internal form."""
    assert parse(given_action) == internal


@pytest.mark.parametrize(
    "bad",
    [
        {"action_type": "TELEPORT"},
        {"action_type": "CLICK", "parameters": {"x": 1}},
        {"action_type": "CLICK", "parameters": {"x": 1, "y": 2, "z": 3}},
        {"action_type": "PRESS", "parameters": {}},
        {"action_type": "SCROLL"},
        {"action_type": "CLICK", "x": 5, "y": 5, "parameters": {}},
        {"op": "click", "x": True, "y": 2},
        {"op": "click", "x": 1.5, "y": 2},
        {"op": "drag", "path": [[1, 2]]},
        {"op": "wait", "duration_ms": float("nan")},
        {"op": "wait", "duration_ms": 10**9},
        {"op": "type"},
        {"op": "eval", "code": "1"},
        {"op": "key", "keys": []},
        {"x": 1},
        7,
        None,
    ],
)
def test_dictionaries_that_are_refused(bad: Any) -> None:
    """Unknown names, missing fields and wrong values: nothing is guessed."""
    with pytest.raises(BadAction):
        parse(bad)


def test_the_end_is_kept_from_the_guest() -> None:
    """`finish()` in a list ends the episode after the actions before it."""
    parsed = parse_actions(["click(1,2) & finish()"], SCREEN)
    assert parsed.ending is Done.DONE
    progress = EpisodeProgress(1, 1, parsed.ending, 0, parsed.actions)
    assert [a["op"] for a in progress.for_guest()] == ["click"]
    with pytest.raises(BadAction):
        parse_actions(["finish()", "click(1,2)"], SCREEN)
