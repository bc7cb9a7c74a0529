"""One leased episode, whose steps run in order, are counted, and act once each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from osgym_host import log_subject
from osgym_host.actions import BadAction, NoAction, parse_actions
from osgym_host.core.reasons import Reason, consequence
from osgym_host.episodes.agent_faults import AgentFaults
from osgym_host.episodes.episode_lease import EpisodeLease
from osgym_host.episodes.episode_state import EpisodeProgress, SavedEpisode
from osgym_host.episodes.episode_steps import EpisodeSteps
from osgym_host.episodes.errors import (
    EpisodeOver,
    already_done,
    already_scored,
    bad_sequence,
    refused_by_guest,
)
from osgym_host.episodes.replica_lease import ReplicaLease
from osgym_host.episodes.step_sender import StepSender
from osgym_host.errors import ServiceError
from osgym_host.guest_client import GuestRefused
from osgym_host.replicas.manager import ReplicaManager
from osgym_host.tasks.context import TaskContext
from osgym_host.tasks.schema import Task
from osgym_protocol.codes import Done, ErrorCode, ThinkCharge, ThinkMode
from osgym_protocol.host_api import (
    EpisodeState,
    EvaluationAnswer,
    FinalRequest,
    InterveneRequest,
    ParentInfo,
    SetupWarning,
    StepAnswer,
    StepRequest,
)
from osgym_protocol.limits import MAX_SCREEN_SIDE_PX
from osgym_protocol.observation import ErrorInfo, ObservedFrame
from osgym_protocol.options import ObserveOptions, SettleOptions

log = logging.getLogger(__name__)

KNOWN_REQUESTS = 256
"""Number of request ids of commands that an episode remembers."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """Answer of a step without the host's own time, its frame, and its time in the guest."""

    answer: StepAnswer
    image: bytes | memoryview
    guest_ms: float


@dataclass(slots=True, eq=False)
class ReachUse:
    """Reaches of one episode: those in flight, and counts of all.

    Attributes:
        calls: Calls in flight; they end when the episode is scored.
        tunnels: Number of connections to its ports, being opened or open.
        score: Id of the newest request for a score before the end, and its answer, running or done.
        events: Number of events, including those beyond the trajectory's bound.
        recorded: Request ids of commands whose event was recorded.
        ended: Event set when all reaches must end.
    """

    calls: set[asyncio.Future[Any]] = field(default_factory=set)
    tunnels: int = 0
    score: tuple[str, asyncio.Task[EvaluationAnswer]] | None = None
    events: int = 0
    recorded: OrderedDict[str, None] = field(default_factory=OrderedDict)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def used(self) -> bool:
        """True if the client has reached into the desktop, or does so now."""
        return bool(self.events or self.calls or self.tunnels)

    async def end(self) -> None:
        """End the reaches in flight and wait for them; no reach may follow."""
        self.ended.set()
        calls = list(self.calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    def first_of(self, request_id: str) -> bool:
        """Return whether a request id is new, and remember it."""
        if request_id in self.recorded:
            return False
        self.recorded[request_id] = None
        if len(self.recorded) > KNOWN_REQUESTS:
            self.recorded.popitem(last=False)
        return True


@dataclass(slots=True, eq=False)
class HostEpisode:
    """State of one episode from its lease to its end.

    Attributes:
        terms: Options of the episode: its task as the client sent it, screen, limits.
        task: Parsed task; None without one.
        context: Files and outputs of the task.
        parent: Episode from which this one was branched; None for a fresh desktop.
        over: Reason of the end; None while the episode is active.
        setup_warnings: Commands of the setup that failed.
        image_digest: Image of its desktop; empty until it has one.
        template: Use of a task template: `hit`, `made`, `no (reason)`; None if templates are off.
        warm_apps: Warm programs that the setup used; None if none was kept open.
        scored: True once the check has begun: no step may follow, since the check changes the desktop.
        evaluation: Answer of the check, for repeated requests.
        check: Task of the check, running or done.
        disk_was_full: True if the host's disk was full during the episode: saved files may be missing.
        lock: Lock held by a step, an evaluation or a branch point.
    """

    episode_id: str
    lease: EpisodeLease
    replica: ReplicaLease
    terms: SavedEpisode
    steps: EpisodeSteps
    task: Task | None = None
    context: TaskContext | None = None
    task_id: str | None = None
    parent: ParentInfo | None = None
    over: EpisodeOver | None = None
    setup_warnings: tuple[SetupWarning, ...] = ()
    image_digest: str = ""
    template: str | None = None
    warm_apps: tuple[str, ...] | None = None
    scored: bool = False
    evaluation: EvaluationAnswer | None = None
    check: asyncio.Task[EvaluationAnswer] | None = None
    disk_was_full: bool = False
    began_at: float = field(default_factory=time.time)
    ended_at: float | None = None
    reach: ReachUse = field(default_factory=ReachUse)
    agent_faults: AgentFaults = field(default_factory=AgentFaults)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def attach(self, manager: ReplicaManager) -> None:
        self.replica.policy_acted = self.policy_acted
        self.replica.excuses_agent = partial(self.agent_faults.is_excused, self.terms.run, self.task_id)
        self.replica.attach(manager)
        self.image_digest = manager.spec.image.digest
        manager.holder = self

    def policy_acted(self) -> bool:
        """Return whether an action of the policy, or a command of its client, was sent to the desktop."""
        return self.steps.progress.step > 0 or self.reach.used

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the lease alive during a call, and name the episode in log lines."""
        with log_subject.about(self), self.lease:
            yield

    def log_fields(self) -> Mapping[str, str | int | None]:
        return {
            "replica": self.replica.replica_id,
            "generation": self.replica.generation or None,
            "episode": self.episode_id,
            "run": self.terms.run,
            "task": self.task_id,
        }

    def drop_task(self) -> None:
        """Free memory that an ended episode does not need."""
        self.task = self.context = self.steps.on_change = None
        self.terms = replace(self.terms, task=None)
        self.steps.progress = replace(self.steps.progress, actions=())

    def termination_reason(self) -> str | None:
        """Return the reason of the end: that of the loss, else that of the policy."""
        if self.over is None:
            return self.steps.done
        meaning = consequence(self.over.reason)
        planned = meaning.error_class is None
        return self.steps.done if planned and self.steps.done is not None else meaning.termination

    def state(self) -> EpisodeState:
        error, done = None, self.steps.done
        if self.over is not None and self.over.reason is not Reason.CLOSED:
            error = ErrorInfo(self.over.code, self.over.message, self.over.details)
        return EpisodeState(
            episode_id=self.episode_id,
            replica_id=self.replica.replica_id,
            generation=self.replica.generation,
            state="active" if self.over is None else "ended",
            step=self.steps.progress.step,
            last_seq=self.steps.progress.seq,
            task_id=self.task_id,
            evaluated=self.scored,
            done=Done(done) if done is not None else None,
            termination_reason=self.termination_reason(),
            error=error,
            parent=self.parent,
            image_digest=self.image_digest or None,
        )

    def saved(self) -> SavedEpisode:
        """Return the state from which another episode continues. The caller holds the lock."""
        outputs = dict(self.context.outputs) if self.context is not None else {}
        return replace(self.terms, progress=self.steps.progress, outputs=outputs)

    # Steps -------------------------------------------------------------------------------------

    async def step(self, request: StepRequest) -> StepResult:
        """Act, let the screen settle, observe. A repeated `seq` acts no second time.

        Raises:
            ServiceError: `invalid_action`, `bad_sequence`, `episode_ended` (done or evaluated): nothing was
                done and no number was used up. `EpisodeOver`: the replica is lost.
        """
        async with self.lock:
            if self.over is not None:
                raise self.over.copy()
            seq, steps, before = request.seq, self.steps, None
            if self.scored and not (seq == steps.progress.seq and steps.answered):
                raise already_scored()
            if seq != steps.progress.seq:
                if not steps.answered:
                    await self.complete()
                if steps.progress.done is not None:
                    raise already_done(steps.progress.done)
                if seq != steps.progress.seq + 1:
                    raise bad_sequence(seq, steps.progress.seq)
                if request.think_s is not None and self.terms.think is not ThinkMode.PAUSED:
                    raise ServiceError(ErrorCode.BAD_REQUEST, 'think_s is for episodes with think="paused".')
                await self.replica.check_alive()
                before = steps.progress
                try:
                    steps.enter(seq, parse_actions(request.actions, self.terms.screen), request.expects)
                except BadAction as error:
                    raise _refused(error) from error
                self._charge(request.think_s)
            return await self._send(
                request.settle or self.terms.settle, request.observe or self.terms.observe, before
            )

    async def check_think(self) -> None:
        """Check that the desktop can stand still while its policy thinks, if the episode's terms say so.

        Raises:
            ServiceError: `unsupported`: this host, runtime or image cannot.
        """
        if self.terms.think is ThinkMode.PAUSED:
            await self.replica.check_can_stand()

    async def begin_thinking(self) -> None:
        """Let the desktop stand still from now on while the policy thinks, if the episode's terms say so."""
        rest = None if self.replica.manager is None else self.replica.manager.rest
        if self.terms.think is ThinkMode.PAUSED and rest is not None:
            await asyncio.wait((rest.begin_thinking(real_time=self.terms.think_charge is ThinkCharge.REAL),))

    def _charge(self, think_s: float | None) -> None:
        if (clock := self.replica.thinking) is not None:
            clock.charge(think_s)

    async def intervene(self, request: InterveneRequest) -> StepResult:
        """Act for a person, between two steps of the policy, whose numbers stay as they are.

        Raises:
            ServiceError: As `step`; `invalid_action` for an ending too, which is the policy's alone.
        """
        async with self.lock:
            if self.over is not None:
                raise self.over.copy()
            steps = self.steps
            if self.scored:
                raise already_scored()
            if not steps.answered:
                await self.complete()
            if steps.progress.done is not None:
                raise already_done(steps.progress.done)
            try:
                parsed = parse_actions(request.actions, self.terms.screen)
                if parsed.ending is not None:
                    index = len(request.actions) - 1
                    raise BadAction(parsed.actions[-1], "only the policy ends its episode", index)
            except BadAction as error:
                raise _refused(error) from error
            before = steps.progress
            steps.intervene(parsed.actions)
            return await self._send(request.settle, request.observe, before)

    def _resized(self, frame: ObservedFrame) -> ObservedFrame:
        """Keep the screen's size, which a desktop may change."""
        screen = frame.observation.frame.screen
        if all(1 <= side <= MAX_SCREEN_SIDE_PX for side in screen):
            self.terms = replace(self.terms, screen=screen)
        return frame

    async def complete(self) -> None:
        """Send the last step again if it may not have reached the guest. The caller holds the lock.

        Raises:
            ServiceError: As `step`.
        """
        if not self.steps.answered:
            await self._send(self.terms.settle, self.terms.observe)

    async def confirm(self) -> None:
        """Ask the guest agent whether it got the last step; see `StepSender.confirm`."""
        await StepSender(self.replica, self.steps).confirm()

    async def _send(
        self,
        settle: SettleOptions | None,
        observe: ObserveOptions | None,
        before: EpisodeProgress | None = None,
    ) -> StepResult:
        async with self.replica.awake():
            began = time.perf_counter()
            frame = await StepSender(self.replica, self.steps).send(settle, observe, before)
        step = self.steps.progress
        if frame.observation.frame.screen != self.terms.screen:
            self._resized(frame)
        guest_ms = (time.perf_counter() - began) * 1000
        log.debug("step %d took %.1f ms in the guest", step.seq, guest_ms)
        seen = replace(frame.observation, seq=step.seq)
        if step.by_person or (before is not None and before.by_person):
            seen = replace(seen, previous=None)  # not between two steps of the policy
        elif step.guest_base and seen.previous is not None:
            seen = replace(seen, previous=replace(seen.previous, seq=seen.previous.seq + step.guest_base))
        repeated = before is None and step.by_person
        done = self.steps.policy_actions if repeated else step.actions
        answer = StepAnswer(
            observation=seen,
            step=step.step,
            actions=() if seen.screen_changed else tuple(done),
            done=Done(step.done) if step.done is not None else None,
            interventions=step.interventions or None,
        )
        return StepResult(answer, frame.image, guest_ms)

    async def _refusal(self, error: GuestRefused) -> ServiceError:
        """Return the error of a refused observation; a guest agent with an internal fault is released."""
        refused = refused_by_guest(error)
        return await self.replica.give_up(error) if refused.code is ErrorCode.INTERNAL else refused

    # Looking -----------------------------------------------------------------------------------

    async def observe(self, observe: ObserveOptions | None) -> ObservedFrame:
        """Take a frame without acting.

        Raises:
            ServiceError: The options are refused, or the replica is lost.
        """
        if self.over is not None:
            raise self.over.copy()
        wanted = observe or self.terms.observe
        try:
            return self._resized(await self.replica.call(self.replica.guest.observe(wanted)))
        except GuestRefused as error:
            raise await self._refusal(error) from error

    async def final(self, request: FinalRequest) -> ObservedFrame:
        """Return the frame after step `seq` once it is final, or the time is up.

        Raises:
            ServiceError: `bad_sequence` when `seq` is not the last step; or the replica is lost.
        """
        if self.over is not None:
            raise self.over.copy()
        wanted = request.observe or self.terms.observe
        guest_seq = request.seq - self.steps.progress.guest_base
        clock = self.replica.thinking
        try:
            async with self.replica.awake():
                wait_s, hold = request.timeout_ms / 1000, clock is not None
                call = self.replica.guest.final(guest_seq, wait_s=wait_s, observe=wanted, hold=hold)
                frame = await self.replica.call(call)
                if clock is not None:
                    clock.mark_held()
                return self._resized(frame)
        except GuestRefused as error:
            raise await self._refusal(error) from error


def _refused(error: BadAction) -> ServiceError:
    details = {"action": error.action, "why": error.why, "index": error.index}
    status = 422 if isinstance(error, NoAction) else None
    return ServiceError(ErrorCode.INVALID_ACTION, str(error), details, status=status)
