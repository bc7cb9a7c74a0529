"""Agents of the SDK: models' APIs and a host agent, both over real HTTP; what agents are made with."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.support.agent_runs import (
    CHATS,
    QUICK,
    anthropic,
    chat,
    gemini,
    infos,
    openai,
    openai_click,
    openai_message,
    play,
    task,
)
from tests.support.fake_runtime import Served
from tests.support.model_api import KEY, Asked, ModelApi, serving_models
from tests.support.waiting import until

from osgym_sdk import AsyncClient, Client, ConfigError
from osgym_sdk.agents import AnthropicAgent, ChatAgent, Conversation, GeminiAgent, OpenAIAgent, ServerOptions


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A host agent with warm replicas; a fake one earns 1."""
    with Served(tmp_path_factory.mktemp("host"), warm=8, max_replicas=10) as running:
        yield running


@pytest.mark.parametrize(
    ("make", "said", "op"),
    [
        (openai, openai_message("I cannot: [INFEASIBLE]"), "fail"),
        (openai, [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}], "done"),
        (anthropic, [{"type": "text", "text": "[INFEASIBLE]: no such program"}], "fail"),
        (anthropic, {"content": [], "stop_reason": "refusal"}, "done"),
        (gemini, [{"text": "[INFEASIBLE]: no such program"}], "fail"),
        (gemini, {"candidates": [], "promptFeedback": {"blockReason": "SAFETY"}}, "done"),
        (gemini, {"candidates": [{"finishReason": "SAFETY"}]}, "done"),
        (chat, "Thought: x\nAction: finished(content='7')", "done"),
        (chat, "Thought: x\nAction: call_user()", "fail"),
    ],
)
async def test_endings(served: Served, make: Any, said: Any, op: str) -> None:
    """A message without a call is the end; what cannot be done is OSWorld's FAIL."""
    with serving_models(ModelApi(lambda asked: said)) as base:
        [result] = (await play(served, make(base), ["a"])).values()
    assert result.ok and result.termination_reason == op
    assert [action["op"] for step in result.steps for action in step.executed] == [op]


async def test_eight_episodes_at_once(served: Served) -> None:
    """Each has its own conversation, whatever the order of the answers; nothing of them stays."""
    api = ModelApi(lambda asked: None, hold=threading.Event())

    def say(asked: Asked) -> Any:
        mine = int(asked.instruction.split()[-1])
        assert asked.number <= mine
        return (
            openai_message(f"done {mine}")
            if asked.number == mine
            else openai_click(f"c{asked.number}", x=mine)
        )

    api.say = say
    alive: weakref.WeakSet[Conversation] = weakref.WeakSet()

    class Watched(OpenAIAgent):
        def reset(self, task: Any) -> Any:
            own = super().reset(task)
            alive.add(own)
            return own

    with serving_models(api) as base:
        agent = Watched("m", api_key=KEY, base_url=f"{base}/v1", options=QUICK)
        running = asyncio.create_task(play(served, agent, [str(number) for number in range(8)]))
        await until(lambda: api.busy >= 8, 20)
        assert api.hold is not None and len(alive) == 8
        api.hold.set()
        results = await running
        del running
    gc.collect()
    assert not alive
    assert api.most_busy == 8
    for name, result in results.items():
        assert result.reward == 1.0 and len(result.steps) == int(name) + 1, result.failure
        assert infos(result)[-1]["text"] == f"done {name}"
        assert {step.executed[0].get("x", int(name)) for step in result.steps} == {int(name)}
    assert agent.usage.requests == sum(range(1, 9))


def test_the_synchronous_client(served: Served) -> None:
    """The same agent, in the loop of a client without `async`; again in another's."""
    with serving_models(ModelApi(lambda asked: CHATS["uitars"][asked.number])) as base:
        agent = chat(base)
        for _ in range(2):
            with Client(served.urls[0]) as client:
                [result] = client.run([task("a")], agent, max_steps=4)
                assert result.reward == 1.0
                client._portal.call(agent.aclose())


async def test_an_episode_by_hand(served: Served) -> None:
    """Without a batch: reset, act, step."""
    with serving_models(ModelApi(lambda asked: CHATS["uitars"][asked.number])) as base:
        async with chat(base) as agent, AsyncClient(served.urls[0]) as client:
            async with client.episode(task("a")) as episode:
                own = agent.reset(task("a"))
                while episode.done is None:
                    await episode.step(await own.act(episode.observation, None, 0))
                assert (await episode.evaluate()).reward == 1.0
            with pytest.raises(ConfigError, match="reset"):
                await agent.act(episode.observation, None, 0)


# Arguments ----------------------------------------------------------------------------------------------


def test_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument, else the provider's variable; an error names both, and shows no key."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match=r"api_key=.* OPENAI_API_KEY"):
        OpenAIAgent("m")
    with pytest.raises(ConfigError, match=r"api_key=.* ANTHROPIC_API_KEY"):
        AnthropicAgent("m")
    with pytest.raises(ConfigError, match=r"api_key=.* GEMINI_API_KEY"):
        GeminiAgent("m")
    monkeypatch.setenv("GOOGLE_API_KEY", "abc")
    GeminiAgent("m")
    ChatAgent("m", prompt="qwen")
    monkeypatch.setenv("OPENAI_API_KEY", "abc\n")
    with pytest.raises(ConfigError) as caught:
        OpenAIAgent("m")
    assert "abc" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tool": "browser"},
        {"history": "none"},
        {"images": 2},
        {"images": 0, "history": "full"},
        {"base_url": "ftp://x"},
        {"base_url": "http://"},
        {"base_url": "http://x:y"},
    ],
)
def test_wrong_arguments(wrong: dict[str, Any]) -> None:
    """They are refused when the agent is made."""
    with pytest.raises(ConfigError):
        OpenAIAgent("m", api_key="k", **wrong)


def test_more_wrong_arguments() -> None:
    """Of the other agents, of the options, of a task without an instruction."""
    with pytest.raises(ConfigError, match="uitars"):
        ChatAgent("m", prompt="gpt")
    with pytest.raises(ConfigError):
        ChatAgent("m", prompt="qwen", images=0)
    with pytest.raises(ConfigError, match="computer_20250124"):
        AnthropicAgent("m", api_key="k", tool="computer")
    for model, tool in (("gemini-3.5-flash", "4"), ("a/../../b", "3.5"), ("", "3.5")):
        with pytest.raises(ConfigError):
            GeminiAgent(model, api_key="k", tool=tool)
    with pytest.raises(ConfigError):
        ServerOptions(timeout_s=0)
    for nothing in (None, {}, {"instruction": 5}):
        with pytest.raises(ConfigError, match="instruction"):
            ChatAgent("m", prompt="qwen").reset(nothing)


def test_transport_may_be_given() -> None:
    """For those who sign requests: httpx's own."""

    async def go() -> Any:
        answer = {"choices": [{"message": {"content": "x"}}]}
        transport = httpx.MockTransport(lambda request: httpx.Response(200, json=answer))
        async with ChatAgent("m", prompt="qwen", options=ServerOptions(transport=lambda: transport)) as agent:
            return (await agent._server.post("/x", {})).data

    assert asyncio.run(go())["choices"]
