"""All episodes of this host: take, find by lease, renew, step, evaluate, end, forget."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from osgym_host.core.reasons import Reason
from osgym_host.episodes.entries import entry_of, lost_episode, lost_of
from osgym_host.episodes.episode import Episode, StepOutcome
from osgym_host.episodes.errors import EpisodeError, EpisodeOver, unknown_episode
from osgym_host.episodes.evaluation import evaluate_episode
from osgym_host.episodes.journal import EpisodeJournal, LostEpisode, RequestMark
from osgym_host.episodes.metrics import EpisodeMetrics
from osgym_host.episodes.moment import Options
from osgym_host.episodes.opening import Limits
from osgym_host.episodes.recorder import Recorder
from osgym_host.guest import GuestFrame
from osgym_host.replicas.events import EventLog
from osgym_sdk.wire import EvaluationAnswer

log = logging.getLogger(__name__)

KEEP_ENDED = 1000
"""Ended episodes that can still be asked about; the oldest are forgotten first."""


class EpisodeService:
    """The episodes of this host. For one event loop."""

    def __init__(
        self,
        *,
        events: EventLog,
        recorder: Recorder,
        journal: EpisodeJournal,
        metrics: EpisodeMetrics,
        limits: Limits,
    ) -> None:
        """Nothing happens before `start`."""
        self._events = events
        self._recorder = recorder
        self._journal = journal
        self._metrics = metrics
        self._limits = limits
        self.on_end: list[Callable[[Episode], None]] = []
        """Called with each episode that ends."""
        self._active: dict[str, Episode] = {}
        self._by_lease: dict[str, Episode] = {}
        self._ended: OrderedDict[str, Episode] = OrderedDict()
        self._reaper: asyncio.Task[None] | None = None

    # Life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to watch the leases."""
        self._reaper = asyncio.create_task(self._reap(), name="episodes:leases")

    async def close(self) -> None:
        """Ends every episode with the reason `shutdown`. Idempotent."""
        if self._reaper is not None:
            self._reaper.cancel()
            await asyncio.gather(self._reaper, return_exceptions=True)
        self.end_all(Reason.SHUTDOWN)

    def end_all(self, reason: Reason) -> int:
        """Takes every episode from its client, who is told so also after a restart; returns how many."""
        ended = list(self._active.values())
        for episode in ended:
            self.end(episode, reason)
        self._journal.lost(lost_of(episode, reason) for episode in ended)
        return len(ended)

    # Finding -----------------------------------------------------------------------------------

    def active(self) -> list[Episode]:
        """Returns the episodes that have a replica now."""
        return list(self._active.values())

    def find(self, episode_id: str) -> Episode:
        """Returns an episode, ended ones too.

        Raises:
            EpisodeError: `unknown_episode`.
        """
        episode = self._active.get(episode_id) or self._ended.get(episode_id)
        if episode is None:
            raise unknown_episode(episode_id)
        return episode

    def claim(self, episode_id: str, lease: str) -> Episode:
        """Returns a live episode to the one who holds its lease, and renews it.

        Raises:
            EpisodeError: `unknown_episode`, `lease_mismatch`, or why the episode is over.
        """
        episode = self.find(episode_id)
        if not hmac.compare_digest(episode.lease.encode(), lease.encode()):
            raise EpisodeError(
                "lease_mismatch", 403, "This is not the lease of the episode.", {"episode_id": episode_id}
            )
        if episode.over is not None:
            raise episode.over.again()
        episode.renew()
        return episode

    @contextmanager
    def using(self, episode_id: str, lease: str) -> Iterator[Episode]:
        """Claims an episode for a call: its lease does not run out meanwhile.

        Raises:
            EpisodeError: As `claim`.
        """
        episode = self.claim(episode_id, lease)
        episode.busy += 1
        try:
            yield episode
        finally:
            episode.busy -= 1
            episode.renew()

    def renew(self, lease: str) -> None:
        """Renews a lease by its secret alone.

        Raises:
            EpisodeError: `unknown_episode`, or why the episode is over.
        """
        episode = self._by_lease.get(lease)
        if episode is None:
            raise EpisodeError("unknown_episode", 404, "There is no such lease on this host.")
        if episode.over is not None:
            raise episode.over.again()
        episode.renew()

    # Beginning ---------------------------------------------------------------------------------

    def register(
        self,
        episode: Episode,
        mark: RequestMark | None,
        frame: GuestFrame | None = None,
        *,
        timing_ms: Mapping[str, float] | None = None,
        pause_ms: float | None = None,
    ) -> None:
        """Takes an episode that has its replica, as its client is about to get it.

        Args:
            mark: The request that it answers.
            frame: The first frame, for the trajectory.
            timing_ms: Of the phases of a create.
            pause_ms: How long the parent stood still, for one that was branched.
        """
        self._journal.began(entry_of(episode, mark))
        self._take(episode)
        if timing_ms is not None:
            self._metrics.opened(timing_ms)
        parent = episode.parent.to_dict() if episode.parent is not None else None
        told = {"parent": parent} if parent is not None else {}
        self._events.add(
            "episode", episode_id=episode.episode_id, replica_id=episode.replica_id, state="active", **told
        )
        if parent is not None:
            told = {"parent": {**parent, "pause_ms": pause_ms}}
        line = {
            "kind": "start",
            "episode_id": episode.episode_id,
            "task_id": episode.task_id,
            "instruction": episode.task.instruction if episode.task is not None else None,
            "replica_id": episode.replica_id,
            "generation": episode.generation,
            "time": episode.began_at,
            "step": episode.step_no,
            "observation": frame.observation.to_dict() if frame is not None else None,
            "timing_ms": dict(timing_ms or {}),
            **told,
        }
        image_format = frame.observation.frame.format.value if frame is not None else ""
        self._recorder.add(episode.episode_id, line, frame.image if frame is not None else b"", image_format)

    def resume(self, episode: Episode) -> None:
        """Takes an episode that a former host agent had; its client notices nothing."""
        self._take(episode)
        self._events.add(
            "episode", episode_id=episode.episode_id, replica_id=episode.replica_id, state="adopted"
        )

    def remember_lost(self, lost: LostEpisode) -> None:
        """Lets the client of an episode that a former host agent had know what became of it."""
        self._keep_ended(lost_episode(lost))

    def _take(self, episode: Episode) -> None:
        episode.renew()
        episode.note = partial(self._journal.progress, episode.episode_id)
        self._active[episode.episode_id] = episode
        self._by_lease[episode.lease] = episode
        episode.hold.lost.add_done_callback(lambda lost: self.end(episode, lost.result().reason))

    # Using -------------------------------------------------------------------------------------

    async def step(
        self,
        episode_id: str,
        lease: str,
        seq: int,
        actions: Sequence[Any],
        settle: Options | None = None,
        observe: Options | None = None,
    ) -> StepOutcome:
        """Carries out one step (see `Episode.step`) and records it."""
        with self.using(episode_id, lease) as episode:
            outcome = await episode.step(seq, actions, settle, observe)
        observation = outcome.meta["observation"]
        if not observation["replayed"] or seq == episode.unrecorded:
            episode.unrecorded = None
            self._metrics.stepped(outcome.guest_ms)
            line = {"kind": "step", "seq": seq, "time": round(time.time(), 3), **outcome.meta}
            self._recorder.add(episode_id, line, outcome.image, observation["frame"]["format"])
        return outcome

    async def observe(self, episode_id: str, lease: str, observe: Options | None) -> GuestFrame:
        """Takes a frame without acting."""
        with self.using(episode_id, lease) as episode:
            return await episode.look(observe)

    async def final(
        self, episode_id: str, lease: str, seq: int, timeout_ms: float, observe: Options | None
    ) -> GuestFrame:
        """Returns the frame after step `seq` once it is final, or the time is up."""
        with self.using(episode_id, lease) as episode:
            return await episode.final(seq, timeout_ms, observe)

    async def evaluate(self, episode_id: str, lease: str) -> EvaluationAnswer:
        """Scores the episode; a repetition gives the stored answer.

        Raises:
            EpisodeError: It has no task, or its replica is lost.
        """
        with self.using(episode_id, lease) as episode:
            async with episode.lock:
                if episode.evaluation is None:
                    episode.evaluation = await evaluate_episode(episode, self._limits.evaluate_s)
                    self._metrics.evaluated(episode.evaluation)
                    self._journal.evaluated(episode_id, episode.evaluation)
                    line = {"kind": "evaluation", **episode.evaluation.to_dict()}
                    self._recorder.add(episode_id, line)
                return episode.evaluation

    # Ending ------------------------------------------------------------------------------------

    def close_by_lease(self, episode_id: str, lease: str) -> None:
        """Ends an episode for its holder. Idempotent.

        Raises:
            EpisodeError: `unknown_episode`, `lease_mismatch`.
        """
        try:
            self.end(self.claim(episode_id, lease), Reason.CLOSED)
        except EpisodeOver:
            return

    def end(self, episode: Episode, reason: Reason) -> None:
        """Ends an episode now, whatever it is doing; its replica retires. Idempotent."""
        if episode.over is not None:
            return
        episode.hold.let_go(reason)
        lost = episode.hold.lost.result()
        episode.over = EpisodeOver(lost.reason, str(lost.details.get("detail", "")), episode.episode_id)
        self._active.pop(episode.episode_id, None)
        self._keep_ended(episode)
        self._journal.ended(episode.episode_id)
        for tell in self.on_end:
            tell(episode)
        episode.shrink()
        how = episode.ended_as()
        self._metrics.ended.labels(how).inc()
        self._events.add(
            "episode",
            episode_id=episode.episode_id,
            replica_id=episode.replica_id,
            state="ended",
            termination_reason=how,
            cause=lost.reason.value,
        )
        line = {"kind": "end", "termination_reason": how, "cause": lost.reason.value, "time": time.time()}
        self._recorder.add(episode.episode_id, line)

    def _keep_ended(self, episode: Episode) -> None:
        self._ended[episode.episode_id] = episode
        self._by_lease.setdefault(episode.lease, episode)
        while len(self._ended) > KEEP_ENDED:
            _, forgotten = self._ended.popitem(last=False)
            self._by_lease.pop(forgotten.lease, None)

    async def _reap(self) -> None:
        """Ends the episodes whose lease ran out; notes that the others live."""
        while True:
            now = time.monotonic()
            for episode in list(self._active.values()):
                if episode.expires_at - episode.touched_until >= episode.lease_ttl_s / 4:
                    episode.touched_until = episode.expires_at
                    self._journal.touch(episode.episode_id)
                if episode.busy == 0 and episode.expires_at <= now:
                    self.end(episode, Reason.LEASE_EXPIRED)
            due = [e.expires_at for e in self._active.values() if e.busy == 0]
            pause_s = min([0.5, *(max(0.01, at - time.monotonic()) for at in due)])
            await asyncio.sleep(pause_s)
