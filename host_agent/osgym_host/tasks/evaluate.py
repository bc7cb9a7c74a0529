"""From the end state of a replica to a reward: postconfig, getters, confined metrics, scoring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from osgym_host.guest_client import GuestClient
from osgym_host.tasks.context import TaskContext, TaskRun
from osgym_host.tasks.errors import EvaluatorError, UnsupportedTask
from osgym_host.tasks.registry import GETTERS
from osgym_host.tasks.sandbox import MetricJob
from osgym_host.tasks.schema import Check, Conjunction, Getter, Task
from osgym_host.tasks.setup import run_steps, wait_for_quiet
from osgym_host.tasks.values import Value


class LastAction(StrEnum):
    """How the episode was ended, as far as scoring cares."""

    DONE = "done"
    FAIL = "fail"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One metric's verdict.

    Attributes:
        score: 0 to 1, or None when the metric was not needed (a decided ``and``/``or``).
        note: why the score is what it is, where the metric says so.
    """

    func: str
    score: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class TaskEvaluation:
    """The verdict on one episode. A check that could not be carried out raises instead."""

    reward: float
    checks: tuple[CheckResult, ...]

    def as_details(self) -> list[dict[str, object]]:
        """The ``details`` of the wire format."""
        return [{"func": c.func, "score": c.score, "note": c.note} for c in self.checks]


async def evaluate(
    task: Task,
    guest: GuestClient,
    ctx: TaskContext,
    last_action: LastAction | str | None,
    deadline: float,
) -> TaskEvaluation:
    """Score the episode that is at its end, after what its last action started has ended.

    Args:
        last_action: ``"fail"`` when the policy gave up, ``"done"`` when it said it was done, anything
            else (None too) when it simply stopped.
        deadline: in ``asyncio.get_running_loop().time()``.

    Raises:
        TaskError: with ``error_class`` ``task`` or ``infra``; there is no reward then.
        Exception: what the guest client raises when the replica is gone.
    """
    gave_up = last_action == LastAction.FAIL
    if not (gave_up or task.evaluator.infeasible):
        await wait_for_quiet(guest, deadline, final=True)
    if task.evaluator.postconfig:
        await run_steps(task.evaluator.postconfig, task.safe_id, guest, ctx, deadline, phase="postconfig")
    if task.evaluator.infeasible:
        return TaskEvaluation(
            1.0 if gave_up else 0.0,
            (CheckResult("infeasible", 1.0 if gave_up else 0.0, "scored by how the episode ended"),),
        )
    if gave_up:
        note = "the policy gave up on a feasible task"
        return TaskEvaluation(0.0, tuple(CheckResult(c.func, 0.0, note) for c in task.evaluator.checks))
    return await _run_checks(task, guest, ctx, deadline)


async def _run_checks(task: Task, guest: GuestClient, ctx: TaskContext, deadline: float) -> TaskEvaluation:
    conj = task.evaluator.conj
    results: list[CheckResult] = []
    decided = False
    for check in task.evaluator.checks:
        if decided:
            results.append(CheckResult(check.func, None, "not needed"))
            continue
        result = await _run_check(check, TaskRun(guest, ctx, task.safe_id, deadline))
        results.append(result)
        assert result.score is not None
        decided = result.score <= 0 if conj is Conjunction.AND else result.score >= 1
    return TaskEvaluation(combine([r.score for r in results if r.score is not None], conj), tuple(results))


def combine(scores: Sequence[float], conj: Conjunction) -> float:
    """Return one score by OSWorld's rule.

    ``and`` is 0 if any is 0, else the mean; ``or`` is 1 if any is 1, else the maximum.
    """
    match conj:
        case Conjunction.OR:
            return 1.0 if any(s >= 1 for s in scores) else max(scores)
        case Conjunction.AND:
            return 0.0 if any(s <= 0 for s in scores) else sum(scores) / len(scores)
        case _:
            assert_never(conj)


async def fetch(run: TaskRun, getter: Getter) -> Value:
    """Return what the getter names; `Value.missing` when it is not there.

    Raises:
        UnsupportedTask, EvaluatorError, DownloadFailed, RefusedByPolicy, DeadlineExceeded: And what the
            guest client raises when the replica is gone.
    """
    if (kind := GETTERS.get(getter.type)) is None:
        raise UnsupportedTask([f"getter {getter.type}"])
    return await kind.fetch(run, kind.parameters.model_validate(getter.fields))


async def _run_check(check: Check, run: TaskRun) -> CheckResult:
    result = await fetch(run, check.result) if check.result else None
    if result is not None and result.missing:
        return CheckResult(check.func, 0.0, result.note or "the result file does not exist")
    expected = await fetch(run, check.expected) if check.expected else None
    if expected is not None and expected.missing:
        raise EvaluatorError(
            f"the expected value of {check.func} could not be had: {expected.note}",
            {"func": check.func},
        )
    policy = run.ctx.policy
    timeout_s = run.left(f"the metric {check.func}", policy.evaluation_timeout_s)
    verdict = await run.ctx.sandbox.run(
        MetricJob(
            func=check.func,
            result=result,
            expected=expected,
            options=check.options,
            timeout_s=timeout_s,
            memory_bytes=policy.evaluation_memory_bytes,
        )
    )
    return CheckResult(check.func, verdict.score, verdict.note)
