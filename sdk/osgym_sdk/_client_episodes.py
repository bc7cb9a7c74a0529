"""The part of the client that opens episodes: new ones, others' and those of checkpoints."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from osgym_protocol.limits import DEFAULT_LEASE_TTL_S, DEFAULT_WAIT_S
from osgym_sdk._config import ClientConfig
from osgym_sdk._episode.checkpoints import (
    AsyncCheckpoint,
    CheckpointHandle,
    list_checkpoints,
    send_checkpoint,
)
from osgym_sdk._episode.episode import AsyncEpisode
from osgym_sdk._episode.types import EpisodeOptions
from osgym_sdk._exceptions import CheckpointNotFound, ConfigError, HostUnreachable, OSGymError, ProtocolError
from osgym_sdk._fleet.fleet import Fleet
from osgym_sdk._fleet.scheduler import Scheduler, Ticket
from osgym_sdk._inputs.options import (
    Clock,
    Observe,
    Settle,
    Task,
    as_clock,
    as_observe,
    as_run,
    as_settle,
    as_task,
)
from osgym_sdk._inputs.reading import as_reading
from osgym_sdk._models.recorder import Recorder
from osgym_sdk.wire import CreateRequest

if TYPE_CHECKING:
    from osgym_protocol.grammars import Coordinates


class EpisodeCalls:
    """Base of :class:`AsyncClient`, which says what the attributes are."""

    _config: ClientConfig
    _fleet: Fleet
    _scheduler: Scheduler

    def episode(
        self,
        task: Task | None = None,
        *,
        wait_s: float = DEFAULT_WAIT_S,
        lease_ttl_s: float = DEFAULT_LEASE_TTL_S,
        max_steps: int | None = None,
        settle: Settle | None = None,
        observe: Observe | None = None,
        keep_frames: bool = False,
        reuse_frames: bool = True,
        strict_setup: bool = False,
        clock: Clock | None = None,
        actions: str | None = None,
        coordinates: Coordinates | None = None,
        record: Recorder | None = None,
        run: str | None = None,
    ) -> AsyncEpisode:
        """Return an episode on the least-loaded host; nothing is leased before ``async with``.

        Args:
            task: a task in OSWorld's format, or the path of its file; None: a clean desktop.
            wait_s: how long to wait for a replica.
            lease_ttl_s: how long the host keeps the replica without hearing from us.
            max_steps: the host ends the episode after so many steps.
            settle: how steps wait for the screen, ``"exact"`` by default.
            observe: which image steps give, full-size PNG by default.
            keep_frames: keep the images in ``trajectory`` too.
            reuse_frames: let the host send no image where nothing changed; ``obs.data`` is the last one.
            strict_setup: a command of the task's setup that fails ends the start with SetupFailed; else it is
                one of ``trajectory.setup_warnings``.
            clock: what the desktop's clock shows at the beginning, in UTC: ``"2026-01-01T09:00"``, or
                ``{"start": …, "frozen": True}`` to keep it there; the task's ``osgym.clock`` by default, else
                the host's time. A host that cannot do that ends the start with Unsupported.
            actions: the grammar of what steps are given: ``"auto"``, ``"openai"``, ``"uitars/1.5"``, …; the
                client's by default, else actions that the host knows.
            coordinates: what its coordinates are: ``"pixel"`` of the screen, ``"norm1000"``, ``"norm1"``, or
                ``(width, height)`` of an image; what the grammar has by default.
            record: where the episode is recorded as it goes, ``osgym_sdk.data.DatasetWriter(folder)``.
            run: what you call what you do, as ``"grpo-7"``: the dashboard shows the episodes of a run
                together. Branches of the episode keep it.

        Raises:
            ConfigError: the task file cannot be read, or an option is wrong.
        """
        if wait_s < 0 or lease_ttl_s <= 0:
            raise ConfigError("wait_s is 0 or more, lease_ttl_s more than 0")
        loaded = as_task(task)
        request = CreateRequest(
            request_id=uuid.uuid4().hex,
            task=loaded,
            wait_s=wait_s,
            lease_ttl_s=lease_ttl_s,
            max_steps=max_steps,
            observe=as_observe(observe),
            settle=as_settle(settle),
            strict_setup=strict_setup,
            clock=as_clock(clock),
            run=as_run(run),
        )
        reading = as_reading(actions, coordinates) or self._config.reading
        options = EpisodeOptions(
            request,
            _task_id(loaded),
            keep_frames,
            reuse_frames,
            reading=reading,
            recorder=record,
            task=loaded,
        )
        return AsyncEpisode(self._scheduler, options)

    def attach(
        self,
        ticket: Ticket,
        *,
        observe: Observe | None = None,
        keep_frames: bool = False,
        reuse_frames: bool = True,
    ) -> AsyncEpisode:
        """Go on with an episode that another client or process began; use it with ``async with``.

        The lease is the affinity, not a connection. ``observe`` is the default of this client's steps.
        """
        request = CreateRequest(
            request_id=ticket.episode_id, lease_ttl_s=ticket.lease_ttl_s, observe=as_observe(observe)
        )
        reading = self._config.reading
        options = EpisodeOptions(request, None, keep_frames, reuse_frames, ticket, reading=reading)
        return AsyncEpisode(self._scheduler, options)

    async def restore(
        self,
        checkpoint: CheckpointHandle | str,
        *,
        wait_s: float = DEFAULT_WAIT_S,
        lease_ttl_s: float = DEFAULT_LEASE_TTL_S,
        max_steps: int | None = None,
        settle: Settle | None = None,
        observe: Observe | None = None,
        keep_frames: bool = False,
        reuse_frames: bool = True,
    ) -> AsyncEpisode:
        """Return an episode that goes on from a checkpoint, on the host that has it; close it as any other.

        Task, steps and screen are those of the checkpoint. It works any number of times.

        Args:
            checkpoint: one of :meth:`AsyncEpisode.checkpoint` or :meth:`checkpoints`, or its id, which
                is then looked for on all hosts.
            wait_s, lease_ttl_s, keep_frames, reuse_frames: as for :meth:`episode`.
            max_steps, settle, observe: the checkpoint's episode's by default.

        Raises:
            CheckpointNotFound: no host has it.
            NoCapacity, BranchFailed, Unsupported: it cannot be restored now, or not there.
        """
        found = await self._find(checkpoint) if isinstance(checkpoint, str) else checkpoint
        request = CreateRequest(
            request_id=uuid.uuid4().hex,
            wait_s=wait_s,
            lease_ttl_s=lease_ttl_s,
            max_steps=max_steps,
            observe=as_observe(observe),
            settle=as_settle(settle),
            checkpoint=found.checkpoint_id,
        )
        options = EpisodeOptions(
            request,
            found.info.task_id,
            keep_frames,
            reuse_frames,
            host=found.host,
            reading=self._config.reading,
        )
        episode = AsyncEpisode(self._scheduler, options)
        await episode.start()
        return episode

    async def checkpoints(self) -> list[AsyncCheckpoint]:
        """Return the checkpoints of all hosts that can be reached.

        Raises:
            HostUnreachable: none can be.
        """
        await self._fleet.begin()
        control_s = self._config.timeouts.control_s
        asked = (list_checkpoints(host.link, control_s) for host in self._fleet.hosts if not host.joining)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found: list[AsyncCheckpoint] = []
        reached = 0
        for answer in answers:
            if isinstance(answer, list):
                found += answer
                reached += 1
            elif not isinstance(answer, (HostUnreachable, ProtocolError)):
                raise answer
        if not reached:
            none = HostUnreachable("no host serves")
            raise next((answer for answer in answers if isinstance(answer, OSGymError)), none)
        return found

    async def import_checkpoint(
        self, path: str | Path, *, host: str | None = None, timeout_s: float = 600.0
    ) -> AsyncCheckpoint:
        """Take in a file of :meth:`AsyncCheckpoint.export`, on a host with the same golden snapshot.

        Args:
            host: URL of the host; may be left out where there is only one.

        Raises:
            ConfigError: the file cannot be read, or it is unclear which host is meant.
            BadRequest: it is not a checkpoint, or one of another golden snapshot.
            NoCapacity: the checkpoints of that host use all that they may.
        """
        hosts = self._fleet.hosts
        if host is None and len(hosts) != 1:
            raise ConfigError("say which host is to take the checkpoint in")
        link = self._scheduler.host_at(hosts[0].link.url if host is None else host).link
        return await send_checkpoint(link, Path(path), timeout_s, self._config.timeouts.control_s)

    async def _find(self, checkpoint_id: str) -> AsyncCheckpoint:
        for found in await self.checkpoints():
            if found.checkpoint_id == checkpoint_id:
                return found
        raise CheckpointNotFound(f"no host has the checkpoint {checkpoint_id[:100]}")


def _task_id(task: dict[str, Any] | None) -> str | None:
    found = None if task is None else task.get("id")
    return None if found is None else str(found)
