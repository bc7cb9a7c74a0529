"""The asynchronous client: hosts, episodes, batches."""

from __future__ import annotations

import functools
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

from osgym_protocol.codes import ThinkMode
from osgym_sdk import _sigterm
from osgym_sdk._background import BackgroundTasks
from osgym_sdk._batch.batch import Batch, BatchPlan, PlannedRun
from osgym_sdk._batch.host_steps import step_many
from osgym_sdk._batch.options import RunArguments, read_run_arguments
from osgym_sdk._batch.policy import Policy, check_policy
from osgym_sdk._batch.progress import terminal_line
from osgym_sdk._batch.ready import ReadyQueue
from osgym_sdk._batch.rollouts import Rollouts
from osgym_sdk._config import ClientSettings, make_config
from osgym_sdk._episode.checkpoints import (
    AsyncCheckpoint,
    CheckpointHandle,
    find_checkpoint,
    list_checkpoints,
    send_checkpoint,
)
from osgym_sdk._episode.episode import AsyncEpisode, AsyncObservation
from osgym_sdk._episode.plan import EpisodeArguments, plan_episode
from osgym_sdk._exceptions import ConfigError, OSGymError
from osgym_sdk._fleet.discovery.open import FleetSource, open_fleet
from osgym_sdk._fleet.fleet import Fleet
from osgym_sdk._fleet.host import FleetHostState
from osgym_sdk._fleet.members import FleetMembers
from osgym_sdk._fleet.scheduler import Scheduler, Ticket
from osgym_sdk._host_phase import HostPhase
from osgym_sdk._inputs.actions import Actions
from osgym_sdk._inputs.decision import Decision
from osgym_sdk._inputs.options import Observe, Settle, Task
from osgym_sdk._inputs.tasks import Tasks, as_tasks
from osgym_sdk._transport.calls import HostReply

_DRAIN_S = 10.0


class AsyncClient:
    """A client of one host or many.

    Use it with ``async with``, in one event loop. Everything it opens is closed with it: episodes, creates
    that were cut short, lease renewal, connections. Pickled, it becomes a client with the same arguments
    (its token among them) that has opened nothing.

    Args:
        hosts: a URL, several separated by commas, or a list; ``OSGYM_HOSTS`` or
            ``http://127.0.0.1:20000`` by default.
        settings: see :class:`ClientSettings`.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(
        self, hosts: str | Sequence[str] | FleetSource | None = None, **settings: Unpack[ClientSettings]
    ) -> None:
        opened = None
        if isinstance(hosts, FleetSource):
            opened = open_fleet(hosts, settings)
            config = opened.config()
        else:
            config = make_config(hosts, **settings)
        self._arguments = (hosts, settings)
        self._config = config
        self._fleet = Fleet(config, () if opened is None else opened.hosts)
        self._scheduler = Scheduler(config, self._fleet, BackgroundTasks())
        self._members = FleetMembers(config, self._fleet, self._scheduler)
        self._watch = None if opened is None else self._members.watch(opened)
        self._ready = ReadyQueue(config.timeouts.step_s)
        self._adapt_policy: Callable[[Policy], Policy] | None = None
        self._batches: weakref.WeakSet[PlannedRun[Any]] = weakref.WeakSet()
        if config.handle_sigterm:
            _sigterm.watch(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced(type(self))

    def _reduced(self, kind: Callable[..., Any]) -> tuple[Any, ...]:
        """Pickle the arguments, for a client of this or the other kind."""
        hosts, settings = self._arguments
        return functools.partial(kind, **settings), (hosts,)

    @classmethod
    def from_fleet(
        cls, source: str | Path, *, poll_s: float | None = None, **settings: Unpack[ClientSettings]
    ) -> Self:
        """Return a client of a whole fleet, whose hosts come and go while it runs.

        Args:
            source: the file that ``osgym fleet export`` wrote, which is read again when it was rewritten; or
                ``aws-tag://KEY=VALUE?region=...``, ``gcp-label://KEY=VALUE?project=...``, ``dns://NAME:PORT``.
            poll_s: how often it is looked at; by default 1 s for a file, 10 s for a name, 15 s for a cloud.
            settings: as for the client itself; they win over the file.

        Raises:
            ConfigError: the source cannot be read or used, or the token has to be passed.
        """
        return cls(FleetSource(source, poll_s), **settings)

    async def __aenter__(self) -> Self:
        if self._watch is not None:
            self._watch.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop batches, give back what is leased, close all connections. Idempotent."""
        for batch in list(self._batches):
            await batch.aclose()
        await self._ready.aclose()
        if self._watch is not None:
            await self._watch.aclose()
        await self._members.aclose()
        await self._scheduler.background.drain(_DRAIN_S)
        await self._scheduler.aclose()
        await self._fleet.aclose()
        _sigterm.forget(self)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that are known now and have not left."""
        return tuple(host.link.url for host in self._fleet.hosts)

    async def add_host(self, url: str, *, server_name: str = "", wait_s: float = 0.0) -> HostPhase:
        """Take a host into use; it gets episodes as soon as it answers, also of batches that run.

        A host that is there already stays, and is no longer drained.

        Args:
            url: as in ``hosts``.
            server_name: the name in its certificate where that is not its address.
            wait_s: how long to wait until it serves.

        Raises:
            ConfigError: it is not the URL of one host.
        """
        return await self._members.add(url, server_name, wait_s)

    async def remove_host(self, url: str, *, drain: bool = True, wait_s: float = 0.0) -> HostPhase:
        """Use a host no more: it gets no new episodes.

        Args:
            drain: let the episodes there go on to their end. Without, they end now as EpisodeLost with the
                cause ``host_removed``, and :meth:`run` tries their tasks again elsewhere.
            wait_s: how long to wait for the end of the last one.

        Raises:
            ConfigError: it is not a host of this client.
        """
        return await self._members.remove(url, drain, wait_s)

    async def host_states(
        self, *, timeout_s: float | None = None, gone: bool = False
    ) -> dict[str, FleetHostState | OSGymError]:
        """Return the state of every host now, or the error why it cannot be had; both have a ``phase``.

        Args:
            timeout_s: deadline for all of them together; ``Timeouts.control_s`` by default.
            gone: also those that left, each with an error.
        """
        states = await self._fleet.read_states(timeout_s or self._config.timeouts.control_s)
        return {**self._fleet.those_gone(), **states} if gone else states

    async def ask_host(
        self,
        url: str,
        path: str,
        *,
        method: str = "GET",
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> HostReply:
        """Send one request of host API v1 to one host, once, and return the reply: for dashboards.

        Args:
            url: as in ``hosts``.
            path: with its query, as ``/v1/events?after=7``.
            headers: beside those of every request, which say who we are.
            timeout_s: deadline of the whole request.

        Raises:
            ConfigError: it is not a host of this client.
            HostUnreachable, Timeout: no answer came; the request may have arrived.
        """
        host = self._fleet.find(url)
        if host is None:
            raise ConfigError(f"{url} is not a host of this client")
        return await host.link.pass_on(method, path, content, headers or {}, timeout_s)

    def episode(self, task: Task | None = None, **options: Unpack[EpisodeArguments]) -> AsyncEpisode:
        """Return an episode on the least-loaded host; nothing is leased before ``async with``.

        Args:
            task: a task in OSWorld's format, or the path of its file; None: a clean desktop.
            options: see :class:`EpisodeArguments`.

        Raises:
            ConfigError: the task file cannot be read, or an option is wrong.
        """
        given = self._with_think(options)
        return AsyncEpisode(self._scheduler, plan_episode(task, given, self._config.reading))

    def attach(
        self,
        ticket: Ticket,
        *,
        observe: Observe | None = None,
        keep_frames: bool = False,
        reuse_frames: bool = True,
    ) -> AsyncEpisode:
        """Go on with an episode that another client or process began; use it with ``async with``.

        ``observe`` is the default of this client's steps.
        """
        given: EpisodeArguments = {"observe": observe, "keep_frames": keep_frames}
        given |= {"reuse_frames": reuse_frames, "lease_ttl_s": ticket.lease_ttl_s}
        return AsyncEpisode(
            self._scheduler, replace(plan_episode(None, given, self._config.reading), ticket=ticket)
        )

    async def restore(
        self, checkpoint: CheckpointHandle | str, **options: Unpack[EpisodeArguments]
    ) -> AsyncEpisode:
        """Return an episode that goes on from a checkpoint, on the host that has it; close it as any other.

        Task, steps and screen are those of the checkpoint. It works any number of times.

        Args:
            checkpoint: one of :meth:`AsyncEpisode.checkpoint` or :meth:`checkpoints`, or its id, which
                is then looked for on all hosts.
            options: see :class:`EpisodeArguments`; ``max_steps``, ``settle`` and ``observe`` are the
                checkpoint's episode's by default.

        Raises:
            CheckpointNotFound: no host has it.
            NoCapacity, BranchFailed, Unsupported: it cannot be restored now, or not there.
        """
        if isinstance(checkpoint, str):
            checkpoint = await find_checkpoint(self._fleet, checkpoint, self._config.timeouts.control_s)
        plan = plan_episode(None, options, self._config.reading, checkpoint.checkpoint_id)
        episode = AsyncEpisode(
            self._scheduler, replace(plan, task_id=checkpoint.info.task_id, host=checkpoint.host)
        )
        await episode.start()
        return episode

    async def resume(
        self, suspended: CheckpointHandle | str, **options: Unpack[EpisodeArguments]
    ) -> AsyncEpisode:
        """Return an episode that goes on from one that was suspended, and delete what was kept of that.

        Arguments and errors are those of :meth:`restore`. After an error it can be tried again.
        """
        if isinstance(suspended, str):
            suspended = await find_checkpoint(self._fleet, suspended, self._config.timeouts.control_s)
        episode = await self.restore(suspended, **options)
        await episode._drop_origin(suspended)
        return episode

    async def checkpoints(self) -> list[AsyncCheckpoint]:
        """Return the checkpoints of all hosts that can be reached.

        Raises:
            HostUnreachable: none can be reached.
        """
        return await list_checkpoints(self._fleet, self._config.timeouts.control_s)

    async def import_checkpoint(
        self, path: str | Path, *, host: str | None = None, timeout_s: float = 600.0
    ) -> AsyncCheckpoint:
        """Take in a file of :meth:`AsyncCheckpoint.export`, on a host with the same golden snapshot.

        Args:
            host: URL of the host; may be left out where there is only one.

        Raises:
            ConfigError, BadRequest, NoCapacity: host or file are unclear, wrong, or without room.
        """
        hosts = self._fleet.hosts
        if host is None and len(hosts) != 1:
            raise ConfigError(
                "the client has several hosts: pass host=... to say which one imports the checkpoint"
            )
        link = self._scheduler.host_at(hosts[0].link.url if host is None else host).link
        return await send_checkpoint(link, Path(path), timeout_s, self._config.timeouts.control_s)

    def step_many(
        self,
        steps: Iterable[tuple[AsyncEpisode, Actions | Decision]],
        *,
        settle: Settle | None = None,
        observe: Observe | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[tuple[AsyncEpisode, AsyncObservation | OSGymError]]:
        """Step many episodes, one request per host, and yield each answer as soon as it is there.

        Each episode is answered once, with its observation or with its error, which touches no other. After
        an early end of the loop, each episode's next step clears up the rest.
        """
        return step_many(steps, settle, observe, timeout_s or self._config.timeouts.step_s)

    def reset_many(self, tasks: Tasks, **options: Unpack[EpisodeArguments]) -> list[AsyncEpisode]:
        """Begin an episode of each task, all at the same time; :meth:`ready` gives their first desktops.

        Args:
            tasks: as for :meth:`run`, and finite; None stands for a clean desktop.
            options: see :class:`EpisodeArguments`.
        """
        listed = as_tasks(tasks)
        if not isinstance(listed, Iterable):
            raise ConfigError("reset_many() needs a list of tasks, not an asynchronous iterator")
        episodes = [self.episode(task, **options) for task in listed]
        self._ready.start(episodes)
        return episodes

    def step_async(
        self,
        episode: AsyncEpisode,
        actions: Actions | Decision,
        *,
        settle: Settle | None = None,
        observe: Observe | None = None,
    ) -> None:
        """Begin a step and return at once; :meth:`ready` gives its outcome.

        Steps that are begun without an ``await`` between them go to each host in one request.

        Args:
            episode: one of this client that has started, with no step under way.
            actions, settle, observe: as for :meth:`AsyncEpisode.step`.

        Raises:
            ConfigError, EpisodeEnded: a step of it is under way, or it was never started.
        """
        self._ready.step(episode, actions, settle, observe)

    def ready(
        self, n: int | None = None
    ) -> AsyncIterator[tuple[AsyncEpisode, AsyncObservation | OSGymError]]:
        """Yield the first ``n`` outcomes of what was begun, of any host, as they are ready.

        None: as long as anything is under way, what is begun meanwhile included. Each episode comes with its
        observation or its error, and may be stepped again at once.
        """
        return self._ready.ready(n)

    def run(self, tasks: Tasks, policy: Policy, **options: Unpack[RunArguments]) -> Batch:
        """Run the policy on every task and yield a :class:`Result` for each, as they finish.

        A failure of an episode is in its result (``reward`` is then None) and does not stop the others.

        Args:
            tasks: task objects or paths, finite or not, taken one by one as there is room; or the path of a
                task file, of a folder, or a pattern (``"tasks/*/*.json"``).
            policy: ``policy(obs, task, step)`` giving an action, several, a :class:`Decision`, or None to
                stop; a coroutine function, a plain function (run in a thread), or an object with ``act`` and
                ``reset``. It may raise InvalidAction itself, where its model's output is none.
            options: see :class:`RunArguments` and :class:`EpisodeArguments`. An episode that ``max_steps``
                cuts off is scored as it stands. What ``record`` cannot keep costs no episode: the iteration
                ends with the recorder's error after the last result.

        Raises:
            ConfigError: an argument is wrong.
        """
        batch = Batch(self._plan_batch(tasks, policy, options))
        self._batches.add(batch)
        return batch

    def rollouts(
        self, tasks: Tasks, policy: Policy, *, group: int = 8, **options: Unpack[RunArguments]
    ) -> Rollouts:
        """Run the policy several times on every task from the same start; yield a :class:`Group` for each.

        Where hosts branch (``runtime=qemu``), a task is set up once and all members are children of that
        moment, on its host. Elsewhere each member is set up itself, on any host. ``group.branched`` and
        ``group.same_start`` say how it was. Members of the first tasks go first, and groups come as they
        finish: one that is slow holds up no other. Leaving the loop stops the rest.

        Args:
            tasks, policy: as for :meth:`run`.
            group: number of members of each group.
            options: as for :meth:`run`. ``retries`` also says how often a member is refilled from the same
                start; what is lost all the same is in ``group.lost``, and the group is not ``complete``.
                ``episode_timeout_s`` also bounds the set-up.
        """
        if type(group) is not int or group < 1:
            raise ConfigError("group must be a whole number, 1 or more")
        given: RunArguments = {"concurrency": 16, "retries": 2, **options}
        if given.pop("progress", True) and given.get("on_progress") is None:
            given["on_progress"] = terminal_line()
        rollouts = Rollouts(self._plan_batch(tasks, policy, given), group, self._scheduler.background)
        self._batches.add(rollouts)
        return rollouts

    def _with_think(self, options: EpisodeArguments) -> EpisodeArguments:
        """Return the options of an episode with the client's own ones of thinking where they have none."""
        given, config = options.copy(), self._config
        if given.get("think") is None:
            given["think"] = config.think
        if given["think"] == ThinkMode.PAUSED and given.get("think_charge") is None:
            given["think_charge"] = config.think_charge
        return given

    def _plan_batch(self, tasks: Tasks, policy: Policy, arguments: RunArguments) -> BatchPlan:
        options, episode = read_run_arguments(arguments)
        plan_episode(
            None, self._with_think(episode)
        )  # an option that is wrong is the caller's fault, not each episode's
        check_policy(policy)
        adapted = policy if self._adapt_policy is None else self._adapt_policy(policy)
        clock = self._config.clock
        return BatchPlan(as_tasks(tasks), adapted, options, lambda task: self.episode(task, **episode), clock)
