"""The asynchronous client: hosts, episodes, batches."""

from __future__ import annotations

import asyncio
import ssl
import uuid
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from osgym_sdk._background import Background
from osgym_sdk._batch import Batch, BatchOptions, Policy
from osgym_sdk._checkpoints import AsyncCheckpoint, listed, sent
from osgym_sdk._config import Cert, Config, Limits, Timeouts, make_config
from osgym_sdk._episode import AsyncEpisode
from osgym_sdk._exceptions import CheckpointNotFound, ConfigError, HostUnreachable, OSGymError, ProtocolError
from osgym_sdk._fleet import Fleet
from osgym_sdk._fleet_file import FleetFile, read_fleet
from osgym_sdk._many import step_many
from osgym_sdk._observation import AsyncObservation
from osgym_sdk._options import Actions, Observe, Settle, Task, as_observe, as_settle, as_task
from osgym_sdk._parts import EpisodeOptions
from osgym_sdk._placing import Placer, Ticket
from osgym_sdk._progress import OnProgress, ProgressLine
from osgym_sdk.wire import CreateRequest, HostState

if TYPE_CHECKING:
    import httpx

_DRAIN_S = 10.0


class ClientSettings(TypedDict, total=False):
    """Arguments of :class:`AsyncClient` and :class:`Client`."""

    token: str | None
    verify: bool | str | Path | ssl.SSLContext
    cert: Cert | None
    timeouts: Timeouts | None
    limits: Limits | None
    transport: Callable[[], httpx.AsyncBaseTransport] | None
    proxy: str | None
    server_names: Mapping[str, str] | None


def fleet_settings(fleet: FleetFile, settings: ClientSettings) -> ClientSettings:
    """A client's settings with what a fleet's file adds; those that are given win.

    Raises:
        ConfigError: see :meth:`FleetFile.token` and :meth:`FleetFile.context`.
    """
    whole: ClientSettings = {"server_names": fleet.server_names, **settings}
    if "verify" not in settings and (context := fleet.context()) is not None:
        whole["verify"] = context
    if settings.get("token") is None:
        whole["token"] = fleet.token()
    return whole


class EpisodeSettings(TypedDict, total=False):
    """Arguments of ``episode``."""

    wait_s: float
    lease_ttl_s: float
    max_steps: int | None
    settle: Settle | None
    observe: Observe | None
    keep_frames: bool
    reuse_frames: bool


class RestoreSettings(TypedDict, total=False):
    """Arguments of ``restore``."""

    wait_s: float
    lease_ttl_s: float
    max_steps: int | None
    settle: Settle | None
    observe: Observe | None
    keep_frames: bool
    reuse_frames: bool


class AttachSettings(TypedDict, total=False):
    """Arguments of ``attach``."""

    observe: Observe | None
    keep_frames: bool
    reuse_frames: bool


class RunSettings(TypedDict, total=False):
    """Arguments of ``run``."""

    concurrency: int
    max_steps: int
    evaluate: bool
    retries: int
    episode_timeout_s: float | None
    on_progress: OnProgress | None
    progress: bool
    wait_s: float
    lease_ttl_s: float
    settle: Settle | None
    observe: Observe | None
    keep_frames: bool


class AsyncClient:
    """A client of one host or many.

    Use it with ``async with``, in one event loop. Everything it opens is closed with it: episodes
    whose close was cancelled, creates that were cut short, lease renewal, connections.

    Args:
        hosts: a URL, several separated by commas, or a list; ``OSGYM_HOSTS`` or
            ``http://127.0.0.1:20000`` by default.
        token: bearer token; ``OSGYM_TOKEN`` by default.
        verify: True, False, a CA file or folder, or a TLS context; ``OSGYM_CA`` by default.
        cert: client certificate: a file, or certificate and key.
        timeouts: deadlines in seconds.
        limits: connections per host.
        transport: makes the httpx transport of each connection, in place of our own.
        proxy: URL of a proxy; those of the environment are not used, since hosts are usually close by.
        server_names: by URL, the name in a host's certificate where that is not its address.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(
        self,
        hosts: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        verify: bool | str | Path | ssl.SSLContext = True,
        cert: Cert | None = None,
        timeouts: Timeouts | None = None,
        limits: Limits | None = None,
        transport: Callable[[], httpx.AsyncBaseTransport] | None = None,
        proxy: str | None = None,
        server_names: Mapping[str, str] | None = None,
    ) -> None:
        config: Config = make_config(
            hosts,
            token=token,
            verify=verify,
            cert=cert,
            timeouts=timeouts,
            limits=limits,
            transport=transport,
            proxy=proxy,
            server_names=server_names,
        )
        self._config = config
        self._fleet = Fleet(config)
        self._background = Background()
        self._placer = Placer(config, self._fleet, self._background)
        self._batches: weakref.WeakSet[Batch] = weakref.WeakSet()

    @classmethod
    def from_fleet(cls, path: str | Path, **settings: Unpack[ClientSettings]) -> Self:
        """A client of a whole fleet: hosts, certificates and token as ``fleet.json`` names them.

        Args:
            path: what ``osgym fleet export`` wrote.
            settings: as for the client itself; they win over the file.

        Raises:
            ConfigError: the file cannot be read, or the token has to be passed.
        """
        fleet = read_fleet(path)
        return cls(list(fleet.hosts), **fleet_settings(fleet, settings))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stops batches, gives back what is leased, closes all connections. Idempotent."""
        for batch in list(self._batches):
            await batch.aclose()
        await self._background.drain(_DRAIN_S)
        await self._placer.aclose()
        await self._fleet.aclose()

    @property
    def hosts(self) -> tuple[str, ...]:
        return self._config.hosts

    async def host_states(self) -> dict[str, HostState | OSGymError]:
        """The state of every host now, or the error why it cannot be had."""
        states: dict[str, HostState | OSGymError] = {}
        for view in self._fleet.views:
            try:
                states[view.link.url] = await self._fleet.read_state(view)
            except OSGymError as exc:
                states[view.link.url] = exc
        return states

    def episode(
        self,
        task: Task | None = None,
        *,
        wait_s: float = 60.0,
        lease_ttl_s: float = 60.0,
        max_steps: int | None = None,
        settle: Settle | None = None,
        observe: Observe | None = None,
        keep_frames: bool = False,
        reuse_frames: bool = True,
    ) -> AsyncEpisode:
        """An episode on the least-loaded host; nothing is leased before ``async with``.

        Args:
            task: a task in OSWorld's format, or the path of its file; None: a clean desktop.
            wait_s: how long to wait for a replica.
            lease_ttl_s: how long the host keeps the replica when we fall silent.
            max_steps: the host ends the episode after so many steps.
            settle: how steps wait for the screen, ``"exact"`` by default.
            observe: which image steps give, full-size PNG by default.
            keep_frames: keep the images in ``trajectory`` too.
            reuse_frames: let the host send no image where nothing changed; ``obs.data`` is the last one.

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
        )
        options = EpisodeOptions(request, _task_id(loaded), keep_frames, reuse_frames)
        return AsyncEpisode(self._config, self._fleet, self._placer, self._background, options)

    def attach(
        self,
        ticket: Ticket,
        *,
        observe: Observe | None = None,
        keep_frames: bool = False,
        reuse_frames: bool = True,
    ) -> AsyncEpisode:
        """Goes on with an episode that another client or process began; use it with ``async with``.

        The lease is the affinity, not a connection. ``observe`` is the default of this client's steps.
        """
        request = CreateRequest(
            ticket.episode_id, lease_ttl_s=ticket.lease_ttl_s, observe=as_observe(observe)
        )
        options = EpisodeOptions(request, None, keep_frames, reuse_frames, ticket)
        return AsyncEpisode(self._config, self._fleet, self._placer, self._background, options)

    async def restore(
        self,
        checkpoint: AsyncCheckpoint | str,
        *,
        wait_s: float = 60.0,
        lease_ttl_s: float = 60.0,
        max_steps: int | None = None,
        settle: Settle | None = None,
        observe: Observe | None = None,
        keep_frames: bool = False,
        reuse_frames: bool = True,
    ) -> AsyncEpisode:
        """An episode that goes on from a checkpoint, on the host that has it; close it as any other.

        Task, steps and screen are those of that moment. It works any number of times.

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
        options = EpisodeOptions(request, found.info.task_id, keep_frames, reuse_frames, host=found.host)
        episode = AsyncEpisode(self._config, self._fleet, self._placer, self._background, options)
        await episode.start()
        return episode

    async def checkpoints(self) -> list[AsyncCheckpoint]:
        """The checkpoints of all hosts that can be reached.

        Raises:
            HostUnreachable: none can be.
        """
        links = [view.link for view in self._fleet.views]
        answers = await asyncio.gather(
            *(listed(link, self._config) for link in links), return_exceptions=True
        )
        found: list[AsyncCheckpoint] = []
        reached = 0
        for answer in answers:
            if isinstance(answer, list):
                found += answer
                reached += 1
            elif not isinstance(answer, (HostUnreachable, ProtocolError)):
                raise answer
        if not reached:
            raise next(answer for answer in answers if isinstance(answer, OSGymError))
        return found

    async def import_checkpoint(
        self, path: str | Path, *, host: str | None = None, timeout_s: float = 600.0
    ) -> AsyncCheckpoint:
        """Takes in a file of :meth:`AsyncCheckpoint.export`, on a host with the same golden snapshot.

        Args:
            host: URL of the host; may be left out where there is only one.

        Raises:
            ConfigError: the file cannot be read, or it is unclear which host is meant.
            BadRequest: it is no checkpoint, or one of another golden snapshot.
            NoCapacity: the checkpoints of that host use all that they may.
        """
        if host is None and len(self.hosts) != 1:
            raise ConfigError("say which host is to take the checkpoint in")
        link = self._placer.view_of(self.hosts[0] if host is None else host).link
        return await sent(link, self._config, Path(path), timeout_s)

    async def _find(self, checkpoint_id: str) -> AsyncCheckpoint:
        for found in await self.checkpoints():
            if found.checkpoint_id == checkpoint_id:
                return found
        raise CheckpointNotFound(f"no host has the checkpoint {checkpoint_id[:100]}")

    def step_many(
        self,
        steps: Iterable[tuple[AsyncEpisode, Actions]],
        *,
        settle: Settle | None = None,
        observe: Observe | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[tuple[AsyncEpisode, AsyncObservation | OSGymError]]:
        """Steps many episodes, one request per host, and gives each answer as soon as it is there.

        Each episode is answered once, with its observation or with its error; an error of one does not
        touch the others. Leave the loop early and the rest is cleared up by each episode's next step.
        """
        return step_many(steps, settle, observe, timeout_s or self._config.timeouts.step_s)

    def run(
        self,
        tasks: Iterable[Any] | AsyncIterable[Any],
        policy: Policy,
        *,
        concurrency: int = 8,
        max_steps: int = 100,
        evaluate: bool = True,
        retries: int = 0,
        episode_timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        progress: bool = False,
        wait_s: float = 600.0,
        lease_ttl_s: float = 60.0,
        settle: Settle | None = None,
        observe: Observe | None = None,
        keep_frames: bool = False,
    ) -> Batch:
        """Runs the policy on every task and gives a :class:`Result` for each, as they finish.

        What goes wrong in an episode is told in its result (``failure``, with ``reward`` None) and does
        not stop the others. An action that the host refuses ends the acting, and the desktop is scored
        as it stands (``termination_reason`` ``invalid_action``, ``note`` says why).

        Args:
            tasks: task objects or paths, finite or not; taken one by one as there is room.
            policy: ``policy(obs, task, step)`` giving an action, several, or None to stop; a coroutine
                function, a plain function (run in a thread), or an object with ``act`` and ``reset``.
            concurrency: how many episodes at a time.
            max_steps: steps before an episode is cut off and scored as it stands.
            evaluate: score the episodes.
            retries: how often a task is tried again after an infrastructure failure.
            episode_timeout_s: deadline of one episode, waiting and scoring included.
            on_progress: called with a :class:`Progress` whenever something changed.
            progress: show it on stderr.
            wait_s: how long an episode waits for a replica.
            lease_ttl_s, settle, observe, keep_frames: as for :meth:`episode`.
        """
        if concurrency < 1 or max_steps < 1 or retries < 0:
            raise ConfigError("concurrency and max_steps are 1 or more, retries 0 or more")
        if progress and on_progress is None:
            on_progress = ProgressLine()

        def open_episode(task: Any) -> AsyncEpisode:
            return self.episode(
                task,
                wait_s=wait_s,
                lease_ttl_s=lease_ttl_s,
                max_steps=max_steps,
                settle=settle,
                observe=observe,
                keep_frames=keep_frames,
            )

        options = BatchOptions(concurrency, max_steps, evaluate, retries, episode_timeout_s, on_progress)
        batch = Batch(tasks, policy, options, open_episode, self._config.clock)
        self._batches.add(batch)
        return batch


def _task_id(task: dict[str, Any] | None) -> str | None:
    found = None if task is None else task.get("id")
    return None if found is None else str(found)
