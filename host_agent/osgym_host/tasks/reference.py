"""Reference of setup steps, getters and metrics as Markdown, made of their declarations. Pure.

`docs/tasks.md` is this text: `osgym task reference` prints it, a test compares.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from osgym_host.tasks.evaluator.registry import METRICS, Metric
from osgym_host.tasks.parse import ACCOUNTS
from osgym_host.tasks.registry import GETTERS, STEPS, Parameters

HEAD = """# Setup steps, getters, metrics

A task file may name these functions. `osgym task reference` prints this page from the code. Any other name is
refused with `task_unsupported`; `osgym task check` reports that before anything runs. Names and meanings are
those of OSWorld, if OSWorld has the function. [How a task is written](../tasks/README.md) lists OSGym's own
functions, and metrics that differ from OSWorld's on purpose. `osgym task import` converts
[task sets of other projects](import.md).

A parameter shown with a value is optional, with that value as its default."""
_STEPS = """## Setup steps

Written as `{"type": name, "parameters": {…}}`. Steps of `config` run before the episode begins, steps of the
evaluator's `postconfig` before it is scored. Commands may contain `{CLIENT_PASSWORD}`, `{SCREEN_WIDTH}`,
`{SCREEN_HEIGHT}` and their halves (`{SCREEN_WIDTH_HALF}`), which the host fills in."""
_GETTERS = """## Getters

`result` and `expected` of the evaluator, written as `{"type": name, …}` with the parameters beside `type`."""
_METRICS = """## Metrics

`func` of the evaluator names a metric, and `options` its arguments by name. *Result only* means that it takes
no `expected`. Packages are listed if a plain installation lacks them: `pip install 'osgym-host[osworld]'`
installs all of them, and `apt install tesseract-ocr` Tesseract."""
_CONJUNCTIONS = """## Several metrics

If `func` is a list, `result`, `expected` and `options` are lists of the same length. `conj` says how their
scores become the reward:

| `conj` | reward |
|---|---|
| `"and"` (if not given) | 0 if a score is 0, else their mean; metrics after the first 0 do not run |
| `"or"` | 1 if a score is 1, else the largest; metrics after the first 1 do not run |
| `"partial"` | mean of the scores by `weights`, a list beside `func`; all metrics run |

With `"partial"`, a metric of weight 0 is a condition: its score multiplies the reward, so a condition that
does not hold makes the reward 0. At least one weight is above 0, and `infeasible` is not allowed. The
answer's `details` have the score of each metric. Make what holds before the policy acts a condition."""
_REFUSED = "## Refused by name"
_ROLES = re.compile(r"``([^`]+)``")


def page() -> str:
    """Return the whole page, ended by a newline."""
    refused = [f"- {feature}: {need}." for feature, need in ACCOUNTS.items()]
    parts = [
        HEAD,
        _STEPS,
        *_sections({n: (kind.run, _parameters(kind.parameters)) for n, kind in STEPS.items()}, "parameters"),
        _GETTERS,
        *_sections(
            {n: (kind.fetch, _parameters(kind.parameters)) for n, kind in GETTERS.items()}, "parameters"
        ),
        _METRICS,
        *_sections({n: (metric.function, _options(metric)) for n, metric in METRICS.items()}, "options"),
        _CONJUNCTIONS,
        _REFUSED,
        "A task with one of these is refused before it begins, since it needs something that no host has:",
        "\n".join(refused),
    ]
    return "\n\n".join(parts) + "\n"


def _sections(entries: Mapping[str, tuple[Callable[..., Any], str]], what: str) -> Iterator[str]:
    """Yield a table for each module, in the order of modules and of names."""
    by_module: dict[str, list[str]] = {}
    for name, (function, given) in entries.items():
        row = f"| `{name}` | {given} | {_cell(_sentences(function))} |"
        by_module.setdefault(function.__module__, []).append(row)
    for module, rows in sorted(by_module.items()):
        yield f"### {_title(module)}"
        yield "\n".join([f"| name | {what} | what |", "|---|---|---|", *sorted(rows)])


def _title(module: str) -> str:
    """Return the first sentence of a module's docstring, without its full stop."""
    text = inspect.getdoc(sys.modules[module]) or module
    return _ROLES.sub(r"`\1`", text.splitlines()[0].partition(". ")[0].rstrip("."))


def _sentences(function: Callable[..., Any]) -> str:
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())


def _cell(text: str) -> str:
    return _ROLES.sub(r"`\1`", text).replace("|", "\\|")


def _parameters(model: type[Parameters]) -> str:
    """Return name, kind and default of each parameter, with those of objects in lists."""
    schema = model.model_json_schema(by_alias=True)
    return _cell(", ".join(_fields(schema, schema.get("$defs", {})))) or "–"


def _fields(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[str]:
    required = set(schema.get("required", ()))
    for name, said in schema.get("properties", {}).items():
        kind = _kind(said, definitions)
        known = name not in required and said.get("default") is not None
        default = f" = {json.dumps(said['default'])}" if known else ""
        optional = "" if known or name in required else " (optional)"
        yield f"`{name}{default}` {kind}{optional}".rstrip()


def _kind(said: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if "$ref" in said:
        return _kind(definitions[said["$ref"].rpartition("/")[2]], definitions)
    if "enum" in said:
        return " or ".join(f"`{value}`" for value in said["enum"])
    if "const" in said:
        return f"`{said['const']}`"
    if choices := said.get("anyOf"):
        kinds = [_kind(each, definitions) for each in choices if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    match said.get("type"):
        case "array":
            inner = _kind(said.get("items", {}), definitions)
            return f"list of {inner}" if inner else "list"
        case "object" if said.get("properties"):
            return "{" + ", ".join(_fields(said, definitions)) + "}"
        case "object":
            return "object"
        case "string":
            return "text"
        case "number" | "integer":
            return "number" + _bounds(said)
        case "boolean":
            return "true or false"
    return ""


def _bounds(said: Mapping[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    found = [f"{sign} {said[name]:g}" for name, sign in signs.items() if name in said]
    return f" ({', '.join(found)})" if found else ""


def _options(metric: Metric) -> str:
    """Return the metric's options with their defaults, its missing arguments, the packages that it needs."""
    _, _, *options = inspect.signature(metric.function).parameters.values()
    said: list[str] = [_option(option) for option in options if option.name in metric.options]
    if not metric.takes_result:
        said.append("*neither result nor expected*")
    elif not metric.needs_expected:
        said.append("*result only*")
    said += getattr(metric.unsupported, "required", [])
    return _cell(", ".join(said)) or "–"


def _option(option: inspect.Parameter) -> str:
    if option.default in (inspect.Parameter.empty, None):
        return f"`{option.name}`"
    return f"`{option.name} = {json.dumps(option.default, default=str)}`"
