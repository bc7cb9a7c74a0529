"""Prompts of open models, in the form that each was published with.

Output formats, action spaces and tool schemas are the models' own, since they were trained on them; the
sentences around them are short versions of the published ones. Who wants a published text to the letter
passes it as ``system=``.

Sources, read on 2026-11-22: UI-TARS `codes/ui_tars/prompt.py` (bytedance/UI-TARS, 2025-09-05); Qwen3-VL
`cookbooks/utils/agent_function_call.py` (QwenLM, 2026-01-30); OpenCUA
`evaluation/agentnetbench/agent/opencua.py` (xlang-ai/OpenCUA, 2025-08-16); OSWorld `mm_agents/prompts.py` and
`desktop_env/actions.py` (xlang-ai/OSWorld, as in desktop-env 1.0.2).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from osgym_protocol.grammars import smart_resize
from osgym_protocol.grammars.computer13 import WORDS
from osgym_protocol.grammars.qwen import ACTIONS as QWEN_ACTIONS
from osgym_sdk._exceptions import ConfigError
from osgym_sdk._inputs.reading import Reading

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Prompt:
    """System prompt of a model, and the grammar of its answers.

    Attributes:
        reading: grammar, version and coordinates of its answers.
        system: the system message for an image of that many pixels.
        first: the text beside the first screenshot, from the instruction.
        images: how many of the newest screenshots the model was made to see.
        objects: whether answers may come as `tool_calls`, which the grammar then reads.
    """

    reading: Reading
    system: Callable[[Size], str]
    first: Callable[[str], str]
    images: int = 3
    objects: bool = False


def prompt_named(name: str) -> Prompt:
    """Return a prompt of the table.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in PROMPTS:
        raise ConfigError(f"prompt: unknown prompt {name[:60]!r}; valid prompts: {', '.join(PROMPTS)}")
    return PROMPTS[name]


def _fixed(text: str) -> Callable[[Size], str]:
    return lambda size: text


def _instruction(text: str) -> str:
    return f"# Task\n{text}"


# UI-TARS ------------------------------------------------------------------------------------------------

_UITARS = """\
You are a GUI agent. You are given a task and your action history, with screenshots. You need to perform the \
next action to complete the task.

## Output Format
```
Thought: ...
Action: ...
```

## Action Space

{actions}
hotkey(key='ctrl c') # Keys are split by a space, in lower case, at most three.
type(content='xxx') # Write \\', \\" and \\n for quotes and line breaks; \\n at the end submits.
{scroll}
wait() # Wait five seconds and look again.
finished(content='xxx') # The task is done; content is the answer if one is asked for.
call_user() # The task cannot be done, or the user is needed.

## Note
- Use English in `Thought` part.
- Write a small plan and finally summarize your next action (with its target element) in one sentence in \
`Thought` part.

## User Instruction
{instruction}
"""
_POINTS = """\
click(point='<point>x1 y1</point>')
left_double(point='<point>x1 y1</point>')
right_single(point='<point>x1 y1</point>')
drag(start_point='<point>x1 y1</point>', end_point='<point>x2 y2</point>')"""
_BOXES = """\
click(start_box='<|box_start|>(x1,y1)<|box_end|>')
left_double(start_box='<|box_start|>(x1,y1)<|box_end|>')
right_single(start_box='<|box_start|>(x1,y1)<|box_end|>')
drag(start_box='<|box_start|>(x1,y1)<|box_end|>', end_box='<|box_start|>(x3,y3)<|box_end|>')"""
_DIRECTION = "direction='down or up or right or left')"


def _uitars(version: str) -> Prompt:
    """UI-TARS has its whole prompt in the first user's message."""
    boxes = version == "1.5"
    scroll = "start_box='<|box_start|>(x1,y1)<|box_end|>'" if boxes else "point='<point>x1 y1</point>'"

    def first(instruction: str) -> str:
        return _UITARS.format(
            actions=_BOXES if boxes else _POINTS,
            scroll=f"scroll({scroll}, {_DIRECTION}",
            instruction=instruction,
        )

    return Prompt(Reading("uitars", version), _fixed("You are a helpful assistant."), first, images=5)


# Qwen ---------------------------------------------------------------------------------------------------

_QWEN = """\
You are a helpful assistant.

# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tool}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> \
XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>

# Response format

For every step: a line `Action:` that says in one sentence what to do on the screen, then one <tool_call> \
block.
If the task is done or cannot be done, call computer_use with action=terminate and the status.
"""
_QWEN_ARGUMENTS = {
    "keys": ("array", "Required only by `action=key`."),
    "text": ("string", "Required only by `action=type` and `action=answer`."),
    "coordinate": ("array", "(x, y): pixels from the left and from the top edge, for actions of the mouse."),
    "pixels": (
        "number",
        "How far to scroll: positive is up. Required only by `action=scroll` and `hscroll`.",
    ),
    "time": ("number", "The seconds to wait. Required only by `action=wait`."),
}


def _qwen_tool(size: Size) -> str:
    width, height = size
    properties: dict[str, object] = {
        "action": {"type": "string", "enum": list(QWEN_ACTIONS), "description": "The action to perform."}
    }
    for name, (kind, text) in _QWEN_ARGUMENTS.items():
        properties[name] = {"type": kind, "description": text}
    properties["status"] = {
        "type": "string",
        "enum": ["success", "failure"],
        "description": "Required only by `action=terminate`.",
    }
    description = (
        "Use a mouse and keyboard to interact with a computer, and take screenshots.\n"
        "* Applications may take time to start or to act: you may need to wait and look again.\n"
        f"* The screen's resolution is {width}x{height}.\n"
        "* Put the tip of the cursor in the middle of buttons, links and icons, not on their edges."
    )
    parameters = {"type": "object", "properties": properties, "required": ["action"]}
    function = {"name": "computer_use", "description": description, "parameters": parameters}
    return json.dumps({"type": "function", "function": function}, ensure_ascii=False)


def _qwen(version: str) -> Prompt:
    def system(size: Size) -> str:
        return _QWEN.format(tool=_qwen_tool((1000, 1000) if version == "qwen3-vl" else smart_resize(*size)))

    return Prompt(Reading("qwen", version), system, _instruction, images=4, objects=True)


# OpenCUA ------------------------------------------------------------------------------------------------

_OPENCUA = """\
You are a GUI agent. You are given an instruction, a screenshot of the screen and your previous interactions \
with the computer. You need to perform a series of actions to complete the task.

For each step, provide your response in this format:

Thought:
  - Assess what the last action did and how far the task is
  - List possible next actions and choose one
  - If the last action failed, say how to recover

Action:
  One sentence that names the action and the element.

Code:
  The action as Python in a fenced block:
```python
pyautogui calls, or one of: computer.wait(seconds), computer.triple_click(x, y), \
computer.terminate(status='success' or 'failure')
```
"""

# OSWorld's own prompts ----------------------------------------------------------------------------------

_PYAUTOGUI = """\
You are an agent which follows an instruction and performs desktop computer tasks. For each step you get a \
screenshot of the computer's screen and predict the next action from it.

Use `pyautogui` to act, with coordinates in pixels of the screenshot. Do not use \
`pyautogui.locateCenterOnScreen` or `pyautogui.screenshot()`. Return one line or several lines of complete \
Python, without loops, conditions or functions; nothing is kept from one step to the next.
Return the code inside a code block, like this:
```python
# your code here
```
It is also allowed to return one of these words in a code block:
```WAIT``` when you have to wait for some time;
```FAIL``` when the task can not be done: do not say so easily, try your best;
```DONE``` when the task is done.

The screenshot has {width}x{height} pixels.
First reflect shortly on the screenshot and on what was done before, then return ONLY the code or the word.
"""
_COMPUTER13 = """\
You are an agent which follows an instruction and performs desktop computer tasks. For each step you get a \
screenshot of the computer's screen and predict the next action from it.

An action is an object in a code block, with `action_type` and the parameters of that type. x is from 0 to \
{x}, y from 0 to {y}, in pixels of the screenshot:
- MOVE_TO {{x, y}}; DRAG_TO {{x, y}}: with the left button pressed
- CLICK {{button?: left|right|middle, x?, y?, num_clicks?: 1|2|3}}
- RIGHT_CLICK {{x?, y?}}; DOUBLE_CLICK {{x?, y?}}
- MOUSE_DOWN {{button?}}; MOUSE_UP {{button?}}
- SCROLL {{dx, dy}}: clicks of the wheel, dy positive is up
- TYPING {{text}}; PRESS {{key}}; KEY_DOWN {{key}}; KEY_UP {{key}}; HOTKEY {{keys: [..]}}
- {words}: wait, the task is done, the task can not be done; without parameters

For example:
```json
{{"action_type": "CLICK", "x": 1319, "y": 65, "button": "left"}}
```
Return ONLY one such block.
"""


def _osworld(text: str) -> Callable[[Size], str]:
    def system(size: Size) -> str:
        width, height = size
        return text.format(width=width, height=height, x=width - 1, y=height - 1, words=", ".join(WORDS))

    return system


PROMPTS: dict[str, Prompt] = {
    "uitars": _uitars("1.0"),
    "uitars-1.5": _uitars("1.5"),
    "qwen": _qwen("qwen3-vl"),
    "qwen2.5": _qwen("qwen2.5-vl"),
    "opencua": Prompt(Reading("opencua", "qwen2.5"), _fixed(_OPENCUA), _instruction),
    "pyautogui": Prompt(Reading("pyautogui"), _osworld(_PYAUTOGUI), _instruction),
    "computer13": Prompt(Reading("computer13"), _osworld(_COMPUTER13), _instruction),
}
"""By the name that callers write. ``uitars`` is 1.0 and its successors of Doubao: points from 0 to 1000;
``uitars-1.5`` has pixels of the image as the processor resizes it."""
