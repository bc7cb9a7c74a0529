"""Whose fault a failed check is that a policy can have broken: found out on an untouched desktop.

A policy that takes rights away, or uses up the clients of the display, makes the guest agent fail where it
looks for the result. So does a fault in the agent. The question that failed is asked again on a fresh desktop
with the same set-up. Where it fails there as well, it is ours and there is no reward; where it is answered,
the policy's reward is 0. Where neither is known, nothing is proven and there is no reward.

A policy cannot count on the latter: a trial goes on when nobody waits for it any more, and what it proves
holds for all later episodes of the task.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from osgym_host.core.reasons import Reason
from osgym_host.episodes.creator import EpisodeCreator
from osgym_host.episodes.episode import HostEpisode
from osgym_host.episodes.errors import ServiceError
from osgym_host.episodes.evaluation import no_task, unscorable
from osgym_host.guest_client import GuestError
from osgym_host.runtimes import base
from osgym_host.tasks.interface import BREAKABLE, Answer, Question, TaskError, ask
from osgym_protocol.host_api import EvaluationAnswer

log = logging.getLogger(__name__)

CLIENT_WAITS_S = 140.0
"""How long an episode waits for a trial, its turn and its desktop included: its client waits meanwhile."""
DESKTOP_S = 900.0
"""How long a trial waits for a desktop: on a host whose desktops are all leased, until some episodes end."""
QUESTION_S = 120.0
"""How long the question may take; the set-up before it has its own time."""
MOST_TRIALS = 64
"""Trials that wait for their turn."""
KEEP = 256
"""Findings that are kept, so that a task whose check always fails costs one desktop only."""

_Key = tuple[str, Question, str]
_SAID = {
    Answer.FAILED: "it fails on an untouched desktop as well",
    Answer.UNKNOWN: "it could not be tried on an untouched desktop",
}


class UntouchedCheck:
    """Tries questions of checks on untouched desktops, one at a time."""

    def __init__(self, creator: EpisodeCreator) -> None:
        """Keep where desktops come from."""
        self._creator = creator
        self._turn = asyncio.Lock()
        self._proven: OrderedDict[_Key, Answer] = OrderedDict()
        self._trials: dict[_Key, asyncio.Task[Answer]] = {}

    async def judge(self, episode: HostEpisode, answer: EvaluationAnswer) -> EvaluationAnswer:
        """Return the answer for an episode: as it is, unless the policy can have broken its check.

        Only where the question that failed is answered on an untouched desktop, it is the policy's.
        """
        error, task = answer.error, episode.terms.task
        code = None if error is None else str(error.details.get("guest_code", ""))
        if error is None or code not in BREAKABLE or task is None or not episode.policy_acted():
            return answer
        question = Question.of(error.details)
        found = await self._answer(episode, (json.dumps(task, sort_keys=True, default=str), question, code))
        if found is not Answer.ANSWERED:
            return replace(answer, error=replace(error, details={**error.details, "untouched": _SAID[found]}))
        log.warning(
            "episode %s: its check failed by the policy's doing: %s", episode.episode_id, error.message
        )
        return unscorable(episode, error)

    async def close(self) -> None:
        """End the trials, whose desktops are given back. Idempotent."""
        trials = list(self._trials.values())
        for trial in trials:
            trial.cancel()
        await asyncio.gather(*trials, return_exceptions=True)

    async def _answer(self, episode: HostEpisode, key: _Key) -> Answer:
        """Return what is proven, or what a trial proves while the episode may wait for it."""
        if key in self._proven:
            self._proven.move_to_end(key)
            return self._proven[key]
        trial = self._trials.get(key)
        if trial is None:
            if len(self._trials) >= MOST_TRIALS:
                return Answer.UNKNOWN
            assert episode.terms.task is not None
            trial = asyncio.create_task(self._try(key, episode.terms.task), name="untouched")
            self._trials[key] = trial
            trial.add_done_callback(lambda _: self._trials.pop(key))
        ends = asyncio.FIRST_COMPLETED
        await asyncio.wait((trial, episode.replica.lost), timeout=CLIENT_WAITS_S, return_when=ends)
        return trial.result() if trial.done() and not trial.cancelled() else Answer.UNKNOWN

    async def _try(self, key: _Key, task: Mapping[str, Any]) -> Answer:
        async with self._turn:
            try:
                control = await self._creator.set_up_untouched(task, DESKTOP_S)
            except ServiceError as error:
                # An agent that fails in the set-up fails without any policy, but was not asked the question.
                log.info("a check could not be tried on an untouched desktop: %s", error)
                failed = str(error.details.get("guest_code", "")) in BREAKABLE
                return Answer.FAILED if failed else Answer.UNKNOWN
            except Exception:
                log.exception("a check could not be tried on an untouched desktop")
                return Answer.UNKNOWN
            try:
                found = await _ask(control, key[1])
            except (ServiceError, TaskError, GuestError, base.RuntimeFault, OSError) as error:
                log.info("a question of a check has no answer on an untouched desktop: %s", error)
                return Answer.UNKNOWN
            except Exception:
                log.exception("a question of a check could not be asked on an untouched desktop")
                return Answer.UNKNOWN
            finally:
                self._creator.drop(control, Reason.CLOSED)
        if found is not Answer.UNKNOWN:
            self._proven[key] = found
            if len(self._proven) > KEEP:
                self._proven.popitem(last=False)
        return found


async def _ask(control: HostEpisode, question: Question) -> Answer:
    """Ask a question on an untouched desktop.

    Raises:
        ServiceError: The desktop is lost.
        TaskError, GuestError, RuntimeFault, OSError: There is no answer.
    """
    task, context, replica = control.task, control.context, control.replica
    if task is None or context is None:
        raise no_task()
    async with asyncio.timeout(QUESTION_S):  # `TimeoutError` is an `OSError`
        deadline = asyncio.get_running_loop().time() + QUESTION_S
        asking = ask(question, task, replica.guest, context, deadline, replica.freeze_disk)
        return await replica.attempt(asking)
