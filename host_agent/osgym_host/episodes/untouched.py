"""Whose fault a failed check is that a policy can have broken: found out on an untouched desktop.

A policy that takes rights away, or uses up the clients of the display, makes the guest agent fail where it
looks for the result. So does a fault in the agent. The same set-up and the same check are run on a fresh
desktop: where they fail there as well, it is ours and there is no reward; else it is the policy's 0.
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
from osgym_host.episodes.evaluation import evaluate_episode, unscorable
from osgym_host.tasks.interface import BREAKABLE
from osgym_protocol.host_api import EvaluationAnswer

log = logging.getLogger(__name__)

WAIT_S = 20.0
"""How long to wait for a desktop: the client waits for its score meanwhile."""
TRY_S = 120.0
"""Set-up and check together."""
KEEP = 256
"""Findings that are kept, so that a task whose check always fails costs one desktop only."""


class UntouchedCheck:
    """Tries checks on untouched desktops, one at a time."""

    def __init__(self, creator: EpisodeCreator) -> None:
        """Keep where desktops come from."""
        self._creator = creator
        self._lock = asyncio.Lock()
        self._known: OrderedDict[tuple[str, str], bool] = OrderedDict()

    async def judge(self, episode: HostEpisode, answer: EvaluationAnswer) -> EvaluationAnswer:
        """Return the answer for an episode: as it is, unless the policy can have broken its check.

        Where no desktop is to be had in time, nothing speaks for the host, and it is the policy's.
        """
        error, task = answer.error, episode.terms.task
        code = None if error is None else str(error.details.get("guest_code", ""))
        if error is None or code not in BREAKABLE or task is None or not episode.policy_acted():
            return answer
        async with self._lock:
            fails = await self._fails_untouched(task, code)
        if fails:
            details = {**error.details, "untouched": "it fails on an untouched desktop as well"}
            return replace(answer, error=replace(error, details=details))
        log.warning(
            "episode %s: its check failed by the policy's doing: %s", episode.episode_id, error.message
        )
        return unscorable(episode, error)

    async def _fails_untouched(self, task: Mapping[str, Any], code: str) -> bool:
        key = (json.dumps(task, sort_keys=True, default=str), code)
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        try:
            async with asyncio.timeout(WAIT_S + TRY_S):
                found = await self._try(task)
        except (ServiceError, TimeoutError) as error:
            details = error.details if isinstance(error, ServiceError) else {}
            log.info("a check could not be tried on an untouched desktop: %s", error)
            return str(details.get("guest_code", "")) in BREAKABLE
        fails = self._known[key] = str(found.error and found.error.details.get("guest_code", "")) in BREAKABLE
        if len(self._known) > KEEP:
            self._known.popitem(last=False)
        return fails

    async def _try(self, task: Mapping[str, Any]) -> EvaluationAnswer:
        control = await self._creator.set_up_untouched(task, WAIT_S)
        try:
            return await evaluate_episode(control, TRY_S)
        finally:
            self._creator.drop(control, Reason.CLOSED)
