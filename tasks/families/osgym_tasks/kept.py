"""The check that a task's end leaves the rest of the home as the set-up made it, and what violates it.

The set-up's last step records the home, and the check compares it with the record (`check_folder_kept`). What
programs write by themselves is excepted in `osgym_host.tasks.evaluator.metrics.folders`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from osgym_tasks.pieces import HOME

LOST = "other files lost"
"""Name of the way in which a task is done after files that it does not mention were lost."""
LOSE = f"rm -r {HOME}/Music {HOME}/.bash_logout"
_RECORD = "home"


def recorded(task: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """Return the task with the record at the end of its set-up and the check at the end of its evaluator.

    Args:
        changes: Absolute paths that the task may change, each with all below it.

    Raises:
        ValueError: The evaluator is not one of `pieces.every` or `pieces.checkpoints`.
    """
    evaluator = task["evaluator"]
    if not isinstance(evaluator["func"], list) or evaluator["conj"] not in ("and", "partial"):
        raise ValueError(f"the check of {task['id']} must be made by every() or checkpoints()")
    record = {"type": "record_folder", "parameters": {"folder": HOME, "dest": _RECORD}}
    options = evaluator.get("options", [{} for _ in evaluator["func"]])
    return {
        **task,
        "config": [*task["config"], record],
        "evaluator": {
            **evaluator,
            "func": [*evaluator["func"], "check_folder_kept"],
            "result": [*evaluator["result"], {"type": "folder_record", "folder": HOME}],
            "expected": [*evaluator["expected"], {"type": "cache_file", "path": _RECORD}],
            "options": [*options, {"may_change": list(changes)}],
            **({"weights": [*evaluator["weights"], 0]} if "weights" in evaluator else {}),
        },
    }
