"""Making episodes: on a clean replica with the task set up, or on a clone of a task template."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from osgym_host import log_subject
from osgym_host.core.fair_queue import UNNAMED, ClientKey
from osgym_host.core.reasons import Reason, consequence
from osgym_host.episodes.agent_faults import AgentFaults
from osgym_host.episodes.create_request import CreatedEpisode, TaskResources, read_task, task_error
from osgym_host.episodes.episode import HostEpisode
from osgym_host.episodes.episode_lease import EpisodeLease
from osgym_host.episodes.episode_state import SavedEpisode
from osgym_host.episodes.episode_steps import EpisodeSteps
from osgym_host.episodes.errors import EpisodeOver, disk_refuses, no_capacity, shutting_down
from osgym_host.episodes.journal import RequestMark
from osgym_host.episodes.replica_lease import ReplicaLease
from osgym_host.episodes.served_images import ServedImages
from osgym_host.episodes.service import EpisodeService
from osgym_host.episodes.task_templates import TaskTemplate, TaskTemplates, TemplateChoice
from osgym_host.errors import ServiceError
from osgym_host.guest_client import GuestRefused
from osgym_host.replicas.brancher import LeaseHolder
from osgym_host.replicas.manager import ReplicaManager
from osgym_host.replicas.pool import Pool
from osgym_host.replicas.pool_errors import PoolExhausted, PoolStopping
from osgym_host.replicas.warming import hand_over
from osgym_host.runtimes import base
from osgym_host.tasks.context import TaskContext
from osgym_host.tasks.errors import TaskError
from osgym_host.tasks.schema import Task
from osgym_host.tasks.setup import run_setup
from osgym_host.tasks.warm_use import used_apps
from osgym_protocol.clock import ClockOptions, parse_clock
from osgym_protocol.codes import ErrorClass, ErrorCode
from osgym_protocol.episode_options import EpisodeOptions

log = logging.getLogger(__name__)

M = TypeVar("M", bound=ReplicaManager | None)

SETUP_TRIES = 3
"""Number of replicas that may die under the setup of one create."""
_DISK_LOOK_S = 0.25


class EpisodeCreator:
    def __init__(
        self,
        *,
        images: ServedImages,
        service: EpisodeService,
        pool: Pool,
        tasks: TaskResources,
        templates: TaskTemplates,
        screen: tuple[int, int],
    ) -> None:
        self.images = images
        self.service = service
        self.limits = service.limits
        self._pool = pool
        self._tasks = tasks
        self._templates = templates
        self._screen = screen
        self._agent_faults = AgentFaults()

    async def create(
        self,
        asked: EpisodeOptions,
        client: ClientKey = UNNAMED,
        mark: RequestMark | None = None,
        leased: Callable[[], object] | None = None,
    ) -> CreatedEpisode:
        """Lease a replica, set up the task and take the first frame; or clone the task's template.

        Cancelling it frees whatever it got. A replica that dies under the setup is replaced by
        another one a few times.

        Args:
            client: The client, for its turn in the queue for replicas.
            leased: Called once there is a replica, before the setup.

        Raises:
            ServiceError: `task_invalid`, `task_unsupported`, `unknown_image`, `setup_failed`,
                `no_capacity`, `draining`, `shutting_down`, or `episode_lost` when replicas kept dying.
        """
        with contextlib.ExitStack() as subject:
            return await self._create(asked, client, mark, leased, subject)

    async def _create(
        self,
        asked: EpisodeOptions,
        client: ClientKey,
        mark: RequestMark | None,
        leased: Callable[[], object] | None,
        subject: contextlib.ExitStack,
    ) -> CreatedEpisode:
        began = time.perf_counter()
        task = read_task(asked.task)
        wait_until = time.monotonic() + min(asked.wait_s, self.limits.max_wait_s)
        saved = self._terms(asked)
        has_clock = asked.clock is not None
        image = self.images.of_episode(asked.image, task).digest
        choice = await self._templates.choose(asked.task, task, image, self._screen, has_clock=has_clock)
        left, may_clone = SETUP_TRIES, True
        while True:
            episode = await self._drafted(saved, task, wait_until)
            subject.enter_context(log_subject.about(episode))
            tried_at = time.monotonic()
            template = await self._cloned(episode, choice, wait_until, client) if may_clone else None
            if template is None:
                left -= 1
                wait_until += time.monotonic() - tried_at  # a clone that failed costs no waiting time
                await self._lease(episode, image, wait_until, client)
            if leased is not None:
                leased()
            try:
                opened = await self._open(episode, asked, choice, template, began)
            except EpisodeOver as over:
                if template is not None:
                    self._templates.failed(template)
                    may_clone = False
                self.discard(episode, over.reason)
                log.warning(
                    "an episode on %s was lost while it started: %s", episode.replica.replica_id, over.details
                )
                if left == 0 or consequence(over.reason).error_class is not ErrorClass.INFRA:
                    raise
                continue
            except ServiceError as error:
                if error.code is ErrorCode.SETUP_FAILED and self.service.disk_was_full_since(tried_at):
                    # The task could write nothing: that is ours, and not its fault.
                    self.discard(episode, Reason.DISK_FULL)
                    if left == 0 or time.monotonic() >= wait_until:
                        raise EpisodeOver(Reason.DISK_FULL, str(error), episode.episode_id) from error
                    continue
                self.discard(episode, Reason.SETUP_FAILED)
                raise
            except BaseException:
                self.discard(episode, Reason.CLIENT_GONE)
                raise
            episode.disk_was_full |= self.service.disk_was_full_since(tried_at)
            self.service.register(episode, mark, opened.frame, timing_ms=opened.timing_ms)
            return opened

    async def set_up_untouched(self, task: Mapping[str, Any], image: str, wait_s: float) -> HostEpisode:
        """Set up a task on a clean replica for the host's own use; the caller must `drop` the episode.

        Args:
            image: Digest of the replica's image.

        Raises:
            ServiceError: As `create`; the replica has then been released.
        """
        options = EpisodeOptions(task=task)
        episode = self.draft(self._terms(options), read_task(task))
        try:
            await self._lease(episode, image, time.monotonic() + wait_s, UNNAMED)
            await self._set_up(episode, options)
        except BaseException:
            self.drop(episode, Reason.CLIENT_GONE)
            raise
        return episode

    def _terms(self, asked: EpisodeOptions) -> SavedEpisode:
        return SavedEpisode(
            asked.task,
            self._screen,
            self.ttl_s(asked.lease_ttl_s),
            asked.max_steps,
            asked.settle,
            asked.observe,
            run=asked.run,
            think=asked.think,
            think_charge=asked.think_charge,
        )

    async def _open(
        self,
        episode: HostEpisode,
        asked: EpisodeOptions,
        choice: TemplateChoice,
        template: TaskTemplate | None,
        began: float,
    ) -> CreatedEpisode:
        """Take an episode with its replica to the first frame; with a template the replica is its clone."""
        got = time.perf_counter()
        await episode.check_think()
        if template is not None:
            self._templates.begin(template, episode)
            with contextlib.suppress(base.RuntimeFault):  # it is going, as the first frame will find out
                await episode.replica.witness()
        else:
            began_at = time.monotonic()
            await self._set_up(episode, asked)
            full = self.service.disk_was_full_since(began_at)
            await self._templates.make(choice, episode, disk_is_full=full)
        return await first_observation(episode, began, got)

    async def _drafted(self, saved: SavedEpisode, task: Task | None, until: float) -> HostEpisode:
        """Return a draft once the host's disk has space for its files."""
        while True:
            if task is None or not self.service.journal.disk_is_full() or time.monotonic() >= until:
                try:
                    return self.draft(saved, task)
                except ServiceError:
                    if time.monotonic() >= until:
                        raise
            await asyncio.sleep(_DISK_LOOK_S)

    def ttl_s(self, asked_s: float) -> float:
        """Return the time to live of a lease, within the bounds of the settings."""
        return min(max(asked_s, self.limits.min_lease_ttl_s), self.limits.max_lease_ttl_s)

    def draft(
        self,
        saved: SavedEpisode,
        task: Task | None,
        *,
        episode_id: str | None = None,
        lease: str | None = None,
    ) -> HostEpisode:
        """Return an episode without a replica. If the service does not get it, `discard` it.

        Raises:
            ServiceError: `no_capacity`: the folder for its files cannot be made.
        """
        episode_id = episode_id or "e" + secrets.token_hex(8)
        context = None
        if task is not None:
            parts = self._tasks
            try:
                folder = self.service.journal.make_files(episode_id)
            except OSError as error:
                self.service.journal.ended(episode_id)
                raise disk_refuses(error) from error
            client = ClientKey(peer=saved.run or "", client=episode_id)
            context = TaskContext(folder, parts.policy, parts.downloads, parts.sandbox, saved.screen, client)
            context.outputs.update(saved.outputs)
        return HostEpisode(
            episode_id=episode_id,
            lease=EpisodeLease(lease or secrets.token_urlsafe(24), saved.lease_ttl_s),
            replica=ReplicaLease(),
            terms=saved,
            steps=EpisodeSteps(saved.max_steps, saved.progress),
            task=task,
            context=context,
            task_id=task.id if task is not None else None,
            agent_faults=self._agent_faults,
        )

    def discard(self, episode: HostEpisode, reason: Reason) -> None:
        """Remove an episode that its client did not get, and count the failed create."""
        self.drop(episode, reason)
        self.service.metrics.failed_to_open.labels(reason.value).inc()

    def drop(self, episode: HostEpisode, reason: Reason) -> None:
        """Remove an episode that no client got, and release its replica."""
        episode.replica.release(reason)
        self.service.journal.ended(episode.episode_id)

    async def _cloned(
        self, episode: HostEpisode, choice: TemplateChoice, wait_until: float, client: ClientKey
    ) -> TaskTemplate | None:
        """Attach a clone of the template to the episode; return the template, or None without a clone."""
        template = self._templates.find(choice)
        if template is None:
            return None
        holder = LeaseHolder(episode.episode_id, episode.replica.on_revoked)
        wait_s = max(0.0, wait_until - time.monotonic())
        manager = await self._got(episode, self._templates.clone(template, holder, wait_s, client))
        if manager is None:
            episode.replica = ReplicaLease()  # the one before knows of the clone's end
            return None
        episode.attach(manager)
        return template

    async def _lease(self, episode: HostEpisode, image: str, wait_until: float, client: ClientKey) -> None:
        wait_s, revoked = max(0.0, wait_until - time.monotonic()), episode.replica.on_revoked
        lease = self._pool.acquire(episode.episode_id, revoked, wait_s, client, image)
        episode.attach(await self._got(episode, lease))

    async def _got(self, episode: HostEpisode, replica: Awaitable[M]) -> M:
        """Wait for the episode's replica, and turn errors of the pool into errors for clients."""
        try:
            return await replica
        except BaseException as error:
            self.service.journal.ended(episode.episode_id)
            if isinstance(error, PoolExhausted):
                self.service.metrics.no_capacity.inc()
                raise no_capacity(error) from error
            if isinstance(error, PoolStopping):
                raise shutting_down(error) from error
            raise

    async def _hand_over(self, episode: HostEpisode, asked: EpisodeOptions) -> None:
        """Keep the warm programs that the setup uses, and end the others.

        Raises:
            EpisodeOver: The replica is lost; it is when it could not be made clean.
        """
        apps = () if episode.replica.manager is None else episode.replica.manager.warm_apps
        if not apps:
            return
        used = used_apps(episode.task, apps, has_clock=asked.clock is not None)
        unused = [app for app in apps if app not in used]
        try:
            await episode.replica.call(hand_over(episode.replica.guest, used, unused))
        except GuestRefused as error:
            if self.service.journal.disk_is_full():
                raise EpisodeOver(Reason.DISK_FULL, str(error), episode.episode_id) from error
            raise await episode.replica.give_up(error) from error
        episode.warm_apps = tuple(app.program.name for app in used)

    async def _set_up(self, episode: HostEpisode, asked: EpisodeOptions) -> None:
        await self._hand_over(episode, asked)
        await _set_clock(episode, parse_clock(asked.clock))
        if episode.task is None or episode.context is None:
            return
        with contextlib.suppress(base.RuntimeFault):  # it is going, as the setup will find out
            await episode.replica.witness()
        deadline = asyncio.get_running_loop().time() + self.limits.setup_s
        try:
            async with asyncio.timeout(self.limits.setup_s + 5):
                guest, strict = episode.replica.guest, asked.strict_setup
                episode.setup_warnings = await episode.replica.call(
                    run_setup(episode.task, guest, episode.context, deadline, strict=strict)
                )
        except TaskError as error:
            raise task_error(error) from error
        except GuestRefused as error:
            raise ServiceError(ErrorCode.SETUP_FAILED, str(error), error.details) from error
        except TimeoutError as error:
            text = f"The setup did not finish within {self.limits.setup_s:g} s."
            raise ServiceError(ErrorCode.SETUP_FAILED, text) from error


async def _set_clock(episode: HostEpisode, asked: ClockOptions | None) -> None:
    """Set the desktop's clock as the client asks, or else the task, before the setup.

    Raises:
        ServiceError: `unsupported`: this image or runtime has no such clock.
    """
    clock = asked or (episode.task.osgym.clock if episode.task is not None else None)
    if clock is None:
        return
    guest = episode.replica.guest
    try:
        await episode.replica.call(guest.set_clock(clock.start_ns, frozen=clock.frozen))
        await episode.replica.call(guest.ready())  # the panel is drawn anew
    except GuestRefused as error:
        if error.status not in (404, 501):
            raise ServiceError(ErrorCode.SETUP_FAILED, f"clock: {error}", error.details) from error
        why = "this image has no clock that can be set" if error.status == 404 else str(error)
        raise ServiceError(ErrorCode.UNSUPPORTED, f"The clock cannot be set: {why}") from error


async def first_observation(episode: HostEpisode, began: float, got: float) -> CreatedEpisode:
    """Take the first frame; `began` (the create) and `got` (its replica) are `perf_counter` times."""
    set_up = time.perf_counter()
    await episode.begin_thinking()  # a desktop that stands still does so from its first frame on
    frame = await episode.observe(None)
    seen = time.perf_counter()
    screen = frame.observation.frame.screen
    episode.terms = replace(episode.terms, screen=(screen[0], screen[1]))
    timing = {
        "wait": (got - began) * 1000,
        "setup": (set_up - got) * 1000,
        "observe": (seen - set_up) * 1000,
        "total": (seen - began) * 1000,
    }
    return CreatedEpisode(episode, frame, {name: round(ms, 3) for name, ms in timing.items()})
