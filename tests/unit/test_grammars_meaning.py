"""What means the same in all grammars: Enter at the end of a text, clicks that are apart, drags."""

from __future__ import annotations

import json
from typing import Any

import pytest

from osgym_protocol.actions import Key, Type, parse_actions
from osgym_protocol.grammars import Context, Parsed, parse, render
from osgym_protocol.keysyms import KEYSYMS

SCREEN = (1920, 1080)
CTX = Context(SCREEN)


def _qwen(**arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': 'computer_use', 'arguments': arguments})}</tool_call>"


def _typed(parsed: Parsed) -> str:
    """Return what reaches the application: texts and keys, Enter as a line break."""
    made = ""
    for action in parse_actions(list(parsed.actions), SCREEN):
        if isinstance(action, Type):
            made += action.text
        elif isinstance(action, Key):
            [keysym] = action.keysyms
            made += ("\n" if keysym == KEYSYMS["Return"] else chr(keysym)) * action.repeat
    return made


def _says(grammar: str, text: str) -> list[Any]:
    """Return the ways to type a text in a grammar."""
    escaped = text.replace("\r", "\\r").replace("\n", "\\n")
    xml = f"<function=computer_use><parameter=action>type</parameter>\n<parameter=text>\n{text}\n</parameter>"
    source = f"pyautogui.write({text!r})"
    ways: dict[str, list[Any]] = {
        "osgym": [f"type({text})", {"op": "type", "text": text}],
        "computer13": [{"action_type": "TYPING", "parameters": {"text": text}}],
        "openai": [{"type": "type", "text": text}],
        "anthropic": [{"action": "type", "text": text}],
        "gemini": [
            {"name": "type", "args": {"text": text}},
            {"name": "type", "args": {"text": text, "press_enter": False}},
        ],
        "qwen": [_qwen(action="type", text=text), f"<tool_call>{xml}</function></tool_call>"],
        "uitars": [f"Action: type(content='{escaped}')", f"Action: type(content='{text}')"],
        "glm": [
            f"<|begin_of_box|>type(content='{escaped}')<|end_of_box|>\nMemory:\n[]",
            f"type(content='{text}')",
        ],
        "opencua": [source, f"## Code:\n```python\n{source}\n```"],
        "pyautogui": [source, f"pyautogui.typewrite({text!r}, interval=0.05)"],
    }
    return ways[grammar]


@pytest.mark.parametrize(
    "grammar",
    ["osgym", "computer13", "openai", "anthropic", "gemini", "qwen", "uitars", "glm", "opencua", "pyautogui"],
)
@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("hi", "hi"),
        ("hi\n", "hi\n"),
        ("hi\r\n", "hi\n"),
        ("one\ntwo\n", "one\ntwo\n"),
        ("one\r\n\r\ntwo", "one\n\ntwo"),
        ("\n", "\n"),
    ],
)
def test_each_line_break_is_one_enter(grammar: str, text: str, typed: str) -> None:
    """It is neither lost nor doubled, and CRLF is one."""
    for output in _says(grammar, text):
        parsed = parse(output, CTX, grammar)
        assert _typed(parsed) == typed, output
        assert all("\r" not in action["text"] for action in parsed.actions)


@pytest.mark.parametrize(
    ("output", "typed"),
    [
        ({"name": "type", "args": {"text": "hi", "press_enter": True}}, "hi\n"),
        ({"name": "type", "args": {"text": "hi\n", "press_enter": True}}, "hi\n"),
        ({"name": "type", "args": {"text": "hi\r\n", "press_enter": True}}, "hi\n"),
        ({"name": "type", "args": {"text": "hi\n\n", "press_enter": False}}, "hi\n\n"),
        ({"name": "type", "args": {"text": "", "press_enter": True}}, "\n"),
    ],
)
def test_press_enter_adds_none_to_a_text_that_ends_in_one(output: Any, typed: str) -> None:
    """Gemini says it twice and means it once."""
    assert _typed(parse(output, CTX, "gemini")) == typed


@pytest.mark.parametrize("text", ["hi", "hi\n", "hi\r\n", ""])
def test_typing_at_a_point_presses_enter_once(text: str) -> None:
    """Gemini 2.5's `type_text_at` presses it unless it says otherwise."""
    parsed = parse({"name": "type_text_at", "args": {"x": 1, "y": 1, "text": text}}, CTX, "gemini")
    [typed] = [action for action in parse_actions(list(parsed.actions), SCREEN) if isinstance(action, Type)]
    assert typed.text == text.rstrip("\r\n") + "\n"


def test_two_enters_are_written_for_a_data_set_as_two() -> None:
    """Internal `press_enter` adds one to whatever the text has."""
    output = render([{"op": "type", "text": "hi\n", "press_enter": True}], CTX, "gemini")
    assert _typed(parse(output, CTX, "gemini")) == "hi\n\n"


@pytest.mark.parametrize(
    "source", ["pyautogui.write(['h', 'i', 'enter'])", "pyautogui.write(['h', 'i', '\\n'])"]
)
def test_enter_in_a_list_of_keys(source: str) -> None:
    """By its name or as a line break."""
    assert _typed(parse(source, CTX, "pyautogui")) == "hi\n"


_ONE = {"op": "click", "x": 9, "y": 8, "button": "left", "count": 1}


@pytest.mark.parametrize(
    ("source", "clicks"),
    [
        ("pyautogui.click(9, 8)\npyautogui.click(9, 8)", [_ONE, _ONE]),
        ("pyautogui.click(9, 8, clicks=2)", [{**_ONE, "count": 2}]),
        ("pyautogui.doubleClick(9, 8)", [{**_ONE, "count": 2}]),
        ("pyautogui.tripleClick(9, 8, interval=0.1)", [{**_ONE, "count": 3}]),
        ("pyautogui.click(9, 8, clicks=2, interval=0.5)", [{**_ONE, "count": 2}]),
        ("pyautogui.click(9, 8, clicks=3, interval=0.6)", [_ONE] * 3),
        ("pyautogui.click(9, 8, 2, 1)", [_ONE] * 2),
        ("pyautogui.doubleClick(9, 8, interval=2)", [_ONE] * 2),
        ("pyautogui.click(9, 8, interval=2)", [_ONE]),
    ],
)
def test_clicks_that_are_apart_are_clicks_of_their_own(source: str, clicks: list[Any]) -> None:
    """A double click is one action; longer between than a double click lasts, there are several."""
    assert list(parse(source, CTX, "pyautogui").actions) == clicks
    assert list(parse(source, CTX, "opencua").actions) == clicks


def _tool_use(call_id: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "computer", "input": given}


_DRAG = {"op": "drag", "path": [[10, 20], [30, 40]]}
FROM_A_KNOWN_POINT: list[tuple[str, Any]] = [
    ("anthropic", {"action": "left_click_drag", "start_coordinate": [10, 20], "coordinate": [30, 40]}),
    ("anthropic", [_tool_use("a", action="mouse_move", coordinate=[10, 20]),
                   _tool_use("b", action="left_click_drag", coordinate=[30, 40])]),
    ("anthropic", [_tool_use("a", action="left_click", coordinate=[10, 20]),
                   _tool_use("c", action="screenshot"),
                   _tool_use("b", action="left_click_drag", coordinate=[30, 40])]),
    ("openai", {"type": "drag", "path": [{"x": 10, "y": 20}, {"x": 30, "y": 40}]}),
    ("gemini", {"name": "drag_and_drop",
                "args": {"start_x": 10, "start_y": 20, "end_x": 30, "end_y": 40}}),
    ("qwen", _qwen(action="mouse_move", coordinate=[10, 20]) +
     _qwen(action="left_click_drag", coordinate=[30, 40])),
    ("qwen", _qwen(action="left_click_drag", start_coordinate=[10, 20], coordinate=[30, 40])),
    ("uitars", "Action: drag(start_box='(10,20)', end_box='(30,40)')"),
    ("glm", "left_drag(start_box='[10,20]', end_box='[30,40]', element_info='')"),
    ("osgym", "drag(10,20,30,40)"),
    ("computer13", [{"action_type": "MOVE_TO", "x": 10, "y": 20},
                    {"action_type": "DRAG_TO", "x": 30, "y": 40}]),
    ("pyautogui", "pyautogui.moveTo(10, 20)\npyautogui.dragTo(30, 40)"),
    ("pyautogui", "pyautogui.click(10, 20)\npyautogui.drag(20, 20)"),
    ("opencua", "pyautogui.moveTo(10, 20)\npyautogui.dragTo(30, 40, button='left')"),
]  # fmt: skip


@pytest.mark.parametrize(("grammar", "output"), FROM_A_KNOWN_POINT)
def test_a_drag_from_a_known_point_is_one_action(grammar: str, output: Any) -> None:
    """The same output says where it starts, in the drag or before it."""
    parsed = parse(output, Context(SCREEN, "pixel"), grammar)
    drags = [action for action in parsed.actions if action["op"] == "drag"]
    assert [action["path"] for action in drags] == [_DRAG["path"]]
    assert not [action for action in parsed.actions if action["op"].startswith("button")]


@pytest.mark.parametrize(
    ("grammar", "output"),
    [
        ("anthropic", {"action": "left_click_drag", "coordinate": [30, 40]}),
        ("anthropic", [_tool_use("a", action="left_mouse_down"),
                       _tool_use("b", action="mouse_move", coordinate=[30, 40]),
                       _tool_use("c", action="left_mouse_up")]),
        ("qwen", _qwen(action="left_click_drag", coordinate=[30, 40])),
        ("gemini", [{"name": "mouse_down", "args": {}}, {"name": "move", "args": {"x": 30, "y": 40}},
                    {"name": "mouse_up", "args": {}}]),
        ("computer13", {"action_type": "DRAG_TO", "x": 30, "y": 40}),
        ("computer13", [{"action_type": "MOUSE_DOWN"}, {"action_type": "MOVE_TO", "x": 30, "y": 40},
                        {"action_type": "MOUSE_UP"}]),
        ("pyautogui", "pyautogui.dragTo(30, 40)"),
        ("pyautogui", "pyautogui.mouseDown()\npyautogui.moveTo(30, 40)\npyautogui.mouseUp()"),
        ("opencua", "pyautogui.dragTo(30, 40, duration=0.5)"),
    ],
)  # fmt: skip
def test_a_drag_from_wherever_the_pointer_is(grammar: str, output: Any) -> None:
    """The button goes down there, the pointer moves, the button goes up."""
    parsed = parse(output, Context(SCREEN, "pixel"), grammar)
    assert [(action["op"], action.get("x"), action.get("button", "left")) for action in parsed.actions] == [
        ("button_down", None, "left"), ("move", 30, "left"), ("button_up", None, "left"),
    ]  # fmt: skip


def test_a_drag_with_keys_held_needs_a_start() -> None:
    """It has one where the output says it before."""
    output = [_tool_use("a", action="mouse_move", coordinate=[10, 20]),
              _tool_use("b", action="left_click_drag", coordinate=[30, 40], text="shift")]  # fmt: skip
    assert parse(output, CTX, "anthropic").actions[-1] == {**_DRAG, "modifiers": ["shift"]}


@pytest.mark.parametrize(
    ("grammar", "output"),
    [
        ("openai", {"type": "click", "x": 0.25, "y": 0.5}),
        ("gemini", {"name": "click", "args": {"x": 0.25, "y": 1}}),
        ("uitars", "Action: click(start_box='(0.25,0.5)')"),
        ("pyautogui", "pyautogui.click(0.25, 0.5)"),
        ("computer13", {"action_type": "CLICK", "x": 0.25, "y": 0.5}),
    ],
)
def test_fractions_of_the_image_are_not_its_corner(grammar: str, output: Any) -> None:
    """They are refused, and read where the caller says that coordinates are fractions."""
    with pytest.raises(ValueError, match="not as fractions"):
        parse(output, CTX, grammar)
    [action] = parse(output, Context(SCREEN, "norm1"), grammar).actions
    assert (action["x"], action["y"] > 500) == (480, True)


@pytest.mark.parametrize(
    ("grammar", "thought", "answer"),
    [
        ("uitars", "Action: click(start_box='(1,2)')", "Action: wait()"),
        ("pyautogui", "```python\npyautogui.click(1, 2)\n```", "```python\ntime.sleep(5)\n```"),
        ("opencua", "```python\npyautogui.click(1, 2)\n```", "```python\ncomputer.wait()\n```"),
        ("qwen", _qwen(action="left_click", coordinate=[1, 2]), _qwen(action="wait", time=5)),
        ("computer13", '```json\n{"action_type": "CLICK"}\n```', "WAIT"),
    ],
)
def test_what_was_only_thought_of_is_not_done(grammar: str, thought: str, answer: str) -> None:
    """Thoughts in tags are for the reader; where they are not closed, nothing is done."""
    actions = parse(f"<think>\n{thought}\n</think>\n{answer}", CTX, grammar).actions
    assert [action["op"] for action in actions] == ["wait"]
    with pytest.raises(ValueError, match="not closed with </think>"):
        parse(f"<think>\n{thought}", CTX, grammar)
