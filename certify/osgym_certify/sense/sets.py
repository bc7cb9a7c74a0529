"""Checks of a set of tasks: duplicates, tasks that contradict each other, leaks between splits. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from osgym_certify.sense.base import Code, Finding, Severity, quoted

_KEY = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{16,}\b")
"""A random key, such as that of a local application: another one in each task."""
_WORD = re.compile(r"[^\s\"'“”‘’`,;:!?]+")


def duplicates(
    tasks: Mapping[str, Mapping[str, Any]], splits: Mapping[str, str] | None = None
) -> list[Finding]:
    """Compare the tasks of a set with each other.

    Args:
        tasks: Valid tasks by name.
        splits: Split of each task by name; a task that it lacks lies in no split.
    """
    found = [*_same_instruction(tasks), *_same_check(tasks)]
    return found + list(_leaks(tasks, splits or {}))


def normal(instruction: str) -> str:
    """Return an instruction in lower case, without quotes, blanks and punctuation between words."""
    words = (word.rstrip(".") for word in _WORD.findall(instruction.casefold()))
    return " ".join(word for word in words if word)


def _same_instruction(tasks: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    same = _groups(tasks, lambda task: (normal(_instruction(task)), _digest(task.get("config"))))
    for names in same:
        text = quoted(_instruction(tasks[names[0]]))
        if len({_check(tasks[name]) for name in names}) > 1:
            message = (
                f"instruction {text} and config are the same in {_listed(names)}, and evaluator differs: "
                "have the instructions name what differs"
            )
            yield Finding(Code.TWO_CHECKS, Severity.WRONG, message)
        else:
            message = f"instruction {text}, config and evaluator are the same in {_listed(names)}: keep one"
            yield Finding(Code.DUPLICATE, Severity.DOUBTFUL, message)


def _same_check(tasks: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    checked = {name: task for name, task in tasks.items() if not _only_infeasible(task)}
    for names in _groups(checked, lambda task: (_check(task), _digest(task.get("config")))):
        if len({normal(_instruction(tasks[name])) for name in names}) > 1:
            message = (
                f"evaluator and config are the same in {_listed(names)}, and instruction differs: "
                "check what differs, or keep one"
            )
            yield Finding(Code.SAME_CHECK, Severity.DOUBTFUL, message)


def _leaks(tasks: Mapping[str, Mapping[str, Any]], splits: Mapping[str, str]) -> Iterator[Finding]:
    known = {name: task for name, task in tasks.items() if name in splits}
    for names in _groups(known, lambda task: normal(_instruction(task))):
        among = sorted({splits[name] for name in names})
        if len(among) > 1:
            message = (
                f"instruction {quoted(_instruction(tasks[names[0]]))} stands in the splits "
                f"{' and '.join(among)} ({_listed(names)}): keep it in one split"
            )
            yield Finding(Code.SPLIT_LEAK, Severity.WRONG, message)


def _groups(
    tasks: Mapping[str, Mapping[str, Any]], key: Callable[[Mapping[str, Any]], object]
) -> list[list[str]]:
    """Return the names of tasks that have the same key, of each key that several have."""
    found: dict[object, list[str]] = defaultdict(list)
    for name, task in tasks.items():
        found[key(task)].append(name)
    return [names for names in found.values() if len(names) > 1]


def _instruction(task: Mapping[str, Any]) -> str:
    return str(task.get("instruction", ""))


def _only_infeasible(task: Mapping[str, Any]) -> bool:
    return task["evaluator"].get("func") in ("infeasible", ["infeasible"])


def _check(task: Mapping[str, Any]) -> str:
    """Return a digest of the evaluator in which random keys of the results do not count."""
    evaluator = dict(task["evaluator"])
    evaluator["result"] = json.loads(_KEY.sub("", json.dumps(evaluator.get("result"))))
    return _digest(evaluator)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
