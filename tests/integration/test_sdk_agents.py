"""Agents of the SDK: models' APIs over real HTTP, episodes at a host agent over real HTTP."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.support import model_api
from tests.support.fake_runtime import TASK, Served
from tests.support.model_api import KEY, Asked, ModelApi, images_in, serving_models, status

from osgym_sdk import AsyncClient, Client, ConfigError, ErrorClass, ModelError, Result
from osgym_sdk.agents import (
    Agent,
    AnthropicAgent,
    ChatAgent,
    Conversation,
    GeminiAgent,
    OpenAIAgent,
    ServerOptions,
)

QUICK = ServerOptions(timeout_s=10.0, sleep=lambda seconds: asyncio.sleep(min(seconds, 0.01)))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A host agent with warm replicas; a fake one earns 1."""
    with Served(tmp_path_factory.mktemp("host"), warm=8, max_replicas=10) as running:
        yield running


def task(name: str) -> dict[str, Any]:
    """A task with its own instruction."""
    return {**TASK, "id": name, "instruction": f"do {name}"}


async def play(served: Served, agent: Agent, names: list[str], **options: Any) -> dict[str, Result]:
    """Run one episode for each name."""
    tasks = [task(name) for name in names]
    async with agent, AsyncClient(served.urls[0]) as client:
        batch = client.run(tasks, agent, concurrency=8, **{"max_steps": 8, **options})
        return {str(result.task_id): result async for result in batch}


def click(call_id: str, x: int = 10, y: int = 20, **more: Any) -> list[dict[str, Any]]:
    """One of OpenAI's calls, with a thought before it."""
    thought = {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "thinking"}]}
    action = {"type": "click", "button": "left", "x": x, "y": y}
    call = {"type": "computer_call", "call_id": call_id, "pending_safety_checks": [], "status": "completed"}
    return [thought, {**call, "actions": [action], **more}]


def message(text: str) -> list[dict[str, Any]]:
    """One of OpenAI's messages."""
    return [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]


def use(call_id: str, name: str = "left_click", **given: Any) -> dict[str, Any]:
    """One of Anthropic's calls."""
    made = {"type": "tool_use", "id": call_id, "name": name, "toolset_name": "computer"}
    return {**made, "input": given or ({"coordinate": [10, 20]} if name == "left_click" else {})}


def openai(base: str, **options: Any) -> OpenAIAgent:
    return OpenAIAgent("gpt-5.4", api_key=KEY, base_url=f"{base}/v1", **{"options": QUICK, **options})


def anthropic(base: str, **options: Any) -> AnthropicAgent:
    return AnthropicAgent("claude", api_key=KEY, base_url=base, **{"options": QUICK, **options})


def call(name: str = "click", **args: Any) -> dict[str, Any]:
    """One of Gemini's calls, as its REST API writes them."""
    given = args or {"x": 500, "y": 500, "intent": "press it"}
    return {"functionCall": {"name": name, "args": given}, "thoughtSignature": "c2ln"}


def gemini(base: str, **options: Any) -> GeminiAgent:
    return GeminiAgent("gemini-3.5-flash", api_key=KEY, base_url=base, **{"options": QUICK, **options})


def chat(base: str, **options: Any) -> ChatAgent:
    return ChatAgent("m", base_url=f"{base}/v1", **{"options": QUICK, "prompt": "uitars", **options})


def infos(result: Result) -> list[Any]:
    return [step.info for step in result.steps]


# OpenAI -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("history", ["previous", "full"])
async def test_openai_acts_and_answers(served: Served, history: str) -> None:
    """Calls are answered by screenshots under their ids; words, tokens and time are in the record."""

    def say(asked: Asked) -> Any:
        return message("It is done: 42") if asked.number == 3 else click(f"call_{asked.number}")

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
    api = ModelApi(lambda asked: message("done") if asked.number == 5 else click(f"c{asked.number}"))
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
            return message("done")
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
        return message("done") if asked.number else click("c", pending_safety_checks=checks)

    with serving_models(ModelApi(say)) as base:
        [refused] = (await play(served, openai(base), ["a"])).values()
        [allowed] = (await play(served, openai(base, acknowledge_safety_checks=True), ["a"])).values()
    assert refused.failure is not None and refused.failure.code == ModelError.SAFETY
    assert refused.failure.details["checks"] == checks and not refused.steps and refused.attempts == 1
    assert allowed.reward == 1.0 and len(allowed.steps) == 2


# Anthropic ----------------------------------------------------------------------------------------------


async def test_anthropic_several_calls_in_a_turn(served: Served) -> None:
    """They are one step; each is answered, the last with an image; zooms and the cursor without acting."""

    def say(asked: Asked) -> Any:
        match asked.number:
            case 0:
                thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
                return [
                    thought,
                    {"type": "text", "text": "I click."},
                    use("t1"),
                    use("t2", "type", text="hi"),
                ]
            case 1:
                return [use("t3", "zoom", region=[0, 0, 8, 8]), use("t4", "cursor_position")]
        return {"content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn"}

    api = ModelApi(say)
    with serving_models(api) as base:
        [result] = (await play(served, anthropic(base), ["a"])).values()
    assert result.reward == 1.0
    assert [[action["op"] for action in step.executed] for step in result.steps] == [
        ["click", "type"], ["screenshot"], ["done"],
    ]  # fmt: skip
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
            return [use("t1", coordinate=[5000, 1]), use("t2")]
        answers = asked.body["messages"][-1]["content"]
        assert answers[0]["is_error"] and "point must be in the image" in answers[0]["content"]
        assert answers[1]["is_error"] and "Not executed" in answers[1]["content"]
        return {"content": [{"type": "text", "text": "Sorry."}], "stop_reason": "end_turn"}

    with serving_models(ModelApi(say)) as base:
        [result] = (await play(served, anthropic(base), ["a"], on_invalid="noop")).values()
    assert result.reward == 1.0 and result.invalid_actions == 1
    assert result.steps[0].refused and "t1" in infos(result)[0]["output"]


# Gemini -------------------------------------------------------------------------------------------------


async def test_gemini_several_calls_in_a_turn(served: Served) -> None:
    """Each is answered under its name and id; thoughts and their signatures go back as they came."""
    thought = {"text": "hm", "thought": True}

    def say(asked: Asked) -> Any:
        if asked.number == 0:
            typed = call("type", text="a", press_enter=True, intent="")
            typed["functionCall"]["id"] = "id-2"
            return [thought, {"text": "I click."}, call(), typed]
        if asked.number == 1:
            [_, history, answers] = asked.body["contents"]
            assert history["parts"][0] == thought and history["parts"][2]["thoughtSignature"] == "c2ln"
            assert [part["function_response"]["name"] for part in answers["parts"]] == ["click", "type"]
        return [{"text": "Done."}] if asked.number == 3 else [call("take_screenshot", intent="look")]

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
            return [call("navigate", url="https://example.org")]
        if asked.number == 1:
            [answer] = asked.body["contents"][-1]["parts"]
            assert "excluded_predefined_functions" in answer["function_response"]["response"]["error"]
        return [{"text": "Done."}] if asked.number == 2 else [call("click_at", x=1, y=1)]

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
        return [{"text": "Done."}] if asked.number == 2 else [call(x=1, y=1, safety_decision=decision)]

    with serving_models(ModelApi(say)) as base:
        [asked] = (await play(served, gemini(base), ["a"], retries=0)).values()
        agent = gemini(base, acknowledge_safety_checks=True)
        [done] = (await play(served, agent, ["a"])).values()
    assert asked.failure is not None and asked.failure.code == ModelError.SAFETY and len(asked.steps) == 1
    assert asked.failure.details["checks"] == [asks] and asked.reward is None
    assert done.reward == 1.0, done.failure


# Endings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "said", "op"),
    [
        (openai, message("I cannot: [INFEASIBLE]"), "fail"),
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


# Chat Completions ---------------------------------------------------------------------------------------


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


GOOD: dict[Any, Any] = {
    openai: message("done"),
    anthropic: [{"type": "text", "text": "x"}],
    gemini: [{"text": "x"}],
    chat: "Action: finished()",
}
"""What ends an episode."""


# What goes wrong ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [openai, anthropic, gemini, chat])
async def test_busy_servers_are_asked_again(served: Served, make: Any) -> None:
    """After 429, 500 and a broken connection; the model's own time to wait is kept."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    api = ModelApi(lambda asked: GOOD[make])
    api.faults += [status(429, {"retry-after": "7"}), status(500), model_api.cut_off, status(529)]
    with serving_models(api) as base:
        agent = make(base, options=ServerOptions(sleep=sleep))
        [result] = (await play(served, agent, ["a"])).values()
    assert result.reward == 1.0 and result.attempts == 1, result.failure
    assert len(api.requests) == 5 and 7 <= waits[0] < 8 and all(0 < wait < 31 for wait in waits)
    assert infos(result)[0]["usage"]["repeated"] == 4


FAULTS = {
    "overloaded for ever": ([status(503)] * 9, ModelError.UNAVAILABLE, "503: not now, after 3 requests"),
    "no key": ([status(401, message=f"bad key {KEY}")], ModelError.REFUSED, "bad key"),
    "no such model": ([status(404)], ModelError.REFUSED, "status 404"),
    "a page of a proxy": ([model_api.body(b"<html>", "text/html")] * 2, ModelError.PROTOCOL, "not JSON"),
    "no object": ([model_api.body(b"[1]")] * 2, ModelError.PROTOCOL, "no JSON object"),
    "deep": ([model_api.body(b"[" * 200_000)] * 2, ModelError.PROTOCOL, "not JSON"),
    "another API": ([model_api.body(b'{"output": 5, "content": {}, "choices": [1]}')] * 2,
                    ModelError.PROTOCOL, "the answer has no"),
    "without an end": ([model_api.endless] * 2, ModelError.PROTOCOL, "more than 1000000 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_failing_api_is_no_zero(served: Served, fault: str) -> None:
    """It is a failure of the infrastructure, typed, without a reward; the key is in no message."""
    make = (openai, anthropic, gemini, chat)[len(fault) % 4]
    faults, code, text = FAULTS[fault]
    api = ModelApi(lambda asked: None)
    api.faults += faults
    options = ServerOptions(retries=2, max_answer_bytes=1_000_000, sleep=QUICK.sleep)
    with serving_models(api) as base:
        extra = {"api_key": KEY} if make is chat else {}
        [result] = (await play(served, make(base, options=options, **extra), ["a"], retries=0)).values()
    assert result.failure is not None and result.reward is None
    assert (result.failure.code, result.failure.error_class) == (code, ErrorClass.INFRA)
    assert text in result.failure.message and KEY not in result.failure.message


async def test_a_silent_server_meets_its_deadline(served: Served) -> None:
    """It is asked once, for each attempt of the batch."""
    api = ModelApi(lambda asked: None, hold=threading.Event())
    with serving_models(api) as base:
        agent = openai(base, options=ServerOptions(timeout_s=1.5))
        [result] = (await play(served, agent, ["a"], retries=0)).values()
    assert result.failure is not None and result.failure.code == ModelError.UNAVAILABLE
    assert "within 1.5 s" in result.failure.message and len(api.requests) == 1


async def test_nobody_there(served: Served) -> None:
    """A port where nothing listens."""
    agent = openai("http://127.0.0.1:9", options=ServerOptions(retries=1, sleep=QUICK.sleep))
    [result] = (await play(served, agent, ["a"], retries=0)).values()
    assert result.failure is not None and "after 2 requests" in result.failure.message


HOSTILE: list[tuple[Any, Any]] = [
    (openai, [{"type": "computer_call", "call_id": "c", "actions": "rm"}]),
    (openai, [{"type": "computer_call", "call_id": "c", "actions": [{"type": "click"}] * 5000}]),
    (openai, ["text", None, 7]),
    (
        openai,
        {"output": click("c"), "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    ),
    (anthropic, [use("t", "rm_rf")]),
    (anthropic, [{**use("t"), "name": 5, "input": []}]),
    (anthropic, {"content": [{"type": "thinking", "thinking": "x"}], "stop_reason": "max_tokens"}),
    (gemini, [call("rm_rf")]),
    (gemini, [{"functionCall": {"name": "click", "args": []}, "thoughtSignature": "a"}]),
    (gemini, [{"functionCall": {"name": "click", "args": {"x": 5000, "y": "a"}}, "thoughtSignature": "a"}]),
    (gemini, {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}),
    (gemini, {"candidates": [{"content": {"parts": [{"text": "I"}]}, "finishReason": "MAX_TOKENS"}]}),
    (chat, "Action: " + "click(" * 100_000),
    (chat, "x" * 300_000),
    (chat, ""),
    (chat, {"content": {"a": 1}}),
    (chat, {"choices": [{"message": {"content": "Action: wait()"}, "finish_reason": "length"}]}),
]


@pytest.mark.parametrize("case", range(len(HOSTILE)))
async def test_what_is_no_action(served: Served, case: int) -> None:
    """It is the model's failure; with `noop` the model is told why, in its provider's form, and goes on."""
    make, said = HOSTILE[case]
    told: list[str] = []

    def say(asked: Asked) -> Any:
        told.append(json.dumps(asked.body))
        return said if len(told) == 1 else GOOD[make]

    with serving_models(ModelApi(say)) as base:
        [error] = (await play(served, make(base), ["a"])).values()
        told.clear()
        [went_on] = (await play(served, make(base), ["a"], on_invalid="noop")).values()
    assert error.failure is not None and error.failure.error_class is ErrorClass.MODEL, error.failure
    assert error.failure.code == "invalid_action" and error.trajectory.last_info["usage"]["requests"] == 1
    assert went_on.reward == 1.0, went_on.failure
    assert went_on.steps[0].refused is not None
    assert json.dumps(went_on.steps[0].refused)[1:30] in told[1]


async def test_eight_episodes_at_once(served: Served) -> None:
    """Each has its own conversation, whatever the order of the answers; nothing of them stays."""
    api = ModelApi(lambda asked: None, hold=threading.Event())

    def say(asked: Asked) -> Any:
        mine = int(asked.instruction.split()[-1])
        assert asked.number <= mine
        return message(f"done {mine}") if asked.number == mine else click(f"c{asked.number}", x=mine)

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
        async with asyncio.timeout(20):
            while api.busy < 8:  # noqa: ASYNC110 - the server is in another thread
                await asyncio.sleep(0.01)
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
