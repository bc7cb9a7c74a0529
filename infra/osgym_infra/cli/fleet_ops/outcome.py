"""Outcome of each host, and the exit code that follows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

ALL_WELL, SOME_FAILED, INTERRUPTED = 0, 1, 130
"""Exit codes; 2 is a wrong argument (click's own, and `BadInput`). 130 is what shells give Ctrl-C."""


@dataclass(frozen=True, slots=True)
class HostFailure:
    """Failure of one host.

    Attributes:
        step: Step that failed: `connect`, `login`, `authorize`, `run`, …
    """

    step: str
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.step}: {self.problem}" + (f". {self.remedy}" if self.remedy else "")

    def to_dict(self) -> dict[str, str]:
        return {"step": self.step, "problem": self.problem, "remedy": self.remedy}


@dataclass(frozen=True, slots=True)
class HostOutcome:
    """Outcome of one host.

    Attributes:
        found: Fields of the host's answer, for programs.
    """

    host: str
    failure: HostFailure | None = None
    found: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"host": self.host, **self.found, "failure": self.failure.to_dict() if self.failure else None}


def exit_code(outcomes: Iterable[HostOutcome]) -> int:
    return SOME_FAILED if any(one.failure for one in outcomes) else ALL_WELL


def answer(outcomes: Iterable[HostOutcome]) -> dict[str, Any]:
    """Return the JSON object for programs."""
    rows = [one.to_dict() for one in outcomes]
    failed = sum(row["failure"] is not None for row in rows)
    return {"hosts": rows, "well": len(rows) - failed, "failed": failed}
