"""One episode: what a client leases. Steps are in order, counted, and act once each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
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
    nothing_was_done,
    refused_by_guest,
)
from osgym_host.episodes.reach_use import ReachUse
from osgym_host.episodes.replica_lease import ReplicaLease
from osgym_host.errors import ServiceError
from osgym_host.guest_client import GuestError, GuestRefused, GuestUnreachable
from osgym_host.guest_client.answers import GuestHealth
from osgym_host.replicas.manager import ReplicaManager
from osgym_host.tasks.interface import Task, TaskContext
from osgym_protocol.codes import Done, ErrorCode, GuestErrorCode
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
from osgym_protocol.limits import DEFAULT_SETTLE_MAX_MS, MAX_SCREEN_SIDE_PX
from osgym_protocol.observation import ErrorInfo, ObservedFrame
from osgym_protocol.options import ObserveOptions, SettleOptions

log = logging.getLogger(__name__)

STEP_SLACK_S = 15.0
"""How much longer than its actions and its settling a step may take before the guest counts as hung."""
RESTART_PROBE_S = 5.0


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step's answer (but for the host's own time), its frame, and the time in the guest."""

    answer: StepAnswer
    image: bytes | memoryview
    guest_ms: float


@dataclass(slots=True, eq=False)
class HostEpisode:
    """State of one episode, from its lease to its end.

    Attributes:
        terms: What it was made from: its task as the client sent it, screen, options.
        task: The parsed task, None for an episode without one.
        context: The task's files and outputs.
        parent: What it was branched from, None for an episode of its own.
        over: Why it ended, None while it lives.
        setup_warnings: Commands of its setup that failed.
        template: What became of its task template: `hit`, `made`, `no (reason)`; None where they are off.
        warm_apps: Programs that ran before its set-up and were used by it; None where none was kept open.
        scored: Its check has begun: no step may follow, since the check changes the desktop, and the score
            is that of the end.
        evaluation: What the check gave, for whoever asks again.
        check: The check while it runs, and afterwards.
        disk_was_full: The host's disk was full while it ran: what the desktop saved may be missing.
        reach: What its client does in its desktop past the screen.
        agent_faults: Counter of guest agent faults on this host.
        lock: Held by a step, an evaluation, a branch point: one at a time.
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
        """Use the replica that the pool leased."""
        self.replica.policy_acted = self.policy_acted
        self.replica.excuses_agent = partial(self.agent_faults.is_excused, self.terms.run, self.task_id)
        self.replica.attach(manager)
        manager.holder = self

    def policy_acted(self) -> bool:
        """Return whether an action of the policy, or a command of its client, was sent to the desktop."""
        return self.steps.progress.step > 0 or self.reach.used

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Be a call on it: its lease does not run out, and what is logged is about it."""
        with log_subject.about(self), self.lease:
            yield

    def log_fields(self) -> Mapping[str, str | int | None]:
        """Return its names for the log."""
        return {
            "replica": self.replica.replica_id,
            "generation": self.replica.generation or None,
            "episode": self.episode_id,
            "run": self.terms.run,
            "task": self.task_id,
        }

    def drop_task(self) -> None:
        """Free what an ended episode needs no more: ended ones are kept for a while."""
        self.task = self.context = self.steps.on_change = None
        self.terms = replace(self.terms, task=None)
        self.steps.progress = replace(self.steps.progress, actions=())

    def termination_reason(self) -> str | None:
        """Return how it ended: what took it from its client, else how the policy ended it."""
        if self.over is None:
            return self.steps.done
        meaning = consequence(self.over.reason)
        planned = meaning.error_class is None
        return self.steps.done if planned and self.steps.done is not None else meaning.termination

    def state(self) -> EpisodeState:
        """Return what the API shows of it."""
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
        )

    def saved(self) -> SavedEpisode:
        """Return what another episode needs to go on from here; the lock is held, no step runs."""
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
                await self.replica.check_alive()
                before = steps.progress
                try:
                    steps.enter(seq, parse_actions(request.actions, self.terms.screen))
                except BadAction as error:
                    raise _refused(error) from error
            return await self._send(
                request.settle or self.terms.settle, request.observe or self.terms.observe, before
            )

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
        """Note what size the screen has now: a desktop may change it."""
        screen = frame.observation.frame.screen
        if all(1 <= side <= MAX_SCREEN_SIDE_PX for side in screen):
            self.terms = replace(self.terms, screen=screen)
        return frame

    async def complete(self) -> None:
        """Send the last step again when it is unknown whether the guest got it; the lock is held.

        Raises:
            ServiceError: As `step`.
        """
        if not self.steps.answered:
            await self._send(self.terms.settle, self.terms.observe)

    async def confirm(self) -> None:
        """Ask the guest whether it got the last step, where that is unknown.

        Raises:
            EpisodeOver: The replica is lost.
        """
        if not self.steps.answered:
            last = self.steps.progress
            health = await self._health()
            self.steps.answered = health.last_seq == last.seq - last.guest_base

    async def _send(
        self,
        settle: SettleOptions | None,
        observe: ObserveOptions | None,
        before: EpisodeProgress | None = None,
    ) -> StepResult:
        """Send the last step that was entered.

        It is sent twice when the connection broke and it cannot act twice, or when the guest agent was
        started anew since the step before. When the guest refuses it, `before` is gone back to.
        """
        began = time.perf_counter()
        timeout_s = _step_timeout_s(self.steps.progress.actions, settle)
        mended = False
        while True:
            step = self.steps.progress
            call = self.replica.guest.step(
                step.seq - step.guest_base,
                step.for_guest(),
                settle=settle,
                observe=observe,
                timeout_s=timeout_s,
            )
            try:
                frame = await self.replica.attempt(call)
                break
            except GuestUnreachable as error:
                if mended or not await self._is_safe_to_retry(error, began):
                    raise await self.replica.give_up(error) from error
            except GuestRefused as error:
                if mended or not await self._rebased(error, is_new=before is not None):
                    if before is not None:
                        self.steps.change(before)
                        self.steps.answered = True
                    if nothing_was_done(error):
                        raise refused_by_guest(error) from error
                    raise await self.replica.give_up(error) from error
            except GuestError as error:
                raise await self.replica.give_up(error) from error
            mended = True
        self.steps.answered = True
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
        answer = StepAnswer(
            observation=seen,
            step=step.step,
            actions=tuple(self.steps.policy_actions if repeated else step.actions),
            done=Done(step.done) if step.done is not None else None,
            interventions=step.interventions or None,
        )
        return StepResult(answer, frame.image, guest_ms)

    async def _is_safe_to_retry(self, error: GuestUnreachable, began: float) -> bool:
        """Whether sending the step again cannot act twice.

        It cannot when it never arrived, or when the same guest agent still runs (it knows the
        number). An agent that was started anew in between has forgotten.
        """
        if not error.delivered:
            return True
        try:
            health = await self.replica.call(self.replica.guest.health(timeout_s=RESTART_PROBE_S))
        except GuestRefused:
            return False
        return health.uptime_s > time.perf_counter() - began

    async def _rebased(self, error: GuestRefused, *, is_new: bool) -> bool:
        """Count from 1 again with a new step when the guest agent does, having been started anew."""
        if error.code != GuestErrorCode.BAD_SEQUENCE or not is_new:
            return False
        health = await self._health()
        if health.last_seq != 0:
            return False
        last = self.steps.progress
        self.steps.change(replace(last, guest_base=last.seq - 1))
        return True

    async def _health(self) -> GuestHealth:
        """Ask the guest how far it is.

        Raises:
            EpisodeOver: The replica is lost: it does not even say that.
        """
        try:
            return await self.replica.call(self.replica.guest.health(timeout_s=RESTART_PROBE_S))
        except GuestRefused as error:
            raise await self.replica.give_up(error) from error

    async def _refusal(self, error: GuestRefused) -> ServiceError:
        """Return what a refused look ends with: a guest that fails inside is of no use any more."""
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
        try:
            call = self.replica.guest.final(guest_seq, wait_s=request.timeout_ms / 1000, observe=wanted)
            return self._resized(await self.replica.call(call))
        except GuestRefused as error:
            raise await self._refusal(error) from error


def _step_timeout_s(actions: Sequence[Mapping[str, Any]], settle: SettleOptions | None) -> float:
    waits_ms, typed = 0.0, 0
    for action in actions:
        waits_ms += float(action.get("duration_ms", 0))
        typed += len(action.get("text", ""))
    settle_ms = DEFAULT_SETTLE_MAX_MS
    if settle is not None:
        settle_ms = max(settle.max_ms or DEFAULT_SETTLE_MAX_MS, settle.pause_ms or 0.0)
    return STEP_SLACK_S + (waits_ms + settle_ms) / 1000 + typed * 0.02


def _refused(error: BadAction) -> ServiceError:
    details = {"action": error.action, "why": error.why, "index": error.index}
    status = 422 if isinstance(error, NoAction) else None
    return ServiceError(ErrorCode.INVALID_ACTION, str(error), details, status=status)
