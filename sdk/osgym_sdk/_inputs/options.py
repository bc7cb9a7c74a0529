"""The short forms that callers may write for tasks, settle and observe options."""

from __future__ import annotations

import difflib
import enum
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from osgym_protocol.clock import ClockOptions, parse_clock
from osgym_protocol.codec import WireFormatError, known_fields
from osgym_protocol.codes import ThinkCharge, ThinkMode
from osgym_protocol.limits import MAX_THINK_S
from osgym_protocol.task_files import TaskFileError, inline_files
from osgym_sdk._exceptions import ConfigError
from osgym_sdk.wire import ImageFormat, Message, ObserveOptions, SettleOptions, SettlePolicy

Task = Mapping[str, Any] | str | os.PathLike[str]
Settle = SettleOptions | SettlePolicy | str | Mapping[str, Any]
Clock = ClockOptions | str | Mapping[str, Any]
Observe = ObserveOptions | ImageFormat | str | Mapping[str, Any]

E = TypeVar("E", bound=enum.Enum)
M = TypeVar("M", bound=Message)


def as_task(task: Task | None) -> dict[str, Any] | None:
    """Return a task as an object; a path is read, with the files beside it that the task names.

    Raises:
        ConfigError: the file cannot be read or holds no JSON object.
    """
    if task is None:
        return None
    if isinstance(task, Mapping):
        return _plain(task)
    if not isinstance(task, (str, os.PathLike)) or not isinstance(os.fspath(task), str):
        raise ConfigError(f"a task must be an object or the path of its file, not {type(task).__name__}")
    return read_task(Path(task), missing_ok=True)


def read_task(path: Path, *, missing_ok: bool) -> dict[str, Any]:
    """Read a task's file and put the files that it names into the task.

    Args:
        path: of the file.
        missing_ok: leave names of files that are not there: the host may have them.

    Raises:
        ConfigError: a file cannot be read or holds no JSON object.
    """
    if path.is_dir():
        raise ConfigError(
            f"task file {path}: this is a folder; pass it to client.run() to run all tasks in it"
        )
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"task file {path}: {exc.strerror or exc}") from exc
    except ValueError as exc:
        raise ConfigError(f"task file {path}: the file is not JSON: {exc}") from exc
    if not isinstance(loaded, dict):
        raise ConfigError(f"task file {path}: the file does not hold a JSON object")
    return with_files(loaded, path, missing_ok=missing_ok)


def with_files(task: dict[str, Any], path: Path, *, missing_ok: bool) -> dict[str, Any]:
    """Put the files that a task of the file `path` names into the task, and return it.

    Raises:
        ConfigError: one cannot be read; it names file and field.
    """
    try:
        inline_files(task, path, missing_ok=missing_ok)
    except TaskFileError as exc:
        raise ConfigError(f"task file {path}: {exc}", details={"field": exc.field}) from exc
    return task


def _plain(task: Mapping[str, Any]) -> dict[str, Any]:
    """Return a task as it is sent; what is no JSON in it is found here, not in the middle of a call."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(task), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as exc:
        raise ConfigError(f"a task must be a JSON object: {exc}") from exc
    return plain


def as_choice(kind: type[E], value: Any, name: str) -> E:
    """Return the member of an enum that a caller wrote by its name.

    Raises:
        ConfigError: there is none; the message lists those that there are, and the most similar one.
    """
    try:
        return kind(value)
    except ValueError:
        known = [str(member.value) for member in kind]
    near = difflib.get_close_matches(str(value)[:100], known, n=1, cutoff=0.5)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"{name}: unknown value {str(value)[:100]!r}; valid values: {', '.join(known)}{meant}")


def as_think(think: Any) -> ThinkMode:
    """Return the mode of ``"live"`` or ``"paused"``. Raises ConfigError for others."""
    return as_choice(ThinkMode, think, "think")


def as_think_charge(charge: Any) -> ThinkCharge:
    """Return the charge of ``"nothing"`` or ``"real"``. Raises ConfigError for others."""
    return as_choice(ThinkCharge, charge, "think_charge")


def as_token_charge(charge: float) -> float:
    """Return a charge in seconds for each token. Raises ConfigError for what is none."""
    if isinstance(charge, bool) or not 0 <= charge <= MAX_THINK_S:
        raise ConfigError(f"think_charge: seconds for each token must be from 0 to {MAX_THINK_S}")
    return float(charge)


def as_clock(clock: Clock | None) -> ClockOptions | None:
    """Return the options for a time, options or a mapping.

    Raises:
        ConfigError: it is not a time that a desktop can be given.
    """
    try:
        return parse_clock(clock)
    except WireFormatError as exc:
        raise ConfigError(str(exc)) from exc


def as_settle(settle: Settle | None) -> SettleOptions | None:
    """Return options from ``"fast"``, a policy, an object, or options.

    Raises:
        ConfigError: the value is none of these.
    """
    if settle is None or isinstance(settle, SettleOptions):
        return settle
    if isinstance(settle, str):
        policy = as_choice(SettlePolicy, settle, "settle")
        if policy is SettlePolicy.FIXED:
            raise ConfigError(
                "settle: 'fixed' needs the length of its pause: {'policy': 'fixed', 'pause_ms': 500}"
            )
        return SettleOptions(policy)
    return _options(SettleOptions, settle, "settle", "policy", SettlePolicy)


def as_observe(observe: Observe | None) -> ObserveOptions | None:
    """Return options from ``"jpeg"``, a format, an object, or options.

    Raises:
        ConfigError: the value is none of these.
    """
    if observe is None or isinstance(observe, ObserveOptions):
        return observe
    if isinstance(observe, str):
        return ObserveOptions(as_choice(ImageFormat, observe, "observe"))
    return _options(ObserveOptions, observe, "observe", "format", ImageFormat)


def _options(kind: type[M], given: Any, name: str, chosen: str, choices: type[enum.Enum]) -> M:
    """Return options from an object, which may have no fields but theirs."""
    try:
        known_fields(given, kind.field_names(), name)
        if chosen in given:
            given = {**given, chosen: as_choice(choices, given[chosen], f"{name}.{chosen}").value}
        return kind.from_dict(given)
    except ConfigError:
        raise
    except ValueError as exc:
        raise ConfigError(f"{name}: {exc}") from exc
