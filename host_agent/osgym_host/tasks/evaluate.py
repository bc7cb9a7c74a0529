"""Evaluation: from the end state of a replica to a reward, by postconfig, getters and confined metrics.

What the replica causes is a 0 with the reason, what our side causes is an error without a reward:
`osgym_host.tasks.replica_side` tells them apart for what is asked of the guest agent,
`osgym_host.tasks.control` for what a metric makes of it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from osgym_host.guest_client import GuestClient, GuestRefused
from osgym_host.tasks.check_question import CheckPart, Question
from osgym_host.tasks.context import TaskContext, TaskRun
from osgym_host.tasks.control import blame_result
from osgym_host.tasks.errors import EvaluatorError, ResultUnusable, SetupFailed, UnsupportedTask
from osgym_host.tasks.guest_disk import Freeze, GuestDisk
from osgym_host.tasks.policy import CheckDeadline
from osgym_host.tasks.registry import GETTERS, STEPS
from osgym_host.tasks.replica_side import ReplicaTime
from osgym_host.tasks.sandbox import MetricFailed, MetricJob, MetricVerdict
from osgym_host.tasks.schema import Check, Conjunction, Getter, Task
from osgym_host.tasks.setup import run_step, wait_for_quiet
from osgym_host.tasks.values import Value
from osgym_protocol.codes import Evidence

INFEASIBLE = "infeasible"
"""Metric that is decided by how the episode ended; all other checks must hold besides."""


class LastAction(StrEnum):
    """Last action of an episode, as far as scoring depends on it."""

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
    """Verdict on one episode. A check that cannot be carried out raises instead."""

    reward: float
    checks: tuple[CheckResult, ...]

    def as_details(self) -> list[dict[str, object]]:
        """Return the ``details`` of the wire format."""
        return [{"func": c.func, "score": c.score, "note": c.note} for c in self.checks]


def evidence_of(task: Task) -> Evidence:
    """Return `Evidence.GUEST` if the check asks programs of the desktop, which the policy can replace.

    A check that only reads files rests on `Evidence.HOST`.
    """
    named = [getter for check in task.evaluator.checks for getter in (check.result, check.expected)]
    kinds = [GETTERS.find(getter.type) for getter in named if getter is not None]
    asks = any(kind is not None and kind.evidence is Evidence.GUEST for kind in kinds)
    return Evidence.GUEST if asks else Evidence.HOST


async def evaluate(
    task: Task,
    guest: GuestClient,
    ctx: TaskContext,
    last_action: LastAction | str | None,
    deadline: float | CheckDeadline,
    freeze_disk: Freeze | None = None,
    *,
    prepare: bool = True,
) -> TaskEvaluation:
    """Score the episode that is at its end, after what its last action started has ended.

    Args:
        last_action: ``"fail"`` when the policy gave up, ``"done"`` when it said it was done, anything
            else (None too) when it simply stopped.
        deadline: time by ``asyncio.get_running_loop().time()``; a `CheckDeadline` is put off while a metric
            waits for its turn.
        freeze_disk: gives the replica's disk, from which its files are read then.
        prepare: whether the check waits until the desktop is at rest, and runs the steps of `postconfig`,
            before it looks.

    Raises:
        TaskError: with ``error_class`` ``task`` or ``infra``; there is no reward then.
        Exception: what the guest client raises when the replica is gone.
    """
    gave_up = last_action == LastAction.FAIL
    run = TaskRun(guest, ctx, task.safe_id, deadline, of_check=True)
    if prepare and not (gave_up or task.evaluator.infeasible):
        await _wait_for_quiet(run)
    replica_time = ReplicaTime(run.deadline - asyncio.get_running_loop().time())
    prepared = ""
    if prepare and task.evaluator.postconfig:
        prepared = await _prepare(task, run, replica_time)
    if task.evaluator.infeasible:
        if not gave_up or len(task.evaluator.checks) == 1:
            score = 1.0 if gave_up else 0.0
            return TaskEvaluation(
                score, (CheckResult(INFEASIBLE, score, "the episode's ending decides the score"),)
            )
    elif gave_up:
        note = "the policy gave up on a feasible task"
        return TaskEvaluation(0.0, tuple(CheckResult(c.func, 0.0, note) for c in task.evaluator.checks))
    if prepared:
        return TaskEvaluation(0.0, tuple(CheckResult(c.func, 0.0, prepared) for c in task.evaluator.checks))
    disk = None if freeze_disk is None else GuestDisk(guest, freeze_disk)
    return await _run_checks(task, replace(run, disk=disk), replica_time)


async def _wait_for_quiet(run: TaskRun) -> None:
    try:
        await wait_for_quiet(run.guest, run.deadline, final=True)
    except GuestRefused as error:
        text = f"the guest refused a call of the check: {error}"
        with Question(CheckPart.QUIET).named():
            raise EvaluatorError(text, {"guest_code": error.code}) from error


async def _prepare(task: Task, run: TaskRun, replica_time: ReplicaTime) -> str:
    """Carry out the postconfig; return why the replica did not let it, else an empty string.

    A check that follows half a preparation could be one that the policy has earned by breaking it.
    """
    for index, step in enumerate(task.evaluator.postconfig):
        work = run_step(run, index, step, phase="postconfig")
        try:
            with Question(CheckPart.POSTCONFIG, index).named():
                if (kind := STEPS.get(step.type)) is not None and kind.host_takes_time:
                    await work
                else:
                    await replica_time.of(run.guest, run.deadline, f"postconfig[{index}]", work)
        except ResultUnusable as error:
            return str(error)
        except SetupFailed as error:
            if not error.by_replica:
                raise
            return str(error)
    return ""


async def _run_checks(task: Task, run: TaskRun, replica_time: ReplicaTime) -> TaskEvaluation:
    conj = task.evaluator.conj
    results: list[CheckResult] = []
    decided = False
    for index, check in enumerate(task.evaluator.checks):
        if check.func == INFEASIBLE:
            results.append(CheckResult(check.func, 1.0, "the policy gave up"))
            continue
        if decided:
            results.append(CheckResult(check.func, None, "not needed"))
            continue
        result = await _run_check(index, check, run, replica_time)
        results.append(result)
        assert result.score is not None
        decided = _decides(result.score, conj)
    scores = [r.score for r in results if r.score is not None]
    return TaskEvaluation(combine(scores, conj, task.evaluator.weights), tuple(results))


def _decides(score: float, conj: Conjunction) -> bool:
    """Return whether the reward is known after a check of this score, whatever the later ones find."""
    match conj:
        case Conjunction.OR:
            return score >= 1
        case Conjunction.AND:
            return score <= 0
        case Conjunction.PARTIAL:
            return False
        case _:
            assert_never(conj)


def combine(scores: Sequence[float], conj: Conjunction, weights: Sequence[float] = ()) -> float:
    """Return one score.

    By OSWorld's rule ``and`` is 0 if any is 0, else the mean; ``or`` is 1 if any is 1, else the maximum.
    ``partial`` is the mean by weights, multiplied by each score of weight 0.
    """
    match conj:
        case Conjunction.PARTIAL:
            weighed = list(zip(scores, weights, strict=True))
            conditions = math.prod(score for score, weight in weighed if weight == 0)
            return conditions * (math.fsum(s * w for s, w in weighed) / math.fsum(weights))
        case Conjunction.OR:
            return 1.0 if any(s >= 1 for s in scores) else max(scores)
        case Conjunction.AND:
            return 0.0 if any(s <= 0 for s in scores) else sum(scores) / len(scores)
        case _:
            assert_never(conj)


async def fetch(run: TaskRun, getter: Getter, replica_time: ReplicaTime) -> Value:
    """Return what the getter names.

    Raises:
        ResultUnusable: It is the replica's, and cannot be had.
        UnsupportedTask, EvaluatorError, DownloadFailed, RefusedByPolicy, DeadlineExceeded: It is ours.
        GuestError: The replica is gone.
    """
    if (kind := GETTERS.get(getter.type)) is None:
        raise UnsupportedTask([f"getter {getter.type}"])
    value = kind.fetch(run, kind.parameters.model_validate(getter.fields))
    if not kind.from_replica:
        found = await value
        if found.missing:
            raise EvaluatorError(f"the getter {getter.type} found nothing: {found.note}")
        return found
    found = await replica_time.of(run.guest, run.deadline, getter.type, value)
    if found.missing:
        raise ResultUnusable(found.note or "the result does not exist")
    return found


async def _run_check(index: int, check: Check, run: TaskRun, replica_time: ReplicaTime) -> CheckResult:
    try:
        with Question(CheckPart.RESULT, index).named():
            result = await fetch(run, check.result, replica_time) if check.result else None
        with Question(CheckPart.EXPECTED, index).named():
            expected = await fetch(run, check.expected, replica_time) if check.expected else None
        verdict = await _run_metric(check, result, expected, run)
    except ResultUnusable as error:
        return CheckResult(check.func, 0.0, str(error))
    except OSError as error:
        raise EvaluatorError(f"{check.func} could not be checked: {error}", {"func": check.func}) from error
    return CheckResult(check.func, verdict.score, verdict.note)


async def _run_metric(
    check: Check, result: Value | None, expected: Value | None, run: TaskRun
) -> MetricVerdict:
    policy = run.ctx.policy
    job = MetricJob(
        func=check.func,
        result=result,
        expected=expected,
        options=check.options,
        timeout_s=run.left(f"the metric {check.func}", policy.evaluation_timeout_s),
        memory_bytes=policy.evaluation_memory_bytes,
        cpu_s=policy.evaluation_cpu_s,
    )
    try:
        return await run.verdict(job)
    except MetricFailed as failure:
        shared = check.expected is not None and GETTERS[check.expected.type].from_replica
        return MetricVerdict(0.0, await blame_result(job, failure, run, expected_from_replica=shared))
