"""Where metrics declare themselves: names, options and what they cannot do. Nothing here parses.

The functions are in `osgym_host.tasks.evaluator.metrics` and run in the confined process only; the host
reads what they declare. Names are OSWorld's where the meaning is the same.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from osgym_host.tasks.evaluator.inputs import Argument


class MetricEnd(StrEnum):
    """How a metric ended that gave no score."""

    RAISED = "raised"
    """An exception, after what was to be read could be read."""
    OUT_OF_MEMORY = "out_of_memory"
    CPU_TIME = "cpu_time"
    PROGRAM_TIME = "program_time"
    """What a result's program did took too long: by the clock, since a program may wait for ever."""
    CRASHED = "crashed"
    EXPECTED = "expected"
    """The expected value, or a rule of the task, is wrong."""
    OUTSIDE = "outside"
    """It was stopped by what is not in its arguments: the clock, the host's memory, a failed start."""


@dataclass(frozen=True, slots=True)
class Score:
    """A score with the reason for it."""

    score: float
    note: str = ""


MetricFunction = Callable[..., Score | float | bool]
_F = TypeVar("_F", bound=MetricFunction)


def _everything(options: Mapping[str, Any]) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric and what it takes.

    Attributes:
        options: Names of the options it knows.
        unsupported: Names what in the options it cannot do.
        runs_program: It runs what is in the result, and does so in a confined process only.
        accepts_empty: True if an empty result may be right, e.g. since the whole text is compared.
    """

    function: MetricFunction
    takes_result: bool
    needs_expected: bool
    options: frozenset[str]
    unsupported: Callable[[Mapping[str, Any]], list[str]]
    runs_program: bool = False
    accepts_empty: bool = False


METRICS: dict[str, Metric] = {}
TRANSFORMS: dict[str, Callable[[Argument], Any]] = {}


def metric(
    *,
    takes_result: bool = True,
    needs_expected: bool = True,
    unsupported: Callable[[Mapping[str, Any]], list[str]] = _everything,
    runs_program: bool = False,
    accepts_empty: bool = False,
) -> Callable[[_F], _F]:
    """Declare a metric under its own name; its parameters are (result, expected, **options)."""

    def register(function: _F) -> _F:
        result, expected, *options = inspect.signature(function).parameters
        assert (result, expected) == ("result", "expected"), function
        METRICS[function.__name__] = Metric(
            function,
            takes_result,
            needs_expected,
            frozenset(options),
            unsupported,
            runs_program,
            accepts_empty,
        )
        return function

    return register


def transform(name: str) -> Callable[[Callable[[Argument], Any]], Callable[[Argument], Any]]:
    """Declare a reader that turns a file into the value a getter promises."""

    def register(function: Callable[[Argument], Any]) -> Callable[[Argument], Any]:
        TRANSFORMS[name] = function
        return function

    return register


def differ(what: str, got: object, wanted: object) -> Score:
    """Return a 0 that says what was found instead."""
    return Score(0.0, f"{what}: found {_short(got)}, wanted {_short(wanted)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"
