"""The asynchronous episode: a lease on one desktop, begun, played, branched, scored, closed."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Self

from osgym_protocol import limits
from osgym_protocol.a11y import A11yTree
from osgym_protocol.reach import CommandResult, Window
from osgym_sdk._episode.checkpoints import AsyncCheckpoint, CheckpointHandle
from osgym_sdk._episode.info import EpisodeContext, EpisodeInfo
from osgym_sdk._episode.plan import EpisodePlan
from osgym_sdk._episode.reach import DesktopCalls, Video
from osgym_sdk._episode.steps import StepCalls
from osgym_sdk._episode.tunnel import Exposure
from osgym_sdk._exceptions import ConfigError, EpisodeEnded, OSGymError
from osgym_sdk._fleet.scheduler import Placement, Scheduler, Ticket
from osgym_sdk._fleet.session import EpisodeSession
from osgym_sdk._inputs.actions import Actions
from osgym_sdk._inputs.decision import Decision
from osgym_sdk._inputs.options import Observe, Settle
from osgym_sdk._inputs.reading import as_reading
from osgym_sdk._models.evaluation import Evaluation
from osgym_sdk._models.observation import Observation, Timing
from osgym_sdk._models.trajectory import Trajectory
from osgym_sdk.wire import (
    CheckpointInfo,
    CheckpointRequest,
    ForkAnswer,
    ForkChild,
    ForkRequest,
    StepAnswer,
    TerminationReason,
)

_LOG = logging.getLogger(__name__)

if TYPE_CHECKING:
    from osgym_protocol.grammars import Coordinates


class AsyncObservation(Observation):
    """An observation of an :class:`AsyncEpisode`."""

    episode: AsyncEpisode | None = None

    async def final(self, timeout_s: float = 3.0) -> AsyncObservation:
        """Return the frame of this step when the screen has come to rest, or when the time is up.

        ``is_final`` of what is returned says which. Raises StaleObservation after a later step has acted.
        """
        if self.episode is None:
            raise ValueError("this observation does not belong to an open episode")
        return await self.episode.final(self, timeout_s=timeout_s)


class AsyncEpisode(EpisodeInfo):
    """Made by :meth:`AsyncClient.episode`; use it with ``async with``.

    Steps, frames, branches and the score run one after the other. A step that was cancelled or ran into its
    deadline is cleared up before the next one: no action is done twice, and none is lost from the trajectory.

    Calls past the screen (:meth:`execute` to :meth:`expose`) count as no step and may run beside steps; each
    is in ``trajectory.reaches``. They also raise ReachForbidden (the task forbids it), Unsupported (no agent
    of ours is inside), ReachBusy, ReachFailed, EpisodeEnded (also after the score), EpisodeLost, Timeout.
    """

    def __init__(self, scheduler: Scheduler, plan: EpisodePlan) -> None:
        context = EpisodeContext(plan, Trajectory(plan.task_id))
        super().__init__(context)
        context.recording = None if plan.recorder is None else plan.recorder.record(plan.task)
        self._scheduler = scheduler
        self._steps = StepCalls(scheduler.config, context, self._make_observation)
        self._desktop = DesktopCalls(context)
        self._entered = False

    async def __aenter__(self) -> Self:
        if self._context.session is None or self._entered:  # a child or a restored one has begun already
            await self.start()
        self._entered = True
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Lease a replica and set the task up; done by ``async with``. Cancelling it leaks nothing.

        Raises:
            NoCapacity, HostUnreachable: no host had a free replica in time, or none could be reached.
            TaskError, Timeout: the task is wrong, or its set-up failed or took longer than ``setup_s``.
        """
        context, scheduler = self._context, self._scheduler
        if context.session is not None or context.closed:
            raise EpisodeEnded("an episode can be started only once")
        plan, clock = context.plan, scheduler.config.clock
        started_s = clock()
        if plan.ticket is not None:
            placement = await scheduler.attach(plan.ticket)
        elif plan.host is not None:
            placement = await scheduler.place_on(plan.host, plan.options)
        else:
            placement = await scheduler.place(plan.options)
        total_ms = (clock() - started_s) * 1000
        self._take_lease(placement, total_ms)
        self._steps.show_first(placement, total_ms)
        context.begin_recording(self.observation)

    async def aclose(self) -> None:
        """Give the replica back. Idempotent; goes on in the background when it is cancelled."""
        session = await self._let_go(TerminationReason.CLOSED)
        if session is not None and session.lost is None:
            work = self._scheduler.background
            await work.finish(session.delete(), f"close episode {session.episode_id}")

    async def _let_go(self, reason: TerminationReason) -> EpisodeSession | None:
        """Close all but the lease, for a reason; return its session where there is one to give back."""
        context = self._context
        if context.closed:
            return None
        context.closed = True
        session = context.session
        if session is None:
            return None
        session.placement.keeper.remove(session)
        context.end_recording(reason)
        self._steps.frames.forget()
        await self._desktop.aclose()
        return session

    def detach(self) -> Ticket:
        """Let go of the episode without closing it; the ticket is good for ``lease_ttl_s`` seconds."""
        session, ticket = self._context.running(), self.ticket
        self._context.end_recording()
        session.placement.keeper.remove(session)
        self._context.closed = True
        return ticket

    @property
    def observation(self) -> AsyncObservation:
        """The newest observation; the first desktop after start.

        Raises:
            EpisodeEnded: The episode was never started.
        """
        return self._steps.require_newest()

    async def step(
        self,
        actions: Actions | Decision,
        *,
        settle: Settle | None = None,
        observe: Observe | None = None,
        grammar: str | None = None,
        coordinates: Coordinates | None = None,
        expects: Observation | str | None = None,
        think_s: float | None = None,
        timeout_s: float | None = None,
    ) -> AsyncObservation:
        """Do one action or a list of them, wait for the screen, return the frame.

        A list stops at its first failure: ``obs.failed_index`` and ``obs.results`` say which and why.

        Args:
            actions: text (``"click(100,200)"``), an object (``{"op": "click", "x": 100, "y": 200}``), or a
                list of them; in any of the action grammars that the host knows. With ``grammar``, or in an
                episode that was opened with ``actions=``: a model's output, which ``obs.parsed`` explains.
                A :class:`Decision` keeps an info beside them.
            settle: how to wait, ``"exact"``, ``"fast"``, ``"certain"`` (until the watch is sure, at most
                ``max_ms``; ``obs.is_final`` says whether it was), or options; the episode's by default.
            observe: which image, ``"jpeg"`` or options; the episode's by default.
            grammar, coordinates: how ``actions`` is read, as ``actions`` and ``coordinates`` of the episode.
            expects: observation (or its ``hash``) that the actions were chosen for. If the screen shows
                another frame by now, nothing is done, and ``obs.screen_changed`` is set. A panel counts only
                if an action points at it.
            think_s: time (s) by which the desktop's clocks move for the thought before this step, in
                episodes with ``think="paused"``; as ``think_charge`` says by default. What has not really
                passed, the step waits for.
            timeout_s: deadline of the whole call; ``Timeouts.step_s`` and ``think_s`` by default.

        Raises:
            InvalidAction: refused; nothing was done.
            EpisodeLost: the replica, its host or the lease is gone; ``cause`` says how.
            EpisodeEnded: the episode was closed, done, or out of steps.
            Timeout: no answer in time; it is unknown whether the actions were done.
        """
        reading = as_reading(grammar, coordinates)
        return await self._steps.step(actions, settle, observe, reading, expects, think_s, timeout_s)

    async def observe(self, observe: Observe | None = None) -> AsyncObservation:
        """Return the screen as it is now; counts as no step. Raises as :meth:`step`."""
        return await self._steps.observe(observe)

    async def zoom(
        self, region: tuple[int, int, int, int], *, size: tuple[int, int] | None = None
    ) -> AsyncObservation:
        """Return a part of the screen as it is now, cut from the screen's own pixels, as PNG.

        It counts as no step, and :attr:`observation` stays what it was. Raises as :meth:`step`.

        Args:
            region: x, y, width and height in pixels of the screen.
            size: width and height of the image; by default the region's.
        """
        return await self._steps.zoom(region, size)

    async def final(self, obs: AsyncObservation, *, timeout_s: float = 3.0) -> AsyncObservation:
        """See :meth:`AsyncObservation.final`."""
        return await self._steps.final(obs, timeout_s)

    async def evaluate(self, *, timeout_s: float | None = None) -> Evaluation:
        """Score the episode. A failure is part of what is returned, with a reward of None, and not raised.

        An episode whose desktop the policy broke has the reward 0; the evaluation's ``loss`` says what broke.

        Raises:
            EpisodeEnded: the episode was closed before.
        """
        if self._context.closed:
            raise EpisodeEnded("the episode is closed", episode_id=self.trajectory.episode_id)
        deadline_s = timeout_s or self._scheduler.config.timeouts.evaluate_s
        evaluation = self.trajectory.evaluation = await self._steps.evaluate(deadline_s)
        return evaluation

    async def fork(
        self,
        count: int = 1,
        *,
        lease_ttl_s: float | None = None,
        max_steps: int | None = None,
        wait_s: float = limits.DEFAULT_FORK_WAIT_S,
        timeout_s: float | None = None,
    ) -> list[AsyncEpisode]:
        """Branch the desktop as it is now: make children that go on from here, each on its own.

        They see nothing of what this one or the others do later. All are made or none; this episode goes on
        after a pause of milliseconds either way.

        Args:
            count: number of children, up to 64.
            lease_ttl_s: how long the host keeps a child without hearing from us; this episode's by default.
            max_steps: this episode's by default; counts from its first step.
            wait_s: how long to wait for room for all of them.
            timeout_s: deadline of the whole call.

        Raises:
            Unsupported, NoCapacity, BranchFailed: the host cannot branch, lacks room for all, or failed.
            EpisodeEnded, EpisodeLost: this one is closed, done, scored or lost.
        """
        if not 1 <= count <= limits.MAX_CHILDREN:
            raise ConfigError(f"count must be from 1 to {limits.MAX_CHILDREN}")
        async with self._steps.between_steps() as session:
            request = ForkRequest(uuid.uuid4().hex, session.lease, count, lease_ttl_s, max_steps, wait_s)
            deadline_s = timeout_s or wait_s + self._scheduler.config.timeouts.setup_s
            answer = await session.branch("/fork", request, ForkAnswer, deadline_s)
            return [self._child(child, lease_ttl_s or self.lease_ttl_s) for child in answer.children]

    async def checkpoint(
        self, *, keep: bool = False, ttl_s: float | None = None, timeout_s: float | None = None
    ) -> AsyncCheckpoint:
        """Keep this state, so that :meth:`AsyncClient.restore` can go on from it any number of times.

        Args:
            keep: on disk until it is deleted; else it goes with this episode's lease.
            ttl_s: seconds until it is deleted in any case.
            timeout_s: deadline of the whole call.

        Raises:
            OSGymError: as for :meth:`fork`; NoCapacity: there is no room for its checkpoints.
        """
        return await self._take_checkpoint(keep, ttl_s, timeout_s, suspend=False)

    async def suspend(
        self, *, ttl_s: float = limits.DEFAULT_SUSPEND_S, timeout_s: float | None = None
    ) -> AsyncCheckpoint:
        """Put this state on the host's disk and give the replica back; :meth:`AsyncClient.resume` goes on.

        The desktop's memory and its place on the host are free meanwhile. This episode is closed afterwards.

        Args:
            ttl_s: seconds until the host deletes a state that nobody resumed.
            timeout_s: deadline of the whole call.

        Raises:
            OSGymError: as for :meth:`checkpoint`; this episode goes on.
        """
        checkpoint = await self._take_checkpoint(True, ttl_s, timeout_s, suspend=True)
        await self._let_go(TerminationReason.SUSPENDED)
        return checkpoint

    async def _take_checkpoint(
        self, keep: bool, ttl_s: float | None, timeout_s: float | None, *, suspend: bool
    ) -> AsyncCheckpoint:
        timeouts = self._scheduler.config.timeouts
        async with self._steps.between_steps() as session:
            request = CheckpointRequest(uuid.uuid4().hex, session.lease, keep, ttl_s, suspend)
            info = await session.branch("/checkpoint", request, CheckpointInfo, timeout_s or timeouts.setup_s)
            return AsyncCheckpoint(info, self._steps.link, timeouts.control_s)

    async def execute(
        self,
        command: str | Sequence[str],
        *args: str,
        timeout_s: float = limits.DEFAULT_COMMAND_S,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | str | None = None,
    ) -> CommandResult:
        """Run a command to its end, as the desktop's user. Any exit status is a result, not an error.

        Background processes go on. A lost answer runs nothing a second time. Cancelling this call kills the
        command some seconds later.

        Args:
            command: the program and its arguments; or one text, which ``/bin/sh -c`` runs.
            args: what a script gets as ``$0``, ``$1``, ….
            timeout_s: up to 600; then it is killed with its session, and ``timed_out`` is set.
            cwd: folder that it runs in; the user's home by default.
            env: variables laid over the desktop's own environment.
            stdin: up to 4 MiB.

        Raises:
            CommandNotStarted, PathNotFound: the program cannot be run; there is no folder ``cwd``.
        """
        return await self._desktop.execute(command, args, timeout_s, cwd, env, stdin)

    async def read_file(self, path: str, *, max_bytes: int = limits.DEFAULT_READ_BYTES) -> bytes:
        """Return the bytes of a file.

        Args:
            path: taken as it is; ``~/`` and relative paths lie below the user's home.
            max_bytes: up to 64 MiB.

        Raises:
            PathNotFound, PathRefused: it is not there, is no file, may not be read, or changed meanwhile.
            TooLarge: it has more than ``max_bytes``; ``details["size"]`` says how many.
        """
        return await self._desktop.read_file(path, max_bytes)

    async def write_file(self, path: str, data: bytes | str, mode: int | None = None) -> None:
        """Write a file whole, up to 16 MiB; folders above it are made.

        Args:
            path: as in :meth:`read_file`.
            data: text is written as UTF-8.
            mode: its permissions, such as ``0o755``; what it has, or what new files get, by default.

        Raises:
            PathRefused: it is a folder or a device, the user may not write there, or there is no room.
            ConfigError: the file is too large, or ``mode`` makes no sense.
        """
        await self._desktop.write_file(path, data, mode)

    async def a11y(
        self,
        *,
        max_nodes: int = limits.DEFAULT_A11Y_NODES,
        max_bytes: int = limits.DEFAULT_A11Y_BYTES,
        timeout_s: float = limits.DEFAULT_A11Y_S,
    ) -> A11yTree:
        """Return the accessibility tree of what shows; ``.to_text()`` gives it as lines for a model.

        Args:
            max_nodes: elements beyond are left out (``truncated``).
            max_bytes: size of its XML, likewise; up to 16 MiB.
            timeout_s: deadline of each application, up to 40; one that takes longer is ``partial``.
        """
        return await self._desktop.a11y(max_nodes, max_bytes, timeout_s)

    async def windows(self) -> list[Window]:
        """Return the windows of the desktop, oldest first, at most 64."""
        return await self._desktop.windows()

    async def score_now(self, *, prepare: bool = True, timeout_s: float | None = None) -> Evaluation:
        """Score the desktop as it is; the episode goes on. It is no reward, and none for a policy to see.

        Args:
            prepare: whether the check waits for the screen to rest and runs the evaluator's ``postconfig``,
                which changes the desktop, before it looks.
            timeout_s: deadline of the whole call; ``Timeouts.evaluate_s`` by default.
        """
        return await self._desktop.score(prepare, timeout_s or self._scheduler.config.timeouts.evaluate_s)

    def record(
        self,
        *,
        max_s: float = limits.DEFAULT_RECORD_S,
        max_bytes: int = limits.MAX_READ_BYTES,
        frames_per_s: int = limits.DEFAULT_FRAMES_PER_S,
    ) -> AbstractAsyncContextManager[Video]:
        """Record the screen while the block runs; afterwards what it gave has the MP4 (``data``, ``save``).

        One recording at a time; the encoder takes a part of the desktop's CPU.

        Args:
            max_s: it ends by itself after this time, up to an hour.
            max_bytes: and with this size, up to 64 MiB.
            frames_per_s: up to 30.

        Raises:
            Unsupported: this desktop has no ffmpeg; the full image has it.
        """
        return self._desktop.record(max_s, max_bytes, frames_per_s)

    async def expose(self, port: int, *, local_port: int = 0) -> Exposure:
        """Make a port of the desktop's loopback reachable at one of this machine's, which is returned.

        Every connection is passed on byte for byte, at most 16 at a time, until the episode or the exposure
        is closed. Every user of this machine can connect to it.

        Args:
            port: where something listens in the desktop, now or later.
            local_port: a free one by default.

        Raises:
            ConfigError: the client goes by a proxy or a transport of one's own, or the port is taken.
        """
        return await self._desktop.expose(port, local_port)

    def _make_observation(self, answer: StepAnswer, data: bytes, timing: Timing | None) -> AsyncObservation:
        obs = AsyncObservation(answer, data, timing)
        obs.episode, obs.episode_id, obs.task_id = self, self.episode_id, self.trajectory.task_id
        return obs

    def _at_checkpoint(self, checkpoint: CheckpointHandle) -> AsyncEpisode:
        """Return an episode with the options of this one that begins where the checkpoint was taken."""
        plan = self._context.plan.at_checkpoint(checkpoint.checkpoint_id, checkpoint.host)
        return AsyncEpisode(self._scheduler, plan)

    async def _drop_origin(self, suspended: CheckpointHandle) -> None:
        """Delete the checkpoint that this episode has resumed."""
        control_s = self._scheduler.config.timeouts.control_s
        try:
            await AsyncCheckpoint(suspended.info, self._steps.link, control_s).delete()
        except OSGymError as exc:
            _LOG.warning("%r was resumed, and stays on its host until its time is over: %s", suspended, exc)

    def _take_lease(self, placement: Placement, total_ms: float) -> None:
        session = EpisodeSession(self._scheduler, placement, self.lease_ttl_s)
        self._context.session = session
        placement.keeper.add(session)
        self._steps.begin(session)
        self.trajectory.begin(session.host, placement.answer, total_ms)

    def _child(self, child: ForkChild, lease_ttl_s: float) -> AsyncEpisode:
        made = AsyncEpisode(self._scheduler, self._context.plan.of_child(lease_ttl_s))
        made._take_lease(self._session.placement.of_child(child, self.observation.meta), 0.0)
        made._steps.branch_from(self._steps, child.step)
        made._context.begin_recording(made.observation)
        return made
