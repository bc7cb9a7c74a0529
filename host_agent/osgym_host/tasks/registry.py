"""The setup steps and getters that are there: each declares itself, with the model of its parameters.

The functions are in `osgym_host.tasks.steps` and `osgym_host.tasks.getters`; metrics, which run in
another process, have `osgym_host.tasks.evaluator.registry`. To add one of the three, write its function.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from osgym_host.guest_client import CommandResult
from osgym_host.tasks.context import TaskRun
from osgym_host.tasks.urls import MAX_URL_CHARS, check_text, check_url
from osgym_host.tasks.values import Value
from osgym_protocol.codes import Evidence

MAX_TEXT = 1_000_000
"""Longest string of a task file in characters; data carried in the task may be longer."""


class Parameters(BaseModel):
    """Parameters of a step or getter. Keys that OSWorld's files carry besides are left out."""

    model_config = ConfigDict(extra="ignore", frozen=True)


def _command(value: object) -> object:
    ok = isinstance(value, str) or (isinstance(value, list) and all(isinstance(v, str) for v in value))
    if not ok or not value:
        raise ValueError("a command is a non-empty string or a non-empty list of strings")
    return value


def _lenient_bool(value: object) -> object:
    """OSWorld's files write ``"true"`` where they mean ``true``."""
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    return value


Text = Annotated[str, Field(max_length=MAX_TEXT)]
FilePath = Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARS), AfterValidator(check_text)]
FileUrl = Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARS), AfterValidator(check_url)]
Command = Annotated[str | list[str], BeforeValidator(_command)]
LenientBool = Annotated[bool, BeforeValidator(_lenient_bool)]

P = TypeVar("P", bound=Parameters)
StepFunction = Callable[[TaskRun, P], Awaitable["FailedCommand | None"]]
GetterFunction = Callable[[TaskRun, P], Awaitable[Value]]


@dataclass(frozen=True, slots=True)
class FailedCommand:
    """A command that ended with another status than 0: no failure of its step, but worth a warning."""

    what: str
    exit_status: int
    stderr: str

    @classmethod
    def of(cls, command: str | list[str], result: CommandResult) -> FailedCommand | None:
        """Return it for a command that failed, None for one that did not."""
        if result.returncode == 0:
            return None
        what = command if isinstance(command, str) else shlex.join(command)
        return cls(what, result.returncode, result.error)


class StepProblem(Exception):
    """A setup step did not bring about what it should; `run_step` says which.

    Attributes:
        by_replica: What is in the replica decided that, not the task or the host.
    """

    def __init__(self, message: str, *, by_replica: bool = False) -> None:
        super().__init__(message)
        self.by_replica = by_replica


@dataclass(frozen=True, slots=True)
class StepKind:
    """One setup step: the model of its parameters and the function that carries it out.

    Attributes:
        host_takes_time: Most of its time is the host's or the task's, not the replica's.
    """

    parameters: type[Parameters]
    run: StepFunction[Any]
    host_takes_time: bool


def _everything(parameters: Any) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class GetterKind:
    """One getter.

    Attributes:
        unsupported: Names what these parameters ask for that is not there.
        from_replica: What it gives is in the policy's hands: that it cannot be had is a wrong result.
        evidence: `Evidence.GUEST` if programs of the desktop are asked for the value.
    """

    parameters: type[Parameters]
    fetch: GetterFunction[Any]
    unsupported: Callable[[Any], list[str]]
    from_replica: bool
    evidence: Evidence


STEPS: dict[str, StepKind] = {}
GETTERS: dict[str, GetterKind] = {}


def setup_step(
    name: str, parameters: type[P], *, host_takes_time: bool = False
) -> Callable[[StepFunction[P]], StepFunction[P]]:
    """Declare a setup step; it raises `StepProblem` when it fails by its own judgement.

    It may return a `FailedCommand`, which is a warning.
    """

    def register(function: StepFunction[P]) -> StepFunction[P]:
        STEPS[name] = StepKind(parameters, function, host_takes_time)
        return function

    return register


def getter(
    name: str,
    parameters: type[P],
    *,
    unsupported: Callable[[P], list[str]] = _everything,
    from_replica: bool = True,
    reads_files: bool = False,
) -> Callable[[GetterFunction[P]], GetterFunction[P]]:
    """Declare a getter: it returns a metric's argument, `Value.missing` when there is none.

    Args:
        unsupported: See `GetterKind`.
        from_replica: False only where a policy has no way to what it gives.
        reads_files: True if it only reads files of the replica and asks no program of the desktop.
    """
    evidence = Evidence.HOST if reads_files or not from_replica else Evidence.GUEST

    def register(function: GetterFunction[P]) -> GetterFunction[P]:
        GETTERS[name] = GetterKind(parameters, function, unsupported, from_replica, evidence)
        return function

    return register
