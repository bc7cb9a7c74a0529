"""Reading of one answer of a model, besides its action. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from osgym_sdk.agents._server import Reply

MAX_KEPT_CHARS = 64 * 1024
"""Length of a model's words, reasoning and raw output, each, in the record of a step."""
_MAX_COUNT = 10**9


@dataclass(slots=True)
class Usage:
    """Tokens and time, summed over requests.

    Attributes:
        input_tokens: all that were read, those from a cache included.
        cached_tokens: of these, those that were read from a cache.
        output_tokens: all that were written, reasoning included.
        reasoning_tokens: of these, the reasoning, where the provider says so.
        latency_s: of the requests that were answered; waits between attempts are not in it.
        requests: that were answered.
        repeated: requests that were sent again.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    latency_s: float = 0.0
    requests: int = 0
    repeated: int = 0

    def add(self, other: Usage) -> None:
        """Add another's."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {name: round(value, 4) if isinstance(value := getattr(self, name), float) else value
                for name in self.__slots__}  # fmt: skip

    @classmethod
    def from_dict(cls, raw: object) -> Usage:
        """Return what :meth:`to_dict` wrote; whatever is missing or no number counts nothing."""
        given = raw if isinstance(raw, Mapping) else {}
        latency = given.get("latency_s")
        counts = {name: count(given, name) for name in cls.__slots__ if name != "latency_s"}
        seconds = float(latency) if isinstance(latency, (int, float)) and 0 <= latency < _MAX_COUNT else 0.0
        return cls(latency_s=seconds, **counts)


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of a model.

    Attributes:
        output: what the grammar reads: text, items, blocks.
        text: what the model said in words.
        reasoning: what it thought, as far as the provider shows it.
        usage: of this answer; time and attempts are filled in from the reply.
        stop: why the answer ended, in the provider's word.
        cut: whether it was cut off at a limit of tokens: such an output is no action.
        declined: whether the provider says that the model declined.
        response_id: the provider's name of the answer.
        model: which model answered, in the provider's word.
    """

    output: Any
    text: str = ""
    reasoning: str = ""
    usage: Usage = field(default_factory=Usage)
    stop: str = ""
    cut: bool = False
    declined: bool = False
    response_id: str = ""
    model: str = ""

    @property
    def words(self) -> str:
        """Thoughts and words of the model, for people who look at the step."""
        return "\n\n".join(part for part in (self.reasoning, self.text) if part)

    def info(self, reply: Reply) -> dict[str, Any]:
        """Return what the step's record keeps: plain JSON, each part bounded."""
        usage = Usage(requests=1, repeated=reply.attempts - 1, latency_s=reply.latency_s)
        usage.add(self.usage)
        kept: dict[str, Any] = {
            "text": shortened(self.text),
            "reasoning": shortened(self.reasoning),
            "model": self.model,
            "response_id": self.response_id,
            "stop": self.stop,
            "usage": usage.to_dict(),
        }
        output = self.output if isinstance(self.output, str) else json.dumps(self.output, ensure_ascii=False)
        kept["output"] = shortened(output)
        return kept


def shortened(text: str) -> str:
    """Return a text, its middle left out where it is too long."""
    if len(text) <= MAX_KEPT_CHARS:
        return text
    half = MAX_KEPT_CHARS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def count(raw: object, *path: str) -> int:
    """Return a number of tokens that stands somewhere in an object; 0 when it does not."""
    for name in path:
        raw = raw.get(name) if isinstance(raw, Mapping) else None
    return raw if type(raw) is int and 0 <= raw <= _MAX_COUNT else 0


def text_at(raw: object, *path: str) -> str:
    """Return a text that stands somewhere in an object; empty when it does not."""
    for name in path:
        raw = raw.get(name) if isinstance(raw, Mapping) else None
    return raw if isinstance(raw, str) else ""


def objects_at(raw: object, name: str) -> list[Mapping[str, Any]]:
    """Return the objects of a list; whatever else is in it is left out."""
    listed = raw.get(name) if isinstance(raw, Mapping) else None
    return [item for item in listed if isinstance(item, Mapping)] if isinstance(listed, list) else []
