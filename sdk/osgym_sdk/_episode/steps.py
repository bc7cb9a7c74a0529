"""Calls of one episode that follow one another: steps, frames, the score."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from osgym_sdk._config import ClientConfig
from osgym_sdk._episode.frames import FrameCache
from osgym_sdk._episode.info import EpisodeContext
from osgym_sdk._exceptions import (
    EpisodeEnded,
    EpisodeLost,
    OSGymError,
    ProtocolError,
    StaleObservation,
    Timeout,
)
from osgym_sdk._fleet.scheduler import Placement
from osgym_sdk._fleet.session import EpisodeSession
from osgym_sdk._inputs.actions import Actions, as_actions
from osgym_sdk._inputs.decision import Decision, charge_of, note_of, opened
from osgym_sdk._inputs.options import Observe, Settle, as_settle
from osgym_sdk._inputs.reading import Reading
from osgym_sdk._models.evaluation import Evaluation
from osgym_sdk._models.observation import Observation, Timing
from osgym_sdk._tracing import RequestSpan, ops_of
from osgym_sdk._transport.link import HostLink
from osgym_sdk.wire import (
    EpisodeCall,
    EpisodeState,
    EvaluationAnswer,
    FinalRequest,
    Message,
    ObserveOptions,
    ObserveRequest,
    StepAnswer,
    StepRequest,
)

if TYPE_CHECKING:
    from osgym_protocol.grammars import Parsed


ObservationT = TypeVar("ObservationT", bound=Observation)


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """A step that has its number and is about to be sent."""

    request: StepRequest
    options: ObserveOptions
    started_s: float
    """Time on the client's clock."""
    parsed: Parsed | None = None
    """Reading of a model's output; None where actions were given."""
    info: Any = None
    """Info of the :class:`Decision`, where one was given."""
    span: RequestSpan | None = None
    """Span of the request; None where spans are off."""


class StepCalls(Generic[ObservationT]):
    """Steps, frames and the score of one episode, one call at a time.

    A step that was cancelled or ran into its deadline stays pending; the next call finds out what became of
    it, so that no action is done twice and none is lost from the trajectory.
    """

    def __init__(
        self,
        config: ClientConfig,
        context: EpisodeContext,
        make_observation: Callable[[StepAnswer, bytes, Timing | None], ObservationT],
    ) -> None:
        self.lock = asyncio.Lock()
        """Held while a step is under way."""
        self.newest: ObservationT | None = None
        self.frames = FrameCache(context.plan.options.observe, context.plan.reuse_frames)
        self._config = config
        self._context = context
        self._make = make_observation
        self._seq = 0
        self._pending: PreparedStep | None = None

    @property
    def link(self) -> HostLink:
        """Connections to the episode's host."""
        return self._context.leased().placement.host.link

    def begin(self, session: EpisodeSession) -> None:
        """Start at the step that the host names."""
        self._seq, self._context.base_step = session.placement.answer.last_seq, session.placement.answer.step

    def show_first(self, placement: Placement, total_ms: float) -> None:
        """Take the first desktop."""
        answer = placement.answer
        timing_ms = {"host": answer.timing_ms.get("total", 0.0)}
        first = StepAnswer(answer.observation, step=answer.step, timing_ms=timing_ms)
        options = self.frames.options(None)
        obs = self._read(first, placement.blob, options, total_ms, placement.transfer_s)
        self._context.trajectory.add_first(obs, self._context.plan.keep_frames)

    def branch_from(self, parent: StepCalls[ObservationT], step: int) -> None:
        """Take the newest frame of the parent as the first desktop: a child begins with the same screen."""
        newest = parent.newest
        assert newest is not None, "a forked episode has already started; start() is not needed"
        self.frames = parent.frames.copy()
        first = replace(newest.answer, step=step, done=None)
        self.newest = self._make(first, newest.data, newest.timing)
        self._context.trajectory.add_first(self.newest, self._context.plan.keep_frames)

    @asynccontextmanager
    async def between_steps(self) -> AsyncIterator[EpisodeSession]:
        """Hold off steps while the block runs; before it, clear up a step whose answer never came.

        Raises:
            EpisodeEnded, EpisodeLost: The episode does not go on.
        """
        async with self.lock:
            session = self._context.running()
            await self._clear_pending()
            yield session

    async def step(
        self,
        actions: Actions | Decision,
        settle: Settle | None,
        observe: Observe | None,
        reading: Reading | None,
        expects: Observation | str | None,
        think_s: float | None,
        timeout_s: float | None,
    ) -> ObservationT:
        """Prepare a step and send it."""
        async with self.lock:
            prepared = await self.prepare(actions, settle, observe, reading, expects, think_s)
            return await self.send(prepared, timeout_s)

    async def observe(self, observe: Observe | None) -> ObservationT:
        """Return the screen as it is now."""
        async with self.lock:
            lease = self._context.running().lease
            options = self.frames.options(observe)
            body = ObserveRequest(lease, self.frames.unless_hash(options))
            return await self._fetch("/observe", body, options, self._config.timeouts.step_s, newest=True)

    async def zoom(self, region: tuple[int, int, int, int], size: tuple[int, int] | None) -> ObservationT:
        """Return a part of the screen."""
        options = ObserveOptions(region=region, size=size)
        async with self.lock:
            body = ObserveRequest(self._context.running().lease, options)
            return await self._fetch("/observe", body, options, self._config.timeouts.step_s, newest=False)

    async def final(self, obs: ObservationT, timeout_s: float) -> ObservationT:
        """Return the frame of the newest step once the screen rests."""
        session = self._context.running()
        if obs.seq != self._seq or self._pending is not None:
            raise StaleObservation(
                f"step {obs.seq} was followed by another step, so its frame can no longer be fetched",
                episode_id=session.episode_id,
            )
        options = self.frames.options(None)
        body = FinalRequest(session.lease, obs.seq, timeout_s * 1000, self.frames.unless_hash(options))
        timeout_s += self._config.timeouts.control_s
        return await self._fetch("/final", body, options, timeout_s, newest=False)

    async def evaluate(self, deadline_s: float) -> Evaluation:
        """Return the score; an error of the call is a failed evaluation."""
        async with self.lock:
            try:
                return await self._score(deadline_s)
            except OSGymError as exc:
                return Evaluation.failed(exc)

    async def prepare(
        self,
        actions: Actions | Decision,
        settle: Settle | None,
        observe: Observe | None,
        reading: Reading | None = None,
        expects: Observation | str | None = None,
        think_s: float | None = None,
    ) -> PreparedStep:
        """Return the next step, ready to be sent; the caller holds the lock.

        Raises:
            OSGymError: An argument cannot be read, or the episode does not go on.
        """
        context = self._context
        reading = reading or context.plan.reading
        charge_s = charge_of(actions, think_s, context.plan.think_s_per_token)
        given, info = opened(actions)
        context.trajectory.last_info = info
        parsed = None if reading is None else reading.parse(given, self.require_newest())
        listed = as_actions(given if parsed is None else parsed.for_step())
        session = context.running()
        await self._clear_pending()
        if context.recording is not None:
            await context.recording.room()
        options = self.frames.options(observe)
        settled, unless = as_settle(settle), self.frames.unless_hash(options)
        span = self._begin_span(listed)
        parent = None if span is None else span.traceparent
        note = note_of(actions) if session.placement.answer.notes else None
        frame_hash = expects.hash if isinstance(expects, Observation) else expects
        request = StepRequest(
            session.lease, self._seq + 1, listed, settled, unless, parent, note, frame_hash, charge_s
        )
        context.trajectory.last_info = info  # a step that was cleared up took away its own
        self._pending = PreparedStep(request, options, self._config.clock(), parsed, info, span)
        return self._pending

    async def send(self, prepared: PreparedStep, timeout_s: float | None) -> ObservationT:
        """Send a prepared step. After Timeout, ProtocolError and cancellation it stays pending."""
        self._pending = prepared
        deadline_s = timeout_s or self._config.timeouts.step_s + (prepared.request.think_s or 0.0)
        try:
            session = self._context.leased()
            answer = await session.call("POST", "/step", prepared.request, deadline_s, record=True)
            return self.accept(prepared, answer.message(StepAnswer), answer.blob, answer.transfer_s)
        except OSGymError as exc:
            self.reject(prepared, exc)
            raise

    def reject(self, prepared: PreparedStep, error: OSGymError) -> None:
        """Take the error of a step: unless it leaves open what happened, the step was not done."""
        if not isinstance(error, (Timeout, ProtocolError)):
            self._pending = None
        if prepared.span is not None:
            prepared.span.end(error=error)
        if isinstance(error, EpisodeLost):
            self._context.leased().mark_lost(error)

    def accept(
        self, prepared: PreparedStep, answer: StepAnswer, blob: bytes, transfer_s: float | None
    ) -> ObservationT:
        """Take the answer of a step into the trajectory.

        Args:
            transfer_s: duration of the transfer; None where only the whole is known.
        """
        total_ms = (self._config.clock() - prepared.started_s) * 1000
        transfer_s = total_ms / 1000 if transfer_s is None else transfer_s
        obs = self._read(answer, blob, prepared.options, total_ms, transfer_s)
        obs.parsed = prepared.parsed
        self._pending = None
        self._seq = prepared.request.seq
        context = self._context
        record = context.trajectory.add(prepared.request.actions, obs, context.plan.keep_frames)
        record.info, context.trajectory.last_info = prepared.info, None
        if obs.screen_changed:
            obs.refused = record.refused = "the screen was not the one that the step expected"
        if context.recording is not None:
            context.recording.step(record, obs)
        if prepared.span is not None:
            prepared.span.end({"failed_index": obs.failed_index})
        return obs

    def require_newest(self) -> ObservationT:
        """Return the newest observation. Raises EpisodeEnded if the episode was never started."""
        if self.newest is None:
            raise EpisodeEnded("the episode has not been started: use 'async with'")
        return self.newest

    def _begin_span(self, actions: Sequence[Any]) -> RequestSpan | None:
        tracer = self._config.tracer
        if tracer is None:
            return None
        session = self._context.leased()
        about = {"episode_id": session.episode_id, "host": session.host, "seq": self._seq + 1}
        return tracer.begin("step", {**about, "ops": ops_of(actions)})

    async def _clear_pending(self) -> None:
        """Find out what became of a step whose answer never came, and take its answer if it was done."""
        pending = self._pending
        if pending is None:
            return
        answer = await self._context.leased().call("GET", "", None, self._config.timeouts.control_s)
        if answer.message(EpisodeState).last_seq < pending.request.seq:
            self._pending = None
            return
        options = replace(pending.request.observe or ObserveOptions(), unless_hash=None)
        await self.send(replace(pending, options=options, started_s=self._config.clock()), None)

    async def _score(self, deadline_s: float) -> Evaluation:
        session = self._context.leased()
        body = EpisodeCall(session.lease)
        try:
            await self._clear_pending()
            answer = await session.call("POST", "/evaluate", body, deadline_s)
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
        session, context = self._context.leased(), self._context
        body = EpisodeCall(session.lease)
        try:
            answer = await session.call("POST", "/evaluate", body, deadline_s, after_loss=True)
        except OSGymError as exc:
            told = isinstance(exc, EpisodeLost) and exc.by_policy
            if told or not lost.by_policy or context.plan.task is None:
                raise lost from exc
            # The host cannot be reached any more, but has said that the loss is the policy's.
            return Evaluation.lost_by_policy(lost, context.trajectory.interventions)
        return Evaluation.from_wire(answer.message(EvaluationAnswer))

    async def _fetch(
        self, suffix: str, body: Message, options: ObserveOptions, timeout_s: float, *, newest: bool
    ) -> ObservationT:
        started_s, context = self._config.clock(), self._context
        answer = await context.leased().call("POST", suffix, body, timeout_s, record=True)
        total_ms = (self._config.clock() - started_s) * 1000
        step = context.base_step + len(context.trajectory.steps)
        shown = replace(answer.message(StepAnswer), step=step)
        obs = self._read(shown, answer.blob, options, total_ms, answer.transfer_s, newest)
        context.trajectory.judge_last(obs)
        return obs

    def _read(
        self,
        answer: StepAnswer,
        blob: bytes,
        options: ObserveOptions,
        total_ms: float,
        transfer_s: float,
        newest: bool = True,
    ) -> ObservationT:
        """Return the observation of an answer. Raises ProtocolError if the answer has none."""
        meta, session = answer.observation, self._context.leased()
        if meta is None:
            raise ProtocolError("no observation", host=session.host, episode_id=session.episode_id)
        session.update_notice(answer.notice)
        frame, data = self.frames.image(meta.frame, blob, options)
        if frame is not meta.frame:
            answer = replace(answer, observation=replace(meta, frame=frame))
        timing = Timing.split(total_ms, transfer_s * 1000, answer.timing_ms, meta.timing_ms)
        obs = self._make(answer, data, timing)
        if newest:
            self.newest = obs
            self._context.done = answer.done
        return obs
