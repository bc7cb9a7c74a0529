"""The asynchronous client: hosts, episodes, batches."""

from __future__ import annotations

import asyncio
import uuid
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from osgym_protocol.limits import DEFAULT_LEASE_TTL_S, DEFAULT_WAIT_S
from osgym_sdk import _sigterm
from osgym_sdk._actions import Actions
from osgym_sdk._background import BackgroundTasks
from osgym_sdk._batch import Batch, BatchPlan
from osgym_sdk._batch_episode import DEFAULT_MAX_INVALID, BatchOptions, OnInvalid
from osgym_sdk._batch_step import step_many
from osgym_sdk._checkpoints import AsyncCheckpoint, CheckpointHandle, list_checkpoints, send_checkpoint
from osgym_sdk._config import ClientSettings, make_config
from osgym_sdk._decision import Decision
from osgym_sdk._discovery.open import OpenedFleet, open_fleet
from osgym_sdk._discovery.watch import HostWatch
from osgym_sdk._episode import AsyncEpisode, AsyncObservation
from osgym_sdk._exceptions import CheckpointNotFound, ConfigError, HostUnreachable, OSGymError, ProtocolError
from osgym_sdk._fleet import Fleet
from osgym_sdk._fleet_host import FleetHostState
from osgym_sdk._grammars import as_reading
from osgym_sdk._host_phase import HostPhase
from osgym_sdk._members import FleetMembers
from osgym_sdk._options import (
    Clock,
    Observe,
    Settle,
    Task,
    as_choice,
    as_clock,
    as_observe,
    as_settle,
    as_task,
)
from osgym_sdk._policy import Policy, check_policy
from osgym_sdk._progress import OnProgress, ProgressLine
from osgym_sdk._ready import ReadyQueue
from osgym_sdk._recorder import Recorder
from osgym_sdk._rollouts import EpisodeArguments, RolloutArguments, Rollouts
from osgym_sdk._scheduler import Scheduler
from osgym_sdk._tasks import Tasks, as_tasks
from osgym_sdk._types import EpisodeOptions, Ticket
from osgym_sdk._verifier import DEFAULT_REWARD_S, Reward, check_reward
from osgym_sdk.wire import CreateRequest

if TYPE_CHECKING:
    from osgym_protocol.grammars import Coordinates

_DRAIN_S = 10.0


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
        actions, coordinates: of all episodes; see :meth:`episode`.
        handle_sigterm: while this client is open, SIGTERM ends the process as Ctrl-C does, so that leases are
            given back; only where the process has no handler of its own.

    Raises:
        ConfigError: a setting is wrong.
    """

    def __init__(
        self, hosts: str | Sequence[str] | OpenedFleet | None = None, **settings: Unpack[ClientSettings]
    ) -> None:
        found = hosts.hosts if isinstance(hosts, OpenedFleet) else ()
        config = hosts.config() if isinstance(hosts, OpenedFleet) else make_config(hosts, **settings)
        self._config = config
        self._fleet = Fleet(config, found)
        self._scheduler = Scheduler(config, self._fleet, BackgroundTasks())
        self._members = FleetMembers(config, self._fleet, self._scheduler)
        self._watch = self._watched(hosts) if isinstance(hosts, OpenedFleet) else None
        self._ready = ReadyQueue(config.timeouts.step_s)
        self._adapt_policy: Callable[[Policy], Policy] = lambda policy: policy
        self._batches: weakref.WeakSet[Batch | Rollouts] = weakref.WeakSet()
        if config.handle_sigterm:
            _sigterm.watch(self)

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
        return cls(open_fleet(source, poll_s, settings), **settings)

    async def __aenter__(self) -> Self:
        if self._watch is not None:
            self._watch.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

        One that is there already stays, and is no longer drained.

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

        A source that still names it does not bring it back; :meth:`add_host` does.

        Args:
            drain: let the episodes there go on to their end. Without, they end now as EpisodeLost with the
                cause ``host_removed``, and :meth:`run` tries their tasks again elsewhere.
            wait_s: how long to wait for the end of the last one.

        Raises:
            ConfigError: it is not among the hosts.
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
            strict_setup=strict_setup or None,
            clock=as_clock(clock),
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
            ticket.episode_id, lease_ttl_s=ticket.lease_ttl_s, observe=as_observe(observe)
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
        if host is None and len(self.hosts) != 1:
            raise ConfigError("say which host is to take the checkpoint in")
        link = self._scheduler.host_at(self.hosts[0] if host is None else host).link
        return await send_checkpoint(link, Path(path), timeout_s, self._config.timeouts.control_s)

    def _watched(self, opened: OpenedFleet) -> HostWatch:
        """Return the watch over a source, which begins with the first use of the client in its event loop."""
        fleet = self._fleet

        def failed(why: str) -> None:
            fleet.note = f"{opened.source.name}: {why}" if why else f"{opened.source.name} names none"
            # Of a source that never answered nothing is waited for; what is wrong is said at once.
            fleet.grows = fleet.grows or (not why and not opened.hosts)

        watch = HostWatch(opened.source, self._config, self._members.apply, failed, opened.pause_s)

        async def begin() -> None:
            watch.start()
            if not fleet.hosts:
                await watch.looked(self._config.timeouts.control_s)

        fleet.begin = begin
        return watch

    async def _find(self, checkpoint_id: str) -> AsyncCheckpoint:
        for found in await self.checkpoints():
            if found.checkpoint_id == checkpoint_id:
                return found
        raise CheckpointNotFound(f"no host has the checkpoint {checkpoint_id[:100]}")

    def step_many(
        self,
        steps: Iterable[tuple[AsyncEpisode, Actions | Decision]],
        *,
        settle: Settle | None = None,
        observe: Observe | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[tuple[AsyncEpisode, AsyncObservation | OSGymError]]:
        """Step many episodes, one request per host, and yield each answer as soon as it is there.

        Each episode is answered once, with its observation or with its error; an error of one does not
        touch the others. Leave the loop early and the rest is cleared up by each episode's next step.
        """
        return step_many(steps, settle, observe, timeout_s or self._config.timeouts.step_s)

    def reset_many(self, tasks: Tasks, **options: Unpack[EpisodeArguments]) -> list[AsyncEpisode]:
        """Begin an episode of each task, all at the same time; :meth:`ready` gives their first desktops.

        Close them, or leave it to the client. A start that fails is an error that :meth:`ready` gives.

        Args:
            tasks: as for :meth:`run`, and finite; None stands for a clean desktop.
            options: as for :meth:`episode`.

        Raises:
            ConfigError: a task file cannot be read, or an option is wrong.
        """
        listed = as_tasks(tasks)
        if not isinstance(listed, Iterable):
            raise ConfigError("reset_many() takes tasks that are there, not an asynchronous iterator")
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

        Steps that are begun without an ``await`` between them go to each host in one request, whose answers
        come one by one as they are ready.

        Args:
            episode: one of this client that has started, with no step under way.
            actions, settle, observe: as for :meth:`AsyncEpisode.step`.

        Raises:
            ConfigError: a step of this episode is under way.
            EpisodeEnded: it was never started.
        """
        self._ready.step(episode, actions, settle, observe)

    def ready(
        self, n: int | None = None
    ) -> AsyncIterator[tuple[AsyncEpisode, AsyncObservation | OSGymError]]:
        """Yield the first ``n`` outcomes of what was begun, of any host, as they are ready.

        None: as long as anything is under way, what is begun meanwhile included.
        Fewer come where fewer are under way. Each episode is given with its observation or its error; it may
        be stepped again at once, however long others take.
        """
        return self._ready.ready(n)

    def run(
        self,
        tasks: Tasks,
        policy: Policy,
        *,
        concurrency: int = 8,
        max_steps: int = 100,
        evaluate: bool = True,
        retries: int = 1,
        on_invalid: OnInvalid | str = OnInvalid.ERROR,
        max_invalid: int | None = None,
        episode_timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
        progress: bool = False,
        wait_s: float = 600.0,
        lease_ttl_s: float = DEFAULT_LEASE_TTL_S,
        settle: Settle | None = None,
        observe: Observe | None = None,
        keep_frames: bool = False,
        strict_setup: bool = False,
        clock: Clock | None = None,
        actions: str | None = None,
        coordinates: Coordinates | None = None,
        record: Recorder | None = None,
        reward: Reward | None = None,
        reward_timeout_s: float = DEFAULT_REWARD_S,
    ) -> Batch:
        """Run the policy on every task and yield a :class:`Result` for each, as they finish.

        What goes wrong in an episode is in its result (``failure``, with ``reward`` None) and does
        not stop the others, whatever a policy returns or raises.

        Args:
            tasks: task objects or paths, finite or not, taken one by one as there is room; or the path of a
                task file, of a folder, or a pattern (``"tasks/*/*.json"``).
            policy: ``policy(obs, task, step)`` giving an action, several, a :class:`Decision`, or None to
                stop; a coroutine function, a plain function (run in a thread), or an object with ``act`` and
                ``reset``.
                It may raise InvalidAction itself, where its model's output is none.
            concurrency: how many episodes at a time.
            max_steps: steps before an episode is cut off and scored as it stands.
            evaluate: score the episodes.
            retries: how often a task is tried again, on a fresh replica, when the infrastructure failed under
                it. Never after a reward, never when policy or task were at fault, and not when no host or no
                replica was to be had within ``wait_s`` or ``episode_timeout_s`` was over.
            on_invalid: what follows when the policy returns what is no action, or one that the host refuses.
                ``"error"``: a failure of the class ``model``, so no reward. ``"noop"``: nothing is done, it
                counts as a step, and the policy is asked again (``obs.refused`` says why). ``"end"``: the
                acting ends and the desktop is scored as it stands.
            max_invalid: with ``"noop"``, how many of them an episode may have, 5 by default; one more is a
                failure as with ``"error"``.
            episode_timeout_s: deadline of one episode, waiting and scoring included.
            reward: ``async def reward(episode, task)``, a verifier of one's own in the place of the task's
                check: called when the acting has ended, it gives the reward, or None where nothing can be
                scored. What it raises is a failure of that episode.
            reward_timeout_s: its deadline.
            on_progress: called with a :class:`Progress` whenever something changed.
            progress: show it on stderr.
            wait_s: how long an episode waits for a replica.
            lease_ttl_s, settle, observe, keep_frames, strict_setup, clock, actions, coordinates: as for
                :meth:`episode`.
            record: where every attempt is recorded as it goes, as for :meth:`episode`. What cannot be kept
                costs no episode: the iteration ends with the recorder's error after the last result.
        """
        if concurrency < 1 or max_steps < 1 or retries < 0:
            raise ConfigError("concurrency and max_steps are 1 or more, retries 0 or more")
        if max_invalid is not None and (max_invalid < 0 or on_invalid != OnInvalid.NOOP):
            raise ConfigError('max_invalid is 0 or more, and for on_invalid="noop" only')
        if reward is not None:
            check_reward(reward, reward_timeout_s)
        as_reading(actions, coordinates)  # a name that is wrong is the caller's fault, not each episode's
        check_policy(policy)
        invalid = as_choice(OnInvalid, on_invalid, "on_invalid")
        listed = as_tasks(tasks)
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
                strict_setup=strict_setup,
                clock=clock,
                actions=actions,
                coordinates=coordinates,
                record=record,
            )

        options = BatchOptions(
            concurrency,
            max_steps,
            evaluate,
            retries,
            episode_timeout_s,
            on_progress,
            invalid,
            DEFAULT_MAX_INVALID if max_invalid is None else max_invalid,
            record,
            reward,
            reward_timeout_s,
        )
        adapted, timer = self._adapt_policy(policy), self._config.clock
        batch = Batch(BatchPlan(listed, adapted, options, open_episode, timer))
        self._batches.add(batch)
        return batch

    def rollouts(
        self,
        tasks: Tasks,
        policy: Policy,
        *,
        group: int = 8,
        concurrency: int = 16,
        retries: int = 2,
        **options: Unpack[RolloutArguments],
    ) -> Rollouts:
        """Run the policy several times on every task from the same start; yield a :class:`Group` for each.

        Where hosts branch (``runtime=qemu``), a task is set up once and all members are children of that
        moment, on its host. Elsewhere each member is set up itself, on any host. ``group.branched`` and
        ``group.same_start`` say how it was. Members of the first tasks go first, and groups come as they
        finish: one that is slow holds up no other. Leaving the loop stops the rest.

        Args:
            tasks, policy: as for :meth:`run`.
            group: how many members each group has.
            concurrency: how many episodes at a time, of all groups together.
            retries: how often a set-up that the infrastructure lost is tried again, and a member is refilled
                from the same start. What is lost all the same is in ``group.lost``, and the group is not
                ``complete``.
            options: as for :meth:`run`; ``episode_timeout_s`` also bounds the set-up.
        """
        if type(group) is not int or group < 1:
            raise ConfigError("group is a whole number, 1 or more")
        if unknown := options.keys() - RolloutArguments.__optional_keys__:
            raise ConfigError(f"rollouts() has no argument {sorted(unknown)[0]!r}")
        batch = self.run(tasks, policy, concurrency=concurrency, retries=retries, **options)
        self._batches.discard(batch)
        rollouts = Rollouts(batch.plan, group, self._scheduler.background)
        self._batches.add(rollouts)
        return rollouts


def _task_id(task: dict[str, Any] | None) -> str | None:
    found = None if task is None else task.get("id")
    return None if found is None else str(found)
