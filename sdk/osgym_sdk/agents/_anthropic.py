"""Anthropic's Messages API with its computer tool, from `computer_20241022` to `computer_toolset_20260801`.

The forms were read in the computer use tool's page of platform.claude.com (2026-11): see the grammar
`anthropic`. The toolset needs no beta header and no size; the tools before it need both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from osgym_protocol.grammars import GRAMMARS
from osgym_sdk._exceptions import ConfigError
from osgym_sdk._inputs.reading import Reading
from osgym_sdk._models.observation import Observation
from osgym_sdk.agents._agent import ComputerToolAgent, Conversation, instruction_of, leave_out
from osgym_sdk.agents._server import ENVIRON, ModelServer, Reply, ServerOptions, api_key_of, base_url_of
from osgym_sdk.agents._turn import Turn, Usage, count, objects_at, text_at
from osgym_sdk.wire import ObserveOptions

BASE_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
TOOLSET = "computer_toolset_20260801"
BETAS = {
    "computer_20251124": "computer-use-2025-11-24",
    "computer_20250124": "computer-use-2025-01-24",
    "computer_20241022": "computer-use-2024-10-22",
}
"""Beta headers of the tools that need one."""
LEFT_OUT = {"type": "text", "text": "(screenshot left out)"}
_STOPPED_SHORT = ("max_tokens", "model_context_window_exceeded")


class AnthropicAgent(ComputerToolAgent):
    """A model of Anthropic's with its own computer tool.

    Args:
        model: its name.
        api_key: ``ANTHROPIC_API_KEY`` by default.
        base_url: ``ANTHROPIC_BASE_URL`` by default, else Anthropic's.
        tool: version of the tool: the newest by default.
        max_tokens: of one answer, thinking included.
        images: how many of the newest screenshots are sent again; None: all, so that nothing of the history
            changes, which prompt caching and signed thinking want.
        system: instructions; None: ours.
        extra: more fields of the request, such as ``{"thinking": {"type": "adaptive"}}``.
        options: deadline and retries.

    Raises:
        ConfigError: there is no key, or an argument is wrong.
    """

    observe = ObserveOptions(size=(1280, 720))
    """Anthropic scales larger images down itself; it recommends about this size."""

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        tool: str = TOOLSET,
        max_tokens: int = 16_000,
        images: int | None = None,
        system: str | None = None,
        extra: Mapping[str, Any] | None = None,
        options: ServerOptions | None = None,
    ) -> None:
        versions = GRAMMARS["anthropic"].versions
        if tool not in versions or max_tokens < 1 or (images is not None and images < 1):
            raise ConfigError(f"tool must be one of {versions}, max_tokens and images 1 or more")
        key = api_key_of(api_key, "ANTHROPIC_API_KEY", True, ENVIRON)
        url = base_url_of(base_url, "ANTHROPIC_BASE_URL", BASE_URL, ENVIRON)
        headers = {"x-api-key": str(key), "anthropic-version": API_VERSION}
        if tool in BETAS:
            headers["anthropic-beta"] = BETAS[tool]
        server = ModelServer(url, headers, options or ServerOptions())
        super().__init__(server, model=model, tool=tool, images=images, system=system, extra=extra)
        self.max_tokens = max_tokens

    def reset(self, task: Any) -> AnthropicConversation:
        """Return what acts in one episode."""
        return AnthropicConversation(self, self._server, instruction_of(task))


class AnthropicConversation(Conversation):
    """One episode of an :class:`AnthropicAgent`."""

    def __init__(self, agent: AnthropicAgent, server: ModelServer, instruction: str) -> None:
        super().__init__(server, agent.usage, Reading("anthropic", agent.tool), instruction)
        self._agent = agent
        self._messages: list[dict[str, Any]] = []
        self._cursor: tuple[int, int] | None = None

    def _request(self, obs: Observation, error: str | None) -> tuple[str, Mapping[str, Any]]:
        agent = self._agent
        self._cursor = _pointer(obs.actions) or self._cursor
        told = obs.to_anthropic(self._calls or (), error=error, cursor=self._cursor, zooms=self._zooms)
        if not self._messages:
            told.insert(0, {"type": "text", "text": self.instruction})
        self._messages.append({"role": "user", "content": told})
        leave_out(agent.images, _images(self._messages))
        body: dict[str, Any] = {
            "model": agent.model,
            "max_tokens": agent.max_tokens,
            "tools": [self._tool(obs)],
            "messages": _cached(self._messages),
        }
        if agent.system:
            body["system"] = agent.system
        return "/v1/messages", {**body, **agent.extra}

    def _tool(self, obs: Observation) -> dict[str, Any]:
        version = self._agent.tool
        if version == TOOLSET:
            return {"type": TOOLSET}
        width, height = obs.size
        zoom = {"enable_zoom": True} if version == "computer_20251124" else {}
        size = {"display_width_px": width, "display_height_px": height}
        return {"type": version, "name": "computer", **size, **zoom}

    def _turn(self, reply: Reply) -> Turn:
        data = reply.data
        content = data.get("content")
        if not isinstance(content, list):
            raise self._not_the_apis("has no list 'content'")
        blocks = objects_at(data, "content")
        stop = text_at(data, "stop_reason")
        fresh = count(data, "usage", "input_tokens") + count(data, "usage", "cache_creation_input_tokens")
        cached = count(data, "usage", "cache_read_input_tokens")
        return Turn(
            output=content,
            text="\n".join(text_at(block, "text") for block in blocks if block.get("type") == "text"),
            reasoning="\n".join(filter(None, (text_at(block, "thinking") for block in blocks))),
            usage=Usage(
                input_tokens=fresh + cached,
                cached_tokens=cached,
                output_tokens=count(data, "usage", "output_tokens"),
            ),
            stop=stop,
            cut=stop in _STOPPED_SHORT,
            declined=stop == "refusal",
            response_id=text_at(data, "id"),
            model=text_at(data, "model"),
        )

    def _keep(self, turn: Turn) -> None:
        kinds = {block.get("type") for block in turn.output if isinstance(block, Mapping)}
        if kinds & {"text", "tool_use"}:  # thinking alone, cut off, is no message that may be sent back
            self._messages.append({"role": "assistant", "content": turn.output})


def _cached(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages whose last block asks for all before it to be cached."""
    last = messages[-1]
    content = [*last["content"][:-1], {**last["content"][-1], "cache_control": {"type": "ephemeral"}}]
    return [*messages[:-1], {**last, "content": content}]


def _images(messages: list[dict[str, Any]]) -> Iterator[Callable[[], None]]:
    for message in reversed(messages):
        for holder in reversed([message, *message["content"]]) if message["role"] == "user" else ():
            content = holder.get("content")
            for place in reversed(range(len(content))) if isinstance(content, list) else ():
                if content[place].get("type") == "image":
                    yield functools.partial(content.__setitem__, place, LEFT_OUT)


def _pointer(actions: tuple[Mapping[str, Any], ...]) -> tuple[int, int] | None:
    """Return where the actions of a step left the pointer; None when they did not move it."""
    for action in reversed(actions):
        if "x" in action and "y" in action:
            return int(action["x"]), int(action["y"])
        if action.get("path"):
            x, y = action["path"][-1]
            return int(x), int(y)
    return None
