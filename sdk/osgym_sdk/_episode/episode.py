"""One episode: a lease on one replica, begun, branched, scored, closed."""

from __future__ import annotations

import uuid
from dataclasses import replace
from types import TracebackType
from typing import Self

from osgym_protocol.limits import DEFAULT_FORK_WAIT_S, MAX_CHILDREN
from osgym_sdk._episode.checkpoints import AsyncCheckpoint, CheckpointHandle
from osgym_sdk._episode.steps import AsyncObservation, AsyncSteps
from osgym_sdk._episode.types import EpisodeOptions
from osgym_sdk._exceptions import ConfigError, EpisodeEnded, EpisodeLost, OSGymError
from osgym_sdk._fleet.scheduler import Placement, Scheduler, Ticket
from osgym_sdk._fleet.session import EpisodeSession
from osgym_sdk._models.recorder import EpisodeOutcome, EpisodeRecording
from osgym_sdk._models.results import Evaluation, Failure, termination_of
from osgym_sdk.wire import (
    CheckpointInfo,
    CheckpointRequest,
    EpisodeCall,
    EvaluationAnswer,
    ForkAnswer,
    ForkChild,
    ForkRequest,
    StepAnswer,
    TerminationReason,
)


class AsyncEpisode(AsyncSteps):
    """Made by :meth:`AsyncClient.episode`; use it with ``async with``.

    Calls on one episode run one after the other. A step that was cancelled or ran into its deadline
    is cleared up before the next one: no action is done twice, and none is lost from the trajectory.
    """

    def __init__(self, scheduler: Scheduler, options: EpisodeOptions) -> None:
        super().__init__(scheduler.config, options)
        self._scheduler = scheduler
        self._entered = False
        self._ends_recording = True

    async def __aenter__(self) -> Self:
        if self._record.session is None or self._entered:  # a child or a restored one has begun already
            await self.start()
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def detach(self) -> Ticket:
        """Let go of the episode without closing it; the ticket is good for ``lease_ttl_s`` seconds."""
        session, ticket = self._open(), self.ticket
        self._end_recording()
        session.placement.keeper.remove(session)
        self._record.closed = True
        return ticket

    async def start(self) -> None:
        """Lease a replica and set the task up; done by ``async with``. Cancelling it leaks nothing.

        Raises:
            NoCapacity, HostUnreachable, TaskError, Timeout: see :meth:`Scheduler.place`.
        """
        if self._record.session is not None or self._record.closed:
            raise EpisodeEnded("an episode is started once")
        options, scheduler = self._options, self._scheduler
        started_s = self._config.clock()
        if options.ticket is not None:
            placement = await scheduler.attach(options.ticket)
        elif options.host is not None:
            placement = await scheduler.place_on(options.host, options.request)
        else:
            placement = await scheduler.place(options.request)
        total_ms = (self._config.clock() - started_s) * 1000
        self._take_lease(placement, total_ms)
        answer = placement.answer
        timing_ms = {"host": answer.timing_ms.get("total", 0.0)}
        first = StepAnswer(answer.observation, step=answer.step, timing_ms=timing_ms)
        self._observe(first, placement.blob, self._frames.options(None), total_ms, placement.transfer_s)
        self.trajectory.add_first(self.observation, options.keep_frames)
        self._begin_recording()

    async def evaluate(self, *, timeout_s: float | None = None) -> Evaluation:
        """Score the episode. A failure is part of what is returned, with a reward of None, and not raised.

        An episode whose desktop the policy broke (``EpisodeLost`` of class ``policy``) has the reward 0; the
        evaluation's ``loss`` says what broke.

        Raises:
            EpisodeEnded: the episode was closed before.
        """
        if self._record.closed:
            raise EpisodeEnded("the episode is closed", episode_id=self.trajectory.episode_id)
        async with self._lock:
            try:
                evaluation = await self._score(timeout_s or self._config.timeouts.evaluate_s)
            except OSGymError as exc:
                evaluation = Evaluation.failed(exc)
        self.trajectory.evaluation = evaluation
        return evaluation

    async def _score(self, deadline_s: float) -> Evaluation:
        try:
            await self._clear_pending()
            answer = await self._session.call("POST", "/evaluate", EpisodeCall(self.lease), deadline_s)
        except EpisodeLost as lost:
            if "cause" not in lost.details:  # the host did not say so, and cannot be reached
                raise
            return await self._score_of_loss(lost, deadline_s)
        return Evaluation.from_wire(answer.message(EvaluationAnswer))

    async def _score_of_loss(self, lost: EpisodeLost, deadline_s: float) -> Evaluation:
        """Return the host's score of a lost episode: an earlier one, or the 0 of one that the policy broke.

        Raises:
            EpisodeLost: The episode has no score.
        """
        body = EpisodeCall(self.lease)
        try:
            answer = await self._session.call("POST", "/evaluate", body, deadline_s, after_loss=True)
        except OSGymError as exc:
            told = isinstance(exc, EpisodeLost) and exc.by_policy
            if told or not lost.by_policy or self._options.task is None:
                raise lost from exc
            # The host cannot be reached any more, but has said that the loss is the policy's.
            return Evaluation.lost_by_policy(lost, self.trajectory.interventions)
        return Evaluation.from_wire(answer.message(EvaluationAnswer))

    async def fork(
        self,
        count: int = 1,
        *,
        lease_ttl_s: float | None = None,
        max_steps: int | None = None,
        wait_s: float = DEFAULT_FORK_WAIT_S,
        timeout_s: float | None = None,
    ) -> list[AsyncEpisode]:
        """Branch the desktop as it is now: make children that go on from here, each on its own.

        They share disk and RAM with this episode's as they are now and see nothing of what it or the
        others do later. Each is an episode like any other: step it, score it, fork it, close it. All
        are made or none; this episode goes on after a pause of milliseconds either way.

        Args:
            count: how many, up to 64.
            lease_ttl_s: how long the host keeps a child without hearing from us; this episode's by default.
            max_steps: this episode's by default; counts from its first step.
            wait_s: how long to wait for room for all of them.
            timeout_s: deadline of the whole call.

        Raises:
            Unsupported: the host's runtime cannot branch.
            NoCapacity: there is no room for all of them.
            BranchFailed: they could not be made.
            EpisodeEnded: this one is closed, done or scored.
            EpisodeLost: as for :meth:`step`.
        """
        if not 1 <= count <= MAX_CHILDREN:
            raise ConfigError(f"count is from 1 to {MAX_CHILDREN}")
        async with self._lock:
            self._open()
            await self._clear_pending()
            request = ForkRequest(uuid.uuid4().hex, self.lease, count, lease_ttl_s, max_steps, wait_s)
            deadline_s = timeout_s or wait_s + self._config.timeouts.setup_s
            answer = await self._session.branch("/fork", request, ForkAnswer, deadline_s)
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
            NoCapacity: the checkpoints of the host use all that they may.
            OSGymError: as for :meth:`fork`.
        """
        async with self._lock:
            self._open()
            await self._clear_pending()
            request = CheckpointRequest(uuid.uuid4().hex, self.lease, keep, ttl_s)
            deadline_s = timeout_s or self._config.timeouts.setup_s
            info = await self._session.branch("/checkpoint", request, CheckpointInfo, deadline_s)
            return AsyncCheckpoint(info, self.link, self._config.timeouts.control_s)

    async def close(self) -> None:
        """Give the replica back. Idempotent; goes on in the background when it is cancelled."""
        if self._record.closed:
            return
        self._record.closed = True
        session = self._record.session
        if session is None:
            return
        session.placement.keeper.remove(session)
        self._end_recording()
        self._frames.forget()
        await self._end_reach()
        if session.lost is None:
            work = self._scheduler.background
            await work.finish(session.delete(), f"close episode {session.episode_id}")

    def from_checkpoint(self, checkpoint: CheckpointHandle) -> AsyncEpisode:
        """Return an episode with the options of this one that begins where the checkpoint was taken."""
        request = replace(
            self._options.request,
            request_id=uuid.uuid4().hex,
            task=None,
            strict_setup=False,
            clock=None,
            checkpoint=checkpoint.checkpoint_id,
        )
        return AsyncEpisode(self._scheduler, replace(self._options, request=request, host=checkpoint.host))

    # What is recorded. ------------------------------------------------------------------------------

    def take_recording(self) -> EpisodeRecording | None:
        """Return what the episode is recorded to; the caller says how it ended."""
        self._ends_recording = False
        return self._recording

    def hold_recording(self) -> EpisodeRecording | None:
        """Record nothing; :meth:`begin_recording` may take it up."""
        recording, self._recording = self._recording, None
        return recording

    def begin_recording(self, recording: EpisodeRecording | None) -> None:
        """Record an episode that has started, and no step yet."""
        self._recording = recording
        self._begin_recording()

    def _begin_recording(self) -> None:
        if self._recording is not None:
            state = self._session.placement.host.state
            self._recording.begin(self.trajectory, self.observation, state)

    def _end_recording(self) -> None:
        """Say how an episode ended that no batch runs."""
        if self._recording is None or not self._ends_recording:
            return
        self._ends_recording = False
        lost, trajectory = self.lost, self.trajectory
        if lost is not None and lost.by_policy and self._options.task is not None:
            zero = Evaluation.lost_by_policy(lost, trajectory.interventions)
            trajectory.evaluation = trajectory.evaluation or zero
        scored = trajectory.evaluation is not None and trajectory.evaluation.loss is not None
        failure = None if lost is None or scored else Failure.of(lost)
        reason = str(self.done or TerminationReason.CLOSED) if lost is None else termination_of(lost)
        outcome = EpisodeOutcome.by_hand(trajectory.evaluation, failure, reason)
        self._recording.end(self.trajectory, outcome)

    # ------------------------------------------------------------------------------------------------

    def _take_lease(self, placement: Placement, total_ms: float) -> None:
        """Begin with the lease of a replica."""
        session = EpisodeSession(self._scheduler, placement, self.lease_ttl_s)
        self._record.session = session
        placement.keeper.add(session)
        answer = placement.answer
        self._seq, self._base = answer.last_seq, answer.step
        self.trajectory.begin(session.host, answer, total_ms)

    def _child(self, child: ForkChild, lease_ttl_s: float) -> AsyncEpisode:
        """Return a child that was made; its screen is ours, so our newest frame is its first."""
        request = replace(self._options.request, lease_ttl_s=lease_ttl_s)
        made = AsyncEpisode(self._scheduler, replace(self._options, request=request, ticket=None, host=None))
        newest = self.observation
        made._take_lease(self._session.placement.of_child(child, newest.meta), 0.0)
        made._frames = self._frames.copy()
        first = replace(newest.answer, step=child.step, done=None)
        made._observation = AsyncObservation(first, newest.data, newest.timing)
        made._own(made._observation)
        made.trajectory.add_first(made._observation, self._options.keep_frames)
        made._begin_recording()
        return made

    def _own(self, obs: AsyncObservation) -> None:
        super()._own(obs)
        obs.episode = self
