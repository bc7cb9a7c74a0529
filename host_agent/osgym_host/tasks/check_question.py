"""One question of a check to the guest agent, which can be asked again on another desktop.

If a question is refused on a policy's desktop but answered on an untouched one with the same set-up, then the
policy's desktop caused the refusal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never

from osgym_host.guest_client import GuestAnswerTooLarge, GuestClient, GuestRefused
from osgym_host.tasks.context import TaskContext, TaskRun
from osgym_host.tasks.errors import SetupFailed, TaskError
from osgym_host.tasks.guest_disk import Freeze, GuestDisk
from osgym_host.tasks.registry import GETTERS
from osgym_host.tasks.replica_side import BREAKABLE, OUT_OF_TIME, is_ours
from osgym_host.tasks.schema import Getter, Task
from osgym_host.tasks.setup import run_step, wait_for_quiet

_DETAIL = "asked"


class CheckPart(StrEnum):
    QUIET = "quiet"
    """The wait until the desktop has come to rest."""
    POSTCONFIG = "postconfig"
    RESULT = "result"
    EXPECTED = "expected"


class Answer(StrEnum):
    """Outcome of a question that was asked again."""

    ANSWERED = "answered"
    FAILED = "failed"
    """The guest agent refused the question with a code of `BREAKABLE`."""
    UNKNOWN = "unknown"
    """The question was not asked, or neither answered nor refused."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a task's check.

    Attributes:
        index: Index of the step of ``postconfig``, or of the metric; 0 for `CheckPart.QUIET`.
    """

    part: CheckPart = CheckPart.QUIET
    index: int = 0

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Add the question to the details of a `TaskError` that is raised in the ``with`` block."""
        try:
            yield
        except TaskError as error:
            error.details.setdefault(_DETAIL, {"part": self.part.value, "index": self.index})
            raise

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> Question:
        """Return the question that an error's details name; the default question if they name none."""
        named = details.get(_DETAIL)
        return cls() if named is None else cls(CheckPart(named["part"]), int(named["index"]))


async def ask(
    question: Question,
    task: Task,
    guest: GuestClient,
    ctx: TaskContext,
    deadline: float,
    freeze_disk: Freeze | None,
) -> Answer:
    """Ask a question on a desktop with the task's set-up, after the steps of ``postconfig`` that precede it.

    Args:
        deadline: Time by ``asyncio.get_running_loop().time()``.
        freeze_disk: Returns the replica's disk, from which files are then read; None: the guest agent reads.

    Raises:
        TaskError, GuestError: The question was not asked, or neither answered nor refused.
    """
    run = TaskRun(guest, ctx, task.safe_id, deadline, of_check=True)
    steps = task.evaluator.postconfig
    getter: Getter | None = None
    match question.part:
        case CheckPart.QUIET:
            return await _answer_of(wait_for_quiet(guest, run.deadline, final=True))
        case CheckPart.POSTCONFIG:
            steps = steps[: question.index + 1]
        case CheckPart.RESULT:
            getter = task.evaluator.checks[question.index].result
        case CheckPart.EXPECTED:
            getter = task.evaluator.checks[question.index].expected
        case _:
            assert_never(question.part)
    answer = Answer.UNKNOWN
    for index, step in enumerate(steps):
        answer = await _answer_of(run_step(run, index, step, phase="postconfig"))
        if answer is not Answer.ANSWERED:
            return answer
    if getter is None:
        return answer
    kind = GETTERS[getter.type]
    disk = None if freeze_disk is None else GuestDisk(guest, freeze_disk)
    asking = TaskRun(guest, ctx, task.safe_id, deadline, of_check=True, disk=disk)
    return await _answer_of(kind.fetch(asking, kind.parameters.model_validate(getter.fields)))


async def _answer_of(work: Awaitable[object]) -> Answer:
    """Await a question and return its outcome. A missing file or window counts as an answer."""
    try:
        await work
    except GuestRefused as error:
        return _answer_by(error)
    except SetupFailed as error:
        if isinstance(error.__cause__, GuestRefused):
            return _answer_by(error.__cause__)
        return Answer.ANSWERED if error.by_replica else Answer.UNKNOWN
    except GuestAnswerTooLarge:
        return Answer.ANSWERED
    return Answer.ANSWERED


def _answer_by(error: GuestRefused) -> Answer:
    if error.code in BREAKABLE:
        return Answer.FAILED
    return Answer.UNKNOWN if is_ours(error) or error.code in OUT_OF_TIME else Answer.ANSWERED
