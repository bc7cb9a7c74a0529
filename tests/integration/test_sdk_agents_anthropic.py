"""Anthropic's agent: its API over real HTTP, episodes at a host agent over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.agent_runs import anthropic, anthropic_use, infos, play
from tests.support.fake_runtime import Served
from tests.support.model_api import Asked, ModelApi, images_in, serving_models


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A host agent with warm replicas; a fake one earns 1."""
    with Served(tmp_path_factory.mktemp("host"), warm=8, max_replicas=10) as running:
        yield running


async def test_anthropic_several_calls_in_a_turn(served: Served) -> None:
    """They are one step; each is answered, the last with an image; zooms and the cursor without a step."""

    def say(asked: Asked) -> Any:
        match asked.number:
            case 0:
                thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
                return [
                    thought,
                    {"type": "text", "text": "I click."},
                    anthropic_use("t1"),
                    anthropic_use("t2", "type", text="hi"),
                ]
            case 1:
                return [
                    anthropic_use("t3", "zoom", region=[0, 0, 8, 8]),
                    anthropic_use("t4", "cursor_position"),
                ]
        return {"content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn"}

    api = ModelApi(say)
    with serving_models(api) as base:
        [result] = (await play(served, anthropic(base), ["a"])).values()
    assert result.reward == 1.0
    assert [[action["op"] for action in step.executed] for step in result.steps] == [
        ["click", "type"], ["done"],
    ]  # fmt: skip
    [looked] = infos(result)[1]["looks"]
    assert "zoom" in looked["output"] and looked["usage"]["requests"] == 1
    assert infos(result)[1]["usage"]["requests"] == 2
    assert (infos(result)[0]["text"], infos(result)[0]["reasoning"]) == ("I click.", "hm")
    assert infos(result)[0]["usage"]["input_tokens"] == 1000
    answers = api.requests[2][2]["messages"][-1]["content"]
    assert answers[1]["content"] == "X=10,Y=20"
    assert api.requests[0][2]["tools"] == [{"type": "computer_toolset_20260801"}]
    sent = [json.dumps(given).count("ephemeral") for _, _, given in api.requests]
    assert sent == [1, 1, 1]


@pytest.mark.parametrize("tool", ["computer_20251124", "computer_20250124", "computer_20241022"])
async def test_anthropic_tools_of_before(served: Served, tool: str) -> None:
    """They have a name, a size and a beta header; their calls are `computer` with an action."""

    def say(asked: Asked) -> Any:
        call = {"type": "tool_use", "id": "t", "name": "computer", "input": {"action": "left_click"}}
        return [{"type": "text", "text": "Done."}] if asked.number else [call]

    api = ModelApi(say)
    with serving_models(api) as base:
        [result] = (await play(served, anthropic(base, tool=tool, images=1), ["a"])).values()
    assert result.reward == 1.0
    [sent] = api.requests[0][2]["tools"]
    assert (sent["type"], sent["name"], sent["display_width_px"]) == (
        tool,
        "computer",
        result.trajectory.screen[0],
    )
    assert [images_in(given) for _, _, given in api.requests] == [1, 1]


async def test_anthropic_is_told_what_failed(served: Served) -> None:
    """A refused output is answered as an error under its id, and the model goes on."""

    def say(asked: Asked) -> Any:
        if asked.number == 0:
            return [anthropic_use("t1", coordinate=[5000, 1]), anthropic_use("t2")]
        answers = asked.body["messages"][-1]["content"]
        assert answers[0]["is_error"] and "point must be in the image" in answers[0]["content"]
        assert answers[1]["is_error"] and "Not executed" in answers[1]["content"]
        return {"content": [{"type": "text", "text": "Sorry."}], "stop_reason": "end_turn"}

    with serving_models(ModelApi(say)) as base:
        [result] = (await play(served, anthropic(base), ["a"], on_invalid="noop")).values()
    assert result.reward == 1.0 and result.invalid_actions == 1
    assert result.steps[0].refused and "t1" in infos(result)[0]["output"]
