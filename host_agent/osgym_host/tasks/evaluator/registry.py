"""Where metrics register themselves by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from osgym_host.tasks.evaluator.inputs import Argument


@dataclass(frozen=True, slots=True)
class Score:
    """A score with the reason for it."""

    score: float
    note: str = ""


MetricFunction = Callable[..., "Score | float | bool"]
METRICS: dict[str, MetricFunction] = {}
TRANSFORMS: dict[str, Callable[[Argument], Any]] = {}
_F = TypeVar("_F", bound=MetricFunction)


def metric(function: _F) -> _F:
    """Register a metric under its own name: called with (result, expected, **options)."""
    METRICS[function.__name__] = function
    return function


def transform(name: str) -> Callable[[Callable[[Argument], Any]], Callable[[Argument], Any]]:
    """Register a reader that turns a file into the value a getter promises."""

    def register(function: Callable[[Argument], Any]) -> Callable[[Argument], Any]:
        TRANSFORMS[name] = function
        return function

    return register


def differ(what: str, got: object, wanted: object) -> Score:
    """A 0 that says what was found instead."""
    return Score(0.0, f"{what}: found {_short(got)}, wanted {_short(wanted)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"
