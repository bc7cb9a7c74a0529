"""Task templates: desktops right after a task's setup, cloned for later episodes of the same setup.

A template is a saved desktop in the host's memory that is never kept: it goes with the host agent, and after
a killed one with its other leftovers. What can be a template is decided in `tasks.templating`; those used
longest ago go first. That one cannot be made or cloned costs no episode: its task is set up instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osgym_host.core.desktop_budget import OverBudget
from osgym_host.core.fair_queue import ClientKey
from osgym_host.episodes.episode import HostEpisode
from osgym_host.episodes.episode_state import EpisodeProgress
from osgym_host.guest_client import GuestRefused
from osgym_host.logs import escape_controls
from osgym_host.replicas.brancher import LeaseHolder, ReplicaBrancher
from osgym_host.replicas.events import EventLog
from osgym_host.replicas.manager import ReplicaManager
from osgym_host.replicas.pool_errors import ReplicaNotMade
from osgym_host.replicas.saved_desktops import SavedDesktop
from osgym_host.runtimes import base
from osgym_host.tasks.downloads import DownloadCache
from osgym_host.tasks.errors import TaskError
from osgym_host.tasks.schema import Task
from osgym_host.tasks.templating import host_files, template_key, why_no_template
from osgym_protocol.codes import SettlePolicy
from osgym_protocol.options import SettleOptions

log = logging.getLogger(__name__)

MAX_FAILURES = 2
"""Number of failures after which no template of a key is made."""
MAX_REMEMBERED = 4096
"""Number of keys whose failures are kept; those that failed longest ago are forgotten first."""
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
class TaskTemplate(SavedDesktop):
    """Desktop after its setup, with the state that its episodes begin with.

    Attributes:
        outputs: Outputs that setup steps kept of their commands.
        guest_seq: Number of the last step that its guest has done.
    """

    key: str
    outputs: Mapping[str, bytes]
    guest_seq: int

    @property
    def name(self) -> str:
        return self.key


class FailureCounts:
    """Numbers of failures to make or clone a template, by key. Pure."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, int] = OrderedDict()

    def add(self, key: str) -> None:
        """Count a failure."""
        self._failures[key] = self._failures.pop(key, 0) + 1
        while len(self._failures) > MAX_REMEMBERED:
            self._failures.popitem(last=False)

    def is_hopeless(self, key: str) -> bool:
        """Return whether templates of this key failed too often."""
        return self._failures.get(key, 0) >= MAX_FAILURES


class TaskTemplates:
    """Templates of one host. For one event loop."""

    def __init__(
        self,
        brancher: ReplicaBrancher,
        *,
        enabled: bool,
        connects: bool,
        downloads: DownloadCache,
        events: EventLog,
    ) -> None:
        """Start without templates.

        Args:
            connects: Replicas of this host may connect out.
        """
        self._brancher = brancher
        self._enabled = enabled
        self._held = brancher.saved.of(TaskTemplate)
        self._failures = FailureCounts()
        self._connects = connects
        self._downloads = downloads
        self._events = events
        self._making: set[str] = set()
        brancher.saved.on_release[TaskTemplate] = self._released

    async def choose(
        self,
        given: Mapping[str, Any] | None,
        task: Task | None,
        image_digest: str,
        screen: tuple[int, int],
        *,
        has_clock: bool,
    ) -> TemplateChoice:
        """Decide whether an episode of this task may have a template.

        Args:
            given: The task as its client sent it.
            image_digest: Image of the episode's replica.
            screen: Width and height in pixels.
            has_clock: Its client asks for a desktop with a clock of its own.
        """
        if not self._enabled:
            return TemplateChoice()
        if (lacking := self._brancher.saved.runtime.why_no_templates()) is not None:
            return TemplateChoice(reason=lacking)
        reason = why_no_template(task, has_clock=has_clock, connects=self._connects)
        if reason is not None or task is None or given is None:
            return TemplateChoice(reason=reason)
        try:
            files = await asyncio.to_thread(self._marks, host_files(task))
        except (TaskError, OSError):
            return TemplateChoice(reason="a file of the host that the set-up uploads cannot be read")
        return TemplateChoice(template_key(given, image_digest=image_digest, screen=screen, files=files))

    def _marks(self, names: list[str]) -> list[tuple[int, int, int]]:
        """Return the identity of host files at this time; blocks for a short time."""
        stats = [self._downloads.local_file(name).stat() for name in names]
        return [(stat.st_size, stat.st_mtime_ns, stat.st_ino) for stat in stats]

    # Cloning -----------------------------------------------------------------------------------

    def find(self, choice: TemplateChoice) -> TaskTemplate | None:
        """Return the template for a choice, or None."""
        return None if choice.key is None else self._held.use(choice.key)

    async def clone(
        self, template: TaskTemplate, holder: LeaseHolder, wait_s: float, client: ClientKey
    ) -> ReplicaManager | None:
        """Make a clone for a lease; return None if that failed, with the template removed.

        Raises:
            PoolExhausted: There was no room within `wait_s`.
            PoolStopping: The service is stopping.
        """
        try:
            return await self._brancher.clone(template.point, holder, wait_s, client)
        except (ReplicaNotMade, base.RuntimeFault, OSError) as error:
            log.warning("task template %s could not be cloned: %s", template.key[:12], error)
            self.failed(template)
            return None

    @staticmethod
    def begin(template: TaskTemplate, episode: HostEpisode) -> None:
        """Give an episode on a clone the state after its setup."""
        episode.steps.progress = EpisodeProgress(guest_base=-template.guest_seq)
        if episode.context is not None:
            episode.context.outputs.update(template.outputs)
        episode.template = "hit"

    def failed(self, template: TaskTemplate) -> None:
        """Remove a template of which a clone failed. Idempotent."""
        if self._brancher.saved.release(template, "failed"):
            self._failures.add(template.key)

    # Making ------------------------------------------------------------------------------------

    async def make(self, choice: TemplateChoice, episode: HostEpisode, *, disk_is_full: bool) -> None:
        """Make a template of an episode that was just set up, if it qualifies; the episode continues.

        What came of it is in `episode.template`.

        Raises:
            EpisodeOver: The replica is lost.
        """
        key, reason = choice.key, choice.reason
        if key is not None and (reason := self._refusal(key, episode, disk_is_full=disk_is_full)) is None:
            self._making.add(key)
            try:
                reason = await self._take(key, episode)
            finally:
                self._making.discard(key)
        if key is not None or reason is not None:
            episode.template = "made" if reason is None else f"no ({reason})"

    def _refusal(self, key: str, episode: HostEpisode, *, disk_is_full: bool) -> str | None:
        if key in self._making or key in self._held:
            return "another episode is making the template"
        if self._failures.is_hopeless(key):
            return "an earlier attempt to make the template failed"
        if episode.setup_warnings:
            return "a command of the set-up failed"
        if disk_is_full:
            return "the host's disk is full"
        return None

    async def _take(self, key: str, episode: HostEpisode) -> str | None:
        """Take the template; return the reason if there is none."""
        guest_seq, rests = await _come_to_rest(episode)
        episode.steps.progress = EpisodeProgress(guest_base=-guest_seq)
        manager = episode.replica.manager
        if manager is None:
            raise episode.replica.loss()
        if not rests:
            self._failures.add(key)
            return f"the desktop did not come to rest within {REST_MAX_MS / 1000:g} s"
        outputs = {} if episode.context is None else dict(episode.context.outputs)
        try:
            point = await self._brancher.take(manager)
            template = self._brancher.saved.add(TaskTemplate(point, key, outputs, guest_seq))
        except OverBudget as error:
            self._failures.add(key)
            return f"the template's {error.mib:.0f} MiB are more than task_templates_max_mib"
        except (base.RuntimeFault, OSError) as error:
            log.warning("task template %s was not made: %s", key[:12], error)
            self._failures.add(key)
            return f"the branch point of the template failed: {escape_controls(str(error))[:_REASON_CHARS]}"
        self._events.add("task_template", state="made", key=key[:12], mib=round(template.mib, 3))
        return None

    def _released(self, template: TaskTemplate, cause: str) -> None:
        self._events.add("task_template", state=cause, key=template.key[:12])


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
