"""OpenAI's Responses API with the tool `computer`, or `computer_use_preview` before it.

The forms were read in openai-python of 2026-08-21 (`types/responses/`): see the grammar `openai`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from osgym_sdk._exceptions import ConfigError
from osgym_sdk._inputs.reading import Reading
from osgym_sdk._models.observation import Observation
from osgym_sdk.agents._agent import ComputerToolAgent, Conversation, instruction_of, leave_out
from osgym_sdk.agents._server import ENVIRON, ModelServer, Reply, ServerOptions, api_key_of, base_url_of
from osgym_sdk.agents._turn import Turn, Usage, count, objects_at, text_at

BASE_URL = "https://api.openai.com/v1"
TOOLS = ("computer", "computer_use_preview")
HISTORIES = ("previous", "full")


class OpenAIAgent(ComputerToolAgent):
    """A model of OpenAI's with its own computer tool.

    Args:
        model: its name.
        api_key: ``OPENAI_API_KEY`` by default.
        base_url: ``OPENAI_BASE_URL`` by default, else OpenAI's.
        tool: ``"computer"``, or ``"computer_use_preview"`` for the model of that name.
        history: ``"previous"``: OpenAI keeps the conversation and each request names the one before
            (``previous_response_id``). ``"full"``: nothing is stored there; each request carries all of it,
            encrypted reasoning included.
        images: with ``"full"``, how many of the newest screenshots are sent again; None: all.
        acknowledge_safety_checks: acknowledge whatever checks OpenAI asks for. Without, an episode in which
            it asks ends there with :class:`ModelError`, and the call is not carried out.
        system: instructions; None: ours.
        extra: more fields of the request, such as ``{"reasoning": {"effort": "high", "summary": "auto"}}``.
        options: deadline and retries.

    Raises:
        ConfigError: there is no key, or an argument is wrong.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        tool: str = "computer",
        history: str = "previous",
        images: int | None = None,
        acknowledge_safety_checks: bool = False,
        system: str | None = None,
        extra: Mapping[str, Any] | None = None,
        options: ServerOptions | None = None,
    ) -> None:
        if tool not in TOOLS or history not in HISTORIES or (images is not None and images < 1):
            raise ConfigError(f"tool must be one of {TOOLS}, history one of {HISTORIES}, images 1 or more")
        if images is not None and history != "full":
            raise ConfigError('images= needs history="full", since OpenAI keeps the conversation otherwise')
        key = api_key_of(api_key, "OPENAI_API_KEY", True, ENVIRON)
        url = base_url_of(base_url, "OPENAI_BASE_URL", BASE_URL, ENVIRON)
        server = ModelServer(url, {"authorization": f"Bearer {key}"}, options or ServerOptions())
        super().__init__(server, model=model, tool=tool, images=images, system=system, extra=extra)
        self.history = history
        self.acknowledge_safety_checks = acknowledge_safety_checks

    def reset(self, task: Any) -> OpenAIConversation:
        """Return what acts in one episode."""
        return OpenAIConversation(self, self._server, instruction_of(task))


class OpenAIConversation(Conversation):
    """One episode of an :class:`OpenAIAgent`."""

    def __init__(self, agent: OpenAIAgent, server: ModelServer, instruction: str) -> None:
        super().__init__(server, agent.usage, Reading("openai", agent.tool), instruction)
        self._agent = agent
        self._acknowledges = agent.acknowledge_safety_checks
        self._items: list[dict[str, Any]] = []
        """All items so far with ``history="full"``, else those of the next request."""
        self._previous = ""

    def _request(self, obs: Observation, error: str | None) -> tuple[str, Mapping[str, Any]]:
        agent = self._agent
        detail = "original" if agent.tool == "computer" else None
        told = obs.to_openai(self._calls or (), acknowledge=True, error=error, detail=detail)
        if self._calls is None:
            told[0]["content"].insert(0, {"type": "input_text", "text": self.instruction})
        self._items += told
        body: dict[str, Any] = {"model": agent.model, "tools": [self._tool(obs)], "input": self._items}
        if agent.system:
            body["instructions"] = agent.system
        if agent.history == "full":
            leave_out(agent.images, _images(self._items))
            body |= {"store": False, "include": ["reasoning.encrypted_content"]}
        elif self._previous:
            body["previous_response_id"] = self._previous
        if agent.tool == "computer_use_preview":
            body["truncation"] = "auto"  # which that tool demands
        return "/responses", {**body, **agent.extra}

    def _tool(self, obs: Observation) -> dict[str, Any]:
        if self._agent.tool == "computer":
            return {"type": "computer"}
        width, height = obs.size
        return {
            "type": "computer_use_preview",
            "display_width": width,
            "display_height": height,
            "environment": "linux",
        }

    def _turn(self, reply: Reply) -> Turn:
        data = reply.data
        output = data.get("output")
        if not isinstance(output, list):
            raise self._not_the_apis("has no list 'output'")
        said, thought = [], []
        refused = False
        for item in objects_at(data, "output"):
            for part in objects_at(item, "content"):
                said += [text_at(part, "text")] if part.get("type") == "output_text" else []
                refused = refused or part.get("type") == "refusal"
                said += [text_at(part, "refusal")] if part.get("type") == "refusal" else []
            thought += [text_at(part, "text") for part in objects_at(item, "summary")]
        calls = any(item.get("type") == "computer_call" for item in objects_at(data, "output"))
        status = text_at(data, "status")
        if status == "failed":
            raise self._not_the_apis(f"failed: {text_at(data, 'error', 'message')[:300]!r}")
        return Turn(
            output=output,
            text="\n".join(part for part in said if part),
            reasoning="\n".join(part for part in thought if part),
            usage=Usage(
                input_tokens=count(data, "usage", "input_tokens"),
                cached_tokens=count(data, "usage", "input_tokens_details", "cached_tokens"),
                output_tokens=count(data, "usage", "output_tokens"),
                reasoning_tokens=count(data, "usage", "output_tokens_details", "reasoning_tokens"),
            ),
            stop=text_at(data, "incomplete_details", "reason") or status,
            cut=status == "incomplete",
            declined=refused and not calls,
            response_id=text_at(data, "id"),
            model=text_at(data, "model"),
        )

    def _keep(self, turn: Turn) -> None:
        self._previous = turn.response_id
        if self._agent.history == "full":
            self._items += [dict(item) for item in turn.output if isinstance(item, Mapping)]
        else:
            self._items = []


def _images(items: list[dict[str, Any]]) -> Iterator[Callable[[], None]]:
    for item in reversed(items):
        if item.get("type") == "computer_call_output":  # its output must be an image: an empty one
            yield functools.partial(item.__setitem__, "output", {**item["output"], "image_url": _EMPTY_PNG})
        elif item.get("role") == "user":
            for part in [part for part in item["content"] if part.get("type") == "input_image"]:
                yield functools.partial(_leave_out, item, part)


def _leave_out(message: dict[str, Any], image: dict[str, Any]) -> None:
    message["content"].remove(image)
    message["content"] = message["content"] or [{"type": "input_text", "text": "(screenshot left out)"}]


_EMPTY_PNG = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""Image of one transparent pixel."""
