"""Making episodes: on a clean replica with the task set up, or as one that goes on from a moment."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time

from osgym_host.core.reasons import Reason, consequence
from osgym_host.episodes.episode import Episode
from osgym_host.episodes.errors import EpisodeError, EpisodeOver, no_capacity, shutting_down
from osgym_host.episodes.hold import Hold
from osgym_host.episodes.journal import EpisodeJournal
from osgym_host.episodes.metrics import EpisodeMetrics
from osgym_host.episodes.moment import Moment
from osgym_host.episodes.opening import Limits, Opened, TaskParts, Wish, read_task, task_error
from osgym_host.episodes.service import EpisodeService
from osgym_host.guest import GuestRefused
from osgym_host.replicas.asking import NoCapacity, PoolStopping
from osgym_host.replicas.pool import Pool
from osgym_host.tasks.interface import Task, TaskContext, TaskError, run_setup

log = logging.getLogger(__name__)

SETUP_TRIES = 3
"""Replicas that a create may use up when they die under its setup."""


class Creator:
    """Makes episodes and gives them to the service."""

    def __init__(
        self,
        *,
        service: EpisodeService,
        pool: Pool,
        journal: EpisodeJournal,
        tasks: TaskParts,
        metrics: EpisodeMetrics,
        screen: tuple[int, int],
        limits: Limits,
    ) -> None:
        """Keeps the parts."""
        self._service = service
        self._pool = pool
        self._journal = journal
        self._tasks = tasks
        self._metrics = metrics
        self._screen = screen
        self.limits = limits

    async def create(self, wish: Wish) -> Opened:
        """Leases a replica, sets the task up on it and takes the first frame.

        Cancelling it frees whatever it got. A replica that dies under the setup is replaced by
        another one a few times.

        Raises:
            EpisodeError: `task_invalid`, `task_unsupported`, `setup_failed`, `no_capacity`,
                `draining`, `shutting_down`, or `episode_lost` when replicas kept dying.
        """
        began = time.perf_counter()
        task = read_task(wish.task)
        wait_until = time.monotonic() + min(wish.wait_s, self.limits.max_wait_s)
        moment = Moment(
            wish.task, self._screen, self.ttl_s(wish.lease_ttl_s), wish.max_steps, wish.settle, wish.observe
        )
        for attempt in range(1, SETUP_TRIES + 1):
            episode = self.draft(moment, task)
            got = await self._lease(episode, max(0.0, wait_until - time.monotonic()))
            try:
                opened = await self._set_up(episode, began, got)
            except EpisodeOver as over:
                self.discard(episode, over.reason)
                log.warning("episode on %s lost at its start: %s", episode.replica_id, over.details)
                if attempt == SETUP_TRIES or consequence(over.reason).error_class != "infra":
                    raise
                continue
            except EpisodeError:
                self.discard(episode, Reason.SETUP_FAILED)
                raise
            except BaseException:
                self.discard(episode, Reason.CLIENT_GONE)
                raise
            self._service.register(episode, wish.mark, opened.frame, timing_ms=opened.timing_ms)
            return opened
        raise AssertionError("unreachable")

    def ttl_s(self, asked_s: float) -> float:
        """Returns the time to live of a lease, within the bounds of the settings."""
        return min(max(asked_s, self.limits.min_lease_ttl_s), self.limits.max_lease_ttl_s)

    def draft(
        self, moment: Moment, task: Task | None, *, episode_id: str | None = None, lease: str | None = None
    ) -> Episode:
        """Returns an episode without a replica. What is not given to the service is for `discard`."""
        episode_id = episode_id or "e" + secrets.token_hex(8)
        context = None
        if task is not None:
            parts, folder = self._tasks, self._journal.make_files(episode_id)
            context = TaskContext(folder, parts.policy, parts.downloads, parts.sandbox, moment.screen)
            context.outputs.update(moment.outputs)
        return Episode(
            episode_id=episode_id,
            lease=lease or secrets.token_urlsafe(24),
            hold=Hold(),
            task=task,
            task_id=task.id if task is not None else None,
            task_json=moment.task,
            context=context,
            screen=moment.screen,
            lease_ttl_s=moment.lease_ttl_s,
            max_steps=moment.max_steps,
            settle=moment.settle,
            observe=moment.observe,
        )

    def discard(self, episode: Episode, reason: Reason) -> None:
        """Gives up an episode that no client ever had."""
        episode.hold.let_go(reason)
        self._journal.ended(episode.episode_id)
        self._metrics.failed_to_open.labels(reason.value).inc()

    async def _lease(self, episode: Episode, wait_s: float) -> float:
        try:
            episode.take(await self._pool.acquire(episode.episode_id, episode.hold.revoked, wait_s))
        except BaseException as error:
            self._journal.ended(episode.episode_id)
            if isinstance(error, NoCapacity):
                self._metrics.no_capacity.inc()
                raise no_capacity(error) from error
            if isinstance(error, PoolStopping):
                raise shutting_down(error) from error
            raise
        return time.perf_counter()

    async def _set_up(self, episode: Episode, began: float, got: float) -> Opened:
        if episode.task is not None and episode.context is not None:
            deadline = asyncio.get_running_loop().time() + self.limits.setup_s
            try:
                async with asyncio.timeout(self.limits.setup_s + 5):
                    await episode.hold.call(
                        run_setup(episode.task, episode.hold.guest, episode.context, deadline)
                    )
            except TaskError as error:
                raise task_error(error) from error
            except GuestRefused as error:
                raise EpisodeError("setup_failed", 424, str(error), error.details) from error
            except TimeoutError as error:
                text = f"The setup did not finish within {self.limits.setup_s:g} s."
                raise EpisodeError("setup_failed", 424, text) from error
        return await first_look(episode, began, got)


async def first_look(episode: Episode, began: float, got: float) -> Opened:
    """Takes the first frame. `began` and `got` (its replica) are when, by `time.perf_counter`."""
    set_up = time.perf_counter()
    frame = await episode.look(None)
    seen = time.perf_counter()
    screen = frame.observation.frame.screen
    episode.screen = (screen[0], screen[1])
    timing = {
        "wait": (got - began) * 1000,
        "setup": (set_up - got) * 1000,
        "observe": (seen - set_up) * 1000,
        "total": (seen - began) * 1000,
    }
    return Opened(episode, frame, {name: round(ms, 3) for name, ms in timing.items()})
