"""Models of the task file, in OSWorld's format.

Keys that OSWorld's files carry and that mean nothing to us (`snapshot`, `trajectory`, `proxy`, …) are
kept out of the way, not refused. The models of setup steps come from the registry.
"""

from __future__ import annotations

import hashlib
import logging
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    create_model,
    model_validator,
)

from osgym_host.tasks.registry import STEPS, Parameters, StepKind, Text
from osgym_protocol.clock import ClockOptions, parse_clock
from osgym_protocol.plugins import BrokenPlugin, DuplicatePlugin
from osgym_protocol.reach import ReachKind

log = logging.getLogger(__name__)

MAX_STEPS = 200
MAX_METRICS = 32
MAX_ALLOWED_ENDS = 64
MAX_WEIGHT = 1e6


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class SetupStep(_Model):
    """A setup step; its ``parameters`` are of the model that its type declares."""

    type: Annotated[str, Field(min_length=1, max_length=200)]
    parameters: Any


class UnknownStep(SetupStep):
    """A well-formed setup step of a type that this host lacks."""

    parameters: dict[str, Any] = {}


UNKNOWN = "unknown"


def _usable_steps() -> dict[str, StepKind]:
    """Return the setup steps that can be imported; a task that names another one is refused by name."""
    usable: dict[str, StepKind] = {}
    try:
        for name in STEPS:
            try:
                usable[name] = STEPS[name]
            except BrokenPlugin as error:
                log.warning("%s", error)
    except DuplicatePlugin as error:
        log.error("no setup step can be used: %s", error)
    return usable


_STEPS = _usable_steps()


def _step_tag(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return kind if isinstance(kind, str) and kind in _STEPS else UNKNOWN


def _step_model(name: str, parameters: type[Parameters]) -> Any:
    kind: Any = Literal[name]
    model = create_model(name, __base__=SetupStep, type=(kind, ...), parameters=(parameters, ...))
    return Annotated[model, Tag(name)]


if TYPE_CHECKING:
    Step = SetupStep
else:
    Step = Annotated[
        Union[
            *(_step_model(name, kind.parameters) for name, kind in _STEPS.items()),
            Annotated[UnknownStep, Tag(UNKNOWN)],
        ],
        Discriminator(_step_tag),
    ]


class Getter(BaseModel):
    """Getter of one of a metric's arguments; its other fields are checked by the getter's model."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: Annotated[str, Field(min_length=1, max_length=200)]

    @property
    def fields(self) -> dict[str, Any]:
        """Return all keys but ``type``."""
        return dict(self.model_extra or {})


class Conjunction(StrEnum):
    """Rule by which the scores of several metrics become one."""

    AND = "and"
    OR = "or"
    PARTIAL = "partial"


class Check(BaseModel):
    model_config = ConfigDict(frozen=True)

    func: str
    result: Getter | None = None
    expected: Getter | None = None
    options: dict[str, Any] = {}


class Evaluator(BaseModel):
    """Scoring of the end state: `checks` are the metrics in order."""

    model_config = ConfigDict(frozen=True)

    postconfig: list[Step] = []
    conj: Conjunction = Conjunction.AND
    checks: Annotated[list[Check], Field(min_length=1, max_length=MAX_METRICS)]
    weights: list[Annotated[float, Field(ge=0, le=MAX_WEIGHT)]] = []
    """Weights of the checks if `conj` is ``partial``, else empty. A check of weight 0 is a condition."""

    @model_validator(mode="before")
    @classmethod
    def _unroll(cls, value: object) -> object:
        if not isinstance(value, dict) or "checks" in value:
            return value
        return {
            "postconfig": value.get("postconfig") or [],
            "conj": value.get("conj", "and"),
            "checks": _unroll_checks(value),
            "weights": value.get("weights") or [],
        }

    @model_validator(mode="after")
    def _weights_fit(self) -> Evaluator:
        if self.conj is not Conjunction.PARTIAL:
            if self.weights:
                raise ValueError('weights are used only with "conj": "partial"')
            return self
        if len(self.weights) != len(self.checks):
            raise ValueError(
                f'"conj": "partial" needs weights, one for each of {len(self.checks)} metrics, '
                f"not {len(self.weights)}"
            )
        if not any(self.weights):
            raise ValueError("weights must have one above 0: a weight of 0 makes a check a condition")
        if self.infeasible:
            raise ValueError('the metric infeasible cannot be combined with "conj": "partial"')
        return self

    @property
    def infeasible(self) -> bool:
        """Return whether giving up (FAIL) is the only right end; other checks must hold besides."""
        return any(check.func == "infeasible" for check in self.checks)


def _unroll_checks(value: dict[str, Any]) -> list[dict[str, Any]]:
    func = value.get("func")
    defaults: dict[str, Any] = {"result": None, "expected": None, "options": {}}
    if isinstance(func, str):
        return [{"func": func, **{key: value.get(key) or default for key, default in defaults.items()}}]
    if not isinstance(func, list) or not func or not all(isinstance(f, str) for f in func):
        raise ValueError("evaluator.func must be the name of a metric or a non-empty list of names")
    checks: list[dict[str, Any]] = [{"func": name} for name in func]
    for key, default in defaults.items():
        column = value.get(key)
        if column is None or column == {}:
            column = [default] * len(func)
        if not isinstance(column, list) or len(column) != len(func):
            raise ValueError(
                f"evaluator.func has {len(func)} metrics, so evaluator.{key} must be a list of "
                f"{len(func)} entries"
            )
        for check, entry in zip(checks, column, strict=True):
            check[key] = entry or default
    return checks


class AllowedEnd(BaseModel):
    """End state tried by a certificate that may earn another reward than usual in this task, for a reason.

    Attributes:
        end: Name of the end state, or a pattern of such names with ``*`` and ``?``.
        why: Reason, which the certificate shows.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    end: Annotated[Text, Field(min_length=1, max_length=200)]
    why: Annotated[Text, Field(min_length=1, max_length=1000)]


class OsgymExtras(_Model):
    """OSGym's own keys, under ``osgym`` in the task file."""

    flavor: Literal["small", "full"] = "full"
    image: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    """Golden image of the episode's desktop, by flavor or digest, unless the client names one."""
    apps: list[Text] = []
    clock: Annotated[ClockOptions | None, BeforeValidator(parse_clock)] = None
    reach: bool | list[ReachKind] = True
    """Ways to reach into the desktop past its screen that the policy's client may use: all, none, or these.
    Setup and evaluation are not concerned."""
    template: bool = True
    """Permission to clone the desktop after set-up for later episodes (`task_templates` of the host)."""
    allows: Annotated[list[AllowedEnd], Field(max_length=MAX_ALLOWED_ENDS)] = []
    """End states that a certificate of this task accepts although they earn another reward than usual."""

    def may_reach(self, kind: ReachKind) -> bool:
        """Return whether the client may reach into the desktop in this way."""
        return self.reach if isinstance(self.reach, bool) else kind in self.reach


class Task(BaseModel):
    """A task in OSWorld's format."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: Annotated[str, Field(min_length=1, max_length=200)]
    instruction: Text = ""
    snapshot: str | None = None
    source: str | list[str] | None = None
    config: Annotated[list[Step], Field(max_length=MAX_STEPS)] = []
    related_apps: list[str] = []
    evaluator: Evaluator
    osgym: OsgymExtras = Field(default=OsgymExtras(), validation_alias=AliasChoices("osgym", "x_osgym"))

    @property
    def safe_id(self) -> str:
        """Return the id as a folder name: never a path, never longer than 64 characters.

        Ids that had to be changed get a digest of the original, so two tasks never share a name.
        """
        clean = re.sub(r"[^A-Za-z0-9_-]", "_", self.id)[:64]
        if clean == self.id:
            return clean
        digest = hashlib.sha256(self.id.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return f"{clean[:51]}-{digest}"
