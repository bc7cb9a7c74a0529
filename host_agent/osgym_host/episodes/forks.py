"""Forks: children that continue from their parent's state, all of them or none.

A child shares the disk and RAM that the parent had at the branch point; it counts steps and sequence
numbers on, and is an episode of its own in all else: lease, manager, generation, trajectory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from osgym_host.core.fair_queue import UNNAMED, ClientKey
from osgym_host.core.reasons import Reason
from osgym_host.episodes.creator import EpisodeCreator
from osgym_host.episodes.episode import HostEpisode
from osgym_host.episodes.episode_state import SavedEpisode
from osgym_host.episodes.errors import already_done, already_scored, no_capacity, shutting_down
from osgym_host.episodes.journal import RequestMark
from osgym_host.errors import ServiceError
from osgym_host.guest_client import GuestRefused
from osgym_host.replicas.brancher import LeaseHolder, ReplicaBrancher
from osgym_host.replicas.manager import DEATH_NOTICE_S
from osgym_host.replicas.pool_errors import PoolExhausted, PoolStopping, ReplicaNotMade
from osgym_host.replicas.saved_desktops import SavedDesktop
from osgym_host.runtimes import base
from osgym_protocol.codes import ErrorCode
from osgym_protocol.host_api import ForkAnswer, ForkChild, ForkRequest, ParentInfo

log = logging.getLogger(__name__)

REST_S = 0.5
"""Longest wait for a desktop to come to rest; a desktop with a film never rests and is branched anyway."""


class EpisodeForks:
    """Forks the episodes of this host."""

    def __init__(self, creator: EpisodeCreator, brancher: ReplicaBrancher) -> None:
        self._creator = creator
        self._service = creator.service
        self._brancher = brancher

    async def fork(
        self,
        episode_id: str,
        asked: ForkRequest,
        client: ClientKey = UNNAMED,
        mark: RequestMark | None = None,
        *,
        for_person: bool = False,
    ) -> ForkAnswer:
        """Make children of an episode; wait for a running step, and for replicas for all of them.

        When not all can be made, or this is cancelled, those made are ended, and the parent goes on.

        Args:
            client: The client, for its turn in the queue for replicas.
            mark: The request that the children answer.
            for_person: Whether the children are no attempts of a policy: of no run, without a bound of steps.

        Raises:
            ServiceError: `unsupported`, `no_capacity`, `branch_failed`; `episode_ended` when the parent
                is done or scored; `bad_request` when `max_steps` is not beyond the parent's step;
                as any call on the parent.
        """
        parent = self._service.claim(episode_id, asked.lease)
        with parent.in_use():
            with as_service_errors():
                self._brancher.check()
            refuse_ended(parent)
            try:
                point, children = await self._branch(parent, asked, client, for_person=for_person)
            except ServiceError as error:
                self._service.metrics.forks.labels(error.code).inc()
                raise
            self._service.metrics.forks.labels("ok").inc()
            return self._hand_over(parent, children, point, mark)

    async def _branch(
        self, parent: HostEpisode, asked: ForkRequest, client: ClientKey, *, for_person: bool
    ) -> tuple[base.BranchPoint, list[HostEpisode]]:
        """Return the branch point, released, and the children with their replicas."""
        with as_service_errors():
            wait_s = min(asked.wait_s, self._creator.limits.max_wait_s)
            async with self._brancher.reserve(asked.count, wait_s, client) as reservation:
                saved, point = await take_point(parent, self._brancher, keep=False)
                desktop = self._brancher.saved.add(SavedDesktop(point))
                began = time.perf_counter()
                children: list[HostEpisode] = []
                try:
                    children = self._drafts(parent, saved, asked, for_person=for_person)
                    holders = [LeaseHolder(child.episode_id, child.replica.on_revoked) for child in children]
                    managers = await self._brancher.make(reservation, point, holders)
                except BaseException:
                    for child in children:
                        self._creator.discard(child, Reason.CLIENT_GONE)
                    raise
                finally:
                    self._brancher.saved.release(desktop)
        for child, manager in zip(children, managers, strict=True):
            child.attach(manager)
            await child.begin_thinking()
        self._service.metrics.branched(point.pause_ms, time.perf_counter() - began, len(children))
        return point, children

    def _drafts(
        self, parent: HostEpisode, saved: SavedEpisode, asked: ForkRequest, *, for_person: bool
    ) -> list[HostEpisode]:
        progress = saved.progress
        if asked.max_steps is not None and asked.max_steps <= progress.step:
            text = f"max_steps is {asked.max_steps}, but the parent has already done {progress.step} steps."
            raise ServiceError(ErrorCode.BAD_REQUEST, text, {"step": progress.step}, status=409)
        ttl_s = saved.lease_ttl_s if asked.lease_ttl_s is None else self._creator.ttl_s(asked.lease_ttl_s)
        saved = replace(saved, lease_ttl_s=ttl_s)
        if for_person:
            saved = replace(saved, max_steps=None, run=None)
        elif asked.max_steps is not None:
            saved = replace(saved, max_steps=asked.max_steps)
        children = []
        for _ in range(asked.count):
            child = self._creator.draft(saved, parent.task)
            child.parent = ParentInfo(parent.episode_id, progress.step)
            children.append(child)
        return children

    def _hand_over(
        self,
        parent: HostEpisode,
        children: Sequence[HostEpisode],
        point: base.BranchPoint,
        mark: RequestMark | None,
    ) -> ForkAnswer:
        step = children[0].steps.progress.step
        for index, child in enumerate(children):
            own = None
            if mark is not None:
                own = replace(mark, index=index, count=len(children), pause_ms=point.pause_ms)
            self._service.register(child, own, pause_ms=point.pause_ms)
        self._service.events.add(
            "fork",
            episode_id=parent.episode_id,
            step=step,
            pause_ms=round(point.pause_ms, 3),
            children=[child.episode_id for child in children],
        )
        return fork_answer(children, point.pause_ms)


def fork_answer(children: Sequence[HostEpisode], pause_ms: float) -> ForkAnswer:
    """Return the answer of a fork with at least one child."""
    parent = children[0].parent
    assert parent is not None
    answers = []
    for child in children:
        assert child.parent is not None
        answers.append(
            ForkChild(
                episode_id=child.episode_id,
                lease=child.lease.token,
                replica_id=child.replica.replica_id,
                generation=child.replica.generation,
                screen=child.terms.screen,
                step=child.steps.progress.step,
                last_seq=child.steps.progress.seq,
                parent=child.parent,
            )
        )
    return ForkAnswer(parent, round(pause_ms, 3), tuple(answers))


def refuse_ended(episode: HostEpisode) -> None:
    """Refuse to branch an episode that is done or scored.

    Raises:
        ServiceError: `episode_ended`: it is done or was scored.
    """
    if episode.steps.done is not None:
        raise already_done(episode.steps.done)
    if episode.scored:
        raise already_scored()


async def take_point(
    episode: HostEpisode, brancher: ReplicaBrancher, *, keep: bool
) -> tuple[SavedEpisode, base.BranchPoint]:
    """Take the state of an episode and its desktop between two steps.

    Raises:
        ServiceError: `episode_ended` when it is done or was scored; the replica is lost.
        RuntimeFault: The point could not be taken; the episode goes on.
    """
    async with episode.lock:
        if episode.over is not None:
            raise episode.over.copy()
        await episode.complete()
        refuse_ended(episode)
        manager = episode.replica.manager
        if manager is None:
            raise episode.replica.loss()
        await _wait_for_rest(episode)
        try:
            return episode.saved(), await brancher.take(manager, keep=keep)
        except base.ReplicaNotFound:
            await asyncio.wait((episode.replica.lost,), timeout=DEATH_NOTICE_S)
            if episode.replica.lost.done():
                raise episode.replica.loss() from None
            raise


async def _wait_for_rest(episode: HostEpisode) -> None:
    """Wait until the desktop and its panel are at rest, so that children start alike.

    Raises:
        EpisodeOver: The replica is lost.
    """
    try:
        await episode.replica.call(episode.replica.guest.ready(timeout_s=REST_S))
    except GuestRefused as error:
        log.debug(
            "replica %s is branched although its desktop did not come to rest: %s", episode.episode_id, error
        )


@contextmanager
def as_service_errors() -> Iterator[None]:
    """Turn errors of pool and runtime about branches into errors for clients."""
    try:
        yield
    except PoolExhausted as error:
        raise no_capacity(error) from error
    except PoolStopping as error:
        raise shutting_down(error) from error
    except base.RuntimeUnsupported as error:
        raise ServiceError(ErrorCode.UNSUPPORTED, str(error), {"remedy": error.remedy}) from error
    except ReplicaNotMade as error:
        details = {"cause": error.reason.value, "detail": error.detail[:2000]}
        raise ServiceError(ErrorCode.BRANCH_FAILED, str(error)[:2000], details) from error
    except base.PointNotFound as error:
        text = f"The checkpoint no longer exists: {error}"
        raise ServiceError(ErrorCode.UNKNOWN_CHECKPOINT, text) from error
    except (base.RuntimeFault, OSError) as error:
        raise ServiceError(ErrorCode.BRANCH_FAILED, f"The branch point failed: {error}"[:2000]) from error
