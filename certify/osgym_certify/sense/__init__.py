"""Checks of task files against sense, without a desktop: each finding names a field and the remedy."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from osgym_certify.sense.base import Code, Finding, Severity, view_of
from osgym_certify.sense.edits import unnamed_edits
from osgym_certify.sense.named import unnamed
from osgym_certify.sense.sets import duplicates
from osgym_certify.sense.steps import steps
from osgym_certify.sense.surroundings import surroundings
from osgym_certify.sense.verdicts import verdicts
from osgym_host.tasks.errors import InvalidTask
from osgym_host.tasks.parse import validate_task

__all__ = ["Code", "Finding", "Severity", "duplicates", "findings"]


def findings(
    task: Mapping[str, Any], known_ends: Collection[str] | None = None, typed: str = ""
) -> list[Finding]:
    """Return what is wrong or doubtful about a task, each finding once.

    Args:
        task: Decoded task file, with the files that it uploads inside.
        known_ends: Names of the end states that a certificate tries, with which `osgym.allows` is compared.
            None leaves it unchecked.
        typed: What the oracle types. A word of it that the check compares and a policy cannot know is
            certainly missing in the instruction.
    """
    try:
        view = view_of(validate_task(dict(task)), task, typed)
    except InvalidTask as error:
        return [Finding(Code.INVALID, Severity.WRONG, str(error))]
    found = [
        *unnamed(view),
        *unnamed_edits(view),
        *surroundings(view),
        *steps(view),
        *verdicts(view, known_ends),
    ]
    return list(dict.fromkeys(found))
