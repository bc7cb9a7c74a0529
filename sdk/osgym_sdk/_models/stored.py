"""The form of a trajectory in JSON. What is read is checked: it may be anybody's file."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from osgym_protocol.codec import OMIT
from osgym_protocol.limits import MAX_JSON_DEPTH
from osgym_protocol.reach import ReachEvent
from osgym_sdk._exceptions import ConfigError
from osgym_sdk._models.observation import Timing
from osgym_sdk.wire import (
    ErrorClass,
    Evidence,
    FrameInfo,
    Message,
    ParentInfo,
    SetupWarning,
    StepAnswer,
    WireFormatError,
)

VERSION = 1
"""Version of the form. New fields do not change it: unknown ones are left out when it is read."""
INFO_DEPTH = MAX_JSON_DEPTH - 1
"""Depth of an ``info``; a tag takes one more level."""
_MOST = 2**63


@dataclass(frozen=True, slots=True)
class StoredStep(Message):
    requested: tuple[Any, ...]
    answer: StepAnswer
    timing: Timing | None
    data: str | None
    final: bool | None
    changed_after_ms: float | None
    refused: str | None
    info: Any


@dataclass(frozen=True, slots=True)
class StoredFailure(Message):
    code: str
    message: str
    error_class: ErrorClass | None
    details: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoredEvaluation(Message):
    reward: float | None
    termination_reason: str
    error_class: ErrorClass | None
    valid_for_training: bool
    details: tuple[Any, ...]
    failure: StoredFailure | None
    loss: StoredFailure | None = field(default=None, metadata=OMIT)
    evidence: Evidence | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class StoredTrajectory(Message):
    version: int
    task_id: str | None
    episode_id: str
    host: str
    replica_id: str
    generation: int
    screen: tuple[int, int]
    reset_ms: Mapping[str, float]
    parent: ParentInfo | None
    setup_warnings: tuple[SetupWarning, ...]
    first_frame: FrameInfo | None
    first_data: str | None
    steps: tuple[StoredStep, ...]
    evaluation: StoredEvaluation | None
    last_info: Any = field(default=None)
    reaches: tuple[ReachEvent, ...] = ()


def as_base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


def of_base64(text: str | None) -> bytes | None:
    """Return the image that was written as text.

    Raises:
        WireFormatError: it is not base64, or not ASCII.
    """
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except ValueError as exc:
        raise WireFormatError(str(exc)) from exc


# The policy's own values -----------------------------------------------------------------------------


def stored_info(value: Any, path: str, depth: int) -> Any:
    """Return a value as JSON; what JSON has no form for becomes ``{"$bytes": text}`` and the like.

    Names of the policy's own that begin with $ get one more.

    Raises:
        ConfigError: it is none that can be written; ``path`` says where it is.
    """
    if value is None or isinstance(value, (bool, str)):
        return _checked(value, path)
    if isinstance(value, int):
        return int(value) if -_MOST <= value <= _MOST else {"$int": hex(value)}
    if isinstance(value, float):
        number = float(value)
        return number if math.isfinite(number) and abs(number) <= _MOST else {"$float": repr(number)}
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    if depth == 0:
        raise ConfigError(f"{path}: nested deeper than {INFO_DEPTH} levels")
    if isinstance(value, Mapping):
        named = ((_name(key, path), f"{path}.{key}", item) for key, item in value.items())
        return {name: stored_info(item, place, depth - 1) for name, place, item in named}
    if isinstance(value, (list, tuple)):
        return [stored_info(item, f"{path}[{index}]", depth - 1) for index, item in enumerate(value)]
    if callable(getattr(value, "tolist", None)):  # arrays and numbers of numpy, torch, jax, ...
        return stored_info(value.tolist(), path, depth - 1)
    raise ConfigError(f"{path}: {type(value).__name__} cannot be written as JSON; give plain values")


def _name(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise ConfigError(f"{path}: the name of a field must be text, not {type(key).__name__}")
    name = str(_checked(key, path))
    return f"${name}" if name.startswith("$") else name


def _checked(value: Any, path: str) -> Any:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{path}: a text has half of a surrogate pair and cannot be written") from None
        return str(value)
    return value


def restored_info(value: Any) -> Any:
    """Return what `_info` made a value of; tuples and arrays have become lists."""
    if isinstance(value, list):
        return [restored_info(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if len(value) == 1:
        name, inner = next(iter(value.items()))
        if isinstance(inner, str) and name in ("$int", "$float", "$bytes"):
            return _of_tag(name, inner)
    return {key.removeprefix("$"): restored_info(item) for key, item in value.items()}


def _of_tag(name: str, text: str) -> Any:
    try:
        if name == "$int":
            return int(text, 16)
        return float(text) if name == "$float" else base64.b64decode(text, validate=True)
    except ValueError as exc:
        raise WireFormatError(f"{name}: {text[:50]!r} cannot be read") from exc
