"""One question of a check to the guest agent, which can be asked again on another desktop.

Whose fault a refusal is shows on a desktop that nobody touched: only where the same question is asked and
answered there, the first desktop was at fault.
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


class Asked(StrEnum):
    """The part of a check that a question belongs to."""

    QUIET = "quiet"
    """Whether the desktop has come to rest."""
    POSTCONFIG = "postconfig"
    RESULT = "result"
    EXPECTED = "expected"


class Answer(StrEnum):
    """What came of a question that was asked again."""

    ANSWERED = "answered"
    FAILED = "failed"
    """The guest agent says that it does not work."""
    UNKNOWN = "unknown"
    """It was not asked, or neither answered nor refused."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a task's check.

    Attributes:
        index: Of the step of ``postconfig``, or of the metric.
    """

    part: Asked = Asked.QUIET
    index: int = 0

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Note the question in the details of a `TaskError` that is raised inside."""
        try:
            yield
        except TaskError as error:
            error.details.setdefault(_DETAIL, {"part": self.part.value, "index": self.index})
            raise

    @classmethod
    def of(cls, details: Mapping[str, Any]) -> Question:
        """Return the question that an error's details name, and a plain one where they name none."""
        named = details.get(_DETAIL)
        return cls() if named is None else cls(Asked(named["part"]), int(named["index"]))


async def ask(
    question: Question,
    task: Task,
    guest: GuestClient,
    ctx: TaskContext,
    deadline: float,
    freeze_disk: Freeze | None,
) -> Answer:
    """Ask a question on a desktop that the task is set up on, after the ``postconfig`` that leads to it.

    Args:
        deadline: In ``asyncio.get_running_loop().time()``.
        freeze_disk: Gives the replica's disk, from which its files are read then.

    Raises:
        TaskError, GuestError: It was not asked, or there is no answer.
    """
    run = TaskRun(guest, ctx, task.safe_id, deadline, of_check=True)
    steps = task.evaluator.postconfig
    getter: Getter | None = None
    match question.part:
        case Asked.QUIET:
            return await _answer_of(wait_for_quiet(guest, run.deadline, final=True))
        case Asked.POSTCONFIG:
            steps = steps[: question.index + 1]
        case Asked.RESULT:
            getter = task.evaluator.checks[question.index].result
        case Asked.EXPECTED:
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
    """Await a question; what the agent says against a file or a window is an answer too."""
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
