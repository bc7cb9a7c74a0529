"""What goes wrong between an agent of the SDK and its model: failing servers, hostile and wrong answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support import model_api
from tests.support.agent_runs import (
    GOOD,
    QUICK,
    anthropic,
    anthropic_use,
    chat,
    gemini,
    gemini_call,
    infos,
    openai,
    openai_click,
    play,
)
from tests.support.fake_runtime import Served
from tests.support.model_api import KEY, Asked, ModelApi, serving_models, status

from osgym_sdk import ErrorClass, ModelError
from osgym_sdk.agents import ServerOptions


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A host agent with warm replicas; a fake one earns 1."""
    with Served(tmp_path_factory.mktemp("host"), warm=8, max_replicas=10) as running:
        yield running


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
    "no object": ([model_api.body(b"[1]")] * 2, ModelError.PROTOCOL, "not a JSON object"),
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
        {
            "output": openai_click("c"),
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
        },
    ),
    (anthropic, [anthropic_use("t", "rm_rf")]),
    (anthropic, [{**anthropic_use("t"), "name": 5, "input": []}]),
    (anthropic, {"content": [{"type": "thinking", "thinking": "x"}], "stop_reason": "max_tokens"}),
    (gemini, [gemini_call("rm_rf")]),
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
