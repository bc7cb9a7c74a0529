"""Trial of a failed check on an untouched desktop, to tell whether the policy or the host made it fail.

A policy that takes rights away, or uses up the connections of the display, makes the guest agent fail when it
looks for the result. So does a fault in the agent. The question that failed is therefore asked again on a
fresh desktop with the same set-up. If it fails there as well, the fault is ours and there is no reward. If it
is answered, the policy's reward is 0. If the trial itself does not work, there is no reward.

A policy cannot rely on trials that do not work: a trial goes on when no episode waits for it any more, and
its finding applies to all later episodes of the task.
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
from osgym_host.episodes.evaluation import no_task, unscorable
from osgym_host.errors import ServiceError
from osgym_host.guest_client import GuestError
from osgym_host.runtimes import base
from osgym_host.tasks.check_question import Answer, Question, ask
from osgym_host.tasks.errors import TaskError
from osgym_host.tasks.replica_side import BREAKABLE
from osgym_protocol.host_api import EvaluationAnswer

log = logging.getLogger(__name__)

CLIENT_WAITS_S = 140.0
"""Longest wait of an episode, and so of its client, for a trial with its turn and its desktop."""
DESKTOP_S = 900.0
"""Longest wait of a trial for a desktop. If all are leased, some episodes have to end first."""
QUESTION_S = 120.0
"""Deadline of the question; the set-up before it has a deadline of its own."""
MOST_TRIALS = 64
"""Number of trials that may run or wait for their turn."""
KEEP = 256
"""Number of findings that are kept, so that a task whose check always fails costs only one desktop."""

_Key = tuple[str, Question, str]
"""Task and image as JSON, question, and code of the refusal."""
_UNTOUCHED_TEXT = {
    Answer.FAILED: "the check also fails on an untouched desktop",
    Answer.UNKNOWN: "the check could not be tried on an untouched desktop",
}


class UntouchedCheck:
    """Asks questions of checks on untouched desktops, one at a time."""

    def __init__(self, creator: EpisodeCreator) -> None:
        self._creator = creator
        self._turn = asyncio.Lock()
        self._proven: OrderedDict[_Key, Answer] = OrderedDict()
        self._trials: dict[_Key, asyncio.Task[Answer]] = {}

    async def judge(self, episode: HostEpisode, answer: EvaluationAnswer) -> EvaluationAnswer:
        """Return an episode's answer: reward 0 if the policy broke its check, else the given answer.

        The policy broke the check if the question that failed is answered on an untouched desktop.
        """
        error, task = answer.error, episode.terms.task
        code = None if error is None else str(error.details.get("guest_code", ""))
        if error is None or code not in BREAKABLE or task is None or not episode.policy_acted():
            return answer
        question = Question.of(error.details)
        asked = json.dumps([task, episode.image_digest], sort_keys=True, default=str)
        found = await self._answer(episode, (asked, question, code))
        if found is not Answer.ANSWERED:
            details = {**error.details, "untouched": _UNTOUCHED_TEXT[found]}
            return replace(answer, error=replace(error, details=details))
        log.warning("episode %s: the policy made its check fail: %s", episode.episode_id, error.message)
        return unscorable(episode, error)

    async def close(self) -> None:
        """Cancel the trials and release their desktops. Idempotent."""
        trials = list(self._trials.values())
        for trial in trials:
            trial.cancel()
        await asyncio.gather(*trials, return_exceptions=True)

    async def _answer(self, episode: HostEpisode, key: _Key) -> Answer:
        """Return the known finding, or that of a trial if it ends within `CLIENT_WAITS_S`."""
        if key in self._proven:
            self._proven.move_to_end(key)
            return self._proven[key]
        trial = self._trials.get(key)
        if trial is None:
            if len(self._trials) >= MOST_TRIALS:
                return Answer.UNKNOWN
            assert episode.terms.task is not None
            work = self._try(key, episode.terms.task, episode.image_digest)
            trial = asyncio.create_task(work, name="untouched")
            self._trials[key] = trial
            trial.add_done_callback(lambda _: self._trials.pop(key))
        ends = asyncio.FIRST_COMPLETED
        await asyncio.wait((trial, episode.replica.lost), timeout=CLIENT_WAITS_S, return_when=ends)
        return trial.result() if trial.done() and not trial.cancelled() else Answer.UNKNOWN

    async def _try(self, key: _Key, task: Mapping[str, Any], image: str) -> Answer:
        async with self._turn:
            try:
                control = await self._creator.set_up_untouched(task, image, DESKTOP_S)
            except ServiceError as error:
                # No policy was there to cause the failure. It is not kept, as the question was not asked.
                log.info("a check could not be tried on an untouched desktop: %s", error)
                failed = str(error.details.get("guest_code", "")) in BREAKABLE
                return Answer.FAILED if failed else Answer.UNKNOWN
            except Exception:
                log.exception("a check could not be tried on an untouched desktop")
                return Answer.UNKNOWN
            try:
                found = await _ask(control, key[1])
            except (ServiceError, TaskError, GuestError, base.RuntimeFault, OSError) as error:
                log.info("a getter of a check failed on an untouched desktop: %s", error)
                return Answer.UNKNOWN
            except Exception:
                log.exception("a getter of a check could not be run on an untouched desktop")
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
        ServiceError: The desktop was lost.
        TaskError, GuestError, RuntimeFault, OSError: The question was neither answered nor refused.
    """
    task, context, replica = control.task, control.context, control.replica
    if task is None or context is None:
        raise no_task()
    async with asyncio.timeout(QUESTION_S):  # `TimeoutError` is an `OSError`
        deadline = asyncio.get_running_loop().time() + QUESTION_S
        asking = ask(question, task, replica.guest, context, deadline, replica.freeze_disk)
        return await replica.attempt(asking)
