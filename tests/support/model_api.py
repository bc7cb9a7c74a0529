"""The APIs of model providers on loopback: they check each request as their originals do, and say what a test
wants. For the agents of the SDK.

Requests are checked against what the providers document: every call is answered once and under its id, safety
checks are acknowledged, histories alternate, images are images. What is wrong is a 400, as there.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import itertools
import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

KEY = "sk-of-a-test"


@dataclass(frozen=True)
class Asked:
    """What a request asks: the task, how many answers were given before, and the newest screenshot's size."""

    instruction: str
    number: int
    size: tuple[int, int]
    body: Mapping[str, Any]


class Wrong(Exception):
    """A request that the provider refuses."""


Say = Callable[[Asked], Any]
Fault = Callable[[Request], Response]


def status(code: int, headers: Mapping[str, str] | None = None, message: str = "not now") -> Fault:
    """An error answer in the providers' form."""
    return lambda request: JSONResponse({"error": {"message": message, "type": "x"}}, code, headers)


def body(data: bytes, media_type: str = "application/json") -> Fault:
    """Any bytes as an answer."""
    return lambda request: Response(data, media_type=media_type)


def cut_off(request: Request) -> Response:
    """Half of an answer, and the connection ends."""
    return Response(b'{"id": "resp_1", "output": [', headers={"content-length": "1000"})


def endless(request: Request) -> Response:
    """An answer that does not end."""

    def blanks() -> Iterator[bytes]:
        while True:
            yield b" " * 65536

    return StreamingResponse(blanks(), media_type="application/json")


@dataclass
class ModelApi:
    """One server with all the APIs. ``say`` gives what the model says, in the form of the API that is asked.

    OpenAI's: a list of output items, or a whole response; Anthropic's: a list of blocks, or a whole message;
    Gemini: a list of parts, or a whole response; Chat Completions: a text, or a whole message.
    """

    say: Say
    faults: deque[Fault] = field(default_factory=deque)
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    hold: threading.Event | None = None
    """While it is not set, no request is answered."""
    busy: int = 0
    most_busy: int = 0

    def __post_init__(self) -> None:
        self._responses: dict[str, tuple[str, int, list[Any]]] = {}
        self._ids = itertools.count(1)
        self.app = Starlette(
            routes=[
                Route("/v1/responses", self._serve(self._openai), methods=["POST"]),
                Route("/v1/messages", self._serve(self._anthropic), methods=["POST"]),
                Route("/v1beta/models/{model}:generateContent", self._serve(self._gemini), methods=["POST"]),
                Route("/v1/chat/completions", self._serve(self._chat), methods=["POST"]),
            ]
        )

    def _serve(self, answer: Callable[[Request, dict[str, Any]], dict[str, Any]]) -> Any:
        async def serve(request: Request) -> Response:
            given = await request.json()
            self.requests.append((request.url.path, dict(request.headers), given))
            self.busy += 1
            self.most_busy = max(self.most_busy, self.busy)
            try:
                while self.hold is not None and not self.hold.is_set():
                    if await request.is_disconnected():
                        return Response(status_code=499)
                    await asyncio.sleep(0.01)
                if self.faults:
                    return self.faults.popleft()(request)
                made = answer(request, given)
                if given.get("stream") and "choices" in made:
                    return StreamingResponse(_chunks(made), media_type="text/event-stream")
                return JSONResponse(made)
            except Wrong as exc:
                return JSONResponse({"error": {"message": str(exc), "type": "invalid_request_error"}}, 400)
            finally:
                self.busy -= 1

        return serve

    # OpenAI ---------------------------------------------------------------------------------------------

    def _openai(self, request: Request, given: dict[str, Any]) -> dict[str, Any]:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            raise Wrong("wrong key")
        previous = given.get("previous_response_id")
        instruction, number = "", 0
        pending: list[Any] = []
        if previous is not None:
            if previous not in self._responses:
                raise Wrong(f"there is no response {previous}")
            instruction, number, pending = self._responses[previous]
        open_calls = {item["call_id"]: item for item in pending if item.get("type") == "computer_call"}
        size = (0, 0)
        for item in given["input"]:
            kind = item.get("type")
            if kind == "computer_call":
                open_calls[item["call_id"]] = item
                number += 1
            elif kind == "computer_call_output":
                call = open_calls.pop(item["call_id"], None)
                if call is None:
                    raise Wrong(f"no tool call found for {item['call_id']}")
                checks = [check["id"] for check in call.get("pending_safety_checks", [])]
                acknowledged = [check["id"] for check in item.get("acknowledged_safety_checks", [])]
                if checks != acknowledged:
                    raise Wrong("safety checks were not acknowledged")
                size = _size(item["output"]["image_url"])
            elif item.get("role") == "user":
                for part in item["content"]:
                    if part["type"] == "input_text":
                        instruction = instruction or part["text"]
                    else:
                        size = _size(part["image_url"])
        if open_calls:
            raise Wrong(f"no output was given for {', '.join(open_calls)}")
        said = self.say(Asked(instruction, number, size, given))
        response = {
            "id": f"resp_{next(self._ids)}",
            "object": "response",
            "status": "completed",
            "model": given["model"],
            "output": said,
            "usage": {
                "input_tokens": 1000 + number,
                "input_tokens_details": {"cached_tokens": 200},
                "output_tokens": 50,
                "output_tokens_details": {"reasoning_tokens": 20},
            },
        }
        if isinstance(said, dict):
            response |= said
        kept = [item for item in response["output"] if isinstance(item, dict)]
        if given.get("store", True):
            self._responses[str(response["id"])] = (instruction, number + 1, kept)
        return response

    # Anthropic ------------------------------------------------------------------------------------------

    def _anthropic(self, request: Request, given: dict[str, Any]) -> dict[str, Any]:
        if request.headers.get("x-api-key") != KEY or "anthropic-version" not in request.headers:
            raise Wrong("wrong key or no version")
        [tool] = given["tools"]
        beta = tool["type"] != "computer_toolset_20260801"
        if beta != ("anthropic-beta" in request.headers):
            raise Wrong(f"the beta header does not fit {tool['type']}")
        open_calls: list[str] = []
        instruction, number, size = "", 0, (0, 0)
        for place, message in enumerate(given["messages"]):
            if place == 0 and message["role"] != "user":
                raise Wrong("first message must be the user's")
            if message["role"] == "assistant":
                number += 1
                open_calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
                continue
            results = [block for block in message["content"] if block["type"] == "tool_result"]
            if [block["tool_use_id"] for block in results] != open_calls:
                raise Wrong("tool_use ids were found without tool_result blocks immediately after")
            if any((block.get("toolset_name") == "computer") == beta for block in results):
                raise Wrong("toolset_name does not fit")
            open_calls = []
            for block in _flat(message["content"]):
                if block["type"] == "image":
                    size = _size(f"data:{block['source']['media_type']};base64,{block['source']['data']}")
                elif block["type"] == "text":
                    instruction = instruction or block["text"]
        said = self.say(Asked(instruction, number, size, given))
        message = {
            "id": f"msg_{next(self._ids)}",
            "type": "message",
            "role": "assistant",
            "model": given["model"],
            "content": said,
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 700, "cache_read_input_tokens": 300, "output_tokens": 50},
        }
        return message | said if isinstance(said, dict) else message

    # Gemini ---------------------------------------------------------------------------------------------

    def _gemini(self, request: Request, given: dict[str, Any]) -> dict[str, Any]:
        if request.headers.get("x-goog-api-key") != KEY:
            raise Wrong("API key not valid")
        [tool] = given["tools"]
        if tool["computer_use"]["environment"] not in ("ENVIRONMENT_DESKTOP", "ENVIRONMENT_BROWSER"):
            raise Wrong("no such environment")
        open_calls: list[dict[str, Any]] = []
        instruction, number, size = "", 0, (0, 0)
        for content in given["contents"]:
            if not content["parts"]:
                raise Wrong("contents.parts must not be empty")
            if content["role"] == "model":
                number += 1
                parts = [part for part in content["parts"] if "functionCall" in part]
                if any(not part.get("thoughtSignature") for part in parts[:1]):
                    raise Wrong("function call is missing a thought_signature")
                open_calls = [part["functionCall"] for part in parts]
                continue
            answers = [part["function_response"] for part in content["parts"] if "function_response" in part]
            _check_answers(open_calls, answers)
            open_calls = []
            for part in [*content["parts"], *itertools.chain(*(answer["parts"] for answer in answers))]:
                if "inline_data" in part:
                    image = part["inline_data"]
                    size = _size(f"data:{image['mime_type']};base64,{image['data']}")
                elif "text" in part:
                    instruction = instruction or part["text"]
        said = self.say(Asked(instruction, number, size, given))
        answer = {
            "candidates": [{"content": {"role": "model", "parts": said}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {
                "promptTokenCount": 1100,
                "cachedContentTokenCount": 100,
                "candidatesTokenCount": 30,
                "thoughtsTokenCount": 12,
            },
            "modelVersion": request.path_params["model"],
            "responseId": f"g{next(self._ids)}",
        }
        return answer | said if isinstance(said, dict) else answer

    # Chat Completions -----------------------------------------------------------------------------------

    def _chat(self, request: Request, given: dict[str, Any]) -> dict[str, Any]:
        instruction, number, size = "", 0, (0, 0)
        roles = [
            message["role"] for message in given["messages"] if message["role"] not in ("system", "tool")
        ]
        if roles != ["user", "assistant"] * (len(roles) // 2) + ["user"]:
            raise Wrong("conversation roles must alternate user/assistant/user/assistant/...")
        open_calls: list[str] = []
        for message in given["messages"]:
            if message["role"] == "assistant":
                number += 1
                open_calls = [call["id"] for call in message.get("tool_calls", [])]
            elif message["role"] == "tool":
                open_calls.remove(message["tool_call_id"])
            elif message["role"] == "user":
                if open_calls:
                    raise Wrong("an assistant message with tool_calls must be followed by tool messages")
                for part in message["content"]:
                    if part["type"] == "image_url":
                        size = _size(part["image_url"]["url"])
                    else:
                        instruction = instruction or part["text"]
        said = self.say(Asked(instruction, number, size, given))
        message = said if isinstance(said, dict) and "content" in said else {"content": said}
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
        answer = {
            "id": f"chatcmpl-{next(self._ids)}",
            "object": "chat.completion",
            "model": given["model"],
            "choices": [choice],
            "usage": {"prompt_tokens": 900, "completion_tokens": 40, "total_tokens": 940},
        }
        return answer | said if isinstance(said, dict) and "choices" in said else answer


def _check_answers(calls: list[dict[str, Any]], answers: list[dict[str, Any]]) -> None:
    """Each of Gemini's calls is answered under its name, and what it wants confirmed is confirmed."""
    if [call["name"] for call in calls] != [answer["name"] for answer in answers]:
        raise Wrong("the number of function response parts must equal that of function call parts")
    for call, answer in zip(calls, answers, strict=True):
        if call.get("id") != answer.get("id"):
            raise Wrong("the id of the response is not the call's")
        asks = "require_confirmation" in json.dumps(call.get("args"))
        if asks and "safety_acknowledgement" not in answer["response"]:
            raise Wrong("the safety decision was not acknowledged")


def _chunks(answer: dict[str, Any]) -> Iterator[str]:
    """An answer of Chat Completions as it is streamed: what is said, the end, the usage."""
    head = {"id": answer["id"], "object": "chat.completion.chunk", "created": 0, "model": answer["model"]}
    for choice in answer["choices"]:
        said = {"index": choice["index"], "delta": choice["message"], "finish_reason": None}
        ended = {"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}
        for part in (said, ended):
            yield f"data: {json.dumps(head | {'choices': [part]})}\n\n"
    yield f"data: {json.dumps(head | {'choices': [], 'usage': answer['usage']})}\n\n"
    yield "data: [DONE]\n\n"


def _flat(blocks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for block in blocks:
        yield block
        if isinstance(block.get("content"), list):
            yield from block["content"]


def _size(url: str) -> tuple[int, int]:
    kind, _, data = url.partition(";base64,")
    if kind not in ("data:image/png", "data:image/jpeg"):
        raise Wrong(f"no image: {kind[:40]}")
    with Image.open(io.BytesIO(base64.b64decode(data, validate=True)), formats=("PNG", "JPEG")) as image:
        image.load()
        return image.size


def images_in(given: Mapping[str, Any]) -> int:
    """How many screenshots a request carries; one pixel is none."""
    text = json.dumps(given)
    return text.count("image/png") + text.count("image/jpeg") - text.count("iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB")


@contextlib.contextmanager
def serving_models(api: ModelApi) -> Iterator[str]:
    """Run the server on loopback in a thread; give its root URL."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(128)
        server = uvicorn.Server(uvicorn.Config(api.app, log_level="critical", lifespan="off"))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([sock])), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            thread.join(10)
