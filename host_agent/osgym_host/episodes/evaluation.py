"""Scoring of an episode. Failures of the host leave it without a reward; losses of the policy score 0."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

from osgym_host.core.reasons import Reason
from osgym_host.episodes.episode import HostEpisode
from osgym_host.episodes.errors import EpisodeOver
from osgym_host.errors import ServiceError
from osgym_host.guest_client import GuestRefused
from osgym_host.replicas.manager import DEATH_NOTICE_S
from osgym_host.runtimes import base
from osgym_host.tasks.errors import EvaluatorError, TaskError
from osgym_host.tasks.evaluate import LastAction, evaluate, evidence_of
from osgym_host.tasks.policy import CheckDeadline
from osgym_protocol.codes import ErrorClass, ErrorCode, TerminationReason
from osgym_protocol.host_api import EvaluationAnswer
from osgym_protocol.observation import ErrorInfo

log = logging.getLogger(__name__)


GUEST_TAMPERED = "guest_tampered"
"""`details.cause` of an evaluation whose guest agent is not what it was."""
CHECK_SLACK_S = 15.0
"""Grace period after the check's deadline before the host aborts the check. Within it the check raises an
error of its own, which says whose fault the delay is."""


def no_task() -> ServiceError:
    return ServiceError(ErrorCode.TASK_INVALID, "The episode has no task, so it cannot be scored.")


def unscored_for_disk() -> EvaluationAnswer:
    """Return the answer for an episode during which the host's disk was full: saved files may be missing."""
    text = (
        "The host's disk was full while the episode ran, so its files may be incomplete and cannot be scored."
    )
    return EvaluationAnswer(
        reward=None,
        termination_reason="evaluator_error",
        valid_for_training=False,
        error=ErrorInfo(ErrorCode.EVALUATOR_ERROR, text, {"cause": Reason.DISK_FULL.value}),
        error_class=ErrorClass.INFRA,
    )


def lost_by_policy(loss: ErrorInfo, termination_reason: str, *, interventions: int) -> EvaluationAnswer:
    """Return the answer for an episode that the policy ended: a reward of 0, valid for training.

    Without a valid 0, a policy that foresees its failure would gain by breaking the desktop.

    Args:
        interventions: Number of times that a person acted. If any, that person may have broken the desktop,
            and the answer is not valid for training.
    """
    return EvaluationAnswer(
        reward=0.0,
        termination_reason=termination_reason,
        valid_for_training=interventions == 0,
        error_class=ErrorClass.POLICY,
        loss=loss,
    )


async def evaluate_episode(
    episode: HostEpisode, timeout_s: float, *, prepare: bool = True, folder: Path | None = None
) -> EvaluationAnswer:
    """Score the episode as it stands after its last step.

    Args:
        prepare: See `osgym_host.tasks.evaluate.evaluate`.
        folder: Folder for the check's files; the episode's by default.

    Raises:
        ServiceError: The episode has no task, or its replica is lost, so that it cannot be scored.
    """
    task, context = episode.task, episode.context
    if task is None or context is None:
        raise no_task()
    if folder is not None:
        context = replace(context, episode_dir=folder)
    try:
        await episode.complete()
    except EpisodeOver:
        raise
    except ServiceError as error:  # the guest refused it: nothing was done, and the policy cannot mend it
        log.info(
            "episode %s: the guest refused the last step before its check: %s", episode.episode_id, error
        )
    deadline, replica = asyncio.get_running_loop().time() + timeout_s, episode.replica
    last = LastAction(episode.steps.done) if episode.steps.done in ("done", "fail") else LastAction.NONE
    try:
        async with asyncio.timeout(timeout_s + CHECK_SLACK_S) as limit, replica.awake():
            await replica.attest(afresh=True)
            await _release(episode)
            verdict = await replica.call(
                evaluate(
                    task,
                    replica.guest,
                    context,
                    last,
                    CheckDeadline(deadline, limit),
                    replica.freeze_disk,
                    prepare=prepare,
                )
            )
            await replica.attest(afresh=False)
    except TaskError as error:
        return _failed(error)
    except GuestRefused as error:
        text = f"the guest refused a call of the check: {error}"
        return _failed(EvaluatorError(text, {"guest_code": error.code}))
    except base.GuestTampered as error:
        log.warning("episode %s is not scored: %s", episode.episode_id, error)
        text = f"The guest agent was tampered with, so its answers cannot be scored: {error}."
        tampered = EvaluatorError(text, {"cause": GUEST_TAMPERED, "finding": str(error)})
        crashed = isinstance(error, base.GuestRestarted)
        if episode.policy_acted() and not (crashed and replica.excuses_agent()):
            return unscorable(episode, ErrorInfo(tampered.code, text, tampered.details))
        return _failed(tampered)
    except base.RuntimeFault as error:
        await asyncio.wait((replica.lost,), timeout=DEATH_NOTICE_S)
        if replica.lost.done():
            raise replica.loss() from error
        return _failed(EvaluatorError(f"the guest agent cannot be inspected from outside: {error}"))
    except TimeoutError:
        return _failed(EvaluatorError(f"the check did not finish within {timeout_s:g} s"))
    return EvaluationAnswer(
        reward=verdict.reward,
        termination_reason=episode.steps.done or "policy_stopped",
        valid_for_training=episode.steps.progress.interventions == 0,  # else it is not the policy's alone
        details=tuple(verdict.as_details()),
        evidence=evidence_of(task),
    )


async def _release(episode: HostEpisode) -> None:
    """Release the keys and buttons that the policy still holds, so that they do not change the check."""
    try:
        await episode.replica.call(episode.replica.guest.release())
    except GuestRefused as error:
        log.warning("replica %s: held keys could not be released: %s", episode.replica.replica_id, error)


def unscorable(episode: HostEpisode, error: ErrorInfo) -> EvaluationAnswer:
    """Return the answer for a check that failed because of what the policy did to its desktop: reward 0."""
    return lost_by_policy(
        ErrorInfo(error.code, error.message, {**error.details, "error_class": ErrorClass.POLICY.value}),
        episode.steps.done or TerminationReason.POLICY_STOPPED,
        interventions=episode.steps.progress.interventions,
    )


def _failed(error: TaskError) -> EvaluationAnswer:
    return EvaluationAnswer(
        reward=None,
        termination_reason="evaluator_error",
        valid_for_training=False,
        error=ErrorInfo(error.code, error.message, error.details),
        error_class=error.error_class,
    )
