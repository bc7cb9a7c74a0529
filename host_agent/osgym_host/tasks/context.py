"""Context of setup steps and getters: an episode's folder, the host's parts, one replica."""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from osgym_host.core.fair_queue import UNNAMED, ClientKey
from osgym_host.guest_client import GuestClient
from osgym_host.tasks.downloads import DownloadCache, safe_name
from osgym_host.tasks.guest_disk import GuestDisk
from osgym_host.tasks.policy import CheckDeadline, TaskPolicy, remaining_s
from osgym_host.tasks.sandbox import MetricJob, MetricVerdict, Sandbox
from osgym_host.tasks.values import NamedFile

COMMAND_TIMEOUT_S = 130.0
"""The guest ends a command after 120 s."""


@dataclass(frozen=True, slots=True)
class TaskContext:
    """Context of one episode for `run_setup` and `evaluate`.

    Attributes:
        episode_dir: Private, empty at the start, removed by the episode's owner.
        screen: Width and height of the replica's screen in pixels.
        downloads: Shared by all episodes of the host.
        sandbox: Runs metrics in confined processes; shared by all episodes of the host.
        client: Key for fair turns of metrics: first among runs, then among the episodes of a run.
    """

    episode_dir: Path
    policy: TaskPolicy
    downloads: DownloadCache
    sandbox: Sandbox
    screen: tuple[int, int] = (1920, 1080)
    client: ClientKey = UNNAMED
    outputs: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One run of a task's setup or evaluation on one replica, given to each step and getter.

    Attributes:
        task_id: Safe id of the task.
        until: Time by which it has to end, in ``loop.time()``.
        disk: Where files are read that lie on the replica's disk, if that is possible.
        of_check: True for a check: since the policy has acted, commands run isolated from files and settings
            that the policy may have left for them.
    """

    guest: GuestClient
    ctx: TaskContext
    task_id: str
    until: float | CheckDeadline
    disk: GuestDisk | None = None
    of_check: bool = False

    @property
    def deadline(self) -> float:
        """Current deadline, in ``loop.time()``; a `CheckDeadline` may extend it later."""
        return self.until.at if isinstance(self.until, CheckDeadline) else self.until

    async def verdict(self, job: MetricJob) -> MetricVerdict:
        """Run a metric when it is this episode's turn; the wait does not count towards the check's deadline.

        Raises:
            MetricFailed, EvaluatorError: See `Sandbox.run`.
        """
        waiting = self.until.standing_still() if isinstance(self.until, CheckDeadline) else None
        return await self.ctx.sandbox.run(job, self.ctx.client, waiting)

    def left(self, what: str, most_s: float) -> float:
        """Return the seconds that ``what`` may take.

        Raises:
            DeadlineExceeded: None are left.
        """
        return min(most_s, remaining_s(self.deadline, what))

    async def keep(self, data: bytes | bytearray | memoryview, name: str) -> NamedFile:
        """Put bytes into the episode's folder, in a file that metrics know by ``name``."""
        return NamedFile(await asyncio.to_thread(_write, self.ctx.episode_dir, data), safe_name(name))

    def substitute(self, command: str | list[str]) -> str | list[str]:
        """Fill in OSWorld's placeholders; every other brace stays as it is."""
        width, height = self.ctx.screen
        values = {
            "{CLIENT_PASSWORD}": self.ctx.policy.client_password,
            "{SCREEN_WIDTH}": str(width),
            "{SCREEN_HEIGHT}": str(height),
            "{SCREEN_WIDTH_HALF}": str(width // 2),
            "{SCREEN_HEIGHT_HALF}": str(height // 2),
        }

        def fill(text: str) -> str:
            for name, value in values.items():
                text = text.replace(name, value)
            return text

        return fill(command) if isinstance(command, str) else [fill(part) for part in command]


def _write(folder: Path, data: bytes | bytearray | memoryview) -> Path:
    fd, name = tempfile.mkstemp(prefix="value-", dir=folder)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    return Path(name)
