"""Computer-use models as policies: ``client.run(tasks, OpenAIAgent("gpt-5.4"))``; see ``docs/agents.md``.

>>> from osgym_sdk import Client
>>> from osgym_sdk.agents import ChatAgent
>>> agent = ChatAgent("ByteDance-Seed/UI-TARS-1.5-7B", prompt="uitars-1.5")
>>> with Client() as client:  # doctest: +SKIP
...     for result in client.run("tasks/", agent, on_invalid="noop"):
...         print(result.task_id, result.reward)
"""

from __future__ import annotations

from osgym_sdk.agents._agent import INFEASIBLE, Agent, Conversation
from osgym_sdk.agents._anthropic import AnthropicAgent
from osgym_sdk.agents._chat import ChatAgent
from osgym_sdk.agents._gemini import GeminiAgent
from osgym_sdk.agents._openai import OpenAIAgent
from osgym_sdk.agents._prompts import PROMPTS, Prompt
from osgym_sdk.agents._server import ServerOptions
from osgym_sdk.agents._turn import Usage

__all__ = [
    "INFEASIBLE",
    "PROMPTS",
    "Agent",
    "AnthropicAgent",
    "ChatAgent",
    "Conversation",
    "GeminiAgent",
    "OpenAIAgent",
    "Prompt",
    "ServerOptions",
    "Usage",
]
