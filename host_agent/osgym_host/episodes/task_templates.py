"""Task templates: desktops right after a task's setup, cloned for later episodes of the same setup.

A template is a branch point in the host's memory that is never kept: it goes with the host agent, and after
a killed one with its other leftovers. What can be a template is decided in `tasks.templating`, which are kept
in `core.template_cache`. That one cannot be made or cloned costs no episode: its task is set up instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osgym_host.core.fair_queue import ClientKey
from osgym_host.core.template_cache import TemplateBounds, TemplateCache
from osgym_host.episodes.episode import HostEpisode
from osgym_host.episodes.episode_state import EpisodeProgress
from osgym_host.guest_client import GuestRefused
from osgym_host.logs import escape_controls
from osgym_host.replicas.brancher import LeaseHolder, ReplicaBrancher
from osgym_host.replicas.events import EventLog
from osgym_host.replicas.manager import ReplicaManager
from osgym_host.replicas.pool_errors import ReplicaNotMade
from osgym_host.runtimes import base
from osgym_host.tasks.interface import (
    DownloadCache,
    Task,
    TaskError,
    host_files,
    template_key,
    why_no_template,
)
from osgym_protocol.codes import SettlePolicy
from osgym_protocol.options import SettleOptions

log = logging.getLogger(__name__)

REST_MAX_MS = 5000
"""Longest wait for a desktop to come to rest after its setup."""
_REST_SLACK_S = 15.0
_LOOK = ({"op": "screenshot"},)
_REASON_CHARS = 200


@dataclass(frozen=True, slots=True)
class TemplateChoice:
    """Decision on an episode's template: its key, or the reason without one; neither if templates are off."""

    key: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class TaskTemplate:
    """Desktop after its setup, with the state that its episodes begin with.

    Attributes:
        outputs: Outputs that setup steps kept of their commands.
        guest_seq: Number of the last step that its guest has done.
    """

    key: str
    point: base.BranchPoint
    outputs: Mapping[str, bytes]
    guest_seq: int

    @property
    def mib(self) -> float:
        """RAM and disk space in use."""
        return self.point.ram_mib + self.point.disk_mib


class TaskTemplates:
    """Templates of one host. For one event loop."""

    def __init__(
        self,
        brancher: ReplicaBrancher,
        *,
        bounds: TemplateBounds | None,
        image_digest: str,
        connects: bool,
        downloads: DownloadCache,
        events: EventLog,
    ) -> None:
        """Start without templates; without `bounds` they are off.

        Args:
            connects: Replicas of this host may connect out.
        """
        self._brancher = brancher
        self._cache = None if bounds is None else TemplateCache[TaskTemplate](bounds)
        self._image_digest = image_digest
        self._connects = connects
        self._downloads = downloads
        self._events = events
        self._making: set[str] = set()

    def close(self) -> None:
        """Release all templates and make no more. Idempotent."""
        cache, self._cache = self._cache, None
        for template in [] if cache is None else cache.clear():
            self._brancher.release(template.point)

    async def choose(
        self, given: Mapping[str, Any] | None, task: Task | None, screen: tuple[int, int], *, has_clock: bool
    ) -> TemplateChoice:
        """Decide whether an episode of this task may have a template.

        Args:
            given: The task as its client sent it.
            screen: Width and height in pixels.
            has_clock: Its client asks for a desktop with a clock of its own.
        """
        if self._cache is None:
            return TemplateChoice()
        if (lacking := self._brancher.why_no_templates()) is not None:
            return TemplateChoice(reason=lacking)
        reason = why_no_template(task, has_clock=has_clock, connects=self._connects)
        if reason is not None or task is None or given is None:
            return TemplateChoice(reason=reason)
        try:
            files = await asyncio.to_thread(self._marks, host_files(task))
        except (TaskError, OSError):
            return TemplateChoice(reason="a file of the host that it uploads cannot be read")
        return TemplateChoice(
            template_key(given, image_digest=self._image_digest, screen=screen, files=files)
        )

    def _marks(self, names: list[str]) -> list[tuple[int, int, int]]:
        """Return the identity of host files at this time; blocks for a short time."""
        stats = [self._downloads.local_file(name).stat() for name in names]
        return [(stat.st_size, stat.st_mtime_ns, stat.st_ino) for stat in stats]

    # Cloning -----------------------------------------------------------------------------------

    def find(self, choice: TemplateChoice) -> TaskTemplate | None:
        """Return the template for a choice, or None."""
        return None if self._cache is None or choice.key is None else self._cache.get(choice.key)

    async def clone(
        self, template: TaskTemplate, holder: LeaseHolder, wait_s: float, client: ClientKey
    ) -> ReplicaManager | None:
        """Make a clone for a lease; return None if that failed, with the template removed.

        Raises:
            PoolExhausted: There was no room within `wait_s`.
            PoolStopping: The service is stopping.
        """
        async with self._brancher.reserve(1, wait_s, client) as reservation:
            try:
                (manager,) = await self._brancher.make(reservation, template.point, [holder])
            except (ReplicaNotMade, base.RuntimeFault, OSError) as error:
                log.warning("task template %s: no clone of it: %s", template.key[:12], error)
                self.failed(template)
                return None
        return manager

    @staticmethod
    def begin(template: TaskTemplate, episode: HostEpisode) -> None:
        """Give an episode on a clone the state after its setup."""
        episode.steps.progress = _after(template.guest_seq)
        if episode.context is not None:
            episode.context.outputs.update(template.outputs)
        episode.template = "hit"

    def failed(self, template: TaskTemplate) -> None:
        """Remove a template of which a clone failed. Idempotent."""
        if self._cache is not None and self._cache.drop(template.key, template):
            self._cache.failed(template.key)
            self._release(template, "failed")

    # Making ------------------------------------------------------------------------------------

    async def make(self, choice: TemplateChoice, episode: HostEpisode, *, disk_is_full: bool) -> None:
        """Make a template of an episode that was just set up, if it qualifies; the episode continues.

        What came of it is in `episode.template`.

        Raises:
            EpisodeOver: The replica is lost.
        """
        cache, key = self._cache, choice.key
        if cache is None or (key is None and choice.reason is None):
            return
        reason = choice.reason
        if key is not None:
            reason = self._refusal(cache, key, episode, disk_is_full=disk_is_full)
        if key is not None and reason is None:
            self._making.add(key)
            try:
                reason = await self._take(key, episode)
            finally:
                self._making.discard(key)
        episode.template = "made" if reason is None else f"no ({reason})"

    def _refusal(
        self, cache: TemplateCache[TaskTemplate], key: str, episode: HostEpisode, *, disk_is_full: bool
    ) -> str | None:
        if key in self._making or key in cache:
            return "another episode makes it"
        if cache.is_hopeless(key):
            return "it failed before"
        if episode.setup_warnings:
            return "a command of the set-up failed"
        if disk_is_full:
            return "the host's disk is full"
        return None

    async def _take(self, key: str, episode: HostEpisode) -> str | None:
        """Take the template; return the reason if there is none."""
        guest_seq, rests = await _come_to_rest(episode)
        episode.steps.progress = _after(guest_seq)
        manager = episode.replica.manager
        if manager is None:
            raise episode.replica.loss()
        if not rests:
            self._note_failure(key)
            return f"the desktop did not come to rest within {REST_MAX_MS / 1000:g} s"
        manager.guest.drop_idle()  # a clone has none of this host's connections
        try:
            point = await self._brancher.take(manager)
        except (base.RuntimeFault, OSError) as error:
            log.warning("task template %s: it was not taken: %s", key[:12], error)
            self._note_failure(key)
            return f"its branch point failed: {escape_controls(str(error))[:_REASON_CHARS]}"
        outputs = {} if episode.context is None else dict(episode.context.outputs)
        return self._keep(TaskTemplate(key, point, outputs, guest_seq))

    def _keep(self, template: TaskTemplate) -> str | None:
        cache = self._cache
        if cache is None:  # closed meanwhile
            self._brancher.release(template.point)
            return "the host agent is stopping"
        if not cache.fits(template.mib):
            self._brancher.release(template.point)
            self._note_failure(template.key)
            return f"its {template.mib:.0f} MiB are more than task_templates_max_mib"
        for displaced in cache.put(template.key, template, template.mib):
            self._release(displaced, "displaced")
        self._events.add("task_template", state="made", key=template.key[:12], mib=round(template.mib, 3))
        return None

    def _note_failure(self, key: str) -> None:
        if self._cache is not None:
            self._cache.failed(key)

    def _release(self, template: TaskTemplate, state: str) -> None:
        self._brancher.release(template.point)
        self._events.add("task_template", state=state, key=template.key[:12])


def _after(guest_seq: int) -> EpisodeProgress:
    """Return the progress of an episode without steps whose guest has done some."""
    return EpisodeProgress(guest_base=-guest_seq)


async def _come_to_rest(episode: HostEpisode) -> tuple[int, bool]:
    """Wait, by an empty step, until the screen is final by the guest's strictest rule.

    Returns:
        The number of the guest's last step, and whether the screen came to rest.

    Raises:
        EpisodeOver: The replica is lost.
    """
    guest = episode.replica.guest
    certain = SettleOptions(policy=SettlePolicy.CERTAIN, max_ms=REST_MAX_MS)
    step = guest.step(
        1, _LOOK, settle=certain, observe={"format": "none"}, timeout_s=REST_MAX_MS / 1000 + _REST_SLACK_S
    )
    try:
        return 1, (await episode.replica.call(step)).observation.final is True
    except GuestRefused:  # by a guest agent that knows no such rule
        return (await episode.replica.call(guest.health())).last_seq, False
