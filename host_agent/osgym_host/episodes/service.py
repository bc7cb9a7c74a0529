"""All episodes of this host: create, find by lease, renew, evaluate, end, forget."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from osgym_host.core.reasons import Reason, consequence
from osgym_host.episodes.episode import Episode, Options, StepOutcome
from osgym_host.episodes.errors import EpisodeError, EpisodeOver, unknown_episode
from osgym_host.episodes.evaluation import evaluate_episode
from osgym_host.episodes.hold import Hold
from osgym_host.episodes.metrics import EpisodeMetrics
from osgym_host.episodes.opening import (
    Limits,
    Opened,
    TaskParts,
    Wish,
    read_task,
    remove_files,
    task_error,
)
from osgym_host.episodes.recorder import Recorder
from osgym_host.guest import GuestFrame, GuestRefused
from osgym_host.replicas.asking import NoCapacity, PoolStopping
from osgym_host.replicas.events import EventLog
from osgym_host.replicas.pool import Pool
from osgym_host.tasks.interface import (
    Task,
    TaskContext,
    TaskError,
    run_setup,
)
from osgym_sdk.wire import EvaluationAnswer

log = logging.getLogger(__name__)

KEEP_ENDED = 1000
"""Ended episodes that can still be asked about; the oldest are forgotten first."""
SETUP_TRIES = 3
"""Replicas that a create may use up when they die under its setup."""


class EpisodeService:
    """The episodes of this host. For one event loop."""

    def __init__(
        self,
        *,
        pool: Pool,
        events: EventLog,
        recorder: Recorder,
        tasks: TaskParts,
        metrics: EpisodeMetrics,
        screen: tuple[int, int],
        limits: Limits,
    ) -> None:
        """Nothing happens before `start`."""
        self._pool = pool
        self._events = events
        self._recorder = recorder
        self._tasks = tasks
        self._metrics = metrics
        self._screen = screen
        self._limits = limits
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
        for episode in list(self._active.values()):
            self.end(episode, Reason.SHUTDOWN)

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

    # Creating ----------------------------------------------------------------------------------

    async def create(self, wish: Wish) -> Opened:
        """Leases a replica, sets the task up on it and takes the first frame.

        Cancelling it frees whatever it got. A replica that dies under the setup is replaced by
        another one a few times.

        Raises:
            EpisodeError: `task_invalid`, `task_unsupported`, `setup_failed`, `no_capacity`,
                `shutting_down`, or `episode_lost` when replicas kept dying.
        """
        began = time.perf_counter()
        task = read_task(wish.task)
        wait_until = time.monotonic() + min(wish.wait_s, self._limits.max_wait_s)
        for attempt in range(1, SETUP_TRIES + 1):
            episode = self._draft(wish, task)
            got = await self._lease(episode, max(0.0, wait_until - time.monotonic()))
            try:
                opened = await self._open(episode, began, got)
            except EpisodeOver as over:
                self._discard(episode, over.reason)
                log.warning("episode on %s lost at its start: %s", episode.replica_id, over.details)
                if attempt == SETUP_TRIES or consequence(over.reason).error_class != "infra":
                    raise
                continue
            except EpisodeError:
                self._discard(episode, Reason.SETUP_FAILED)
                raise
            except BaseException:
                self._discard(episode, Reason.CLIENT_GONE)
                raise
            return opened
        raise AssertionError("unreachable")

    def _draft(self, wish: Wish, task: Task | None) -> Episode:
        episode_id = "e" + secrets.token_hex(8)
        context = None
        if task is not None:
            folder = self._tasks.work_dir / episode_id
            folder.mkdir(parents=True, mode=0o700)
            parts = self._tasks
            context = TaskContext(folder, parts.policy, parts.downloads, parts.sandbox, self._screen)
        ttl_s = min(max(wish.lease_ttl_s, self._limits.min_lease_ttl_s), self._limits.max_lease_ttl_s)
        return Episode(
            episode_id=episode_id,
            lease=secrets.token_urlsafe(24),
            hold=Hold(),
            task=task,
            task_id=task.id if task is not None else None,
            context=context,
            screen=self._screen,
            lease_ttl_s=ttl_s,
            max_steps=wish.max_steps,
            settle=wish.settle,
            observe=wish.observe,
        )

    async def _lease(self, episode: Episode, wait_s: float) -> float:
        try:
            episode.take(await self._pool.acquire(episode.episode_id, episode.hold.revoked, wait_s))
        except NoCapacity as error:
            self._metrics.no_capacity.inc()
            remove_files(episode.context)
            details = {"waited_s": round(error.waited_s, 3), "blocked": error.blocked.value}
            raise EpisodeError("no_capacity", 503, str(error), details) from error
        except PoolStopping as error:
            remove_files(episode.context)
            raise EpisodeError("shutting_down", 503, str(error)) from error
        except BaseException:
            remove_files(episode.context)
            raise
        return time.perf_counter()

    async def _open(self, episode: Episode, began: float, got: float) -> Opened:
        if episode.task is not None and episode.context is not None:
            deadline = asyncio.get_running_loop().time() + self._limits.setup_s
            try:
                async with asyncio.timeout(self._limits.setup_s + 5):
                    await episode.hold.call(
                        run_setup(episode.task, episode.hold.guest, episode.context, deadline)
                    )
            except TaskError as error:
                raise task_error(error) from error
            except GuestRefused as error:
                raise EpisodeError("setup_failed", 424, str(error), error.details) from error
            except TimeoutError as error:
                text = f"The setup did not finish within {self._limits.setup_s:g} s."
                raise EpisodeError("setup_failed", 424, text) from error
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
        timing = {name: round(ms, 3) for name, ms in timing.items()}
        self._register(episode, frame, timing)
        return Opened(episode, frame, timing)

    def _register(self, episode: Episode, frame: GuestFrame, timing: Mapping[str, float]) -> None:
        episode.renew()
        self._active[episode.episode_id] = episode
        self._by_lease[episode.lease] = episode
        episode.hold.lost.add_done_callback(lambda lost: self.end(episode, lost.result().reason))
        self._metrics.opened(timing)
        self._events.add(
            "episode", episode_id=episode.episode_id, replica_id=episode.replica_id, state="active"
        )
        line = {
            "kind": "start",
            "episode_id": episode.episode_id,
            "task_id": episode.task_id,
            "instruction": episode.task.instruction if episode.task is not None else None,
            "replica_id": episode.replica_id,
            "generation": episode.generation,
            "time": episode.began_at,
            "step": 0,
            "observation": frame.observation.to_dict(),
            "timing_ms": timing,
        }
        image_format = frame.observation.frame.format.value
        self._recorder.add(episode.episode_id, line, frame.image, image_format)

    def _discard(self, episode: Episode, reason: Reason) -> None:
        """Gives up an episode that no client ever had."""
        episode.hold.let_go(reason)
        remove_files(episode.context)
        self._metrics.failed_to_open.labels(reason.value).inc()

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
        episode = self.claim(episode_id, lease)
        episode.busy += 1
        try:
            outcome = await episode.step(seq, actions, settle, observe)
        finally:
            episode.busy -= 1
            episode.renew()
        observation = outcome.meta["observation"]
        if not observation["replayed"]:
            self._metrics.stepped(outcome.guest_ms)
            line = {"kind": "step", "seq": seq, "time": round(time.time(), 3), **outcome.meta}
            self._recorder.add(episode_id, line, outcome.image, observation["frame"]["format"])
        return outcome

    async def observe(self, episode_id: str, lease: str, observe: Options | None) -> GuestFrame:
        """Takes a frame without acting."""
        episode = self.claim(episode_id, lease)
        episode.busy += 1
        try:
            return await episode.look(observe)
        finally:
            episode.busy -= 1
            episode.renew()

    async def final(
        self, episode_id: str, lease: str, seq: int, timeout_ms: float, observe: Options | None
    ) -> GuestFrame:
        """Returns the frame after step `seq` once it is final, or the time is up."""
        episode = self.claim(episode_id, lease)
        episode.busy += 1
        try:
            return await episode.final(seq, timeout_ms, observe)
        finally:
            episode.busy -= 1
            episode.renew()

    async def evaluate(self, episode_id: str, lease: str) -> EvaluationAnswer:
        """Scores the episode; a repetition gives the stored answer.

        Raises:
            EpisodeError: It has no task, or its replica is lost.
        """
        episode = self.claim(episode_id, lease)
        episode.busy += 1
        try:
            async with episode.lock:
                if episode.evaluation is None:
                    episode.evaluation = await evaluate_episode(episode, self._limits.evaluate_s)
                    self._metrics.evaluated(episode.evaluation)
                    line = {"kind": "evaluation", **episode.evaluation.to_dict()}
                    self._recorder.add(episode_id, line)
                return episode.evaluation
        finally:
            episode.busy -= 1
            episode.renew()

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
        self._ended[episode.episode_id] = episode
        while len(self._ended) > KEEP_ENDED:
            _, forgotten = self._ended.popitem(last=False)
            self._by_lease.pop(forgotten.lease, None)
        remove_files(episode.context)
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

    async def _reap(self) -> None:
        """Ends the episodes whose lease ran out."""
        while True:
            now = time.monotonic()
            for episode in list(self._active.values()):
                if episode.busy == 0 and episode.expires_at <= now:
                    self.end(episode, Reason.LEASE_EXPIRED)
            due = [e.expires_at for e in self._active.values() if e.busy == 0]
            pause_s = min([0.5, *(max(0.01, at - time.monotonic()) for at in due)])
            await asyncio.sleep(pause_s)
