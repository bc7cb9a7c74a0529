"""Google's Gemini with its computer use tool, by `generateContent` of the Gemini API.

The forms were read in the computer use pages of ai.google.dev (2026-07 to 2026-11): see the grammar `gemini`.
Gemini 3.5 and later know desktops; the models before it know browsers only, and are told to leave the
browser's own functions alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from osgym_sdk._exceptions import ConfigError
from osgym_sdk._inputs.reading import Reading
from osgym_sdk._models.observation import Observation
from osgym_sdk.agents._agent import ComputerToolAgent, Conversation, instruction_of, leave_out
from osgym_sdk.agents._server import ENVIRON, ModelServer, Reply, ServerOptions, api_key_of, base_url_of
from osgym_sdk.agents._turn import Turn, Usage, count, objects_at, text_at

BASE_URL = "https://generativelanguage.googleapis.com"
TOOLS: dict[str, dict[str, Any]] = {
    "3.5": {"environment": "ENVIRONMENT_DESKTOP"},
    "2.5": {
        "environment": "ENVIRONMENT_BROWSER",
        "excluded_predefined_functions": ["open_web_browser", "go_back", "go_forward", "search", "navigate"],
    },
}
"""Configuration of the tool by the version of its functions."""
_DECLINED = ("SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "RECITATION", "IMAGE_SAFETY")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
LEFT_OUT = {"text": "(screenshot left out)"}


class GeminiAgent(ComputerToolAgent):
    """A model of Google's with its own computer tool.

    Args:
        model: its name, such as ``gemini-3.5-flash``.
        api_key: ``GEMINI_API_KEY`` by default, else ``GOOGLE_API_KEY``.
        base_url: ``GOOGLE_GEMINI_BASE_URL`` by default, else Google's.
        tool: version of its functions: ``"3.5"`` for Gemini 3.5 and later, ``"2.5"`` for the models before.
        images: how many of the newest screenshots are sent again; None: all. A request with more than 20 MB
            is refused there.
        acknowledge_safety_checks: acknowledge whatever confirmation Gemini asks for. Without, an episode in
            which it asks ends there with :class:`ModelError`, and the call is not carried out.
        system: instructions; None: ours.
        extra: more fields of the request, such as ``{"generation_config": {"temperature": 0}}``.
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
        tool: str = "3.5",
        images: int | None = 10,
        acknowledge_safety_checks: bool = False,
        system: str | None = None,
        extra: Mapping[str, Any] | None = None,
        options: ServerOptions | None = None,
    ) -> None:
        if tool not in TOOLS or (images is not None and images < 1):
            raise ConfigError(f"tool must be one of {tuple(TOOLS)}, images 1 or more")
        name = model.removeprefix("models/")
        if not _NAME.fullmatch(name):
            raise ConfigError(f"model must be a name such as gemini-3.5-flash, not {model[:60]!r}")
        variable = "GEMINI_API_KEY" if ENVIRON.get("GEMINI_API_KEY") else "GOOGLE_API_KEY"
        if api_key is None and not ENVIRON.get(variable):
            variable = "GEMINI_API_KEY"  # which the error names
        key = api_key_of(api_key, variable, True, ENVIRON)
        url = base_url_of(base_url, "GOOGLE_GEMINI_BASE_URL", BASE_URL, ENVIRON)
        server = ModelServer(url, {"x-goog-api-key": str(key)}, options or ServerOptions())
        super().__init__(server, model=name, tool=tool, images=images, system=system, extra=extra)
        self.acknowledge_safety_checks = acknowledge_safety_checks

    def reset(self, task: Any) -> GeminiConversation:
        """Return what acts in one episode."""
        return GeminiConversation(self, self._server, instruction_of(task))


class GeminiConversation(Conversation):
    """One episode of a :class:`GeminiAgent`."""

    def __init__(self, agent: GeminiAgent, server: ModelServer, instruction: str) -> None:
        super().__init__(server, agent.usage, Reading("gemini", agent.tool), instruction)
        self._agent = agent
        self._acknowledges = agent.acknowledge_safety_checks
        self._contents: list[dict[str, Any]] = []

    def _request(self, obs: Observation, error: str | None) -> tuple[str, Mapping[str, Any]]:
        agent = self._agent
        told = obs.to_gemini(self._calls or (), acknowledge=True, error=error)
        if not self._contents:
            told.insert(0, {"text": self.instruction})
        self._contents.append({"role": "user", "parts": told})
        leave_out(agent.images, _images(self._contents))
        body: dict[str, Any] = {
            "contents": self._contents,
            "tools": [{"computer_use": TOOLS[agent.tool]}],
        }
        if agent.system:
            body["system_instruction"] = {"parts": [{"text": agent.system}]}
        return f"/v1beta/models/{agent.model}:generateContent", {**body, **agent.extra}

    def _turn(self, reply: Reply) -> Turn:
        data = reply.data
        blocked = text_at(data, "promptFeedback", "blockReason")
        candidates = objects_at(data, "candidates")
        if not candidates and not blocked:
            raise self._not_the_apis("has no list 'candidates'")
        first = candidates[0] if candidates else {}
        parts = objects_at(first.get("content"), "parts")
        stop = blocked or text_at(first, "finishReason")
        thinking = count(data, "usageMetadata", "thoughtsTokenCount")
        return Turn(
            output=[dict(part) for part in parts],
            text="\n".join(
                filter(None, (text_at(part, "text") for part in parts if not part.get("thought")))
            ),
            reasoning="\n".join(text_at(part, "text") for part in parts if part.get("thought")),
            usage=Usage(
                input_tokens=count(data, "usageMetadata", "promptTokenCount"),
                cached_tokens=count(data, "usageMetadata", "cachedContentTokenCount"),
                output_tokens=count(data, "usageMetadata", "candidatesTokenCount") + thinking,
                reasoning_tokens=thinking,
            ),
            stop=stop,
            cut=stop == "MAX_TOKENS",
            declined=bool(blocked) or (stop in _DECLINED and not parts),
            response_id=text_at(data, "responseId"),
            model=text_at(data, "modelVersion"),
        )

    def _keep(self, turn: Turn) -> None:
        if turn.output:  # whole, with the signatures of its thoughts, without which calls are refused
            self._contents.append({"role": "model", "parts": turn.output})


def _images(contents: list[dict[str, Any]]) -> Iterator[Callable[[], None]]:
    for content in reversed(contents):
        parts = content["parts"]
        for place in reversed(range(len(parts))) if content["role"] == "user" else ():
            response = parts[place].get("function_response")
            if response and response.get("parts"):
                without = {"function_response": {**response, "parts": []}}
                yield functools.partial(parts.__setitem__, place, without)
            elif "inline_data" in parts[place]:
                yield functools.partial(parts.__setitem__, place, LEFT_OUT)
