"""Metrics over what a check's own program printed: a score, or a value that a criterion compares."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from osgym_host.tasks.evaluator.expressions import ExpressionRefused, evaluate_expression
from osgym_host.tasks.evaluator.inputs import Argument, Unreadable, as_text, parse_json, rules_of
from osgym_host.tasks.evaluator.registry import Score, differ, metric

SCORE_KEYS = ("overall_score", "score", "reward")
_MAX_ERRORS = 5


@metric(needs_expected=False)
def check_printed_score(result: Argument, expected: Argument, maximum: float = 1.0) -> Score:
    """The score that a program printed as JSON (``overall_score``, ``score`` or ``reward``), by ``maximum``.

    The last line of the output that is a JSON object counts, or else the whole output.
    """
    if not maximum > 0:
        raise Unreadable("expected", "the option maximum must be above 0")
    report = _last_object(as_text(result))
    found = next((report[key] for key in SCORE_KEYS if key in report), None)
    if isinstance(found, bool):
        return Score(float(found), _errors(report))
    if not isinstance(found, int | float) or not math.isfinite(found):
        return Score(0.0, f"the output has no score under {', '.join(SCORE_KEYS)}")
    return Score(min(1.0, max(0.0, float(found) / maximum)), _errors(report))


def _last_object(text: str) -> dict[str, Any]:
    """Return the last line that is a JSON object, or the whole text if it is one.

    Raises:
        Unreadable: There is neither.
    """
    for line in reversed(text.splitlines()):
        if line.strip().startswith("{"):
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                return value
    value = parse_json(text.strip() or "null", None)
    if not isinstance(value, dict):
        raise Unreadable("result", "the check's program printed no JSON object")
    return value


def _errors(report: Mapping[str, Any]) -> str:
    errors = report.get("errors")
    return "; ".join(str(error) for error in errors[:_MAX_ERRORS]) if isinstance(errors, list) else ""


@metric()
def check_printed_value(result: Argument, expected: Argument) -> Score:
    """The JSON output has ``rules.expected`` under ``rules.key``, or ``rules.eval`` is true of it.

    ``eval`` is an expression over ``result`` in the subset of Python that
    `osgym_host.tasks.evaluator.expressions` computes without running code.
    """
    rules = rules_of(expected)
    value = parse_json(as_text(result), None)
    if "eval" in rules:
        return _holds(str(rules["eval"]), value)
    key, wanted = rules["key"], rules["expected"]
    if not isinstance(value, dict):
        return Score(0.0, "the check's program printed no JSON object")
    found = value.get(key)
    return Score(1.0) if found == wanted else differ(str(key), found, wanted)


def _holds(expression: str, value: Any) -> Score:
    try:
        holds = bool(evaluate_expression(expression, value))
    except ExpressionRefused as error:
        raise Unreadable("expected", f"the expression {expression!r} is not supported: {error}") from None
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - any error of an operation on what was printed
        return Score(0.0, f"{expression}: {type(error).__name__}: {error}")
    return Score(1.0) if holds else Score(0.0, f"not true: {expression}")
