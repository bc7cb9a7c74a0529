"""Sending a step to the guest agent: once, or again where that cannot act twice."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from osgym_host.episodes.episode_state import EpisodeProgress
from osgym_host.episodes.episode_steps import EpisodeSteps
from osgym_host.episodes.errors import nothing_was_done, refused_by_guest
from osgym_host.episodes.replica_lease import ReplicaLease
from osgym_host.guest_client import GuestError, GuestRefused, GuestUnreachable
from osgym_host.guest_client.answers import GuestHealth
from osgym_protocol.codes import GuestErrorCode
from osgym_protocol.limits import DEFAULT_SETTLE_MAX_MS
from osgym_protocol.observation import ObservedFrame
from osgym_protocol.options import ObserveOptions, SettleOptions

STEP_SLACK_S = 15.0
"""Grace period after the time of a step's actions and settling before the host treats the guest as hung."""
RESTART_PROBE_S = 5.0


@dataclass(frozen=True, slots=True)
class StepSender:
    """Sends the last entered step of an episode to its replica."""

    replica: ReplicaLease
    steps: EpisodeSteps

    async def send(
        self,
        settle: SettleOptions | None,
        observe: ObserveOptions | None,
        before: EpisodeProgress | None = None,
    ) -> ObservedFrame:
        """Send the step and return its frame.

        The step is sent twice if the connection broke and it cannot act twice, or if the guest agent was
        started anew since the step before.

        Args:
            before: Progress to return to if the guest refuses a new step; None for a step that is sent again.

        Raises:
            ServiceError: The guest refused the step and did nothing.
            EpisodeOver: The replica is lost.
        """
        began = time.perf_counter()
        timeout_s = _timeout_s(self.steps.progress.actions, settle)
        mended, clock = False, self.replica.thinking
        while True:
            step = self.steps.progress
            call = self.replica.guest.step(
                step.seq - step.guest_base,
                step.for_guest(),
                settle=settle,
                observe=observe,
                expects=step.expects,
                hold=clock is not None,
                timeout_s=timeout_s,
            )
            try:
                frame = await self.replica.attempt(call)
                break
            except GuestUnreachable as error:
                if mended or not await self._is_safe_to_retry(error, began):
                    raise await self.replica.give_up(error) from error
            except GuestRefused as error:
                if mended or not await self._rebased(error, is_new=before is not None):
                    if before is not None:
                        self.steps.change(before)
                        self.steps.answered = True
                    if nothing_was_done(error):
                        raise refused_by_guest(error) from error
                    raise await self.replica.give_up(error) from error
            except GuestError as error:
                raise await self.replica.give_up(error) from error
            mended = True
        if clock is not None and not frame.observation.replayed:
            clock.mark_held()
        if frame.observation.screen_changed:
            self.steps.refused()
        self.steps.answered = True
        return frame

    async def confirm(self) -> None:
        """Ask the guest agent whether it got the last step, if that is unknown.

        Of a step that expects a frame only the answer tells whether it was done.

        Raises:
            EpisodeOver: The replica is lost.
        """
        if not self.steps.answered:
            last = self.steps.progress
            health = await self._health()
            arrived = health.last_seq == last.seq - last.guest_base
            self.steps.answered = arrived and last.expects is None

    async def _is_safe_to_retry(self, error: GuestUnreachable, began: float) -> bool:
        """Return whether a repetition cannot act twice.

        It cannot if the step never arrived, or if the same guest agent still runs, which knows the number. An
        agent that was started anew in between has forgotten the number.
        """
        if not error.delivered:
            return True
        try:
            health = await self.replica.call(self.replica.guest.health(timeout_s=RESTART_PROBE_S))
        except GuestRefused:
            return False
        return health.uptime_s > time.perf_counter() - began

    async def _rebased(self, error: GuestRefused, *, is_new: bool) -> bool:
        """Count from 1 again with a new step if the guest agent does, having been started anew."""
        if error.code != GuestErrorCode.BAD_SEQUENCE or not is_new:
            return False
        health = await self._health()
        if health.last_seq != 0:
            return False
        last = self.steps.progress
        self.steps.change(replace(last, guest_base=last.seq - 1))
        return True

    async def _health(self) -> GuestHealth:
        try:
            return await self.replica.call(self.replica.guest.health(timeout_s=RESTART_PROBE_S))
        except GuestRefused as error:
            raise await self.replica.give_up(error) from error


def _timeout_s(actions: Sequence[Mapping[str, Any]], settle: SettleOptions | None) -> float:
    waits_ms, typed = 0.0, 0
    for action in actions:
        waits_ms += float(action.get("duration_ms", 0))
        typed += len(action.get("text", ""))
    settle_ms = DEFAULT_SETTLE_MAX_MS
    if settle is not None:
        settle_ms = max(settle.max_ms or DEFAULT_SETTLE_MAX_MS, settle.pause_ms or 0.0)
    return STEP_SLACK_S + (waits_ms + settle_ms) / 1000 + typed * 0.02
