"""Outputs of models as their providers' documentation shows them, and the internal actions they mean.

The screen is 1920x1080 unless an example says otherwise. `source` says where each was read and of which date
that is; all were read on 2026-11-22.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from osgym_protocol.grammars import Context, Ending

SCREEN = (1920, 1080)


@dataclass(frozen=True)
class Example:
    """One output and what it means."""

    grammar: str
    source: str
    output: Any
    actions: tuple[dict[str, Any], ...]
    ending: Ending | None = None
    text: str | None = None
    context: Context = field(default_factory=lambda: Context(SCREEN))
    auto: bool = True
    """Whether the grammar is told by the shape."""


def _click(x: int, y: int, button: str = "left", **more: Any) -> dict[str, Any]:
    return {"op": "click", "x": x, "y": y, "button": button, **more}


def _examples(grammar: str, source: str, *rows: tuple[Any, ...], **more: Any) -> list[Example]:
    return [Example(grammar, source, row[0], tuple(row[1:]), **more) for row in rows]


_OSGYM = "agiopen-org/osgym README and server, 473ce36"
_C13 = "desktop-env 1.0.2, desktop_env/actions.py"
_OPENAI = "openai-python 2026-08-21, types/responses/computer_action.py"
_ANTHROPIC = "platform.claude.com, computer use tool, 2026-11; anthropic-quickstarts 2025-06-04"
_TOOLSET = "anthropic SDK computer-toolset.md, 2026-11"
_GEMINI = "ai.google.dev computer use, 2026-11"
_QWEN = "QwenLM/Qwen3-VL 2026-01-30, cookbooks/utils/agent_function_call.py"
_UITARS = "bytedance/UI-TARS 2025-09-05, codes/ui_tars/prompt.py and tests"
_GLM = "zai-org/GLM-V 2025-08-27, examples/gui-agent/glm-45v"
_OPENCUA = "xlang-ai/OpenCUA 2025-08-16, system prompts"
_PYAUTOGUI = "pyautogui 2023-06-07 and OSWorld's prompts"
_WAIT2 = {"op": "wait", "duration_ms": 2000}


def _call(*actions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "computer_call", "id": "cu_1", "call_id": "call_1", "status": "completed",
            "pending_safety_checks": [], "actions": list(actions), **more}  # fmt: skip


def _use(name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "toolu_1", "name": name, "toolset_name": "computer", "input": given}


def _old_use(**given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "toolu_1", "name": "computer", "input": given}


def _gemini(name: str, **args: Any) -> dict[str, Any]:
    return {"function_call": {"name": name, "args": args}}


def _qwen(*calls: str) -> str:
    return "\n".join(
        f'<tool_call>\n{{"name": "computer_use", "arguments": {call}}}\n</tool_call>' for call in calls
    )


def _qwen_xml(**arguments: str) -> str:
    given = "".join(f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in arguments.items())
    return f"<tool_call>\n<function=computer_use>\n{given}</function>\n</tool_call>"


OPENAI = _examples(
    "openai", _OPENAI,
    (_call({"type": "click", "button": "left", "x": 405, "y": 157}), _click(405, 157)),
    (_call({"type": "click", "button": "wheel", "x": 1, "y": 2, "keys": ["SHIFT"]}),
     _click(1, 2, "middle", modifiers=["SHIFT"])),
    (_call({"type": "double_click", "x": 3, "y": 4}), {"op": "click", "x": 3, "y": 4, "count": 2}),
    (_call({"type": "drag", "path": [{"x": 100, "y": 200}, {"x": 200, "y": 300}]}),
     {"op": "drag", "path": [[100, 200], [200, 300]]}),
    (_call({"type": "keypress", "keys": ["CTRL", "A"]}), {"op": "key", "keys": ["CTRL", "A"]}),
    (_call({"type": "move", "x": 5, "y": 6}), {"op": "move", "x": 5, "y": 6}),
    (_call({"type": "screenshot"}), {"op": "screenshot"}),
    (_call({"type": "scroll", "x": 7, "y": 8, "scroll_x": 0, "scroll_y": 480}),
     {"op": "scroll", "x": 7, "y": 8, "dx": 0, "dy": 480, "unit": "px"}),
    (_call({"type": "type", "text": "penguin"}), {"op": "type", "text": "penguin"}),
    (_call({"type": "wait"}), _WAIT2),
    (_call({"type": "click", "button": "left", "x": 405, "y": 157}, {"type": "type", "text": "penguin"}),
     _click(405, 157), {"op": "type", "text": "penguin"}),
    ({"type": "computer_call", "call_id": "c",
      "action": {"type": "click", "x": 1, "y": 2, "button": "right"}}, _click(1, 2, "right")),
    ({"type": "click", "x": 1, "y": 2, "button": "back"}, _click(1, 2, "back")),
    ([{"type": "reasoning", "id": "rs_1", "summary": []}, _call({"type": "wait"})], _WAIT2),
    ({"object": "response", "output": [_call({"type": "wait"})]}, _WAIT2),
)  # fmt: skip
OPENAI.append(
    Example(
        "openai", _OPENAI,
        [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is 42."}]}],
        (), Ending.ANSWER, "It is 42.",
    )
)  # fmt: skip

ANTHROPIC = [
    *_examples(
        "anthropic", _TOOLSET,
        (_use("left_click", coordinate=[640, 360]), _click(640, 360, count=1)),
        (_use("left_click", coordinate=[1, 2], text="ctrl+shift"),
         _click(1, 2, count=1, modifiers=["ctrl", "shift"])),
        (_use("right_click"), {"op": "click", "button": "right", "count": 1}),
        (_use("middle_click", coordinate=[1, 2]), _click(1, 2, "middle", count=1)),
        (_use("double_click", coordinate=[1, 2]), _click(1, 2, count=2)),
        (_use("triple_click", coordinate=[1, 2]), _click(1, 2, count=3)),
        (_use("left_click_drag", start_coordinate=[1, 2], coordinate=[3, 4]),
         {"op": "drag", "path": [[1, 2], [3, 4]]}),
        (_use("mouse_move", coordinate=[1, 2]), {"op": "move", "x": 1, "y": 2}),
        (_use("left_mouse_down"), {"op": "button_down"}),
        (_use("left_mouse_up"), {"op": "button_up"}),
        (_use("scroll", coordinate=[500, 400], scroll_direction="down", scroll_amount=3),
         {"op": "scroll", "x": 500, "y": 400, "dx": 0, "dy": 3}),
        (_use("scroll", scroll_direction="left", scroll_amount=2, text="shift"),
         {"op": "scroll", "dx": -2, "dy": 0, "modifiers": ["shift"]}),
        (_use("key", text="ctrl+s"), {"op": "key", "keys": ["ctrl", "s"], "repeat": 1}),
        (_use("key", text="Down", repeat=4), {"op": "key", "keys": ["Down"], "repeat": 4}),
        (_use("hold_key", text="shift", duration=1.5),
         {"op": "hold", "keys": ["shift"], "duration_ms": 1500.0}),
        (_use("type", text="Hello, world!"), {"op": "type", "text": "Hello, world!"}),
        (_use("wait", duration=2), _WAIT2),
        (_use("screenshot"), {"op": "screenshot"}),
        (_use("cursor_position"),),
        (_use("zoom", region=[100, 200, 400, 350]),),
        ([_use("left_click", coordinate=[1, 2]), _use("type", text="a")],
         _click(1, 2, count=1), {"op": "type", "text": "a"}),
    ),
    *_examples(
        "anthropic", _ANTHROPIC,
        (_old_use(action="left_click", coordinate=[500, 300]), _click(500, 300, count=1)),
        (_old_use(action="left_click", coordinate=[1, 2], key="ctrl"),
         _click(1, 2, count=1, modifiers=["ctrl"])),
        (_old_use(action="key", text="alt+Tab"), {"op": "key", "keys": ["alt", "Tab"], "repeat": 1}),
        (_old_use(action="key", text="KP_0"), {"op": "key", "keys": ["KP_0"], "repeat": 1}),
        (_old_use(action="left_click_drag", coordinate=[3, 4]),
         {"op": "button_down"}, {"op": "move", "x": 3, "y": 4}, {"op": "button_up"}),
        ({"role": "assistant", "content": [{"type": "text", "text": "I click."},
                                           _old_use(action="screenshot")]}, {"op": "screenshot"}),
    ),
    Example("anthropic", _ANTHROPIC, {"action": "left_click", "coordinate": [512, 384]},
            (_click(960, 540, count=1),), context=Context(SCREEN, (1024, 768)), auto=False),
    Example("anthropic", _ANTHROPIC, [{"type": "text", "text": "Done."}], (), Ending.ANSWER, "Done.",
            auto=False),
]  # fmt: skip

_X, _Y = 960, 540  # where 500, 500 of 1000 is
GEMINI = _examples(
    "gemini", _GEMINI,
    (_gemini("click", x=500, y=500, intent="press it"), _click(_X, _Y, count=1)),
    (_gemini("double_click", x=500, y=500), _click(_X, _Y, count=2)),
    (_gemini("triple_click", x=500, y=500), _click(_X, _Y, count=3)),
    (_gemini("middle_click", x=500, y=500), _click(_X, _Y, "middle", count=1)),
    (_gemini("right_click", x=500, y=500), _click(_X, _Y, "right", count=1)),
    (_gemini("mouse_down", x=500, y=500), {"op": "button_down", "x": _X, "y": _Y}),
    (_gemini("mouse_up", x=500, y=500), {"op": "button_up", "x": _X, "y": _Y}),
    (_gemini("move", x=999, y=0), {"op": "move", "x": 1918, "y": 0}),
    (_gemini("type", text="hi", press_enter=True), {"op": "type", "text": "hi", "press_enter": True}),
    (_gemini("drag_and_drop", start_x=0, start_y=0, end_x=500, end_y=500),
     {"op": "drag", "path": [[0, 0], [_X, _Y]]}),
    (_gemini("wait"), {"op": "wait", "duration_ms": 1000}),
    (_gemini("press_key", key="enter"), {"op": "key", "keys": ["enter"]}),
    (_gemini("key_down", key="shift"), {"op": "key_down", "key": "shift"}),
    (_gemini("key_up", key="shift"), {"op": "key_up", "key": "shift"}),
    (_gemini("hotkey", keys=["ctrl", "c"]), {"op": "key", "keys": ["ctrl", "c"]}),
    (_gemini("take_screenshot"), {"op": "screenshot"}),
    (_gemini("scroll", x=500, y=500, direction="up"),
     {"op": "scroll", "x": _X, "y": _Y, "dx": 0, "dy": -300, "unit": "px"}),
    ({"name": "click_at", "args": {"y": 300, "x": 500}}, _click(_X, 324, count=1)),
    ({"name": "hover_at", "args": {"y": 150, "x": 250}}, {"op": "move", "x": 480, "y": 162}),
    ({"name": "type_text_at", "args": {"y": 250, "x": 400, "text": "search query", "press_enter": False}},
     {"op": "click", "x": 768, "y": 270}, {"op": "key", "keys": ["ctrl", "a"]},
     {"op": "key", "keys": ["BackSpace"]}, {"op": "type", "text": "search query", "press_enter": False}),
    ({"name": "key_combination", "args": {"keys": "Control+A"}}, {"op": "key", "keys": ["Control", "A"]}),
    ({"name": "scroll_document", "args": {"direction": "down"}}, {"op": "key", "keys": ["Page_Down"]}),
    ({"name": "scroll_at", "args": {"y": 500, "x": 500, "direction": "down", "magnitude": 400}},
     {"op": "scroll", "x": _X, "y": _Y, "dx": 0, "dy": 432, "unit": "px"}),
    ({"name": "drag_and_drop", "args": {"y": 100, "x": 100, "destination_y": 500, "destination_x": 500}},
     {"op": "drag", "path": [[192, 108], [_X, _Y]]}),
    ({"name": "wait_5_seconds", "args": {}}, {"op": "wait", "duration_ms": 5000}),
    ({"candidates": [{"content": {"role": "model", "parts": [{"text": "I look."}, _gemini("wait")]}}]},
     {"op": "wait", "duration_ms": 1000}),
    ({"steps": [{"type": "function_call", "id": "c1", "name": "click",
                 "arguments": {"x": 500, "y": 500, "intent": "i"}}]}, _click(_X, _Y, count=1)),
)  # fmt: skip
GEMINI.append(Example("gemini", _GEMINI, {"parts": [{"text": "All done."}]}, (), Ending.ANSWER, "All done."))

QWEN = [
    *_examples(
        "qwen", _QWEN,
        (_qwen('{"action": "left_click", "coordinate": [500, 500]}'), _click(_X, _Y, count=1)),
        (_qwen('{"action": "right_click", "coordinate": [500, 500]}'), _click(_X, _Y, "right", count=1)),
        (_qwen('{"action": "middle_click", "coordinate": [500, 500]}'), _click(_X, _Y, "middle", count=1)),
        (_qwen('{"action": "double_click", "coordinate": [500, 500]}'), _click(_X, _Y, count=2)),
        (_qwen('{"action": "triple_click", "coordinate": [500, 500]}'), _click(_X, _Y, count=3)),
        (_qwen('{"action": "key", "keys": ["ctrl", "c"]}'), {"op": "key", "keys": ["ctrl", "c"]}),
        (_qwen('{"action": "type", "text": "héllo"}'), {"op": "type", "text": "héllo"}),
        (_qwen('{"action": "mouse_move", "coordinate": [1000, 1000]}'), {"op": "move", "x": 1919, "y": 1079}),
        (_qwen('{"action": "mouse_move", "coordinate": [0, 0]}',
               '{"action": "left_click_drag", "coordinate": [500, 500]}'),
         {"op": "move", "x": 0, "y": 0}, {"op": "drag", "path": [[0, 0], [_X, _Y]]}),
        (_qwen('{"action": "left_click_drag", "coordinate": [500, 500]}'),
         {"op": "button_down"}, {"op": "move", "x": _X, "y": _Y}, {"op": "button_up"}),
        (_qwen('{"action": "scroll", "pixels": -600}'), {"op": "scroll", "dy": 600, "unit": "px"}),
        (_qwen('{"action": "hscroll", "pixels": 120}'), {"op": "scroll", "dx": 120, "unit": "px"}),
        (_qwen('{"action": "wait", "time": 2}'), _WAIT2),
        ("<think>\nmaybe <tool_call>\n</think>\nAction: click it.\n" +
         _qwen('{"action": "left_click", "coordinate": [500, 500]}'), _click(_X, _Y, count=1)),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "t1", "type": "function", "function": {
            "name": "computer_use", "arguments": '{"action": "wait", "time": 2}'}}]}, _WAIT2),
        ({"choices": [{"message": {"role": "assistant", "content": _qwen('{"action": "wait", "time": 2}')}}]},
         _WAIT2),
    ),
    Example("qwen", _QWEN, _qwen('{"action": "terminate", "status": "success"}'), (), Ending.DONE),
    Example("qwen", _QWEN, _qwen('{"action": "terminate", "status": "failure"}'), (), Ending.FAIL),
    Example("qwen", _QWEN, _qwen('{"action": "answer", "text": "42"}'), (), Ending.ANSWER, "42"),
    *_examples(
        "qwen", "Qwen3.5 chat template, read on 2026-11-26",
        (_qwen_xml(action="left_click", coordinate="[500, 500]"), _click(_X, _Y, count=1)),
        (_qwen_xml(action="type", text="two\nlines\n"), {"op": "type", "text": "two\nlines\n"}),
        (_qwen_xml(action="key", keys='["ctrl", "s"]'), {"op": "key", "keys": ["ctrl", "s"]}),
        ("I look for it.\n</think>\n\nI wait.\n" + _qwen_xml(action="wait", time="2"), _WAIT2),
    ),
    Example("qwen", "QwenLM Qwen2.5-VL cookbook",
            _qwen('{"action": "left_click", "coordinate": [966, 546]}'),
            (_click(960, 540, count=1),), context=Context(SCREEN, version="qwen2.5-vl")),
]  # fmt: skip

UITARS = [
    *_examples(
        "uitars", _UITARS,
        ("Thought: Click it.\nAction: click(start_box='(500,500)')", _click(_X, _Y, count=1)),
        ("Action: click(start_box='<|box_start|>(500,500)<|box_end|>')", _click(_X, _Y, count=1)),
        ("Thought: test\nAction: click(point='<point>200 300</point>')", _click(384, 324, count=1)),
        ("Action: click(start_box='[400, 400, 600, 600]')", _click(_X, _Y, count=1)),
        ("Action: left_double(start_box='(500,500)')", _click(_X, _Y, count=2)),
        ("Action: right_single(point='<point>500 500</point>')", _click(_X, _Y, "right", count=1)),
        ("Action: drag(start_box='(0,0)', end_box='(500,500)')", {"op": "drag", "path": [[0, 0], [_X, _Y]]}),
        ("Action: drag(start_point='<point>0 0</point>', end_point='<point>500 500</point>')",
         {"op": "drag", "path": [[0, 0], [_X, _Y]]}),
        ("Action: hotkey(key='ctrl c')", {"op": "key", "keys": ["ctrl", "c"]}),
        ("Action: hotkey(key='arrowleft')", {"op": "key", "keys": ["arrowleft"]}),
        ("Action: type(content='xxx\\n')", {"op": "type", "text": "xxx\n"}),
        ("Action: type(content='it\\'s \"here\"')", {"op": "type", "text": "it's \"here\""}),
        ("Action: type(content='it's (so) here, isn't it?')",
         {"op": "type", "text": "it's (so) here, isn't it?"}),
        ("Action: scroll(start_box='(500,500)', direction='down')",
         {"op": "scroll", "x": _X, "y": _Y, "dx": 0, "dy": 5}),
        ("Action: scroll(point='<point>500 500</point>', direction='left')",
         {"op": "scroll", "x": _X, "y": _Y, "dx": -5, "dy": 0}),
        ("Action: wait()", {"op": "wait", "duration_ms": 5000}),
        ("Thought: two\nAction: click(start_box='(500,500)')\n\ntype(content='a')",
         _click(_X, _Y, count=1), {"op": "type", "text": "a"}),
        ("Action: press(key='shift')", {"op": "key_down", "key": "shift"}),
        ("Action: release(key='shift')", {"op": "key_up", "key": "shift"}),
    ),
    Example("uitars", _UITARS, "Thought: ok\nAction: finished(content='The answer is 4')", (), Ending.DONE,
            "The answer is 4"),
    Example("uitars", _UITARS, "Action: finished()", (), Ending.DONE),
    Example("uitars", _UITARS, "Action: call_user()", (), Ending.ASK_USER),
    Example("uitars", "bytedance/UI-TARS README_coordinates.md", "Action: click(start_box='(966,546)')",
            (_click(960, 540, count=1),), context=Context(SCREEN, version="1.5")),
]  # fmt: skip

GLM = [
    *_examples(
        "glm", _GLM,
        ("I open it. <|begin_of_box|>left_click(start_box='[500,500]', element_info='Save')<|end_of_box|>\n"
         "Memory:\n[]", _click(_X, _Y, count=1)),
        ("<think>Where is it?</think>I open the menu.\nright_click(start_box='[500,500]')\nMemory:\n"
         '[{"key": "a: b"}]', _click(_X, _Y, "right", count=1)),
        ("middle_click(start_box='[500,500]', element_info='')", _click(_X, _Y, "middle", count=1)),
        ("left_double_click(start_box='[500,500]', element_info='')", _click(_X, _Y, count=2)),
        ("<|begin_of_box|>hover(start_box='[999,0]', element_info='')<|end_of_box|>",
         {"op": "move", "x": 1918, "y": 0}),
        ("left_drag(start_box='[0,0]', end_box='[500,500]', element_info='')",
         {"op": "drag", "path": [[0, 0], [_X, _Y]]}),
        ("key(keys='ctrl+c')", {"op": "key", "keys": ["ctrl", "c"]}),
        ("<|begin_of_box|>type(content='it\\'s here\\n')<|end_of_box|>",
         {"op": "type", "text": "it's here\n"}),
        ("<|begin_of_box|>scroll(start_box='[500,500]', direction='up', step=3, element_info='')"
         "<|end_of_box|>", {"op": "scroll", "x": _X, "y": _Y, "dy": -3}),
        ("<|begin_of_box|>scroll(start_box='[500,500]', direction='down')<|end_of_box|>",
         {"op": "scroll", "x": _X, "y": _Y, "dy": 5}),
        ("I wait. WAIT()", {"op": "wait", "duration_ms": 5000}),
    ),
    Example("glm", _GLM, "It is done.\nDONE()\nMemory:\n[]", (), Ending.DONE, "It is done."),
    Example("glm", _GLM, "<|begin_of_box|>FAIL()<|end_of_box|>", (), Ending.FAIL),
    Example("glm", _GLM, "type(content='a')", ({"op": "type", "text": "a"},), auto=False),
]  # fmt: skip

_PRESS_ENTER = {"op": "key", "keys": ["enter"], "repeat": 1}
PYAUTOGUI = [
    *_examples(
        "pyautogui", _PYAUTOGUI,
        ("pyautogui.click(100, 200)", _click(100, 200, count=1)),
        ("import pyautogui\nimport time\n"
         "pyautogui.click(x=100, y=200, clicks=2, button='right')\ntime.sleep(2)",
         _click(100, 200, "right", count=2), _WAIT2),
        ("```python\npyautogui.doubleClick((10, 20))\n```", _click(10, 20, count=2)),
        ("I will type.\n```python\npyautogui.typewrite('a\\nb', interval=0.05)\n"
         "pyautogui.press('enter')\n```\n",
         {"op": "type", "text": "a\nb"}, _PRESS_ENTER),
        ("pyautogui.hotkey('ctrl', 'c')", {"op": "key", "keys": ["ctrl", "c"]}),
        ("pyautogui.hotkey(['ctrl', 'v'])", {"op": "key", "keys": ["ctrl", "v"]}),
        ("pyautogui.press(['left', 'right'], presses=2)",
         *[{"op": "key", "keys": [key]} for key in ("left", "right", "left", "right")]),
        ("pyautogui.write(['a', 'enter'])", {"op": "key", "keys": ["a"]}, {"op": "key", "keys": ["enter"]}),
        ("pyautogui.moveTo(1, 2)\npyautogui.dragTo(30, 40, duration=1.0, button='left')",
         {"op": "drag", "path": [[1, 2], [30, 40]], "button": "left"}),
        ("pyautogui.dragTo(30, 40)", {"op": "button_down", "button": "left"},
         {"op": "move", "x": 30, "y": 40}, {"op": "button_up", "button": "left"}),
        ("pyautogui.moveTo(10, 10)\npyautogui.moveRel(5, -5)", {"op": "move", "x": 10, "y": 10},
         {"op": "move", "x": 15, "y": 5}),
        ("pyautogui.scroll(-5, x=3, y=4)", {"op": "scroll", "x": 3, "y": 4, "dy": 5}),
        ("pyautogui.hscroll(5)", {"op": "scroll", "dx": 5}),
        ("pyautogui.mouseDown(1, 2)\npyautogui.mouseUp()",
         {"op": "button_down", "x": 1, "y": 2, "button": "left"},
         {"op": "button_up", "button": "left"}),
        ("pyautogui.keyDown('shift')\npyautogui.keyUp('shift')", {"op": "key_down", "key": "shift"},
         {"op": "key_up", "key": "shift"}),
        ("with pyautogui.hold('shift'):\n    pyautogui.press('enter')", {"op": "key_down", "key": "shift"},
         _PRESS_ENTER, {"op": "key_up", "key": "shift"}),
        ("x, y = 100, 2 * 50 + 100\npyautogui.click(x, y)", _click(100, 200, count=1)),
        ("import pyautogui as pg\nw, h = pg.size()\npg.moveTo(w / 2, h // 2)",
         {"op": "move", "x": 960, "y": 540}),
        ("from time import sleep\nsleep(2)", _WAIT2),
        ("pyautogui.FAILSAFE = False\npyautogui.PAUSE = 0.5\npyautogui.press('enter')", _PRESS_ENTER),
        ("pyautogui.write('C:\\dir' + '!' * 3)", {"op": "type", "text": "C:\\dir!!!"}),
    ),
    Example("pyautogui", _PYAUTOGUI, "pyautogui.press('enter')\nDONE", (_PRESS_ENTER,), Ending.DONE),
    Example("pyautogui", _PYAUTOGUI, "```\nWAIT\n```", (_WAIT2,), auto=False),
    Example("pyautogui", _PYAUTOGUI, "```FAIL```", (), Ending.FAIL, auto=False),
]  # fmt: skip

OPENCUA = [
    *_examples(
        "opencua", _OPENCUA,
        ("# Step 1:\n## Thought:\nI click.\n## Action:\nClick it.\n## Code:\n```python\n"
         "computer.triple_click(x=100, y=200)\n```", _click(100, 200, count=3)),
        ("## Action:\nClick.\n## Code:\npyautogui.click(x=100, y=200)\ncomputer.wait()",
         _click(100, 200, count=1), {"op": "wait", "duration_ms": 5000}),
    ),
    Example("opencua", _OPENCUA, "## Code:\n```python\npyautogui.click(x=100, y=200)\n```",
            (_click(100, 200, count=1),), auto=False),
    Example("opencua", _OPENCUA, "computer.terminate(status='success')", (), Ending.DONE),
    Example("opencua", _OPENCUA, "computer.terminate(status='failure')", (), Ending.FAIL),
    Example("opencua", _OPENCUA, "computer.terminate(status='success', answer='42')", (), Ending.ANSWER,
            "42"),
    Example("opencua", "OpenCUA AgentNet data", "pyautogui.click(x=0.5, y=0.5)", (_click(_X, _Y, count=1),),
            context=Context(SCREEN, version="agentnet"), auto=False),
    Example("opencua", "OpenCUA README, Qwen2.5-based", "pyautogui.click(x=966, y=546)",
            (_click(960, 540, count=1),), context=Context(SCREEN, version="qwen2.5"), auto=False),
]  # fmt: skip

OSGYM = [
    *_examples(
        "osgym", _OSGYM,
        ("click(100,200)", {"op": "click", "x": 100, "y": 200}),
        ("click(1,2) & type(a & b) & press(enter)", {"op": "click", "x": 1, "y": 2},
         {"op": "type", "text": "a & b"}, {"op": "key", "keys": ["enter"]}),
        ("<|think_start|>t<|think_end|><|action_start|>drag(1,2,3,4)<|action_end|>",
         {"op": "drag", "path": [[1, 2], [3, 4]]}),
        ({"op": "key", "keys": ["ctrl", "s"]}, {"op": "key", "keys": ["ctrl", "s"]}),
        (["scroll(1,2,-50)", {"op": "wait", "duration_ms": 5}], {"op": "scroll", "x": 1, "y": 2, "dy": 50},
         {"op": "wait", "duration_ms": 5}),
    ),
    Example("osgym", _OSGYM, "finish()", (), Ending.DONE),
    Example("osgym", _OSGYM, "call_user()", (), Ending.FAIL),
    Example("osgym", "agiopen-org/osgym examples/osgym.py, 473ce36", "scroll(500,500,up)",
            ({"op": "scroll", "x": _X, "y": _Y, "dy": -50},), context=Context(SCREEN, "norm1000")),
]  # fmt: skip

COMPUTER13 = [
    *_examples(
        "computer13", _C13,
        ({"action_type": "MOVE_TO", "parameters": {"x": 1, "y": 2}}, {"op": "move", "x": 1, "y": 2}),
        ({"action_type": "CLICK", "parameters": {"button": "right", "x": 1, "y": 2, "num_clicks": 2}},
         {"op": "click", "x": 1, "y": 2, "button": "right", "count": 2}),
        ({"action_type": "CLICK"}, {"op": "click"}),
        ({"action_type": "TYPING", "text": "hi"}, {"op": "type", "text": "hi"}),
        ({"action_type": "SCROLL", "parameters": {"dx": 0, "dy": -3}}, {"op": "scroll", "dx": 0, "dy": 3}),
        ({"action_type": "HOTKEY", "parameters": {"keys": ["ctrl", "s"]}},
         {"op": "key", "keys": ["ctrl", "s"]}),
        ('I scroll.\n```json\n{"action_type": "PRESS", "parameters": {"key": "enter"}}\n```',
         {"op": "key", "keys": ["enter"]}),
        ("WAIT", _WAIT2),
    ),
    Example("computer13", _C13, "DONE", (), Ending.DONE),
    Example("computer13", _C13, {"action_type": "FAIL"}, (), Ending.FAIL),
]  # fmt: skip

EXAMPLES = [
    *OSGYM, *COMPUTER13, *OPENAI, *ANTHROPIC, *GEMINI, *QWEN, *UITARS, *GLM, *OPENCUA, *PYAUTOGUI,
]  # fmt: skip
