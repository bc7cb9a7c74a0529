"""Declarations of metrics and of readers: their options, and what they need. Nothing here parses.

Metrics run in the confined process only; the host reads their declarations. Each metric is registered by its
distribution as an entry point of the group ``osgym.metrics``, each reader of ``osgym.readers``.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar

from osgym_host.tasks.extensions import ExtensionTable
from osgym_protocol.plugins import PluginGroup


class MetricEnd(StrEnum):
    """Reasons for which a metric gave no score."""

    RAISED = "raised"
    """An exception, after what was to be read could be read."""
    OUT_OF_MEMORY = "out_of_memory"
    CPU_TIME = "cpu_time"
    PROGRAM_TIME = "program_time"
    """A result's program did not end in time, by the clock: a program may wait without using CPU time."""
    CRASHED = "crashed"
    EXPECTED = "expected"
    """The expected value or a rule of the task is wrong."""
    OUTSIDE = "outside"
    """The host stopped it, or could not start it: the clock, the host's memory, a failed start."""


@dataclass(frozen=True, slots=True)
class Score:
    score: float
    note: str = ""


MetricFunction = Callable[..., Score | float | bool]
ReaderFunction = Callable[..., Any]
_F = TypeVar("_F", bound=MetricFunction)
_R = TypeVar("_R", bound=ReaderFunction)


def _needs_nothing(options: Mapping[str, Any]) -> list[str]:
    return []


@cache
def is_installed(module: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    return importlib.util.find_spec(module) is not None


@dataclass(frozen=True, slots=True)
class NeededPackages:
    """A metric's ``unsupported`` that names the Python packages it misses.

    Attributes:
        packages: Distributions by the name that is imported.
        install: Requirement that installs all of them.
    """

    packages: Mapping[str, str]
    install: str

    @property
    def required(self) -> list[str]:
        """Names of all packages, for the reference of metrics."""
        return [f"package {name}" for name in self.packages.values()]

    def __call__(self, options: Mapping[str, Any]) -> list[str]:
        missing = [name for module, name in self.packages.items() if not is_installed(module)]
        return [f"package {name} (pip install '{self.install}')" for name in missing]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric and its declaration.

    Attributes:
        unsupported: Returns a name for each thing that the given options need and this host lacks.
        runs_program: True if it runs a program of the result, which it may do in a confined process only.
        accepts_empty: True if an empty result may be right, e.g. since the whole text is compared.
    """

    function: MetricFunction
    takes_result: bool
    needs_expected: bool
    options: frozenset[str]
    unsupported: Callable[[Mapping[str, Any]], list[str]]
    runs_program: bool = False
    accepts_empty: bool = False


METRICS: ExtensionTable[Metric] = ExtensionTable(PluginGroup.METRICS)
READERS: ExtensionTable[ReaderFunction] = ExtensionTable(PluginGroup.READERS)


def metric(
    *,
    takes_result: bool = True,
    needs_expected: bool = True,
    unsupported: Callable[[Mapping[str, Any]], list[str]] = _needs_nothing,
    runs_program: bool = False,
    accepts_empty: bool = False,
) -> Callable[[_F], _F]:
    """Declare a metric; its parameters are (result, expected, **options). See `Metric` for the arguments."""

    def register(function: _F) -> _F:
        result, expected, *options = inspect.signature(function).parameters
        assert (result, expected) == ("result", "expected"), function
        declared = Metric(
            function,
            takes_result,
            needs_expected,
            frozenset(options),
            unsupported,
            runs_program,
            accepts_empty,
        )
        METRICS.declare(function, declared)
        return function

    return register


def value_reader(function: _R) -> _R:
    """Declare a reader: it turns a getter's file into the value that the getter promises.

    Its parameters are (value, **options): `Value.reader_options` of the getter.
    """
    READERS.declare(function, function)
    return function


def differ(what: str, got: object, wanted: object) -> Score:
    """Return a 0 that says what was found instead."""
    return Score(0.0, f"{what}: found {_short(got)}, wanted {_short(wanted)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"
