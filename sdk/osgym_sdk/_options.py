"""The short forms that callers may write for actions, tasks, settle and observe options."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from osgym_sdk._exceptions import ConfigError, InvalidAction
from osgym_sdk.wire import ImageFormat, ObserveOptions, SettleOptions, SettlePolicy

Action = str | Mapping[str, Any]
Actions = Action | Sequence[Action]
Task = Mapping[str, Any] | str | os.PathLike[str]
Settle = SettleOptions | SettlePolicy | str | Mapping[str, Any]
Observe = ObserveOptions | ImageFormat | str | Mapping[str, Any]


def as_actions(actions: Actions) -> tuple[Action, ...]:
    """Return one action or several as a tuple.

    Raises:
        InvalidAction: something else than text or an object is in it.
    """
    listed: tuple[Any, ...]
    if isinstance(actions, (str, Mapping)):
        listed = (actions,)
    elif isinstance(actions, Sequence) and not isinstance(actions, (bytes, bytearray)):
        listed = tuple(actions)
    else:
        raise InvalidAction(f"an action is text or an object, not {type(actions).__name__}")
    for item in listed:
        if not isinstance(item, (str, Mapping)):
            raise InvalidAction(f"an action is text or an object, not {type(item).__name__}")
    return listed


def as_task(task: Task | None) -> dict[str, Any] | None:
    """Return a task as an object; a path is read.

    Raises:
        ConfigError: the file cannot be read or holds no JSON object.
    """
    if task is None:
        return None
    if isinstance(task, Mapping):
        return dict(task)
    path = Path(task)
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"task file {path}: {exc.strerror or exc}") from exc
    except ValueError as exc:
        raise ConfigError(f"task file {path}: not JSON: {exc}") from exc
    if not isinstance(loaded, dict):
        raise ConfigError(f"task file {path}: not a JSON object")
    return loaded


def as_settle(settle: Settle | None) -> SettleOptions | None:
    """Return options from ``"fast"``, a policy, an object, or options.

    Raises:
        ConfigError: the value is none of these.
    """
    if settle is None or isinstance(settle, SettleOptions):
        return settle
    try:
        if isinstance(settle, str):
            return SettleOptions(SettlePolicy(settle))
        return SettleOptions.from_dict(settle)
    except ValueError as exc:
        raise ConfigError(f"settle: {exc}") from exc


def as_observe(observe: Observe | None) -> ObserveOptions | None:
    """Return options from ``"jpeg"``, a format, an object, or options.

    Raises:
        ConfigError: the value is none of these.
    """
    if observe is None or isinstance(observe, ObserveOptions):
        return observe
    try:
        if isinstance(observe, str):
            return ObserveOptions(ImageFormat(observe))
        return ObserveOptions.from_dict(observe)
    except ValueError as exc:
        raise ConfigError(f"observe: {exc}") from exc
