"""Episodes that outlive a killed host agent: their replicas are adopted, their leases go on.

What cannot go on (its replica is gone, its lease ran out meanwhile, the runtime keeps no replicas) is
remembered as lost, so that its client is told so when it comes back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from osgym_host.core.reasons import Reason
from osgym_host.episodes.creating import Creator
from osgym_host.episodes.entries import lost_of_left
from osgym_host.episodes.episode import Episode
from osgym_host.episodes.errors import EpisodeError
from osgym_host.episodes.journal import EpisodeJournal, Left, RequestMark
from osgym_host.episodes.opening import read_task
from osgym_host.episodes.recorder import Recorder
from osgym_host.episodes.service import EpisodeService
from osgym_host.replicas.asking import NotMade, PoolStopping
from osgym_host.replicas.branches import Branches, Heir
from osgym_host.runtimes import base

log = logging.getLogger(__name__)

GRACE_S = 30.0
"""On top of a lease's time to live: nobody could renew it while the host agent was down."""
ADOPT_S = 30.0
"""Deadline of one adoption."""


def choose(
    left: Sequence[Left], records: Iterable[base.ReplicaRecord], now: float
) -> tuple[list[tuple[Left, base.ReplicaRecord]], list[Left], list[base.ReplicaRecord]]:
    """Decides what goes on; pure.

    A lease is alive when its last sign of life is not older than its time to live and `GRACE_S`.

    Returns:
        Episodes with their replicas, episodes that are lost, replicas that nobody holds.
    """
    by_generation: Mapping[int, base.ReplicaRecord] = {record.generation: record for record in records}
    kept: list[tuple[Left, base.ReplicaRecord]] = []
    lost: list[Left] = []
    for one in left:
        record = by_generation.get(one.entry.generation)
        alive = now - one.touched_at <= one.entry.moment.lease_ttl_s + GRACE_S
        if record is not None and record.replica_id == one.entry.replica_id and alive:
            kept.append((one, record))
        else:
            lost.append(one)
    held = {record.generation for _, record in kept}
    return kept, lost, [record for number, record in by_generation.items() if number not in held]


class Survival:
    """Takes over what a killed host agent left. Used once, before anything is served."""

    def __init__(
        self,
        *,
        service: EpisodeService,
        creator: Creator,
        branches: Branches,
        journal: EpisodeJournal,
        recorder: Recorder,
        runtime: base.Runtime,
    ) -> None:
        """Keeps the parts."""
        self._service = service
        self._creator = creator
        self._branches = branches
        self._journal = journal
        self._recorder = recorder
        self._runtime = runtime

    async def recover(self, records: Sequence[base.ReplicaRecord]) -> list[tuple[RequestMark, Episode]]:
        """Adopts the replicas whose episodes go on, reaps the others.

        Returns:
            The episodes that go on, with the requests that they answered.

        Raises:
            OSError: The journal cannot be written.
            RuntimeFault: A replica that nobody holds cannot be removed.
        """
        left, forgotten = self._journal.open(survives=self._runtime.capabilities().adoption)
        for episode in forgotten:
            self._service.remember_lost(episode)
        kept, lost, unheld = choose(left, records, time.time())
        for record in unheld:
            await self._runtime.reap(record)
        taken = await asyncio.gather(*(self._adopt(one, record) for one, record in kept))
        lost += [one for (one, _), episode in zip(kept, taken, strict=True) if episode is None]
        self._lose(lost)
        marks = [one.entry.request for one, _ in kept]
        return [
            (mark, episode)
            for mark, episode in zip(marks, taken, strict=True)
            if mark is not None and episode is not None
        ]

    def _lose(self, lost: Sequence[Left]) -> None:
        gone = [lost_of_left(one) for one in lost]
        self._journal.lost(gone)
        for one in gone:
            self._journal.ended(one.episode_id)
            self._service.remember_lost(one)

    async def _adopt(self, left: Left, record: base.ReplicaRecord) -> Episode | None:
        """Gives the episode its replica back; None when that failed (its replica is removed then)."""
        entry = left.entry
        try:
            task = read_task(entry.moment.task)
            episode = self._creator.draft(entry.moment, task, episode_id=entry.episode_id, lease=entry.lease)
        except (EpisodeError, OSError) as error:
            log.warning("episode %s cannot go on: %s", entry.episode_id, error)
            await self._runtime.reap(record)
            return None
        episode.parent, episode.began_at = entry.parent, entry.began_at
        episode.evaluation = left.evaluation
        episode.resume(left.progress, certain=False)
        try:
            async with asyncio.timeout(ADOPT_S):
                heir = Heir(entry.episode_id, episode.hold.revoked)
                episode.take(await self._branches.adopt(record, heir))
                await episode.confirm()
        except (NotMade, PoolStopping, EpisodeError, TimeoutError) as error:
            log.warning("episode %s cannot go on: %s", entry.episode_id, error)
            episode.hold.let_go(Reason.HOST_RESTARTED)
            return None
        recorded = await asyncio.to_thread(self._recorder.last_seq, entry.episode_id)
        episode.unrecorded = left.progress.seq if left.progress.seq > recorded else None
        self._service.resume(episode)
        return episode
