"""Requests that clouds refuse: rules that a stand-in for a cloud applies in tests. Pure.

`aws.py` and `gcp.py` hold the rules (`RULES`): data with the cloud's message, where it was read, and when.
docs/design/cloud-requests.md is written from them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from typing import Any

Request = Mapping[str, Any]
"""Inputs of a resource in Pulumi's spelling (camelCase); what is not known yet is `None`."""
Made = Callable[[str], Request]
"""From a resource's id to its inputs; empty for one that nobody made here."""


@dataclass(frozen=True, slots=True)
class RequestRule:
    """One thing that a cloud refuses.

    Attributes:
        name: short and unique among the provider's rules: small letters, digits, dashes.
        kinds: pattern of Pulumi's types, without the part before the last colon (`InstanceTemplate`).
        message: what the cloud or its provider answers, or, where nobody published it, what is wrong.
        source: where the rule was read: a page, or a repository's file.
        read: when.
        breaks: whether a request breaks it; values that are missing or unknown do not.
        beside: the same for a request that has to fit another resource, which it names by id.
    """

    name: str
    kinds: str
    message: str
    source: str
    read: date
    breaks: Callable[[Request], bool]
    beside: Callable[[Request, Made], bool] | None = None

    def is_broken(self, request: Request, made: Made) -> bool:
        """Whether a request breaks it, beside what is there."""
        return self.breaks(request) or (self.beside is not None and self.beside(request, made))


def nothing_made(_id: str) -> Request:
    """Know of no other resource."""
    return {}


def refusals(kind: str, request: Request, made: Made = nothing_made) -> list[str]:
    """What a cloud would answer to a request; nothing for those of others than clouds.

    Args:
        kind: Pulumi's type, e.g. `gcp:compute/instanceTemplate:InstanceTemplate`.
        made: finds the inputs of other resources.
    """
    provider, last = kind.partition(":")[0], kind.rpartition(":")[2]
    return [
        f"{rule.message} [{rule.name}]"
        for rule in rules_of(provider)
        if re.fullmatch(rule.kinds, last) and rule.is_broken(request, made)
    ]


def rules_of(provider: str) -> Sequence[RequestRule]:
    """The rules of a provider; none for other names."""
    if provider not in ("aws", "gcp"):
        return ()
    rules: Sequence[RequestRule] = import_module(f"{__name__}.{provider}").RULES
    return rules


def table(rules: Iterable[RequestRule]) -> str:
    """The rules as they stand in docs/design/cloud-requests.md."""
    lines = ["| rule | of | answer | source | read |", "|---|---|---|---|---|"]
    for rule in rules:
        cells = (f"`{rule.name}`", rule.kinds, rule.message, rule.source, rule.read.isoformat())
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
