"""Recovery of episodes after a killed host agent: their replicas are adopted, their leases continue.

What cannot go on (its replica is gone, its lease ran out meanwhile, the runtime keeps no replicas) is
remembered as lost, so that its client gets the reason when it comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from osgym_host.core.reasons import Reason
from osgym_host.episodes.create_request import read_task
from osgym_host.episodes.creator import EpisodeCreator
from osgym_host.episodes.episode import HostEpisode
from osgym_host.episodes.journal import RequestMark, UnfinishedEpisode
from osgym_host.episodes.recorder import RecordedExtent, RecordMode
from osgym_host.errors import ServiceError
from osgym_host.log_subject import Named, about
from osgym_host.replicas.brancher import LeaseHolder, ReplicaBrancher
from osgym_host.replicas.pool_errors import PoolStopping, ReplicaNotMade
from osgym_host.runtimes import base
from osgym_protocol.host_api import StepRequest

log = logging.getLogger(__name__)

GRACE_S = 30.0
"""Extension of a lease's time to live, since nobody could renew it while the host agent was down."""
ADOPT_S = 30.0
"""Deadline of one adoption."""


def choose(
    left: Sequence[UnfinishedEpisode], records: Iterable[base.ReplicaRecord], now: float
) -> tuple[
    list[tuple[UnfinishedEpisode, base.ReplicaRecord]], list[UnfinishedEpisode], list[base.ReplicaRecord]
]:
    """Choose the episodes that continue. Pure.

    A lease is alive when its last sign of life is not older than its time to live and `GRACE_S`.

    Returns:
        Episodes with their replicas, episodes that are lost, replicas that nobody holds.
    """
    by_generation: Mapping[int, base.ReplicaRecord] = {record.generation: record for record in records}
    kept: list[tuple[UnfinishedEpisode, base.ReplicaRecord]] = []
    lost: list[UnfinishedEpisode] = []
    for one in left:
        record = by_generation.get(one.entry.generation)
        alive = now - one.touched_at <= one.entry.saved.lease_ttl_s + GRACE_S
        if record is not None and record.replica_id == one.entry.replica_id and alive:
            kept.append((one, record))
        else:
            lost.append(one)
    held = {record.generation for _, record in kept}
    return kept, lost, [record for number, record in by_generation.items() if number not in held]


class EpisodeRecovery:
    """Takes over the episodes of a killed host agent, once, before the host serves."""

    def __init__(self, creator: EpisodeCreator, brancher: ReplicaBrancher, runtime: base.Runtime) -> None:
        self._creator = creator
        self._service = creator.service
        self._brancher = brancher
        self._runtime = runtime

    async def recover(self, records: Sequence[base.ReplicaRecord]) -> list[tuple[RequestMark, HostEpisode]]:
        """Adopt the replicas whose episodes continue, and remove the others.

        Returns:
            The episodes that go on, with the requests that they answered.

        Raises:
            OSError: The journal cannot be written.
            RuntimeFault: A replica that nobody holds cannot be removed.
        """
        left, forgotten = self._service.journal.open(survives=self._runtime.capabilities().adoption)
        for episode in forgotten:
            self._service.remember_lost(episode)
        kept, lost, unheld = choose(left, records, time.time())
        for record in unheld:
            await self._runtime.reap(record)
        taken = await asyncio.gather(*(self._adopted(one, record) for one, record in kept))
        lost += [one for (one, _), episode in zip(kept, taken, strict=True) if episode is None]
        self._remember_lost(lost)
        marks = [one.entry.request for one, _ in kept]
        return [
            (mark, episode)
            for mark, episode in zip(marks, taken, strict=True)
            if mark is not None and episode is not None
        ]

    def _remember_lost(self, lost: Sequence[UnfinishedEpisode]) -> None:
        gone = [one.lost() for one in lost]
        self._service.journal.lost(gone)
        for one in gone:
            self._service.journal.ended(one.episode_id)
            self._service.remember_lost(one)

    async def _adopted(self, left: UnfinishedEpisode, record: base.ReplicaRecord) -> HostEpisode | None:
        with about(Named(record.replica_id, record.generation, left.entry.episode_id)):
            return await self._adopt(left, record)

    async def _adopt(self, left: UnfinishedEpisode, record: base.ReplicaRecord) -> HostEpisode | None:
        """Give the episode its replica back; return None if that failed, with the replica removed."""
        entry = left.entry
        saved = replace(entry.saved, progress=left.progress)
        try:
            task = read_task(saved.task)
            episode = self._creator.draft(saved, task, episode_id=entry.episode_id, lease=entry.lease)
        except (ServiceError, OSError) as error:
            log.warning("episode %s cannot continue after the restart: %s", entry.episode_id, error)
            await self._runtime.reap(record)
            return None
        episode.parent, episode.began_at = entry.parent, entry.began_at
        episode.setup_warnings = entry.setup_warnings
        episode.scored, episode.evaluation = left.scored, left.evaluation
        episode.steps.answered = left.progress.seq == 0
        try:
            async with asyncio.timeout(ADOPT_S):
                holder = LeaseHolder(entry.episode_id, episode.replica.on_revoked)
                episode.attach(await self._brancher.adopt(record, holder))
                await episode.confirm()
        except (ReplicaNotMade, PoolStopping, ServiceError, TimeoutError) as error:
            log.warning("episode %s cannot continue after the restart: %s", entry.episode_id, error)
            episode.replica.release(Reason.HOST_RESTARTED)
            return None
        recorded = await asyncio.to_thread(self._service.recorder.extent, entry.episode_id)
        await episode.begin_thinking()
        self._service.resume(episode)
        if self._service.recorder.mode is not RecordMode.OFF:
            await self._complete_trajectory(episode, recorded)
        return episode

    async def _complete_trajectory(self, episode: HostEpisode, recorded: RecordedExtent) -> None:
        """Add trajectory lines that were queued when the agent was killed: at most one of each kind.

        The answers of all steps but the last are gone with the agent; the last one's is stored by the guest.
        """
        if not recorded.started:
            self._service.lines.start(episode)
        seq = episode.steps.progress.seq
        if seq > recorded.last_seq:
            episode.steps.unrecorded = seq
            if episode.steps.answered:
                with contextlib.suppress(ServiceError):
                    again = StepRequest(episode.lease.token, seq, ())
                    await self._service.step(episode.episode_id, again)
        if episode.evaluation is not None and not recorded.evaluated:
            self._service.lines.evaluation(episode.episode_id, episode.evaluation)
