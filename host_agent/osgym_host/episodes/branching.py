"""Forks: children that go on where their parent is, all of them or none.

A child shares the parent's disk and RAM of that moment; it counts steps and sequence numbers on, and is
an episode of its own in all else: lease, manager, generation, trajectory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from osgym_host.core.reasons import Reason
from osgym_host.episodes.creating import Creator
from osgym_host.episodes.episode import Episode
from osgym_host.episodes.errors import EpisodeError, already_done, no_capacity, shutting_down
from osgym_host.episodes.journal import RequestMark
from osgym_host.episodes.metrics import EpisodeMetrics
from osgym_host.episodes.moment import Moment
from osgym_host.episodes.service import EpisodeService
from osgym_host.replicas.asking import NoCapacity, NotMade, PoolStopping
from osgym_host.replicas.branches import Branches, Heir
from osgym_host.replicas.events import EventLog
from osgym_host.replicas.manager import DEATH_NOTICE_S
from osgym_host.runtimes import base
from osgym_sdk.wire import ForkAnswer, ForkChild, ParentInfo

MAX_CHILDREN = 64


@dataclass(frozen=True, slots=True)
class ForkWish:
    """What a client asks for in a fork. Without `lease_ttl_s` and `max_steps` the parent's hold."""

    count: int
    lease_ttl_s: float | None = None
    max_steps: int | None = None
    wait_s: float = 10.0
    mark: RequestMark | None = None


class Branching:
    """Forks the episodes of this host."""

    def __init__(
        self,
        *,
        service: EpisodeService,
        creator: Creator,
        branches: Branches,
        metrics: EpisodeMetrics,
        events: EventLog,
    ) -> None:
        """Keeps the parts."""
        self._service = service
        self._creator = creator
        self._branches = branches
        self._metrics = metrics
        self._events = events

    async def fork(self, episode_id: str, lease: str, wish: ForkWish) -> ForkAnswer:
        """Makes children of an episode; waits for a running step, and for room for all of them.

        When not all can be made, or this is cancelled, those made are ended, and the parent goes on.

        Raises:
            EpisodeError: `unsupported`, `no_capacity`, `branch_failed`; `episode_ended` when the parent
                is done or scored; `bad_request` when `max_steps` is not beyond the parent's step;
                as any call on the parent.
        """
        with self._service.using(episode_id, lease) as parent:
            with told_plainly():
                self._branches.check()
            refuse_ended(parent)
            try:
                answer = await self._fork(parent, wish)
            except EpisodeError as error:
                self._metrics.forks.labels(error.code).inc()
                raise
            self._metrics.forks.labels("ok").inc()
            return answer

    async def _fork(self, parent: Episode, wish: ForkWish) -> ForkAnswer:
        with told_plainly():
            wait_s = min(wish.wait_s, self._creator.limits.max_wait_s)
            async with self._branches.room(wish.count, wait_s) as room:
                moment, point = await take_point(parent, self._branches, keep=False)
                began = time.perf_counter()
                children: list[Episode] = []
                try:
                    children = self._drafts(parent, moment, wish)
                    heirs = [Heir(child.episode_id, child.hold.revoked) for child in children]
                    managers = await self._branches.make(room, point, heirs)
                except BaseException:
                    for child in children:
                        self._creator.discard(child, Reason.CLIENT_GONE)
                    raise
                finally:
                    self._branches.let_go(point)
        for child, manager in zip(children, managers, strict=True):
            child.take(manager)
        self._metrics.branched(point.pause_ms, time.perf_counter() - began, len(children))
        return self._hand_over(parent, children, point, wish)

    def _drafts(self, parent: Episode, moment: Moment, wish: ForkWish) -> list[Episode]:
        progress = moment.progress
        if wish.max_steps is not None and wish.max_steps <= progress.step:
            text = f"max_steps is {wish.max_steps}; the parent has done {progress.step} already."
            raise EpisodeError("bad_request", 409, text, {"step": progress.step})
        ttl_s = moment.lease_ttl_s if wish.lease_ttl_s is None else self._creator.ttl_s(wish.lease_ttl_s)
        moment = replace(
            moment,
            lease_ttl_s=ttl_s,
            max_steps=moment.max_steps if wish.max_steps is None else wish.max_steps,
        )
        children = []
        for _ in range(wish.count):
            child = self._creator.draft(moment, parent.task)
            child.parent = ParentInfo(parent.episode_id, progress.step)
            child.resume(progress, certain=True)
            children.append(child)
        return children

    def _hand_over(
        self, parent: Episode, children: Sequence[Episode], point: base.BranchPoint, wish: ForkWish
    ) -> ForkAnswer:
        step = children[0].step_no
        for index, child in enumerate(children):
            mark = None
            if wish.mark is not None:
                mark = replace(wish.mark, index=index, count=len(children), pause_ms=point.pause_ms)
            self._service.register(child, mark, pause_ms=point.pause_ms)
        self._events.add(
            "fork",
            episode_id=parent.episode_id,
            step=step,
            pause_ms=round(point.pause_ms, 3),
            children=[child.episode_id for child in children],
        )
        return fork_answer(children, point.pause_ms)


def fork_answer(children: Sequence[Episode], pause_ms: float) -> ForkAnswer:
    """Returns what a client is told of children, at least one."""
    parent = children[0].parent
    assert parent is not None
    told = []
    for child in children:
        assert child.parent is not None
        told.append(
            ForkChild(
                episode_id=child.episode_id,
                lease=child.lease,
                replica_id=child.replica_id,
                generation=child.generation,
                screen=child.screen,
                step=child.step_no,
                last_seq=child.last_seq,
                parent=child.parent,
            )
        )
    return ForkAnswer(parent, round(pause_ms, 3), tuple(told))


def refuse_ended(episode: Episode) -> None:
    """Refuses what nothing can go on from.

    Raises:
        EpisodeError: `episode_ended`: it is done or was scored.
    """
    if episode.done is not None:
        raise already_done(episode.done)
    if episode.evaluation is not None:
        text = "The episode was scored; it can only be closed."
        raise EpisodeError("episode_ended", 409, text, {"evaluated": True})


async def take_point(episode: Episode, branches: Branches, *, keep: bool) -> tuple[Moment, base.BranchPoint]:
    """Takes the state of an episode between two steps: its own, and its desktop's.

    Raises:
        EpisodeError: `episode_ended` when it is done or was scored; the replica is lost.
        RuntimeFault: The point could not be taken; the episode goes on.
    """
    async with episode.lock:
        if episode.over is not None:
            raise episode.over.again()
        await episode.complete()
        refuse_ended(episode)
        manager = episode.hold.manager
        if manager is None:
            raise episode.hold.lost.result().again()
        try:
            return episode.moment(), await branches.take(manager, keep=keep)
        except base.ReplicaNotFound:
            await asyncio.wait((episode.hold.lost,), timeout=DEATH_NOTICE_S)
            if episode.hold.lost.done():
                raise episode.hold.lost.result().again() from None
            raise


@contextmanager
def told_plainly() -> Iterator[None]:
    """Turns what pool and runtime raise about branches into what a client is told."""
    try:
        yield
    except NoCapacity as error:
        raise no_capacity(error) from error
    except PoolStopping as error:
        raise shutting_down(error) from error
    except base.RuntimeUnsupported as error:
        raise EpisodeError("unsupported", 501, str(error), {"remedy": error.remedy}) from error
    except NotMade as error:
        details = {"cause": error.reason.value, "detail": error.detail[:2000]}
        raise EpisodeError("branch_failed", 503, str(error)[:2000], details) from error
    except base.PointNotFound as error:
        text = f"There is no such checkpoint any more: {error}"
        raise EpisodeError("unknown_checkpoint", 404, text) from error
    except (base.RuntimeFault, OSError) as error:
        raise EpisodeError("branch_failed", 503, f"The branch point failed: {error}"[:2000]) from error
