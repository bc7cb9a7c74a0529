"""OpenAI's agent: its API over real HTTP, episodes at a host agent over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.agent_runs import infos, openai, openai_click, openai_message, play
from tests.support.fake_runtime import Served
from tests.support.model_api import Asked, ModelApi, images_in, serving_models

from osgym_sdk import ModelError


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A host agent with warm replicas; a fake one earns 1."""
    with Served(tmp_path_factory.mktemp("host"), warm=8, max_replicas=10) as running:
        yield running


@pytest.mark.parametrize("history", ["previous", "full"])
async def test_openai_acts_and_answers(served: Served, history: str) -> None:
    """Calls are answered by screenshots under their ids; words, tokens and time are in the record."""

    def say(asked: Asked) -> Any:
        return openai_message("It is done: 42") if asked.number == 3 else openai_click(f"call_{asked.number}")

    api = ModelApi(say)
    with serving_models(api) as base:
        agent = openai(base, history=history)
        [result] = (await play(served, agent, ["a"])).values()
    assert result.reward == 1.0 and result.termination_reason == "done"
    assert [step.executed[0]["op"] for step in result.steps] == ["click", "click", "click", "done"]
    first, last = infos(result)[0], infos(result)[-1]
    assert (first["reasoning"], first["model"], first["ending"]) == ("thinking", "gpt-5.4", None)
    assert json.loads(first["output"])[1]["call_id"] == "call_0"
    assert (last["text"], last["ending"]) == ("It is done: 42", "answer")
    usage = first["usage"]
    assert (usage["input_tokens"], usage["cached_tokens"], usage["output_tokens"]) == (1000, 200, 50)
    assert usage["requests"] == 1 and 0 < usage["latency_s"] < 10
    assert agent.usage.requests == 4 and agent.usage.output_tokens == 200
    bodies = [given for _, _, given in api.requests]
    assert all(given["tools"] == [{"type": "computer"}] for given in bodies)
    assert [images_in(given) for given in bodies] == ([1] * 4 if history == "previous" else [1, 2, 3, 4])
    assert "do a" in json.dumps(bodies[0]["input"][0])


async def test_openai_full_history_keeps_the_newest_screenshots(served: Served) -> None:
    """Older outputs stay, as they must, without their images; reasoning goes back."""
    api = ModelApi(
        lambda asked: openai_message("done") if asked.number == 5 else openai_click(f"c{asked.number}")
    )
    with serving_models(api) as base:
        [result] = (await play(served, openai(base, history="full", images=2), ["a"])).values()
    assert result.reward == 1.0
    assert [images_in(given) for _, _, given in api.requests] == [1, 2, 2, 2, 2, 2]
    last = api.requests[-1][2]
    assert last["store"] is False and last["include"] == ["reasoning.encrypted_content"]
    assert [item["type"] for item in last["input"][1:4]] == [
        "reasoning",
        "computer_call",
        "computer_call_output",
    ]


async def test_openai_preview_tool(served: Served) -> None:
    """Its tool has a size, its calls one action, its images no detail."""

    def say(asked: Asked) -> Any:
        if asked.number:
            return openai_message("done")
        call = {"type": "computer_call", "call_id": "c", "action": {"type": "wait"}}
        return [{**call, "pending_safety_checks": []}]

    api = ModelApi(say)
    with serving_models(api) as base:
        [result] = (await play(served, openai(base, tool="computer_use_preview"), ["a"])).values()
    assert result.reward == 1.0
    _, _, given = api.requests[1]
    width, height = result.trajectory.screen
    tool = {"type": "computer_use_preview", "display_width": width, "display_height": height}
    assert given["tools"] == [{**tool, "environment": "linux"}]
    assert given["truncation"] == "auto" and "detail" not in given["input"][0]["output"]


async def test_safety_checks_are_acknowledged_only_by_option(served: Served) -> None:
    """Without it the call is not carried out, and the episode has no reward; with it the checks go back."""
    checks = [{"id": "s1", "code": "malicious_instructions", "message": "look out"}]

    def say(asked: Asked) -> Any:
        return openai_message("done") if asked.number else openai_click("c", pending_safety_checks=checks)

    with serving_models(ModelApi(say)) as base:
        [refused] = (await play(served, openai(base), ["a"])).values()
        [allowed] = (await play(served, openai(base, acknowledge_safety_checks=True), ["a"])).values()
    assert refused.failure is not None and refused.failure.code == ModelError.SAFETY
    assert refused.failure.details["checks"] == checks and not refused.steps and refused.attempts == 1
    assert allowed.reward == 1.0 and len(allowed.steps) == 2
