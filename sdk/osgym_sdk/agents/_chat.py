"""Any server with the Chat Completions API (vLLM, SGLang, …) and an open model on it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from osgym_protocol.grammars import Coordinates
from osgym_sdk._exceptions import ConfigError
from osgym_sdk._inputs.reading import Reading
from osgym_sdk._models.observation import Observation
from osgym_sdk.agents._agent import Agent, Conversation, instruction_of, leave_out
from osgym_sdk.agents._prompts import Prompt, prompt_named
from osgym_sdk.agents._server import ENVIRON, ModelServer, Reply, ServerOptions, api_key_of, base_url_of
from osgym_sdk.agents._turn import Turn, Usage, count, objects_at, shortened, text_at

BASE_URL = "http://127.0.0.1:8000/v1"
"""Default address of vLLM."""
LEFT_OUT = {"type": "text", "text": "(screenshot left out)"}


class ChatAgent(Agent):
    """An open model behind an API compatible with OpenAI's Chat Completions.

    Args:
        model: its name at the server.
        prompt: what it is told and how it is read: ``"uitars"``, ``"uitars-1.5"``, ``"qwen"``, ``"qwen2.5"``,
            ``"opencua"``, ``"pyautogui"``, ``"computer13"``, or a :class:`Prompt`.
        api_key: ``OPENAI_API_KEY`` by default; servers of your own mostly need none.
        base_url: ``OPENAI_BASE_URL`` by default, else vLLM's on this machine.
        images: how many of the newest screenshots are sent again; the prompt's by default.
        coordinates: what its coordinates are, where not as the prompt says (``smart_resize`` with your
            server's ``max_pixels``).
        system: the system message in place of the prompt's.
        max_tokens: of one answer.
        temperature: of sampling; None: the server's.
        extra: more fields of the request, such as ``{"top_p": 0.9, "seed": 7}``.
        options: deadline and retries.

    Raises:
        ConfigError: there is no such prompt, or an argument is wrong.
    """

    def __init__(
        self,
        model: str,
        *,
        prompt: str | Prompt,
        api_key: str | None = None,
        base_url: str | None = None,
        images: int | None = None,
        coordinates: Coordinates | None = None,
        system: str | None = None,
        max_tokens: int = 4096,
        temperature: float | None = None,
        extra: Mapping[str, Any] | None = None,
        options: ServerOptions | None = None,
    ) -> None:
        self.prompt = prompt_named(prompt) if isinstance(prompt, str) else prompt
        if max_tokens < 1 or (images is not None and images < 1):
            raise ConfigError("max_tokens and images must be 1 or more")
        key = api_key_of(api_key, "OPENAI_API_KEY", False, ENVIRON)
        url = base_url_of(base_url, "OPENAI_BASE_URL", BASE_URL, ENVIRON)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        super().__init__(ModelServer(url, headers, options or ServerOptions()))
        self.model, self.system = model, system
        self.images = images or self.prompt.images
        self.reading: Reading = self.prompt.reading
        if coordinates is not None:
            self.reading = replace(self.reading, coordinates=coordinates)
        sampling = {} if temperature is None else {"temperature": temperature}
        self.body = {"model": model, "max_tokens": max_tokens, **sampling, **(extra or {})}

    def reset(self, task: Any) -> ChatConversation:
        """Return what acts in one episode."""
        return ChatConversation(self, self._server, instruction_of(task))


class ChatConversation(Conversation):
    """One episode of a :class:`ChatAgent`."""

    def __init__(self, agent: ChatAgent, server: ModelServer, instruction: str) -> None:
        super().__init__(server, agent.usage, agent.reading, instruction)
        self._agent = agent
        self._messages: list[dict[str, Any]] = []

    def _request(self, obs: Observation, error: str | None) -> tuple[str, Mapping[str, Any]]:
        prompt = self._agent.prompt
        if not self._messages:
            system = prompt.system(obs.size) if self._agent.system is None else self._agent.system
            if system:
                self._messages.append({"role": "system", "content": system})
            self._messages += obs.to_chat((), text=prompt.first(self.instruction))
        else:
            self._messages += obs.to_chat(self._calls or (), error=error)
        leave_out(self._agent.images, _images(self._messages))
        return "/chat/completions", {**self._agent.body, "messages": self._messages}

    def _turn(self, reply: Reply) -> Turn:
        data = reply.data
        choices = objects_at(data, "choices")
        message = choices[0].get("message") if choices else None
        if not isinstance(message, Mapping):
            raise self._not_the_apis("has no choices[0].message")
        text = text_at(message, "content")
        calls = message.get("tool_calls") if self._agent.prompt.objects else None
        stop = text_at(choices[0], "finish_reason")
        return Turn(
            output={"content": text, "tool_calls": calls} if calls else text,
            text=text,
            reasoning=text_at(message, "reasoning_content") or text_at(message, "reasoning"),
            usage=Usage(
                input_tokens=count(data, "usage", "prompt_tokens"),
                cached_tokens=count(data, "usage", "prompt_tokens_details", "cached_tokens"),
                output_tokens=count(data, "usage", "completion_tokens"),
                reasoning_tokens=count(data, "usage", "completion_tokens_details", "reasoning_tokens"),
            ),
            stop=stop,
            cut=stop == "length",
            declined=stop == "content_filter",
            response_id=text_at(data, "id"),
            model=text_at(data, "model"),
        )

    def _keep(self, turn: Turn) -> None:
        said: dict[str, Any] = {"role": "assistant", "content": shortened(turn.text)}
        if isinstance(turn.output, Mapping):
            said["tool_calls"] = turn.output["tool_calls"]
        self._messages.append(said)


def _images(messages: list[dict[str, Any]]) -> Iterator[Callable[[], None]]:
    for message in reversed(messages):
        content = message["content"]
        for place in reversed(range(len(content))) if message["role"] == "user" else ():
            if isinstance(content, list) and content[place].get("type") == "image_url":
                yield functools.partial(content.__setitem__, place, LEFT_OUT)
