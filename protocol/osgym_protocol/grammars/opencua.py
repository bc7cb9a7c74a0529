"""OpenCUA: pyautogui source with `computer.triple_click`, `computer.wait` and `computer.terminate`.

Read in xlang-ai/OpenCUA (2025-08-16: `evaluation/agentnetbench/agent/opencua.py`,
`data/data-process/src/schema/action.py`). The source stands in a fence, below `## Code:`, or alone.

Coordinates differ by checkpoint: OpenCUA-Qwen2.5's are pixels of the image after the processor has resized
it (version `qwen2.5`: `smart_resize`), those of AgentNet's data are 0 to 1 (version `agentnet`). Without a
version they are pixels of the image that the model saw.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from osgym_protocol.grammars.base import Builder, CannotRender, Context, Ending, Parsed
from osgym_protocol.grammars.pyautogui import COMPUTER_CALL, read_source, rendered
from osgym_protocol.grammars.registry import Evidence, Grammar
from osgym_protocol.grammars.space import smart_resize

NAME = "opencua"
_HEADING = re.compile(r"^#{1,3} *Code *:?[ \t]*$", re.MULTILINE)


def parse(output: Any, context: Context) -> Parsed:
    """Read the text of an answer; the position of an error is its line."""
    if isinstance(output, str) and "```" not in output:
        heading = _HEADING.search(output)
        if heading is not None:  # keep the numbers of the lines
            output = "\n" * output.count("\n", 0, heading.end()) + output[heading.end() :]
    return read_source(output, Builder(NAME, _in_space(context)), computer=True)


def _in_space(context: Context) -> Context:
    if context.coordinates is not None:
        return context
    if context.version == "agentnet":
        return replace(context, coordinates="norm1")
    if context.version == "qwen2.5":
        return replace(context, coordinates=smart_resize(*(context.image or context.screen)))
    return context


def render(
    actions: Sequence[Mapping[str, Any]], context: Context, ending: Ending | None = None, text: str = ""
) -> str:
    space = _in_space(context).space()
    lines: list[str] = []
    for action in actions:
        triple = action["op"] == "click" and action.get("count") == 3 and "x" in action
        if triple and action.get("button", "left") == "left" and not action.get("modifiers"):
            x, y = space.point(action["x"], action["y"])
            lines.append(f"computer.triple_click(x={x!r}, y={y!r})")
        elif action["op"] == "wait":
            lines.append(f"computer.wait({action['duration_ms'] / 1000!r})")
        else:
            lines += rendered(action, space)
    if ending is Ending.ASK_USER:
        raise CannotRender("OpenCUA cannot ask a user")
    if ending is not None:
        status = "failure" if ending is Ending.FAIL else "success"
        answer = f", answer={text!r}" if text else ""
        lines.append(f"computer.terminate(status={status!r}{answer})")
    return "\n".join(lines)


def _in_text(text: str) -> Evidence:
    return Evidence.MARK if COMPUTER_CALL.search(text) else Evidence.NONE


GRAMMAR = Grammar(NAME, ("qwen2.5", "agentnet"), "image", parse, render, _in_text)
