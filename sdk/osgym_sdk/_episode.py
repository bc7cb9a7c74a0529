"""One episode: a lease on one replica, stepped, scored, closed."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from osgym_protocol.limits import DEFAULT_FORK_WAIT_S, MAX_CHILDREN
from osgym_sdk._actions import Actions, as_actions
from osgym_sdk._checkpoints import AsyncCheckpoint, CheckpointHandle
from osgym_sdk._decision import Decision, opened
from osgym_sdk._episode_info import EpisodeRecord
from osgym_sdk._exceptions import (
    ConfigError,
    EpisodeEnded,
    EpisodeLost,
    OSGymError,
    ProtocolError,
    StaleObservation,
    Timeout,
)
from osgym_sdk._frames import FrameCache
from osgym_sdk._grammars import Reading, as_reading
from osgym_sdk._host import HostLink
from osgym_sdk._observation import Observation, Timing
from osgym_sdk._options import Observe, Settle, as_settle
from osgym_sdk._reach import AsyncReach
from osgym_sdk._recorder import EpisodeOutcome, EpisodeRecording
from osgym_sdk._results import Evaluation, Failure, Trajectory, termination_of
from osgym_sdk._scheduler import Placement, Scheduler
from osgym_sdk._session import EpisodeSession
from osgym_sdk._tracing import RequestSpan, ops_of
from osgym_sdk._types import EpisodeOptions, PreparedStep, Ticket
from osgym_sdk.wire import (
    CheckpointInfo,
    CheckpointRequest,
    EpisodeCall,
    EpisodeState,
    EvaluationAnswer,
    FinalRequest,
    ForkAnswer,
    ForkChild,
    ForkRequest,
    Message,
    ObserveOptions,
    ObserveRequest,
    StepAnswer,
    StepRequest,
    TerminationReason,
)

if TYPE_CHECKING:
    from osgym_protocol.grammars import Coordinates


class AsyncObservation(Observation):
    """An observation of an :class:`AsyncEpisode`."""

    episode: AsyncEpisode | None = None

    async def final(self, timeout_s: float = 3.0) -> AsyncObservation:
        """Return the frame of this step when the screen has come to rest, or when the time is up.

        ``is_final`` of what is returned says which.

        Raises:
            StaleObservation: A later step has acted already.
            OSGymError: As for a step.
        """
        if self.episode is None:
            raise ValueError("this observation belongs to no episode")
        return await self.episode.final(self, timeout_s=timeout_s)


class AsyncEpisode(AsyncReach):
    """Made by :meth:`AsyncClient.episode`; use it with ``async with``.

    Calls on one episode run one after the other. A step that was cancelled or ran into its deadline
    is cleared up before the next one: no action is done twice, and none is lost from the trajectory.
    """

    def __init__(self, scheduler: Scheduler, options: EpisodeOptions) -> None:
        super().__init__(EpisodeRecord(options, Trajectory(options.task_id)))
        self._config = scheduler.config
        self._scheduler = scheduler
        self._options = options
        self._observation: AsyncObservation | None = None
        self._lock = asyncio.Lock()
        self._entered = False
        self._base = 0
        """Steps of those that it was branched from."""
        self._seq = 0
        self._pending: PreparedStep | None = None
        self._frames = FrameCache(options.request.observe, options.reuse_frames)
        recorder = options.recorder
        self._recording = None if recorder is None else recorder.record(options.task)
        self._ends_recording = True

    @property
    def observation(self) -> AsyncObservation:
        """The newest observation; the first desktop after start.

        Raises:
            EpisodeEnded: The episode was never started.
        """
        if self._observation is None:
            raise EpisodeEnded("the episode has not been started: use 'async with'")
        return self._observation

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

    async def step(
        self,
        actions: Actions | Decision,
        *,
        settle: Settle | None = None,
        observe: Observe | None = None,
        grammar: str | None = None,
        coordinates: Coordinates | None = None,
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
            timeout_s: deadline of the whole call; ``Timeouts.step_s`` by default.

        Raises:
            InvalidAction: refused; nothing was done.
            EpisodeLost: the replica, its host or the lease is gone; ``cause`` says how.
            EpisodeEnded: it was closed, done, or out of steps.
            Timeout: no answer in time; it is unknown whether the actions were done.
        """
        async with self._lock:
            reading = as_reading(grammar, coordinates) or self._options.reading
            return await self.send(await self.prepare(actions, settle, observe, reading), timeout_s)

    async def observe(self, observe: Observe | None = None) -> AsyncObservation:
        """Return the screen as it is now; this does nothing and counts as no step.

        Raises:
            EpisodeLost, EpisodeEnded, Timeout: as for :meth:`step`.
        """
        async with self._lock:
            self._open()
            options = self._frames.options(observe)
            body = ObserveRequest(self.lease, self._frames.unless_hash(options))
            return await self._fetch_frame("/observe", body, options, self._config.timeouts.step_s)

    async def final(self, obs: AsyncObservation, *, timeout_s: float = 3.0) -> AsyncObservation:
        """Return the frame of the newest step once the screen rests; see :meth:`AsyncObservation.final`.

        Raises:
            StaleObservation: a later step has acted.
        """
        self._open()
        if obs.seq != self._seq or self._pending is not None:
            raise StaleObservation(f"step {obs.seq} was followed by another", episode_id=self.episode_id)
        options = self._frames.options(None)
        body = FinalRequest(self.lease, obs.seq, timeout_s * 1000, self._frames.unless_hash(options))
        return await self._fetch_frame("/final", body, options, timeout_s + self._config.timeouts.control_s)

    async def evaluate(self, *, timeout_s: float | None = None) -> Evaluation:
        """Score the episode. A failure is part of what is returned, with a reward of None, and not raised.

        Raises:
            EpisodeEnded: the episode was closed before.
        """
        if self._record.closed:
            raise EpisodeEnded("the episode is closed", episode_id=self.trajectory.episode_id)
        async with self._lock:
            try:
                await self._clear_pending()
                deadline_s = timeout_s or self._config.timeouts.evaluate_s
                answer = await self._session.call("POST", "/evaluate", EpisodeCall(self.lease), deadline_s)
                evaluation = Evaluation.from_wire(answer.message(EvaluationAnswer))
            except OSGymError as exc:
                evaluation = Evaluation.failed(exc)
        self.trajectory.evaluation = evaluation
        return evaluation

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

    # The parts of a step, for steps of many episodes in one request; callers hold ``exclusive()``. ----

    def exclusive(self) -> asyncio.Lock:
        """Return the lock that is held while a step is under way."""
        return self._lock

    @property
    def link(self) -> HostLink:
        """The connections to the episode's host."""
        return self._session.placement.host.link

    async def prepare(
        self,
        actions: Actions | Decision,
        settle: Settle | None,
        observe: Observe | None,
        reading: Reading | None = None,
    ) -> PreparedStep:
        """Return the next step, ready to be sent; clear up a step before it whose answer never came."""
        reading = reading or self._options.reading
        given, info = opened(actions)
        self.trajectory.last_info = info
        parsed = None if reading is None else reading.parse(given, self.observation)
        listed = as_actions(given if parsed is None else parsed.for_step())
        self._open()
        await self._clear_pending()
        if self._recording is not None:
            await self._recording.room()
        options = self._frames.options(observe)
        settled, unless = as_settle(settle), self._frames.unless_hash(options)
        span = self._begin_span(listed)
        told = None if span is None else span.traceparent
        request = StepRequest(self.lease, self._seq + 1, listed, settled, unless, told)
        self.trajectory.last_info = info  # what was cleared up took away its own
        self._pending = PreparedStep(request, options, self._config.clock(), parsed, info, span)
        return self._pending

    async def send(self, prepared: PreparedStep, timeout_s: float | None) -> AsyncObservation:
        """Send a prepared step. After Timeout, ProtocolError and cancellation it stays pending."""
        self._pending = prepared
        deadline_s = timeout_s or self._config.timeouts.step_s
        try:
            answer = await self._session.call("POST", "/step", prepared.request, deadline_s, record=True)
            return self.accept(prepared, answer.message(StepAnswer), answer.blob, answer.transfer_s)
        except OSGymError as exc:
            self.refused(prepared, exc)
            raise

    def refused(self, prepared: PreparedStep, error: OSGymError) -> None:
        """Take note of an error: unless it leaves open what happened, the step was not done."""
        if not isinstance(error, (Timeout, ProtocolError)):
            self._pending = None
        if prepared.span is not None:
            prepared.span.end(error=error)
        if isinstance(error, EpisodeLost):
            self._session.mark_lost(error)

    def accept(
        self, prepared: PreparedStep, answer: StepAnswer, blob: bytes, transfer_s: float | None
    ) -> AsyncObservation:
        """Take the answer of a step into the episode. ``transfer_s`` None: only the whole is known."""
        total_ms = (self._config.clock() - prepared.started_s) * 1000
        transfer_s = total_ms / 1000 if transfer_s is None else transfer_s
        obs = self._observe(answer, blob, prepared.options, total_ms, transfer_s)
        obs.parsed = prepared.parsed
        self._pending = None
        self._seq = prepared.request.seq
        record = self.trajectory.add(prepared.request.actions, obs, self._options.keep_frames)
        record.info, self.trajectory.last_info = prepared.info, None
        if self._recording is not None:
            self._recording.step(record, obs)
        if prepared.span is not None:
            prepared.span.end({"failed_index": obs.failed_index})
        return obs

    def _begin_span(self, actions: Sequence[Any]) -> RequestSpan | None:
        """Begin the span of the next step, where spans are wanted."""
        tracer = self._config.tracer
        if tracer is None:
            return None
        about = {"episode_id": self.episode_id, "host": self.link.url, "seq": self._seq + 1}
        return tracer.begin("step", {**about, "ops": ops_of(actions)})

    def from_checkpoint(self, checkpoint: CheckpointHandle) -> AsyncEpisode:
        """Return an episode with the options of this one that begins where the checkpoint was taken."""
        request = replace(
            self._options.request,
            request_id=uuid.uuid4().hex,
            task=None,
            strict_setup=None,
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
        lost = self.lost
        failure = None if lost is None else Failure.of(lost)
        reason = str(self.done or TerminationReason.CLOSED) if lost is None else termination_of(lost)
        outcome = EpisodeOutcome.by_hand(self.trajectory.evaluation, failure, reason)
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

    async def _clear_pending(self) -> None:
        """Find out what became of a step whose answer never came, and take its answer if it was done."""
        pending = self._pending
        if pending is None:
            return
        answer = await self._session.call("GET", "", None, self._config.timeouts.control_s)
        if answer.message(EpisodeState).last_seq < pending.request.seq:
            self._pending = None
            return
        options = replace(pending.request.observe or ObserveOptions(), unless_hash=None)
        await self.send(replace(pending, options=options, started_s=self._config.clock()), None)

    async def _fetch_frame(
        self, suffix: str, body: Message, options: ObserveOptions, timeout_s: float
    ) -> AsyncObservation:
        started_s = self._config.clock()
        answer = await self._session.call("POST", suffix, body, timeout_s, record=True)
        total_ms = (self._config.clock() - started_s) * 1000
        shown = replace(answer.message(StepAnswer), step=self._base + len(self.trajectory.steps))
        newest = suffix == "/observe"
        obs = self._observe(shown, answer.blob, options, total_ms, answer.transfer_s, newest)
        self.trajectory.judge_last(obs)
        return obs

    def _observe(
        self,
        answer: StepAnswer,
        blob: bytes,
        options: ObserveOptions,
        total_ms: float,
        transfer_s: float,
        newest: bool = True,
    ) -> AsyncObservation:
        """Return what an answer shows.

        Raises:
            ProtocolError: The answer has no observation.
        """
        meta, session = answer.observation, self._session
        if meta is None:
            raise ProtocolError("no observation", host=session.host, episode_id=session.episode_id)
        session.update_notice(answer.notice)
        frame, data = self._frames.image(meta.frame, blob, options)
        if frame is not meta.frame:
            answer = replace(answer, observation=replace(meta, frame=frame))
        timing = Timing.split(total_ms, transfer_s * 1000, answer.timing_ms, meta.timing_ms)
        obs = AsyncObservation(answer, data, timing)
        self._own(obs)
        if newest:
            self._observation = obs
            self._record.done = answer.done
        return obs

    def _own(self, obs: AsyncObservation) -> None:
        """Write on an observation whose it is."""
        obs.episode = self
        obs.episode_id, obs.task_id = self.episode_id, self.trajectory.task_id
