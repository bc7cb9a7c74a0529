"""One episode: what a client holds. Steps are in order, counted, and act once each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from osgym_host.actions import BadAction, ParsedActions, parse_actions
from osgym_host.core.reasons import Reason, consequence
from osgym_host.episodes.errors import EpisodeError, EpisodeOver, already_done, bad_sequence
from osgym_host.episodes.hold import Hold
from osgym_host.episodes.moment import Moment, Options, Progress
from osgym_host.guest import GuestFrame, GuestRefused, GuestUnreachable
from osgym_host.replicas.manager import ReplicaManager
from osgym_host.tasks.interface import Task, TaskContext
from osgym_sdk.wire import EpisodeState, ErrorInfo, EvaluationAnswer, ParentInfo

Frame = GuestFrame
"""An observation with its image."""

STEP_SLACK_S = 15.0
"""How much longer than its actions and its settling a step may take before the guest counts as hung."""
RESTART_PROBE_S = 5.0
_NOTHING: tuple[dict[str, Any], ...] = ({"op": "screenshot"},)


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """A step's answer: `meta` is the record's (without `timing_ms.host`), `image` the frame."""

    meta: dict[str, Any]
    image: bytes
    guest_ms: float


@dataclass(slots=True)
class _LastStep:
    seq: int
    for_guest: Sequence[Mapping[str, Any]]
    actions: Sequence[Mapping[str, Any]]
    step: int
    done: str | None


@dataclass(slots=True, eq=False)
class Episode:
    """State of one episode, from its lease to its end.

    Attributes:
        lease: The secret that every call must carry.
        expires_at: When the lease runs out, monotonic; pushed back by every call.
        touched_until: The `expires_at` that the journal knows of.
        busy: Calls in flight; the lease does not run out under them.
        over: Why it ended, None while it lives.
        task_json: The task as the client sent it.
        parent: What it was branched from, None for an episode of its own.
        unrecorded: A step that the guest may have done, but whose trajectory line is missing.
        note: Called with the progress whenever it changed, before the guest hears of it.
        done: How the policy ended it, or `max_steps`.
    """

    episode_id: str
    lease: str
    hold: Hold
    task: Task | None
    context: TaskContext | None
    screen: tuple[int, int]
    lease_ttl_s: float
    max_steps: int | None
    settle: Options | None
    observe: Options | None
    task_id: str | None = None
    task_json: Mapping[str, Any] | None = None
    parent: ParentInfo | None = None
    unrecorded: int | None = None
    note: Callable[[Progress], None] | None = None
    replica_id: str = ""
    generation: int = 0
    expires_at: float = 0.0
    touched_until: float = 0.0
    busy: int = 0
    last_seq: int = 0
    step_no: int = 0
    done: str | None = None
    over: EpisodeOver | None = None
    evaluation: EvaluationAnswer | None = None
    began_at: float = field(default_factory=time.time)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _last: _LastStep | None = None
    _open: bool = False
    """Whether it is unknown if the guest ever got the last step: the host agent was killed under it."""
    _guest_base: int = 0

    def take(self, manager: ReplicaManager) -> None:
        """Remembers the replica that it got."""
        self.hold.manager = manager
        self.replica_id, self.generation = manager.replica_id, manager.generation

    def renew(self) -> None:
        """Pushes the end of the lease back."""
        self.expires_at = time.monotonic() + self.lease_ttl_s

    def shrink(self) -> None:
        """Lets go of all that an ended episode needs no more: ended ones are kept for a while."""
        self.task = self.task_json = self.context = self._last = self.settle = self.observe = None
        self.note = None

    def ended_as(self) -> str | None:
        """Returns the termination reason: how the policy ended it, else what took it away."""
        if self.over is not None and consequence(self.over.reason).error_class is not None:
            return consequence(self.over.reason).termination
        if self.done is not None:
            return self.done
        return None if self.over is None else consequence(self.over.reason).termination

    def state(self) -> EpisodeState:
        """Returns what the API shows of it."""
        error = None
        if self.over is not None and self.over.reason is not Reason.CLOSED:
            error = ErrorInfo(self.over.code, self.over.message, self.over.details)
        return EpisodeState.from_dict(
            {
                "episode_id": self.episode_id,
                "replica_id": self.replica_id,
                "generation": self.generation,
                "state": "active" if self.over is None else "ended",
                "step": self.step_no,
                "last_seq": self.last_seq,
                "task_id": self.task_id,
                "done": self.done,
                "termination_reason": self.ended_as(),
                "error": error.to_dict() if error is not None else None,
                "parent": self.parent.to_dict() if self.parent is not None else None,
            }
        )

    def progress(self) -> Progress:
        """Returns how far it is."""
        last = self._last
        if last is None or last.seq != self.last_seq:
            return Progress(self.last_seq, self.step_no, self.done, self._guest_base)
        return Progress(last.seq, last.step, last.done, self._guest_base, last.actions)

    def moment(self) -> Moment:
        """Returns what another episode needs to go on from here; the lock is held, no step runs."""
        return Moment(
            task=self.task_json,
            screen=self.screen,
            lease_ttl_s=self.lease_ttl_s,
            max_steps=self.max_steps,
            settle=self.settle,
            observe=self.observe,
            progress=self.progress(),
            outputs=dict(self.context.outputs) if self.context is not None else {},
        )

    def resume(self, progress: Progress, *, certain: bool) -> None:
        """Goes on from there. When it is not `certain` that the guest got the last step, the step is
        sent again before any other: a guest that has it gives its stored answer."""
        self.last_seq, self.step_no = progress.seq, progress.step
        self._guest_base = progress.guest_base
        if progress.seq > 0:
            for_guest = tuple(a for a in progress.actions if a["op"] not in ("done", "fail"))
            self._last = _LastStep(
                progress.seq, for_guest or _NOTHING, progress.actions, progress.step, progress.done
            )
            self.done = progress.done if certain else None
            self._open = not certain

    async def complete(self) -> None:
        """Sends the last step again when it is unknown whether the guest got it; the lock is held.

        Raises:
            EpisodeError: As `step`.
        """
        if self._open and self._last is not None:
            await self._send(self._last, self.settle, self.observe)

    async def confirm(self) -> None:
        """Asks the guest whether it got the last step, where that is unknown.

        Raises:
            EpisodeOver: The replica is lost.
        """
        if self._open and self._last is not None:
            health = await self.hold.call(self.hold.guest.health(timeout_s=RESTART_PROBE_S))
            if health.last_seq == self._last.seq - self._guest_base:
                self._open, self.done = False, self._last.done

    async def step(
        self, seq: int, actions: Sequence[Any], settle: Options | None, observe: Options | None
    ) -> StepOutcome:
        """Acts, lets the screen settle, observes. A repeated `seq` acts no second time.

        Raises:
            EpisodeError: `invalid_action`, `bad_sequence`, `episode_ended`: nothing was done and no
                number was used up. `EpisodeOver`: the replica is lost.
        """
        async with self.lock:
            if self.over is not None:
                raise self.over.again()
            settle = settle if settle is not None else self.settle
            observe = observe if observe is not None else self.observe
            if self._last is not None and seq == self._last.seq:
                return await self._send(self._last, settle, observe)
            await self.complete()
            if self.done is not None:
                raise already_done(self.done)
            if seq != self.last_seq + 1:
                raise bad_sequence(seq, self.last_seq)
            return await self._send(self._accept(seq, _parse(actions)), settle, observe)

    def _accept(self, seq: int, parsed: ParsedActions) -> _LastStep:
        done: str | None = parsed.ending.value if parsed.ending is not None else None
        if done is None and self.max_steps is not None and self.step_no + 1 >= self.max_steps:
            done = "max_steps"
        return _LastStep(seq, parsed.for_guest or _NOTHING, parsed.actions, self.step_no + 1, done)

    async def _send(self, step: _LastStep, settle: Options | None, observe: Options | None) -> StepOutcome:
        before = (self.last_seq, self.step_no, self.done)
        self.last_seq, self.step_no = step.seq, step.step
        if before[0] != step.seq:
            self._tell(Progress(step.seq, step.step, step.done, self._guest_base, step.actions))
        began = time.perf_counter()
        try:
            frame = await self._guest_step(step, settle, observe)
        except GuestRefused as error:
            if before[0] != step.seq:
                self.last_seq, self.step_no, self.done = before
                self._tell(self.progress())
            if error.status < 500:
                raise _refused(error) from error
            self.hold.let_go(Reason.GUEST_PROTOCOL, str(error))
            raise self.hold.lost.result().again() from error
        self._last, self.done, self._open = step, step.done, False
        guest_ms = (time.perf_counter() - began) * 1000
        observation = frame.observation.to_dict()
        observation["seq"] = step.seq
        if self._guest_base and observation.get("previous"):
            observation["previous"]["seq"] += self._guest_base
        meta: dict[str, Any] = {
            "observation": observation,
            "step": step.step,
            "actions": list(step.actions),
            "done": step.done,
        }
        return StepOutcome(meta, frame.image, guest_ms)

    async def _guest_step(
        self, step: _LastStep, settle: Options | None, observe: Options | None
    ) -> GuestFrame:
        """Sends the step; once more when the guest agent came back in between and did not act."""
        timeout_s = _step_timeout_s(step.for_guest, settle)
        for attempt in (1, 2):
            began = time.monotonic()
            try:
                return await self.hold.call(
                    self._tolerant(
                        self.hold.guest.step(
                            step.seq - self._guest_base,
                            step.for_guest,
                            settle=settle,
                            observe=observe,
                            timeout_s=timeout_s,
                        )
                    )
                )
            except _Broken as broken:
                if attempt == 2 or not await self._may_send_again(step, broken.cause, began):
                    raise await self.hold.blame(broken.cause) from broken
            except GuestRefused as error:
                if attempt == 2 or error.code != "bad_sequence":
                    raise
                await self._rebase(step, error)
        raise AssertionError("unreachable")

    @staticmethod
    async def _tolerant(work: Any) -> GuestFrame:
        try:
            frame: GuestFrame = await work
        except GuestUnreachable as error:
            raise _Broken(error) from error
        return frame

    async def _may_send_again(self, step: _LastStep, error: GuestUnreachable, began: float) -> bool:
        """Whether sending the step again cannot act twice.

        It cannot when it never arrived, or when the same guest agent still runs (it knows the
        number). An agent that was started anew in between has forgotten.
        """
        if not error.delivered:
            return True
        try:
            health = await self.hold.call(self.hold.guest.health(timeout_s=RESTART_PROBE_S))
        except GuestRefused:
            return False
        return health.uptime_s > time.monotonic() - began

    async def _rebase(self, step: _LastStep, error: GuestRefused) -> None:
        """After the guest agent was started anew between two steps its numbers begin at 1 again."""
        health = await self.hold.call(self.hold.guest.health(timeout_s=RESTART_PROBE_S))
        if health.last_seq != 0 or self._last is step:
            raise error
        self._guest_base = step.seq - 1
        self._tell(Progress(step.seq, step.step, step.done, self._guest_base, step.actions))

    def _tell(self, progress: Progress) -> None:
        if self.note is not None:
            self.note(progress)

    async def look(self, observe: Options | None) -> GuestFrame:
        """Takes a frame without acting.

        Raises:
            EpisodeError: The options are refused, or the replica is lost.
        """
        if self.over is not None:
            raise self.over.again()
        wanted = observe if observe is not None else self.observe
        try:
            return await self.hold.call(self.hold.guest.observe(wanted))
        except GuestRefused as error:
            raise _refused(error) from error

    async def final(self, seq: int, timeout_ms: float, observe: Options | None) -> GuestFrame:
        """Returns the frame after step `seq` once it is final, or the time is up.

        Raises:
            EpisodeError: `bad_sequence` when `seq` is not the last step; or the replica is lost.
        """
        if self.over is not None:
            raise self.over.again()
        wanted = observe if observe is not None else self.observe
        try:
            return await self.hold.call(
                self.hold.guest.final(seq - self._guest_base, wait_s=timeout_ms / 1000, observe=wanted)
            )
        except GuestRefused as error:
            raise _refused(error) from error


class _Broken(Exception):
    """Carries a broken connection past `Hold.call`, which would give the replica up."""

    def __init__(self, cause: GuestUnreachable) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _parse(actions: Sequence[Any]) -> ParsedActions:
    try:
        return parse_actions(actions)
    except BadAction as error:
        details = {"action": error.action, "why": error.why, "index": error.index}
        raise EpisodeError("invalid_action", 400, str(error), details) from error


def _refused(error: GuestRefused) -> EpisodeError:
    """What the guest refused, in the host's words; its status is never above 499 here."""
    if error.code == "bad_sequence":
        return EpisodeError("bad_sequence", 409, error.message, error.details)
    if error.status >= 500:
        return EpisodeError("timeout", 504, error.message, error.details)
    code = "invalid_action" if "action" in error.code else "bad_request"
    return EpisodeError(code, 400, error.message, {**error.details, "guest_code": error.code})


def _step_timeout_s(actions: Sequence[Mapping[str, Any]], settle: Options | None) -> float:
    waits_ms = sum(float(action.get("duration_ms", 0)) for action in actions)
    typed = sum(len(action.get("text", "")) for action in actions)
    options = settle or {}
    settle_ms = max(float(options.get("max_ms") or 5000), float(options.get("pause_ms") or 0))
    return STEP_SLACK_S + (waits_ms + settle_ms) / 1000 + typed * 0.02
