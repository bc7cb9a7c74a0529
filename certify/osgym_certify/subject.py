"""Tasks to certify, each with the ways to act that its author gives beside it."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from osgym_host.tasks.shipped import Steps, steps_of
from osgym_protocol.targets import has_targets, reaching
from osgym_protocol.task_files import TaskFileError, inline_files, task_digest

MAX_FILE_BYTES = 64 << 20


class SubjectError(ValueError):
    """A task or its oracle cannot be read; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A task to certify.

    Attributes:
        name: Name in reports: the task's folder and file.
        task: Task with its files inside, as its author wrote it.
        digest: Digest of `task`, which a certificate is valid for.
        oracle: Steps that must earn 1; None if the author gives none.
        script: Python that brings the golden end about in the desktop, for tasks without an oracle's steps.
        wrong: Steps by name that must earn 0.
        right: Further steps by name that must earn 1.
    """

    name: str
    task: dict[str, Any] = field(repr=False)
    digest: str
    oracle: Steps | None = field(default=None, repr=False)
    script: str | None = field(default=None, repr=False)
    wrong: Mapping[str, Steps] = field(default_factory=dict, repr=False)
    right: Mapping[str, Steps] = field(default_factory=dict, repr=False)

    @property
    def instruction(self) -> str:
        return str(self.task.get("instruction", ""))

    @property
    def typed(self) -> str:
        """What the oracle types, a line for each action."""
        actions = (action for step in self.oracle or () for action in step)
        return "\n".join(str(action["text"]) for action in actions if "text" in action)

    def reads_preparation(self, made: Collection[str]) -> bool:
        """Return whether the check reads what its preparation printed or made.

        Args:
            made: Paths of files that the preparation (`postconfig`) made.
        """
        results = self.task["evaluator"].get("result") or []
        for result in results if isinstance(results, list) else [results]:
            if not isinstance(result, dict):
                continue
            path = result.get("path")
            if result.get("type") == "cache_file" or any(
                one in made for one in (path if isinstance(path, list) else [path])
            ):
                return True
        return False

    def allowance(self, end: str) -> str | None:
        """Return the author's reason why an end may earn another score; None if it may not."""
        for entry in self.task.get("osgym", {}).get("allows", []):
            if fnmatch.fnmatchcase(end, str(entry.get("end", ""))):
                return str(entry.get("why", ""))
        return None

    def playable(self) -> dict[str, Any]:
        """Return the task as it is played: the certificate reads and writes files of the desktop."""
        task = {**self.task, "osgym": {**self.task.get("osgym", {}), "reach": True}}
        ways = (self.oracle or (), *self.wrong.values(), *self.right.values())
        return reaching(task) if any(map(has_targets, ways)) else task


def read_subject(path: Path, name: str) -> Subject:
    """Read a task and the file of its oracle, which may be missing.

    Raises:
        SubjectError: One of them cannot be read, or has another form.
    """
    task = _json(path)
    if not isinstance(task, dict) or not isinstance(task.get("evaluator"), dict):
        raise SubjectError(f"{path}: a task must be a JSON object with an evaluator")
    try:
        inline_files(task, path)
    except TaskFileError as error:
        raise SubjectError(f"{path}: {error}") from error
    beside = path.with_suffix(".oracle.json")
    ways = _json(beside) if beside.exists() else {}
    if not isinstance(ways, dict):
        raise SubjectError(f"{beside}: the file must be an object with an oracle")
    try:
        return Subject(
            name=name,
            task=task,
            digest=task_digest(task),
            oracle=steps_of(ways["oracle"]) if "oracle" in ways else None,
            script=str(ways["script"]) if "script" in ways else None,
            wrong=_wrong(ways),
            right={str(way): steps_of(steps) for way, steps in ways.get("right", {}).items()},
        )
    except (ValueError, AttributeError) as error:
        raise SubjectError(f"{beside}: {error}") from error


def _wrong(ways: Mapping[str, Any]) -> dict[str, Steps]:
    near = {"near miss": steps_of(ways["near"])} if "near" in ways else {}
    return {**near, **{str(way): steps_of(steps) for way, steps in ways.get("wrong", {}).items()}}


def _json(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SubjectError(f"{path}: the file is larger than {MAX_FILE_BYTES} bytes")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SubjectError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise SubjectError(f"{path}: the file is no JSON: {str(error)[:200]}") from error
