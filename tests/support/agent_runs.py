"""One agent of each provider, what their models say, and batches of episodes with them at a served host."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from osgym_sdk import AsyncClient, Result
from osgym_sdk.agents import Agent, AnthropicAgent, ChatAgent, GeminiAgent, OpenAIAgent, ServerOptions
from tests.support.fake_runtime import TASK, Served
from tests.support.model_api import KEY

QUICK = ServerOptions(timeout_s=10.0, sleep=lambda seconds: asyncio.sleep(min(seconds, 0.01)))
"""Waits hardly between one request and its repetition."""


def task(name: str) -> dict[str, Any]:
    """A task with its own instruction."""
    return {**TASK, "id": name, "instruction": f"do {name}"}


async def play(served: Served, agent: Agent, names: list[str], **options: Any) -> dict[str, Result]:
    """Run one episode for each name."""
    tasks = [task(name) for name in names]
    async with agent, AsyncClient(served.urls[0]) as client:
        batch = client.run(tasks, agent, concurrency=8, **{"max_steps": 8, **options})
        return {str(result.task_id): result async for result in batch}


def openai_click(call_id: str, x: int = 10, y: int = 20, **more: Any) -> list[dict[str, Any]]:
    """One of OpenAI's calls, with a thought before it."""
    thought = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "thinking"}]}
    action = {"type": "click", "button": "left", "x": x, "y": y}
    call = {"type": "computer_call", "call_id": call_id, "pending_safety_checks": [], "status": "completed"}
    return [thought, {**call, "actions": [action], **more}]


def openai_message(text: str) -> list[dict[str, Any]]:
    """One of OpenAI's messages."""
    return [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]


def anthropic_use(call_id: str, name: str = "left_click", **given: Any) -> dict[str, Any]:
    """One of Anthropic's calls."""
    made = {"type": "tool_use", "id": call_id, "name": name, "toolset_name": "computer"}
    return {**made, "input": given or ({"coordinate": [10, 20]} if name == "left_click" else {})}


def openai(base: str, **options: Any) -> OpenAIAgent:
    return OpenAIAgent("gpt-5.4", api_key=KEY, base_url=f"{base}/v1", **{"options": QUICK, **options})


def anthropic(base: str, **options: Any) -> AnthropicAgent:
    return AnthropicAgent("claude", api_key=KEY, base_url=base, **{"options": QUICK, **options})


def gemini_call(name: str = "click", **args: Any) -> dict[str, Any]:
    """One of Gemini's calls, as its REST API writes them."""
    given = args or {"x": 500, "y": 500, "intent": "press it"}
    return {"functionCall": {"name": name, "args": given}, "thoughtSignature": "c2ln"}


def gemini(base: str, **options: Any) -> GeminiAgent:
    return GeminiAgent("gemini-3.5-flash", api_key=KEY, base_url=base, **{"options": QUICK, **options})


def chat(base: str, **options: Any) -> ChatAgent:
    return ChatAgent("m", base_url=f"{base}/v1", **{"options": QUICK, "prompt": "uitars", **options})


def infos(result: Result) -> list[Any]:
    return [step.info for step in result.steps]


def qwen(**arguments: Any) -> str:
    """One of Qwen's calls in text."""
    call = {"name": "computer_use", "arguments": arguments}
    return f"Action: t\n<tool_call>\n{json.dumps(call)}\n</tool_call>"


CHATS = {
    "uitars": ["Thought: t\nAction: click(point='<point>500 500</point>')", "Action: finished(content='')"],
    "uitars-1.5": ["Thought: t\nAction: click(start_box='(1,1)')", "Action: finished(content='')"],
    "qwen": [qwen(action="left_click", coordinate=[500, 500]), qwen(action="terminate", status="success")],
    "qwen2.5": [qwen(action="left_click"), qwen(action="terminate", status="success")],
    "opencua": ["Action:\nt\nCode:\n```python\npyautogui.click(1, 1)\n```",
                "```python\ncomputer.terminate(status='success')\n```"],
    "pyautogui": ["I see.\n```python\npyautogui.click(1, 1)\n```", "```DONE```"],
    "computer13": ['```json\n{"action_type": "CLICK", "x": 1, "y": 1}\n```', "```\nDONE\n```"],
}  # fmt: skip


GOOD: dict[Any, Any] = {
    openai: openai_message("done"),
    anthropic: [{"type": "text", "text": "x"}],
    gemini: [{"text": "x"}],
    chat: "Action: finished()",
}
"""What ends an episode."""
