"""Reader of task files: from JSON to a task that this host can set up and score."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError

from osgym_host.tasks.errors import InvalidTask, UnsupportedTask
from osgym_host.tasks.evaluator.registry import METRICS
from osgym_host.tasks.registry import GETTERS, STEPS
from osgym_host.tasks.schema import UNKNOWN, Check, Getter, Task, UnknownStep
from osgym_protocol.plugins import PluginError

T = TypeVar("T")

OSWORLD_EXTENSIONS = "osgym_osworld"
"""Package of OSWorld's metrics, getters and setup steps, without which a host may be installed."""
ACCOUNTS = {
    "setup step googledrive": "a Google account",
    "setup step login": "an account at the site",
    "setup step proxy": "an account at an HTTP proxy",
    "getter googledrive_file": "a Google account",
}
"""Features that need an account at a service, for which this host has no settings."""


def with_account(feature: str) -> str:
    """Return a feature's name, with the account that it needs if it needs one."""
    return f"{feature} (needs {ACCOUNTS[feature]})" if feature in ACCOUNTS else feature


def validate_task(obj: object) -> Task:
    """Read a task file without asking whether this host supports it.

    Raises:
        InvalidTask: With one entry in ``details["problems"]`` for each wrong field.
    """
    if not isinstance(obj, dict):
        raise InvalidTask(
            "a task must be a JSON object with id, instruction, config and evaluator, not "
            f"{type(obj).__name__}"
        )
    cleaned = {k: v for k, v in obj.items() if v is not None or k in {"id", "evaluator"}}
    try:
        return Task.model_validate(cleaned)
    except ValidationError as error:
        problems = [_describe(e["loc"], e["msg"]) for e in error.errors(include_url=False)]
        raise InvalidTask(
            "the task is not in OSWorld's format: " + "; ".join(p["message"] for p in problems[:5]),
            {"problems": problems[:50]},
        ) from error


def _describe(loc: tuple[int | str, ...], message: str) -> dict[str, str]:
    tags = {*STEPS, UNKNOWN, "str", "list[str]"}
    parts: list[str] = []
    for i, part in enumerate(loc):
        follows_index = i > 0 and isinstance(loc[i - 1], int)
        if isinstance(part, int):
            parts.append(f"[{part}]")
        elif not (follows_index and part in tags):
            parts.append(f".{part}" if parts else str(part))
    field = "".join(parts) or "task"
    message = message.removeprefix("Value error, ")
    return {"field": field, "message": f"{field}: {message}"}


def parse_task(obj: object) -> Task:
    """Read a task and make sure that this host can set it up and score it.

    Args:
        obj: The decoded JSON of a task file.

    Raises:
        InvalidTask: The file is malformed.
        UnsupportedTask: It needs a setup step, getter, metric or option that is not there.
    """
    task = validate_task(obj)
    missing = unsupported_features(task)
    if missing:
        raise UnsupportedTask(missing)
    return task


def unsupported_features(task: Task) -> list[str]:
    """Return the names of setup steps, getters, metrics and options that are not there, in order.

    Raises:
        InvalidTask: A getter's parameters are wrong, or a metric lacks an argument.
    """
    missing: list[str] = []
    problems: list[dict[str, str]] = []
    for step in (*task.config, *task.evaluator.postconfig):
        if isinstance(step, UnknownStep):
            missing.append(_lookup(STEPS, "setup step", step.type)[1])
    for index, check in enumerate(task.evaluator.checks):
        features, faults = _check_problems(check)
        missing.extend(features)
        field = f"evaluator.checks[{index}]" if len(task.evaluator.checks) > 1 else "evaluator"
        problems.extend({"field": f"{field}.{name}", "message": text} for name, text in faults)
    if problems and not missing:
        text = "; ".join(f"{p['field']}: {p['message']}" for p in problems[:5])
        raise InvalidTask(f"the task cannot be scored: {text}", {"problems": problems[:50]})
    return [with_account(feature) for feature in dict.fromkeys(missing)]


def _check_problems(check: Check) -> tuple[list[str], list[tuple[str, str]]]:
    metric, absence = _lookup(METRICS, "metric", check.func)
    missing = [] if metric else [absence]
    faults: list[tuple[str, str]] = []
    for name, getter in (("result", check.result), ("expected", check.expected)):
        if getter is not None:
            features, sentences = _getter_problems(getter)
            missing.extend(features)
            faults.extend((name, sentence) for sentence in sentences)
    if metric is None:
        return missing, faults
    if metric.takes_result and check.result is None:
        faults.append(("result", f"{check.func} needs a result"))
    if metric.needs_expected and check.expected is None:
        faults.append(("expected", f"{check.func} needs an expected value"))
    missing.extend(f"option {o} of {check.func}" for o in check.options if o not in metric.options)
    missing.extend(f"{feature} of {check.func}" for feature in metric.unsupported(check.options))
    return missing, faults


def _getter_problems(getter: Getter) -> tuple[list[str], list[str]]:
    """Return the names of missing features, and sentences about wrong parameters."""
    kind, absence = _lookup(GETTERS, "getter", getter.type)
    if kind is None:
        return [absence], []
    try:
        return kind.unsupported(kind.parameters.model_validate(getter.fields)), []
    except ValidationError as error:
        return [], [
            f"{'.'.join(str(p) for p in e['loc'])}: {e['msg'].removeprefix('Value error, ')}"
            for e in error.errors(include_url=False)
        ]


def _lookup(table: Mapping[str, T], kind: str, name: str) -> tuple[T | None, str]:
    """Return an extension, or None with the name of the missing feature and how to get it."""
    feature = f"{kind} {name}"
    try:
        return table[name], ""
    except KeyError:
        if feature in ACCOUNTS or importlib.util.find_spec(OSWORLD_EXTENSIONS) is not None:
            return None, feature
        return None, f"{feature} (OSWorld's are in osgym-osworld: pip install 'osgym-host[osworld]')"
    except PluginError as error:
        return None, f"{feature} ({error})"
