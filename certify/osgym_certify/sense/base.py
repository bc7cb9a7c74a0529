"""Findings about a task file, and the view of a task that the checks read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from osgym_host.tasks.schema import Task


class Severity(StrEnum):
    """Weight of a finding."""

    WRONG = "wrong"
    """The task is faulty: a right solution may earn nothing, or a wrong one the reward."""
    DOUBTFUL = "doubtful"
    """The task depends on something that its author should look at."""


class Code(StrEnum):
    """Kinds of findings."""

    INVALID = "invalid"
    UNNAMED_FILE = "unnamed-file"
    UNNAMED_VALUE = "unnamed-value"
    UNNAMED_CELL = "unnamed-cell"
    CLOCK = "clock"
    NETWORK = "network"
    SCREEN = "screen"
    LOCALE = "locale"
    NO_WAIT = "no-wait"
    SLEEP = "sleep"
    PASSWORD = "password"  # noqa: S105 - the name of a finding
    NO_SHELL = "no-shell"
    GUEST_EVIDENCE = "guest-evidence"
    CANNOT_FAIL = "cannot-fail"
    UNTOUCHED = "untouched"
    INFEASIBLE_MIXED = "infeasible-mixed"
    UNKNOWN_END = "unknown-end"
    TWO_CHECKS = "two-checks"
    DUPLICATE = "duplicate"
    SAME_CHECK = "same-check"
    SPLIT_LEAK = "split-leak"


@dataclass(frozen=True, slots=True)
class Finding:
    """Fault or doubt that a task file shows without a desktop.

    Attributes:
        message: Sentence that names the field, and the remedy.
    """

    code: Code
    severity: Severity
    message: str


@dataclass(frozen=True, slots=True)
class RawStep:
    """Step of the set-up or of `postconfig`, as the file has it.

    Attributes:
        place: Path of the step in the file: ``config[2]``.
    """

    place: str
    type: str
    parameters: Mapping[str, Any] = field(repr=False)

    @property
    def command(self) -> str:
        """Return the command as one text, empty if the step has none."""
        return command_text(self.parameters.get("command", ""))


@dataclass(frozen=True, slots=True)
class RawCheck:
    """One metric with its arguments, as the file has them.

    Attributes:
        place: Index among the metrics in brackets, empty if the file has one metric.
        result: Getter of the result; empty if the metric has none.
    """

    place: str
    func: str
    result: Mapping[str, Any] = field(repr=False)
    expected: Mapping[str, Any] = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)

    @property
    def rules(self) -> Any:
        """Return the values that stand in the file, None if the expected value comes from elsewhere."""
        return self.expected.get("rules") if self.expected.get("type") == "rule" else None

    @property
    def keeps(self) -> bool:
        """Return whether the metric only compares the end with the state after the set-up."""
        return self.expected.get("type") == "cache_file" and not self.options.get("changed")

    @property
    def command(self) -> str:
        """Return the command of the result as one text, empty if it has none."""
        return command_text(self.result.get("command", ""))


@dataclass(frozen=True, slots=True)
class View:
    """Parts of a task that the checks read, and what its oracle types."""

    task: Task
    setup: tuple[RawStep, ...]
    postconfig: tuple[RawStep, ...]
    checks: tuple[RawCheck, ...]
    typed: str = ""

    @property
    def instruction(self) -> str:
        return self.task.instruction

    @property
    def steps(self) -> tuple[RawStep, ...]:
        return (*self.setup, *self.postconfig)

    def uploads(self) -> Iterator[Mapping[str, Any]]:
        """Yield the files that the set-up uploads, each with its path."""
        for step in self.setup:
            if step.type == "upload_file":
                yield from step.parameters.get("files", ())


def view_of(task: Task, raw: Mapping[str, Any], typed: str = "") -> View:
    """Return the view of a valid task, read from the same file."""
    checks = task.evaluator.checks
    return View(
        task,
        _steps(raw.get("config") or (), "config"),
        _steps(raw["evaluator"].get("postconfig") or (), "evaluator.postconfig"),
        tuple(
            RawCheck(
                f"[{place}]" if len(checks) > 1 else "",
                check.func,
                _getter(check.result),
                _getter(check.expected),
                check.options,
            )
            for place, check in enumerate(checks)
        ),
        typed,
    )


def _getter(getter: Any) -> Mapping[str, Any]:
    return {} if getter is None else {"type": getter.type, **getter.fields}


def _steps(steps: Sequence[Mapping[str, Any]], name: str) -> tuple[RawStep, ...]:
    return tuple(
        RawStep(f"{name}[{place}]", step["type"], step.get("parameters") or {})
        for place, step in enumerate(steps)
    )


def command_text(command: Any) -> str:
    """Return a command of a task file as one text."""
    return command if isinstance(command, str) else " ".join(map(str, command))


def leaves(value: Any, name: str) -> Iterator[tuple[str, str | int | float]]:
    """Yield each text and number in a JSON value, with its path in the file."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, str | int | float):
        yield name, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from leaves(one, f"{name}.{key}")
    elif isinstance(value, Sequence):
        for place, one in enumerate(value):
            yield from leaves(one, f"{name}[{place}]")


def quoted(text: str, most: int = 80) -> str:
    """Return a text in quotes and on one line, cut if it is long."""
    line = re.sub(r"\s+", " ", text).strip()
    return f"“{line if len(line) <= most else line[: most - 1] + '…'}”"
