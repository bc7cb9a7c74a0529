"""Gemini's agent: its API over real HTTP, episodes at a host agent over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.agent_runs import gemini, gemini_call, infos, play
from tests.support.fake_runtime import Served
from tests.support.model_api import Asked, ModelApi, images_in, serving_models

from osgym_sdk import ModelError


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A host agent with warm replicas; a fake one earns 1."""
    with Served(tmp_path_factory.mktemp("host"), warm=8, max_replicas=10) as running:
        yield running


async def test_gemini_several_calls_in_a_turn(served: Served) -> None:
    """Each is answered under its name and id; thoughts and their signatures go back as they came."""
    thought = {"text": "hm", "thought": True}

    def say(asked: Asked) -> Any:
        if asked.number == 0:
            typed = gemini_call("type", text="a", press_enter=True, intent="")
            typed["functionCall"]["id"] = "id-2"
            return [thought, {"text": "I click."}, gemini_call(), typed]
        if asked.number == 1:
            [_, history, answers] = asked.body["contents"]
            assert history["parts"][0] == thought and history["parts"][2]["thoughtSignature"] == "c2ln"
            assert [part["function_response"]["name"] for part in answers["parts"]] == ["click", "type"]
        return [{"text": "Done."}] if asked.number == 3 else [gemini_call("take_screenshot", intent="look")]

    api = ModelApi(say)
    with serving_models(api) as base:
        [result] = (await play(served, gemini(base, images=2), ["a"])).values()
    assert result.reward == 1.0, result.failure
    assert [[action["op"] for action in step.executed] for step in result.steps] == [
        ["click", "type"],
        ["screenshot"],
        ["screenshot"],
        ["done"],
    ]
    width, _ = result.trajectory.screen
    assert abs(result.steps[0].executed[0]["x"] - width / 2) <= 1
    assert [images_in(given) for _, _, given in api.requests] == [1, 2, 2, 2]
    assert api.requests[0][2]["tools"] == [{"computer_use": {"environment": "ENVIRONMENT_DESKTOP"}}]
    info = infos(result)[0]
    assert (info["text"], info["reasoning"], info["model"]) == ("I click.", "hm", "gemini-3.5-flash")
    assert (info["usage"]["input_tokens"], info["usage"]["output_tokens"]) == (1100, 42)


async def test_gemini_of_before(served: Served) -> None:
    """It has other functions and knows browsers; a browser's own are left out, and refused when used."""

    def say(asked: Asked) -> Any:
        if asked.number == 0:
            return [gemini_call("navigate", url="https://example.org")]
        if asked.number == 1:
            [answer] = asked.body["contents"][-1]["parts"]
            assert "excluded_predefined_functions" in answer["function_response"]["response"]["error"]
        return [{"text": "Done."}] if asked.number == 2 else [gemini_call("click_at", x=1, y=1)]

    api = ModelApi(say)
    with serving_models(api) as base:
        [result] = (await play(served, gemini(base, tool="2.5"), ["a"], on_invalid="noop")).values()
    assert result.reward == 1.0 and result.invalid_actions == 1, result.failure
    [tool] = api.requests[0][2]["tools"]
    assert "navigate" in tool["computer_use"]["excluded_predefined_functions"]


async def test_gemini_asks_for_confirmation(served: Served) -> None:
    """The episode ends there, without a reward, unless the caller said that it is given."""
    asks = {"decision": "require_confirmation", "explanation": "it sends a message"}
    fine = {"decision": "regular"}

    def say(asked: Asked) -> Any:
        decision = fine if asked.number == 0 else asks
        return [{"text": "Done."}] if asked.number == 2 else [gemini_call(x=1, y=1, safety_decision=decision)]

    with serving_models(ModelApi(say)) as base:
        [asked] = (await play(served, gemini(base), ["a"], retries=0)).values()
        agent = gemini(base, acknowledge_safety_checks=True)
        [done] = (await play(served, agent, ["a"])).values()
    assert asked.failure is not None and asked.failure.code == ModelError.SAFETY and len(asked.steps) == 1
    assert asked.failure.details["checks"] == [asks] and asked.reward is None
    assert done.reward == 1.0, done.failure
