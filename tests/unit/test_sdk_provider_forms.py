"""Observations and errors in the form that each provider's API wants, from the calls that they answer."""

from __future__ import annotations

import base64
import io
import json
import pickle
from typing import Any

import pytest
from PIL import Image

from osgym_protocol.codes import ImageFormat
from osgym_protocol.observation import ActionResult, ErrorInfo, FrameInfo
from osgym_protocol.observation import Observation as Meta
from osgym_sdk import ConfigError, InvalidAction, Observation
from osgym_sdk.grammars import Context, calls_of, parse
from osgym_sdk.wire import StepAnswer

SCREEN = (64, 48)
CTX = Context(SCREEN)


def _png() -> bytes:
    image = Image.new("RGB", SCREEN, (9, 9, 9))
    image.putpixel((10, 20), (200, 0, 0))
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _observation(failed: int | None = None) -> Observation:
    results = [ActionResult(True, "click")] * (failed or 0)
    if failed is not None:
        results.append(ActionResult(False, "key", ErrorInfo("input_failed", "no such key")))
    frame = FrameInfo("h", ImageFormat.PNG, *SCREEN, SCREEN)
    return Observation(StepAnswer(Meta(frame, 1, results=tuple(results), failed_index=failed), 1), _png())


def _use(call_id: str, name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "toolset_name": "computer", "input": given}


def _computer_call(**more: Any) -> dict[str, Any]:
    return {"type": "computer_call", "call_id": "c1", "actions": [{"type": "wait"}], **more}


def test_openai() -> None:
    """A screenshot for each call; what went wrong stands in a message, for an output has no place for it."""
    obs = _observation()
    obs.parsed = parse(_computer_call(), CTX, "openai")
    assert obs.to_openai() == [
        {"type": "computer_call_output", "call_id": "c1",
         "output": {"type": "computer_screenshot", "image_url": obs.data_url, "detail": "original"}}
    ]  # fmt: skip
    assert "detail" not in obs.to_openai(detail=None)[0]["output"]
    failed = _observation(0)
    items = failed.to_openai(calls_of(_computer_call()))
    assert items[1]["content"] == [{"type": "input_text", "text": "key: no such key"}]
    first = _observation().to_openai()
    assert first[0]["role"] == "user" and first[0]["content"][0]["type"] == "input_image"


def test_openais_safety_checks_are_acknowledged_by_the_caller_only() -> None:
    """They are passed through as they came; without the caller's word there is no answer."""
    check = {"id": "cu_sc_1", "code": "malicious_instructions", "message": "It may be."}
    obs = _observation()
    obs.parsed = parse(_computer_call(pending_safety_checks=[check]), CTX, "openai")
    with pytest.raises(ConfigError, match="malicious_instructions"):
        obs.to_openai()
    [item] = obs.to_openai(acknowledge=True)
    assert item["acknowledged_safety_checks"] == [check]


def test_anthropic() -> None:
    """A result for each block, the image in the last; zooms are those taken, else cut out of it."""
    obs = _observation()
    output = [_use("a", "left_click", coordinate=[1, 2]), _use("b", "cursor_position"),
              _use("c", "zoom", region=[10, 20, 12, 21]), _use("d", "type", text="x")]  # fmt: skip
    obs.parsed = parse(output, CTX, "anthropic")
    blocks = obs.to_anthropic(cursor=(7, 8))
    assert [block["tool_use_id"] for block in blocks] == ["a", "b", "c", "d"]
    assert all(block["toolset_name"] == "computer" for block in blocks)
    assert blocks[0]["content"] == "Done." and blocks[1]["content"] == "X=7,Y=8"
    zoomed = Image.open(io.BytesIO(base64.b64decode(blocks[2]["content"][0]["source"]["data"])))
    assert (zoomed.size, zoomed.convert("RGB").getpixel((0, 0))) == ((2, 1), (200, 0, 0))
    assert blocks[3]["content"][0]["source"] == {
        "type": "base64", "media_type": "image/png", "data": obs.base64,
    }  # fmt: skip
    taken = obs.to_anthropic(cursor=(7, 8), zooms={"c": b"taken", "d": b"of no zoom"})
    assert taken[2]["content"][0]["source"] == {
        "type": "base64", "media_type": "image/png", "data": base64.b64encode(b"taken").decode(),
    }  # fmt: skip
    assert [taken[0], taken[3]] == [blocks[0], blocks[3]]
    assert not any(block.get("is_error") for block in blocks)
    assert obs.to_anthropic()[1]["is_error"] is True  # nobody said where the cursor is


def test_anthropic_after_a_failure() -> None:
    """The call that failed says why, those after it were not executed, those before it are done."""
    obs = _observation(1)
    output = [_use("a", "left_click", coordinate=[1, 2]), _use("b", "key", text="ctrl+s"),
              _use("c", "type", text="x")]  # fmt: skip
    obs.parsed = parse(output, CTX, "anthropic")
    assert [(block.get("is_error"), block["content"]) for block in obs.to_anthropic()] == [
        (None, "Done."), (True, "key: no such key"),
        (True, "Not executed: an earlier computer action in this turn failed."),
    ]  # fmt: skip


def test_an_output_that_was_refused_is_answered_too() -> None:
    """Its calls are found without reading what they do."""
    error = InvalidAction("anthropic, [0].input: unknown tool")
    output = {"role": "assistant", "content": [_use("a", "fly"), _use("b", "left_click", coordinate=[1, 2])]}
    blocks = _observation().to_anthropic(calls_of(output), error=error)
    assert [(block["tool_use_id"], block["is_error"]) for block in blocks] == [("a", True), ("b", True)]
    assert blocks[0]["content"] == error.message
    parts = _observation().to_gemini(calls_of([{"function_call": {"name": "fly", "args": {}}}]), error=error)
    assert parts[0]["function_response"]["response"] == {"error": error.message}
    message = {"tool_calls": [{"id": "t", "type": "function", "function": {"name": "x", "arguments": "{"}}]}
    messages = _observation().to_chat(calls_of(message), error=error)
    assert messages[0] == {"role": "tool", "tool_call_id": "t", "content": error.message}
    assert messages[1]["content"][0]["type"] == "image_url"


def test_gemini() -> None:
    """A function's response with the image, in the form of the API that the call came from."""
    obs = _observation()
    decision = {"decision": "require_confirmation", "explanation": "It pays."}
    call = {"name": "click", "id": "f1", "args": {"x": 1, "y": 2, "safety_decision": decision}}
    obs.parsed = parse({"parts": [{"functionCall": call}]}, CTX, "gemini")
    with pytest.raises(ConfigError, match="It pays"):
        obs.to_gemini()
    [part] = obs.to_gemini(acknowledge=True, url="about:blank")
    assert part == {
        "function_response": {
            "name": "click", "id": "f1",
            "response": {"url": "about:blank", "safety_acknowledgement": "true"},
            "parts": [{"inline_data": {"mime_type": "image/png", "data": obs.base64}}],
        }
    }  # fmt: skip
    step = {"type": "function_call", "id": "s1", "name": "wait", "arguments": {}}
    [result] = obs.to_gemini(parse([step], CTX, "gemini"))
    assert (result["type"], result["call_id"]) == ("function_result", "s1")
    assert result["result"][1] == {"type": "image", "mime_type": "image/png", "data": obs.base64}


def test_chat() -> None:
    """An image as `image_url` in the user's message, with a text beside it."""
    obs = _observation()
    assert obs.to_chat(text="Go on.") == [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": obs.data_url}},
                                     {"type": "text", "text": "Go on."}]}
    ]  # fmt: skip
    assert _observation(0).to_chat()[0]["content"][1] == {"type": "text", "text": "key: no such key"}


def test_every_form_is_json_and_copies_know_what_was_read() -> None:
    """What is sent to a provider needs no further encoding; observations travel between processes."""
    obs = _observation(0)
    obs.parsed = parse([_use("a", "screenshot")], CTX, "anthropic")
    for form in (obs.to_openai(), obs.to_anthropic(), obs.to_gemini(), obs.to_chat()):
        assert json.loads(json.dumps(form)) == form
    assert pickle.loads(pickle.dumps(obs)).parsed == obs.parsed
