"""One episode: a lease on one replica, stepped, scored, closed."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from types import TracebackType
from typing import Self

from osgym_sdk._background import Background
from osgym_sdk._branching import answer_of, ask_checkpoint, ask_fork
from osgym_sdk._checkpoints import AsyncCheckpoint
from osgym_sdk._config import Config
from osgym_sdk._exceptions import (
    ConfigError,
    EpisodeEnded,
    EpisodeLost,
    OSGymError,
    ProtocolError,
    StaleObservation,
    Timeout,
)
from osgym_sdk._fleet import Fleet
from osgym_sdk._frames import Frames
from osgym_sdk._host import HostLink, Pool
from osgym_sdk._observation import AsyncObservation, Timing
from osgym_sdk._options import Actions, Observe, Settle, as_actions, as_settle
from osgym_sdk._parts import EpisodeOptions, Prepared
from osgym_sdk._placing import Placed, Placer, Ticket
from osgym_sdk._records import Evaluation
from osgym_sdk._session import Session
from osgym_sdk._view import EpisodeView
from osgym_sdk.wire import (
    CheckpointRequest,
    EpisodeCall,
    EpisodeState,
    EvaluationAnswer,
    FinalRequest,
    ForkChild,
    ForkRequest,
    Message,
    ObserveOptions,
    ObserveRequest,
    Record,
    StepAnswer,
    StepRequest,
    WireFormatError,
)


class AsyncEpisode(EpisodeView):
    """Made by :meth:`AsyncClient.episode`; use it with ``async with``.

    Calls on one episode run one after the other. A step that was cancelled or ran into its deadline
    is cleared up before the next one: no action is done twice, and none is lost from the trajectory.
    """

    def __init__(
        self, config: Config, fleet: Fleet, placer: Placer, background: Background, options: EpisodeOptions
    ) -> None:
        self._config = config
        self._fleet = fleet
        self._placer = placer
        self._background = background
        super().__init__(options)
        self._lock = asyncio.Lock()
        self._closed = False
        self._entered = False
        self._base = 0
        """Steps of those that it was branched from."""
        self._seq = 0
        self._pending: StepRequest | None = None
        self._frames = Frames(options.request.observe, options.reuse_frames)

    async def __aenter__(self) -> Self:
        if self._session is None or self._entered:  # a child or a restored one has begun already
            await self.start()
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def detach(self) -> Ticket:
        """Lets go of the episode without closing it; the ticket is good for ``lease_ttl_s`` seconds."""
        session, ticket = self._open(), self.ticket
        session.placed.keeper.remove(session)
        self._closed = True
        return ticket

    async def start(self) -> None:
        """Leases a replica and sets the task up; done by ``async with``. Cancelling it leaks nothing.

        Raises:
            NoCapacity, HostUnreachable, TaskError, Timeout: see :meth:`Placer.place`.
        """
        if self._session is not None or self._closed:
            raise EpisodeEnded("an episode is started once")
        clock = self._config.clock
        started = clock()
        if self._options.ticket is not None:
            placed, last_seq = await self._placer.attach(self._options.ticket)
        elif self._options.host is not None:
            placed = await self._placer.place_on(self._options.host, self._options.request)
            last_seq = placed.answer.last_seq
        else:
            placed, last_seq = await self._placer.place(self._options.request), 0
        total_ms = (clock() - started) * 1000
        self._begin(placed, last_seq, total_ms)
        answer, trajectory = placed.answer, self.trajectory
        timing_ms = {"host": answer.timing_ms.get("total", 0.0)}
        step = StepAnswer(answer.observation, step=answer.step, timing_ms=timing_ms)
        obs = self._observe(step, placed.record.blob, self._frames.options(None), total_ms, placed.transfer_s)
        trajectory.first_frame = obs.meta.frame
        trajectory.first_data = obs.data if self._options.keep_frames else None

    async def step(
        self,
        actions: Actions,
        *,
        settle: Settle | None = None,
        observe: Observe | None = None,
        timeout_s: float | None = None,
    ) -> AsyncObservation:
        """Does one action or a list of them, waits for the screen, gives the frame.

        A list stops at its first failure: ``obs.failed_index`` and ``obs.results`` say which and why.

        Args:
            actions: text (``"click(100,200)"``), an object (``{"op": "click", "x": 100, "y": 200}``, or
                any grammar of a model provider), or a list of them.
            settle: how to wait, ``"exact"``, ``"fast"``, or options; the episode's by default.
            observe: which image, ``"jpeg"`` or options; the episode's by default.
            timeout_s: deadline of the whole call; ``Timeouts.step_s`` by default.

        Raises:
            InvalidAction: refused; nothing was done.
            EpisodeLost: the replica, its host or the lease is gone; ``cause`` says how.
            EpisodeEnded: it was closed, done, or out of steps.
            Timeout: no answer in time; it is unknown whether the actions were done.
        """
        async with self._lock:
            return await self.send(await self.prepare(actions, settle, observe), timeout_s)

    async def observe(self, observe: Observe | None = None) -> AsyncObservation:
        """The screen as it is now; does nothing and counts as no step.

        Raises:
            EpisodeLost, EpisodeEnded, Timeout: as for :meth:`step`.
        """
        async with self._lock:
            self._open()
            options = self._frames.options(observe)
            body = ObserveRequest(self.lease, self._frames.unless_hash(options))
            return await self._look("observe", body, options, self._config.timeouts.step_s)

    async def final(self, obs: AsyncObservation, *, timeout_s: float = 3.0) -> AsyncObservation:
        """The frame of the newest step once the screen has come to rest; see :meth:`AsyncObservation.final`.

        Raises:
            StaleObservation: a later step has acted.
        """
        self._open()
        if obs.seq != self._seq or self._pending is not None:
            raise StaleObservation(f"step {obs.seq} was followed by another", episode_id=self.episode_id)
        options = self._frames.options(None)
        body = FinalRequest(self.lease, obs.seq, timeout_s * 1000, self._frames.unless_hash(options))
        return await self._look("final", body, options, timeout_s + self._config.timeouts.control_s)

    async def evaluate(self, *, timeout_s: float | None = None) -> Evaluation:
        """Scores the episode. A failure is told in the answer, with a reward of None, and not raised.

        Raises:
            EpisodeEnded: the episode was closed before.
        """
        if self._closed:
            raise EpisodeEnded("the episode is closed", episode_id=self.trajectory.episode_id)
        async with self._lock:
            try:
                await self._clear_pending()
                answer = await self._where().call(
                    "POST",
                    "/evaluate",
                    EpisodeCall(self.lease),
                    timeout_s=timeout_s or self._config.timeouts.evaluate_s,
                )
                evaluation = Evaluation.of_wire(EvaluationAnswer.from_dict(answer.json()))
            except WireFormatError as exc:
                error = ProtocolError(str(exc), host=self.host, episode_id=self.episode_id)
                evaluation = Evaluation.failed(error)
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
        wait_s: float = 10.0,
        timeout_s: float | None = None,
    ) -> list[AsyncEpisode]:
        """Branches the desktop as it is now: children that go on from here, each on its own.

        They share disk and RAM with this episode's at this moment and see nothing of what it or the
        others do later. Each is an episode like any other: step it, score it, fork it, close it. All
        are made or none; this episode goes on after a pause of milliseconds either way.

        Args:
            count: how many, up to 64.
            lease_ttl_s: how long the host keeps a child when we fall silent; this episode's by default.
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
        if not 1 <= count <= 64:
            raise ConfigError("count is from 1 to 64")
        async with self._lock:
            self._open()
            await self._clear_pending()
            request = ForkRequest(uuid.uuid4().hex, self.lease, count, lease_ttl_s, max_steps, wait_s)
            deadline_s = timeout_s or wait_s + self._config.timeouts.setup_s
            answer = await ask_fork(self._placer, self._where(), request, deadline_s)
            return [self._child(child, lease_ttl_s or self.lease_ttl_s) for child in answer.children]

    async def checkpoint(
        self, *, keep: bool = False, ttl_s: float | None = None, timeout_s: float | None = None
    ) -> AsyncCheckpoint:
        """Keeps this moment, so that :meth:`AsyncClient.restore` can go on from it any number of times.

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
            info = await ask_checkpoint(self._placer, self._where(), request, deadline_s)
            return AsyncCheckpoint(info, self.link, self._config)

    async def close(self) -> None:
        """Gives the replica back. Idempotent; goes on in the background when it is cancelled."""
        if self._closed:
            return
        self._closed = True
        session = self._session
        if session is None:
            return
        session.placed.keeper.remove(session)
        self._frames.forget()
        if session.lost is None:
            await self._background.finish(session.delete(), f"close episode {session.episode_id}")

    # The parts of a step, for steps of many episodes in one request; callers hold ``exclusive()``. ----

    def exclusive(self) -> asyncio.Lock:
        """Held while a step is under way."""
        return self._lock

    @property
    def link(self) -> HostLink:
        """The connections to the episode's host."""
        return self._where().placed.view.link

    async def prepare(self, actions: Actions, settle: Settle | None, observe: Observe | None) -> Prepared:
        """The next step, ready to be sent; clears up a step before it whose answer never came."""
        listed = as_actions(actions)
        self._open()
        await self._clear_pending()
        options = self._frames.options(observe)
        request = StepRequest(
            self.lease, self._seq + 1, listed, as_settle(settle), self._frames.unless_hash(options)
        )
        self._pending = request
        return Prepared(request, options, self._config.clock())

    async def send(self, prepared: Prepared, timeout_s: float | None) -> AsyncObservation:
        """Sends a prepared step. After Timeout, ProtocolError and cancellation it stays pending."""
        self._pending = prepared.request
        try:
            answer = await self._where().call(
                "POST",
                "/step",
                prepared.request,
                timeout_s=timeout_s or self._config.timeouts.step_s,
                want_record=True,
            )
        except OSGymError as exc:
            self.refused(prepared, exc)
            raise
        assert answer.record is not None
        return self.accept(prepared, answer.record, answer.transfer_s)

    def refused(self, prepared: Prepared, error: OSGymError) -> None:
        """Takes note of an error: unless it leaves open what happened, the step was not done."""
        if not isinstance(error, (Timeout, ProtocolError)):
            self._pending = None
        if isinstance(error, EpisodeLost):
            self._where().mark_lost(error)

    def accept(self, prepared: Prepared, record: Record, transfer_s: float | None) -> AsyncObservation:
        """Takes the answer of a step into the episode. ``transfer_s`` None: only the whole is known."""
        step, blob = self._where().parse(record)
        total_ms = (self._config.clock() - prepared.started_s) * 1000
        self._pending = None
        self._seq = prepared.request.seq
        transfer_ms = total_ms if transfer_s is None else transfer_s * 1000
        obs = self._observe(step, blob, prepared.options, total_ms, transfer_ms / 1000)
        self.trajectory.add(prepared.request.actions, obs, self._options.keep_frames)
        return obs

    # ------------------------------------------------------------------------------------------------

    def _begin(self, placed: Placed, last_seq: int, total_ms: float) -> None:
        """Takes a lease that was got."""
        self._session = Session(self._config, self._fleet, placed, self.lease_ttl_s)
        placed.keeper.add(self._session)
        answer = placed.answer
        self._seq, self._base = last_seq, answer.step
        trajectory = self.trajectory
        trajectory.episode_id, trajectory.host = answer.episode_id, placed.view.link.url
        trajectory.replica_id, trajectory.generation = answer.replica_id, answer.generation
        trajectory.screen, trajectory.parent = answer.screen, answer.parent
        trajectory.reset_ms = {**answer.timing_ms, "client": total_ms}

    def _child(self, child: ForkChild, lease_ttl_s: float) -> AsyncEpisode:
        """A child that was made; its screen is ours, so our newest frame is its first."""
        options = dataclasses.replace(
            self._options,
            request=dataclasses.replace(self._options.request, lease_ttl_s=lease_ttl_s),
            ticket=None,
            host=None,
        )
        made = AsyncEpisode(self._config, self._fleet, self._placer, self._background, options)
        newest, ours = self.observation, self._where().placed
        answer = answer_of(child, newest.meta)
        made._begin(dataclasses.replace(ours, answer=answer), child.last_seq, 0.0)
        made._frames = self._frames.copy()
        obs = AsyncObservation(
            newest.meta, newest.data, step=child.step, actions=newest.actions, timing=newest.timing
        )
        obs.episode = made
        made._observation = obs
        made.trajectory.first_frame = obs.meta.frame
        made.trajectory.first_data = obs.data if options.keep_frames else None
        return made

    async def _clear_pending(self) -> None:
        """Finds out what became of a step whose answer never came, and takes its answer if it was done."""
        pending = self._pending
        if pending is None:
            return
        answer = await self._where().call(
            "GET", "", None, timeout_s=self._config.timeouts.control_s, pool=Pool.CONTROL
        )
        try:
            state = EpisodeState.from_dict(answer.json())
        except WireFormatError as exc:
            raise ProtocolError(str(exc), host=self.host, episode_id=self.episode_id) from exc
        if state.last_seq < pending.seq:
            self._pending = None
            return
        options = dataclasses.replace(pending.observe or ObserveOptions(), unless_hash=None)
        await self.send(Prepared(pending, options, self._config.clock()), None)

    async def _look(
        self, verb: str, body: Message, options: ObserveOptions, timeout_s: float
    ) -> AsyncObservation:
        clock = self._config.clock
        started = clock()
        answer = await self._where().call("POST", f"/{verb}", body, timeout_s=timeout_s, want_record=True)
        step, blob = self._where().parse(answer.record)
        total_ms = (clock() - started) * 1000
        step = dataclasses.replace(step, step=self._base + len(self.trajectory.steps))
        return self._observe(step, blob, options, total_ms, answer.transfer_s, newest=verb == "observe")

    def _observe(
        self,
        answer: StepAnswer,
        blob: bytes,
        options: ObserveOptions,
        total_ms: float,
        transfer_s: float,
        newest: bool = True,
    ) -> AsyncObservation:
        meta = answer.observation
        assert meta is not None
        obs = AsyncObservation(
            meta,
            self._frames.image(meta.frame, blob, options),
            step=answer.step,
            actions=answer.actions,
            done=answer.done,
            timing=Timing.split(total_ms, transfer_s * 1000, answer.timing_ms, meta.timing_ms),
        )
        obs.episode = self
        if newest:
            self._observation = obs
        return obs

    def _open(self) -> Session:
        """The session of an episode that goes on.

        Raises:
            EpisodeEnded, EpisodeLost: it does not.
        """
        if self._closed:
            raise EpisodeEnded("the episode is closed", episode_id=self.trajectory.episode_id)
        session = self._where()
        if session.lost is not None:
            raise session.lost
        return session
