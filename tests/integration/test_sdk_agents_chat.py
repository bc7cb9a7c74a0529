"""The agent for servers of Chat Completions, in every form of prompt, over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.agent_runs import CHATS, chat, infos, play
from tests.support.fake_runtime import Served
from tests.support.model_api import Asked, ModelApi, images_in, serving_models


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A host agent with warm replicas; a fake one earns 1."""
    with Served(tmp_path_factory.mktemp("host"), warm=8, max_replicas=10) as running:
        yield running


@pytest.mark.parametrize("prompt", CHATS)
async def test_chat_in_every_form(served: Served, prompt: str) -> None:
    """Each model is told in its own form and read in it."""
    api = ModelApi(lambda asked: CHATS[prompt][asked.number])
    with serving_models(api) as base:
        [result] = (await play(served, chat(base, prompt=prompt), ["a"])).values()
    assert result.reward == 1.0, result.failure
    assert [action["op"] for step in result.steps for action in step.executed] == ["click", "done"]
    first = api.requests[0][2]["messages"]
    assert first[0]["role"] == "system" and "do a" in json.dumps(first[1]["content"])


async def test_chat_shows_the_newest_screenshots(served: Served) -> None:
    """The window is bounded, and every answer stays in the history."""
    api = ModelApi(lambda asked: CHATS["uitars"][asked.number == 6])
    with serving_models(api) as base:
        [result] = (await play(served, chat(base, images=3), ["a"])).values()
    assert result.reward == 1.0
    assert [images_in(given) for _, _, given in api.requests] == [1, 2, 3, 3, 3, 3, 3]
    assert sum(message["role"] == "assistant" for message in api.requests[-1][2]["messages"]) == 6


async def test_chat_tool_calls_of_a_server_are_answered(served: Served) -> None:
    """A server that takes Qwen's calls out of the text wants them answered as tools."""

    def say(asked: Asked) -> Any:
        action = (
            {"action": "wait", "time": 1}
            if not asked.number
            else {"action": "terminate", "status": "failure"}
        )
        function = {"name": "computer_use", "arguments": json.dumps(action)}
        calls = [{"id": f"c{asked.number}", "type": "function", "function": function}]
        return {"content": None, "reasoning_content": "hm", "tool_calls": calls}

    with serving_models(ModelApi(say)) as base:
        [result] = (await play(served, chat(base, prompt="qwen"), ["a"])).values()
    assert result.termination_reason == "fail" and infos(result)[0]["reasoning"] == "hm"
