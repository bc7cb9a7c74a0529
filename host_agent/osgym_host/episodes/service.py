"""All episodes of this host: find, renew, step, evaluate and end them, by their leases."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import itertools
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from osgym_host.core.reasons import Reason, consequence
from osgym_host.episodes.create_request import EpisodeLimits
from osgym_host.episodes.episode import HostEpisode, StepResult
from osgym_host.episodes.errors import EpisodeOver, unknown_episode
from osgym_host.episodes.evaluation import evaluate_episode, lost_by_policy, no_task, unscored_for_disk
from osgym_host.episodes.journal import EpisodeJournal, JournalEntry, LostEpisode, RequestMark
from osgym_host.episodes.metrics import EpisodeMetrics
from osgym_host.episodes.recorder import TrajectoryRecorder
from osgym_host.episodes.trajectory_lines import TrajectoryLines
from osgym_host.errors import ServiceError
from osgym_host.replicas.events import EventLog
from osgym_host.tracing import StepTracer, TracedStep
from osgym_protocol.codes import ErrorCode
from osgym_protocol.host_api import EvaluationAnswer, FinalRequest, Notice, ObserveRequest, StepRequest
from osgym_protocol.observation import ObservedFrame
from osgym_protocol.records import Record

log = logging.getLogger(__name__)

LOOK_S = 0.25
"""Interval of checks of the disk; longest interval of checks of the leases."""
KEEP_ENDED = 1000
"""Number of ended episodes that clients can ask about; the oldest are forgotten first."""
Judge = Callable[[HostEpisode, EvaluationAnswer], Awaitable[EvaluationAnswer]]
"""Function that decides whose fault a failed check is, and returns the answer that follows."""


class EpisodeService:
    """The episodes of this host. For one event loop."""

    def __init__(
        self,
        *,
        events: EventLog,
        recorder: TrajectoryRecorder,
        journal: EpisodeJournal,
        metrics: EpisodeMetrics,
        limits: EpisodeLimits,
    ) -> None:
        self.events = events
        self.recorder = recorder
        self.lines = TrajectoryLines(recorder)
        self.journal = journal
        self.metrics = metrics
        self.limits = limits
        self.notice: Notice | None = None
        """Notice that clients see while this host is about to be taken away."""
        self.tracer: StepTracer | None = None
        """Maker of the spans of steps whose clients ask for them."""
        self.judge: Judge | None = None
        """Function that may change each answer of a check; None leaves all answers as they are."""
        self.on_end: list[Callable[[HostEpisode], None]] = []
        """Callbacks for each episode that ends."""
        self._active: dict[str, HostEpisode] = {}
        self._by_lease: dict[str, HostEpisode] = {}
        self._disk_full_at = -math.inf
        self._ended: OrderedDict[str, HostEpisode] = OrderedDict()
        self._reaper: asyncio.Task[None] | None = None

    # Life --------------------------------------------------------------------------------------

    def start(self) -> None:
        self._reaper = asyncio.create_task(self._reap(), name="episodes:leases")

    async def close(self) -> None:
        """End every episode with the reason `shutdown`. Idempotent."""
        if self._reaper is not None:
            self._reaper.cancel()
            await asyncio.gather(self._reaper, return_exceptions=True)
        checks = [episode.check for episode in self._active.values() if episode.check is not None]
        self.end_all(Reason.SHUTDOWN)
        await asyncio.gather(*checks, return_exceptions=True)

    def end_all(self, reason: Reason) -> int:
        """End every episode, and keep the reason past a restart; return the number of episodes."""
        ended = list(self._active.values())
        for episode in ended:
            self.end(episode, reason)
        taken = [episode for episode in ended if episode.over is None or not episode.over.by_policy]
        self.journal.lost(LostEpisode.of(episode, reason) for episode in taken)
        return len(ended)

    # Finding -----------------------------------------------------------------------------------

    def active(self) -> list[HostEpisode]:
        return list(self._active.values())

    def latest(self, limit: int) -> list[HostEpisode]:
        """Return active episodes, then ended ones, each with the newest first."""
        every = itertools.chain(reversed(self._active.values()), reversed(self._ended.values()))
        return list(itertools.islice(every, limit))

    def find(self, episode_id: str) -> HostEpisode:
        """Return an active or ended episode.

        Raises:
            ServiceError: `unknown_episode`.
        """
        episode = self._active.get(episode_id) or self._ended.get(episode_id)
        if episode is None:
            raise unknown_episode(episode_id)
        return episode

    def claim(self, episode_id: str, lease: str) -> HostEpisode:
        """Return an active episode to the holder of its lease, and renew the lease.

        Raises:
            ServiceError: `unknown_episode`, `lease_mismatch`, or the reason for which the episode is over.
        """
        episode = self._active.get(episode_id) or self.find(episode_id)
        if not hmac.compare_digest(episode.lease.token.encode(), lease.encode()):
            raise ServiceError(
                ErrorCode.LEASE_MISMATCH,
                "The lease id does not belong to this episode.",
                {"episode_id": episode_id},
            )
        if episode.over is None and episode.replica.lost.done():
            self.end(episode, episode.replica.loss().reason)  # the future's callback has not run yet
        if episode.over is not None:
            raise episode.over.copy()
        episode.lease.renew()
        return episode

    def renew(self, lease: str) -> None:
        """Renew a lease by its secret alone.

        Raises:
            ServiceError: `unknown_episode`, or the reason for which the episode is over.
        """
        episode = self._by_lease.get(lease)
        if episode is None:
            raise ServiceError(ErrorCode.UNKNOWN_EPISODE, "This host does not have the lease.")
        if episode.over is not None:
            raise episode.over.copy()
        episode.lease.renew()

    # Beginning ---------------------------------------------------------------------------------

    def register(
        self,
        episode: HostEpisode,
        mark: RequestMark | None,
        frame: ObservedFrame | None = None,
        *,
        timing_ms: Mapping[str, float] | None = None,
        pause_ms: float | None = None,
    ) -> None:
        """Add a new episode that has its replica, before its client gets it."""
        self.journal.began(JournalEntry.of(episode, mark))
        self._activate(episode)
        if timing_ms is not None:
            self.metrics.opened(timing_ms)
        origin = {"parent": episode.parent.to_dict()} if episode.parent is not None else {}
        self._add_event(episode, state="active", **origin)
        self.lines.start(episode, frame, timing_ms=timing_ms, pause_ms=pause_ms)

    def resume(self, episode: HostEpisode) -> None:
        """Add an episode of a previous host agent; its client notices nothing."""
        self._activate(episode)
        self._add_event(episode, state="adopted")

    def remember_lost(self, lost: LostEpisode) -> None:
        """Keep an episode that was lost with a previous host agent, with the reason for its client."""
        self._keep_ended(lost.episode())

    def _activate(self, episode: HostEpisode) -> None:
        episode.lease.renew()
        episode.replica.disk_was_full = partial(self._disk_was_full, episode)
        episode.steps.on_change = partial(self.journal.progress, episode.episode_id)
        self._active[episode.episode_id] = episode
        self._by_lease[episode.lease.token] = episode
        episode.replica.lost.add_done_callback(lambda lost: self.end(episode, lost.result().reason))

    # Using -------------------------------------------------------------------------------------

    async def step(self, episode_id: str, request: StepRequest) -> Record:
        """Carry out one step (see `HostEpisode.step`), record it, and return its answer."""
        began = time.perf_counter()
        episode = self.claim(episode_id, request.lease)
        with episode.in_use():
            result = await episode.step(request)
        answered = time.perf_counter()
        meta = result.answer.to_dict()
        observation = meta["observation"]
        if not observation["replayed"] or request.seq == episode.steps.unrecorded:
            episode.steps.unrecorded = None
            self.metrics.stepped(result.guest_ms, result.answer.observation)
            self.lines.step(episode_id, request, result, meta)
        ended = time.perf_counter()
        host_ms = (ended - began) * 1000
        self.metrics.host_s.observe((host_ms - result.guest_ms) / 1000)
        meta["timing_ms"] = {"host": round(host_ms, 3), "guest": round(result.guest_ms, 3)}
        if self.notice is not None:
            meta["notice"] = self.notice.to_dict()
        if request.traceparent is not None and self.tracer is not None:
            traced = _traced(episode, result, host_ms=host_ms, after_ms=(ended - answered) * 1000)
            self.tracer.step(request.traceparent, traced)
        return Record(meta, result.image)

    async def observe(self, episode_id: str, request: ObserveRequest) -> Record:
        """Take a frame without acting."""
        return await self._take_frame(episode_id, request.lease, lambda it: it.observe(request.observe))

    async def final(self, episode_id: str, request: FinalRequest) -> Record:
        """Return the frame after a step once it is final, or the time is up."""
        return await self._take_frame(episode_id, request.lease, lambda it: it.final(request))

    async def _take_frame(
        self, episode_id: str, lease: str, take: Callable[[HostEpisode], Awaitable[ObservedFrame]]
    ) -> Record:
        began = time.perf_counter()
        episode = self.claim(episode_id, lease)
        with episode.in_use():
            frame = await take(episode)
        progress = episode.steps.progress
        meta = {
            "observation": replace(frame.observation, seq=progress.seq).to_dict(),
            "step": progress.step,
            "timing_ms": {"host": round((time.perf_counter() - began) * 1000, 3)},
        }
        if self.notice is not None:
            meta["notice"] = self.notice.to_dict()
        return Record(meta, frame.image)

    async def evaluate(self, episode_id: str, lease: str) -> EvaluationAnswer:
        """Score the episode; no step can follow. A repetition gives the same answer.

        The check continues if its client disconnects, so that a lost answer does not score the episode twice.
        A known score is returned even if the episode has ended since. A desktop that the policy broke
        scores 0.

        Raises:
            ServiceError: The episode has no task, or its replica is lost.
        """
        try:
            episode = self.claim(episode_id, lease)
        except EpisodeOver:
            if (known := self.find(episode_id).evaluation) is not None:
                return known
            raise
        if episode.evaluation is not None:
            return episode.evaluation
        if episode.task is None:
            raise no_task()
        if episode.check is None:
            episode.check = asyncio.create_task(self._check(episode), name=f"check:{episode_id}")
            episode.check.add_done_callback(lambda check: check.cancelled() or check.exception())
        with episode.in_use():
            try:
                return await asyncio.shield(episode.check)
            except EpisodeOver:  # `end` may have scored the episode before the check saw the loss
                if episode.evaluation is not None:
                    return episode.evaluation
                raise

    async def _check(self, episode: HostEpisode) -> EvaluationAnswer:
        with episode.in_use():
            async with episode.lock:
                episode.scored = True
                await episode.reach.end()
                self.journal.scoring(episode.episode_id)
                answer = await evaluate_episode(episode, self.limits.evaluate_s)
                if self.judge is not None:
                    answer = await self.judge(episode, answer)
                if episode.evaluation is not None:  # the policy ended the episode meanwhile
                    return episode.evaluation
                if episode.over is not None:  # the host ended the episode meanwhile: its score is void
                    raise episode.over.copy()
                episode.evaluation = answer
                self._look_at_disk()
                if episode.disk_was_full:
                    episode.evaluation = unscored_for_disk()
                self.metrics.evaluated(episode.evaluation)
                self.journal.evaluated(episode.episode_id, episode.evaluation)
                self.lines.evaluation(episode.episode_id, episode.evaluation)
                return episode.evaluation

    # Ending ------------------------------------------------------------------------------------

    def close_by_lease(self, episode_id: str, lease: str) -> None:
        """End an episode for the holder of its lease. Idempotent.

        Raises:
            ServiceError: `unknown_episode`, `lease_mismatch`.
        """
        with contextlib.suppress(EpisodeOver):
            self.end(self.claim(episode_id, lease), Reason.CLOSED)

    def end(self, episode: HostEpisode, reason: Reason) -> None:
        """End an episode at once and retire its replica. Idempotent."""
        if episode.over is not None:
            return
        episode.replica.release(reason)
        lost = episode.replica.loss()
        episode.ended_at = time.time()
        episode.over = lost.copy(episode.episode_id)
        self._active.pop(episode.episode_id, None)
        self._keep_ended(episode)
        if episode.over.by_policy:
            self._score_loss(episode, episode.over)
        self.journal.ended(episode.episode_id)
        for callback in self.on_end:
            callback(episode)
        episode.drop_task()
        how = episode.termination_reason()
        self.metrics.ended.labels(how).inc()
        self._add_event(episode, state="ended", termination_reason=how, cause=lost.reason.value)
        self.lines.end(episode, lost.reason)

    def _score_loss(self, episode: HostEpisode, over: EpisodeOver) -> None:
        """Score 0 for an episode that the policy ended, and journal that for later host agents."""
        if episode.task is not None and episode.evaluation is None:
            interventions = episode.steps.progress.interventions
            reason = consequence(over.reason).termination
            episode.evaluation = lost_by_policy(over.info(), reason, interventions=interventions)
            episode.scored = True
            self.metrics.evaluated(episode.evaluation)
            self.lines.evaluation(episode.episode_id, episode.evaluation)
        self.journal.lost([LostEpisode.of(episode, over.reason)])

    def _add_event(self, episode: HostEpisode, **fields: Any) -> None:
        replica_id = episode.replica.replica_id
        self.events.add("episode", episode_id=episode.episode_id, replica_id=replica_id, **fields)

    def _keep_ended(self, episode: HostEpisode) -> None:
        self._ended[episode.episode_id] = episode
        self._by_lease.setdefault(episode.lease.token, episode)
        while len(self._ended) > KEEP_ENDED:
            _, forgotten = self._ended.popitem(last=False)
            self._by_lease.pop(forgotten.lease.token, None)

    def _look_at_disk(self) -> None:
        """Mark the active episodes if the host's disk is full: their desktops may fail to write."""
        if self.journal.disk_is_full():
            self._disk_full_at = time.monotonic()
            for episode in self._active.values():
                episode.disk_was_full = True

    def disk_was_full_since(self, began: float) -> bool:
        """Return whether the host's disk was full at some time since `began` (of `time.monotonic`)."""
        self._look_at_disk()
        return self._disk_full_at >= began

    def _disk_was_full(self, episode: HostEpisode) -> bool:
        self._look_at_disk()
        return episode.disk_was_full

    async def _reap(self) -> None:
        """End the episodes whose lease expired; write the other leases to the journal."""
        while True:
            now = time.monotonic()
            self._look_at_disk()
            for episode in list(self._active.values()):
                lease = episode.lease
                if lease.expires_at - lease.journaled_until >= lease.ttl_s / 4:
                    lease.journaled_until = lease.expires_at
                    self.journal.touch(episode.episode_id)
                if lease.calls == 0 and lease.expires_at <= now:
                    self.end(episode, Reason.LEASE_EXPIRED)
            due = [e.lease.expires_at for e in self._active.values() if e.lease.calls == 0]
            pause_s = min([LOOK_S, *(max(0.01, at - time.monotonic()) for at in due)])
            await asyncio.sleep(pause_s)


def _traced(episode: HostEpisode, result: StepResult, *, host_ms: float, after_ms: float) -> TracedStep:
    return TracedStep(
        episode_id=episode.episode_id,
        replica_id=episode.replica.replica_id,
        generation=episode.replica.generation,
        task_id=episode.task_id,
        seq=0 if result.answer.observation is None else result.answer.observation.seq,
        host_ms=host_ms,
        guest_ms=result.guest_ms,
        after_ms=after_ms,
        observation=result.answer.observation,
    )
