"""Declarations of setup steps and getters, each with the model of its parameters.

Each is registered by its distribution as an entry point of the group ``osgym.setup_steps`` or
``osgym.getters``. Metrics, which run in another process, have `osgym_host.tasks.evaluator.registry`.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from osgym_host.guest_client import CommandResult
from osgym_host.tasks.context import TaskRun
from osgym_host.tasks.extensions import ExtensionTable
from osgym_host.tasks.urls import MAX_URL_CHARS, check_text, check_url
from osgym_host.tasks.values import Value
from osgym_protocol.codes import Evidence
from osgym_protocol.plugins import PluginGroup

MAX_TEXT = 1_000_000
"""Longest string of a task file in characters; data carried in the task may be longer."""


class Parameters(BaseModel):
    """Parameters of a setup step or a getter. Unknown keys are ignored: OSWorld's files have some."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class NoParameters(Parameters):
    """Parameters of a getter that has none."""


def _command(value: object) -> object:
    ok = isinstance(value, str) or (isinstance(value, list) and all(isinstance(v, str) for v in value))
    if not ok or not value:
        raise ValueError("a command is a non-empty string or a non-empty list of strings")
    return value


def _lenient_bool(value: object) -> object:
    """Return the bool of ``"true"`` and ``"false"``, which OSWorld's files have as texts."""
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    return value


Text = Annotated[str, Field(max_length=MAX_TEXT)]
FilePath = Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARS), AfterValidator(check_text)]
FileUrl = Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARS), AfterValidator(check_url)]
Command = Annotated[str | list[str], BeforeValidator(_command)]
LenientBool = Annotated[bool, BeforeValidator(_lenient_bool)]
FileName = Annotated[str, Field(min_length=1, max_length=400)]

P = TypeVar("P", bound=Parameters)
StepFunction = Callable[[TaskRun, P], Awaitable["FailedCommand | None"]]
GetterFunction = Callable[[TaskRun, P], Awaitable[Value]]


@dataclass(frozen=True, slots=True)
class FailedCommand:
    """A command of a setup step that ended with another status than 0, which is a warning and no failure."""

    what: str
    exit_status: int
    stderr: str

    @classmethod
    def of(cls, command: str | list[str], result: CommandResult) -> FailedCommand | None:
        """Return the failure of a command; None if the command ended with status 0."""
        if result.returncode == 0:
            return None
        what = command if isinstance(command, str) else shlex.join(command)
        return cls(what, result.returncode, result.error)


class StepProblem(Exception):
    """A setup step failed.

    Attributes:
        by_replica: True if the content of the replica caused the failure, not the task or the host.
    """

    def __init__(self, message: str, *, by_replica: bool = False) -> None:
        super().__init__(message)
        self.by_replica = by_replica


@dataclass(frozen=True, slots=True)
class StepKind:
    """A setup step and its declaration.

    Attributes:
        parameters: Model of the parameters in the task file.
        host_takes_time: True if the host or the task needs most of its time, not the replica.
    """

    parameters: type[Parameters]
    run: StepFunction[Any]
    host_takes_time: bool


def _needs_nothing(parameters: Any) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class GetterKind:
    """A getter and its declaration.

    Attributes:
        parameters: Model of the parameters in the task file.
        unsupported: Returns a name for each thing that the parameters need and this host lacks.
        from_replica: True if a policy can change the value, so that a missing value is a wrong result.
        evidence: `Evidence.GUEST` if programs of the desktop are asked for the value.
    """

    parameters: type[Parameters]
    fetch: GetterFunction[Any]
    unsupported: Callable[[Any], list[str]]
    from_replica: bool
    evidence: Evidence


STEPS: ExtensionTable[StepKind] = ExtensionTable(PluginGroup.SETUP_STEPS)
GETTERS: ExtensionTable[GetterKind] = ExtensionTable(PluginGroup.GETTERS)


def setup_step(
    parameters: type[P], *, host_takes_time: bool = False
) -> Callable[[StepFunction[P]], StepFunction[P]]:
    """Declare a setup step. It raises `StepProblem` to fail, and returns a `FailedCommand` to warn."""

    def register(function: StepFunction[P]) -> StepFunction[P]:
        STEPS.declare(function, StepKind(parameters, function, host_takes_time))
        return function

    return register


def getter(
    parameters: type[P],
    *,
    unsupported: Callable[[P], list[str]] = _needs_nothing,
    from_replica: bool = True,
    reads_files: bool = False,
) -> Callable[[GetterFunction[P]], GetterFunction[P]]:
    """Declare a getter: it returns a metric's argument, `Value(missing=True)` if there is none.

    Args:
        unsupported: See `GetterKind`.
        from_replica: False only if a policy cannot change the value.
        reads_files: True if the getter only reads files of the replica and asks no program of the desktop.
    """
    evidence = Evidence.HOST if reads_files or not from_replica else Evidence.GUEST

    def register(function: GetterFunction[P]) -> GetterFunction[P]:
        GETTERS.declare(function, GetterKind(parameters, function, unsupported, from_replica, evidence))
        return function

    return register
