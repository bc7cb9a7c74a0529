"""What an episode does on its screen: steps, frames, the wait for the screen to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from osgym_sdk._config import ClientConfig
from osgym_sdk._episode.frames import FrameCache
from osgym_sdk._episode.info import EpisodeRecord
from osgym_sdk._episode.reach import AsyncReach
from osgym_sdk._episode.types import EpisodeOptions, PreparedStep
from osgym_sdk._exceptions import (
    EpisodeEnded,
    EpisodeLost,
    OSGymError,
    ProtocolError,
    StaleObservation,
    Timeout,
)
from osgym_sdk._inputs.actions import Actions, as_actions
from osgym_sdk._inputs.decision import Decision, note_of, opened
from osgym_sdk._inputs.options import Observe, Settle, as_settle
from osgym_sdk._inputs.reading import Reading, as_reading
from osgym_sdk._models.observation import Observation, Timing
from osgym_sdk._models.results import Trajectory
from osgym_sdk._tracing import RequestSpan, ops_of
from osgym_sdk._transport.link import HostLink
from osgym_sdk.wire import (
    EpisodeState,
    FinalRequest,
    Message,
    ObserveOptions,
    ObserveRequest,
    StepAnswer,
    StepRequest,
)

if TYPE_CHECKING:
    from osgym_protocol.grammars import Coordinates


class AsyncObservation(Observation):
    """An observation of an :class:`AsyncEpisode`."""

    episode: AsyncSteps | None = None

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


class AsyncSteps(AsyncReach):
    """What :class:`AsyncEpisode` can do on its screen.

    Calls run one after the other. A step that was cancelled or ran into its deadline is cleared up
    before the next one: no action is done twice, and none is lost from the trajectory.
    """

    def __init__(self, config: ClientConfig, options: EpisodeOptions) -> None:
        super().__init__(EpisodeRecord(options, Trajectory(options.task_id)))
        self._config = config
        self._options = options
        self._observation: AsyncObservation | None = None
        self._lock = asyncio.Lock()
        self._base = 0
        """Steps of those that it was branched from."""
        self._seq = 0
        self._pending: PreparedStep | None = None
        self._frames = FrameCache(options.request.observe, options.reuse_frames)
        recorder = options.recorder
        self._recording = None if recorder is None else recorder.record(options.task)

    @property
    def observation(self) -> AsyncObservation:
        """The newest observation; the first desktop after start.

        Raises:
            EpisodeEnded: The episode was never started.
        """
        if self._observation is None:
            raise EpisodeEnded("the episode has not been started: use 'async with'")
        return self._observation

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
            timeout_s = self._config.timeouts.step_s
            return await self._fetch_frame("/observe", body, options, timeout_s, newest=True)

    async def zoom(
        self, region: tuple[int, int, int, int], *, size: tuple[int, int] | None = None
    ) -> AsyncObservation:
        """Return a part of the screen as it is now, cut from the screen's own pixels, as PNG.

        It counts as no step, and :attr:`observation` stays what it was.

        Args:
            region: x, y, width and height in pixels of the screen.
            size: width and height of the image; by default the region's.

        Raises:
            EpisodeLost, EpisodeEnded, Timeout: as for :meth:`step`.
        """
        options = ObserveOptions(region=region, size=size)
        async with self._lock:
            self._open()
            body = ObserveRequest(self.lease, options)
            return await self._fetch_frame(
                "/observe", body, options, self._config.timeouts.step_s, newest=False
            )

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
        timeout_s += self._config.timeouts.control_s
        return await self._fetch_frame("/final", body, options, timeout_s, newest=False)

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
        note = note_of(actions) if self._session.placement.answer.notes else None
        request = StepRequest(self.lease, self._seq + 1, listed, settled, unless, told, note)
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

    # ------------------------------------------------------------------------------------------------

    def _begin_span(self, actions: Sequence[Any]) -> RequestSpan | None:
        """Begin the span of the next step, where spans are wanted."""
        tracer = self._config.tracer
        if tracer is None:
            return None
        about = {"episode_id": self.episode_id, "host": self.link.url, "seq": self._seq + 1}
        return tracer.begin("step", {**about, "ops": ops_of(actions)})

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
        self, suffix: str, body: Message, options: ObserveOptions, timeout_s: float, *, newest: bool
    ) -> AsyncObservation:
        started_s = self._config.clock()
        answer = await self._session.call("POST", suffix, body, timeout_s, record=True)
        total_ms = (self._config.clock() - started_s) * 1000
        shown = replace(answer.message(StepAnswer), step=self._base + len(self.trajectory.steps))
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
        obs.episode_id, obs.task_id = self.episode_id, self.trajectory.task_id
