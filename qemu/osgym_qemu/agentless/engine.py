"""Engine of steps with sequence numbers on a screen seen from outside; counterpart of the guest agent's.

One task at a time uses the display. Between steps nobody looks: whether the last frame stayed final is
found out when the next call comes, by one look, so an idle machine costs nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from osgym_protocol.actions import Action, Op, op_of
from osgym_protocol.codec import WireFormatError
from osgym_protocol.codes import GuestErrorCode, ImageFormat, SettlePolicy, SettleReason
from osgym_protocol.ledger import StepLedger
from osgym_protocol.limits import DEFAULT_IMAGE_QUALITY
from osgym_protocol.observation import (
    ActionResult,
    ErrorInfo,
    FrameInfo,
    Observation,
    ObservedFrame,
    PreviousFrame,
    SettleInfo,
)
from osgym_protocol.options import ObserveOptions, SettleOptions
from osgym_protocol.pointer import separation_s
from osgym_qemu.agentless import frames, plan, settle
from osgym_qemu.agentless.display import DisplayFailed, DisplayLost, GuestDisplay
from osgym_qemu.agentless.frames import Frame
from osgym_qemu.agentless.last_frame import LastFrame
from osgym_qemu.agentless.plan import DrainInput, HeldInput, Planner, PointerEvent
from osgym_qemu.agentless.serve import RefusedRequest
from osgym_qemu.agentless.settle import SettledScreen
from osgym_qemu.agentless.vcpu import Vcpus

MAX_WAITING = 16
READY_TURN_S = 0.1
READY_LOOK_MS = 50.0
"""Time between looks at a booting system: often enough to see that it rests, and cheap."""


class AgentlessEngine:
    def __init__(self, display: GuestDisplay, vcpus: Vcpus | None) -> None:
        self._display = display
        self._vcpus = vcpus
        self._planner = Planner()
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._last: LastFrame | None = None
        self._started_s = time.monotonic()
        self._screen: tuple[int, int] | None = None
        self._last_click: tuple[str, tuple[int, int], float] | None = None
        """Button, place and time (monotonic, in seconds) of the last click or drag."""
        self.is_ready = False
        self.steps: StepLedger[asyncio.Task[ObservedFrame]] = StepLedger()

    # Access ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[GuestDisplay]:
        if self._waiting >= MAX_WAITING:
            raise RefusedRequest(429, GuestErrorCode.BUSY, f"{MAX_WAITING} calls already wait for the screen")
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
        try:
            yield self._display
        except DisplayLost as exc:
            raise RefusedRequest(503, GuestErrorCode.DISPLAY_GONE, str(exc)) from exc
        except DisplayFailed as exc:
            raise RefusedRequest(503, GuestErrorCode.NOT_READY, str(exc)) from exc
        finally:
            self._display.release_buffers()
            self._lock.release()

    @property
    def pointer(self) -> tuple[int, int] | None:
        """Last position of the pointer in pixels; None while nobody has moved it."""
        return self._planner.pointer

    async def screen_size(self) -> tuple[int, int]:
        """Return the last known size of the screen in pixels."""
        if self._screen is None:
            async with self._exclusive():
                await self._capture()
        assert self._screen is not None
        return self._screen

    async def _capture(self) -> Frame:
        frame = await self._display.capture()
        self._screen = frame.size
        return frame

    async def close(self) -> None:
        """End pending steps, and close the display."""
        if (step := self.steps.running) is not None:
            step.cancel()
            await asyncio.gather(step, return_exceptions=True)
        await self._display.close()

    # Readiness -------------------------------------------------------------------------------

    async def ready(self, timeout_s: float, quiet_s: float, size: tuple[int, int] | None = None) -> None:
        """Wait until a desktop of this size is drawn, and screen and guest were quiet for `quiet_s`.

        Raises:
            RefusedRequest: 504 `not_ready` when it was not in time.
        """
        ends_s = time.monotonic() + timeout_s
        missing = "the screen was not read"
        while (left_s := ends_s - time.monotonic()) > 0:
            try:
                missing = await self._not_ready(left_s, quiet_s, size)
            except RefusedRequest as exc:
                if exc.code != GuestErrorCode.NOT_READY:
                    raise
                missing = exc.message
            if not missing:
                self.is_ready = True
                return
            await asyncio.sleep(min(READY_TURN_S, left_s))
        raise RefusedRequest(
            504, GuestErrorCode.NOT_READY, f"the desktop was not ready within {timeout_s:g} s: {missing}"
        )

    async def _not_ready(self, left_s: float, quiet_s: float, size: tuple[int, int] | None) -> str:
        """Wait for quiet; return what is missing then, empty when it is ready."""
        quiet_ms = quiet_s * 1000
        rule = settle.QuietRule(
            quiet_ms, quiet_ms, 0.1, 3 * quiet_ms, least_ms=0, turn_ms=READY_LOOK_MS, max_ms=left_s * 1000
        )
        async with self._exclusive() as display:
            before, rested_s = await self._known_rest()
            if rested_s is not None:
                rule = settle.still_at_rest(rule)
            began_s = time.monotonic()
            found = await settle.settle(
                display, self._vcpus, rule, before=before, began_s=began_s, rested_s=rested_s
            )
            self._screen = found.frame.size
        if size is not None and found.frame.size != size:
            return "the screen is {}x{} instead of {}x{}".format(*found.frame.size, *size)
        if found.reason is SettleReason.TIMEOUT:
            return "the screen is not quiet"
        return "the screen is blank" if await asyncio.to_thread(frames.is_blank, found.frame) else ""

    async def _known_rest(self) -> tuple[Frame | None, float | None]:
        """Return the screen and the time since which it shows the last step's frame; None otherwise."""
        if self._last is None:
            return None, None
        now = await self._capture()
        await self._previous(now)
        return (now, self._last.rested_s) if self._last.changed_s is None else (None, None)

    # Steps -----------------------------------------------------------------------------------

    def step(
        self,
        seq: int,
        plans: Sequence[tuple[Op, list[plan.InputOp]]],
        held: HeldInput,
        wait: SettleOptions,
        look: ObserveOptions,
        expects: str | None = None,
    ) -> asyncio.Task[ObservedFrame]:
        """Act, settle and observe, for the next number.

        Args:
            held: Keys and buttons held after all of them.
            expects: Hash of the frame that the screen must show for anything to be done; None: any.

        Returns:
            The answer. The caller shields it: a step goes on when its client is gone.
        """
        task = asyncio.ensure_future(self._do_step(seq, plans, held, wait, look, expects))
        self.steps.start(seq, task)
        task.add_done_callback(
            lambda step: self.steps.end(answered=not step.cancelled() and step.exception() is None)
        )
        return task

    async def _do_step(
        self,
        seq: int,
        plans: Sequence[tuple[Op, list[plan.InputOp]]],
        held: HeldInput,
        wait: SettleOptions,
        look: ObserveOptions,
        expects: str | None,
    ) -> ObservedFrame:
        began_s = time.monotonic()
        async with self._exclusive() as display:
            before = await self._capture()
            previous = await self._previous(before)
            changed = expects is not None and await asyncio.to_thread(frames.digest, before) != expects
            if changed:
                plans, held = (), self._planner.held
            self.steps.take(seq)  # from here on it counts as done, whatever happens
            results, failed = await self._perform(plans, held, before.size)
            acted_s = time.monotonic()
            if wait.policy is SettlePolicy.FIXED and wait.pause_ms is not None:
                done = await settle.pause(display, wait.pause_ms, before=before, began_s=acted_s)
            else:
                rule = settle.rule_for(wait.policy, quiet_ms=wait.quiet_ms, max_ms=wait.max_ms)
                done = await settle.settle(display, self._vcpus, rule, before=before, began_s=acted_s)
            self._screen = done.frame.size
            self._last = await asyncio.to_thread(LastFrame.of, seq, done)
            seen = await self._observed(done.frame, done.taken_s, look)
        observation = replace(
            seen.observation,
            seq=seq,
            screen_changed=changed,
            results=tuple(results),
            failed_index=failed,
            settle=_settle_info(wait.policy, done),
            previous=previous,
            final=_is_final(done) if wait.policy is SettlePolicy.CERTAIN else None,
            timing_ms={
                **seen.observation.timing_ms,
                **_timing(acted_s - began_s, done.wait_ms / 1000, began_s),
            },
        )
        return replace(seen, observation=observation)

    async def _perform(
        self, plans: Sequence[tuple[Op, list[plan.InputOp]]], held: HeldInput, screen: tuple[int, int]
    ) -> tuple[list[ActionResult], int | None]:
        self._planner.held = held  # also when it fails: letting go of what is not held does no harm
        results: list[ActionResult] = []
        for index, (name, ops) in enumerate(plans):
            try:
                await self._carry_out(ops, screen)
            except DisplayLost:
                raise
            except DisplayFailed as exc:
                error = ErrorInfo(GuestErrorCode.INTERNAL, str(exc))
                results.append(ActionResult(False, name, error))
                return results, index
            results.append(ActionResult(True, name))
        return results, None

    async def _carry_out(self, ops: Sequence[plan.InputOp], screen: tuple[int, int]) -> None:
        places = [(op.x, op.y) for op in ops if isinstance(op, PointerEvent)]
        pressed_at = places[0] if places else self.pointer
        timed = [self._timed(op, pressed_at) for op in ops]
        if places:
            self._planner.pointer = places[-1]
        await self._display.carry_out(timed, screen, self._drained)
        clicked = [op.button for op in ops if isinstance(op, plan.SeparateClick)]
        if clicked and pressed_at is not None:
            self._last_click = (clicked[0], pressed_at, time.monotonic())

    def _timed(self, op: plan.InputOp, at: tuple[int, int] | None) -> plan.TimedOp:
        """Return an operation with its wait; that of a separate click depends on the last click."""
        if not isinstance(op, plan.SeparateClick):
            return op
        last = self._last_click
        if last is None or at is None or last[0] != op.button:
            return plan.Pause(0.0)
        return plan.Pause(separation_s(time.monotonic() - last[2], last[1], at) * 1000)

    async def _drained(self, drain: DrainInput) -> None:
        await settle.drained(self._vcpus, pointer=drain.pointer, rest_ms=drain.rest_ms)

    async def observe(self, look: ObserveOptions) -> ObservedFrame:
        began_s = time.monotonic()
        async with self._exclusive():
            frame = await self._capture()
            previous = await self._previous(frame)
            seen = await self._observed(frame, time.monotonic(), look)
        timing_ms = {**seen.observation.timing_ms, **_timing(0.0, 0.0, began_s)}
        return replace(seen, observation=replace(seen.observation, previous=previous, timing_ms=timing_ms))

    async def final(self, seq: int, timeout_ms: float, look: ObserveOptions) -> ObservedFrame:
        """Return the frame after the last step once it is final, the time is up, or a step comes."""
        began_s = time.monotonic()
        async with self._exclusive() as display:
            rule = replace(settle.FINAL, max_ms=timeout_ms)
            done = await settle.settle(
                display,
                self._vcpus,
                rule,
                before=None,
                began_s=began_s,
                stop=lambda: self.steps.running is not None,
            )
            previous = await self._previous(done.frame)
            seen = await self._observed(done.frame, done.taken_s, look)
        observation = replace(
            seen.observation,
            seq=seq,
            settle=_settle_info(SettlePolicy.CERTAIN, done),
            previous=previous,
            final=_is_final(done),
            timing_ms={**seen.observation.timing_ms, **_timing(0.0, done.wait_ms / 1000, began_s)},
        )
        return replace(seen, observation=observation)

    async def release(self) -> dict[str, list[int]]:
        """Release all held keys and buttons; return them."""
        async with self._exclusive():
            held = self._planner.held
            released = {"keys": list(held.keys), "buttons": list(held.buttons)}
            await self._carry_out(self._planner.release(), self._screen or (1, 1))
            if self._last is not None:
                self._last.rested_s = time.monotonic()
        return released

    def planned(self, actions: Sequence[Action]) -> tuple[list[tuple[Op, list[plan.InputOp]]], HeldInput]:
        """Return the plans of all actions of a step, and what they leave held. No input is sent yet.

        Raises:
            RefusedRequest: 400 `invalid_action` with the index of the first that cannot be done.
        """
        planner = Planner(self._planner.held.copy(), self.pointer)
        try:
            plans = plan.plan_all(planner, actions)
        except plan.UnsupportedInput as exc:
            raise RefusedRequest(400, GuestErrorCode.INVALID_ACTION, str(exc), {"index": exc.index}) from exc
        return list(zip(map(op_of, actions), plans, strict=True)), planner.held

    # Pieces ----------------------------------------------------------------------------------

    async def _previous(self, now: Frame) -> PreviousFrame | None:
        """Return whether the last step's frame is still what the screen shows."""
        last = self._last
        if last is None:
            return None
        if last.changed_s is None and await asyncio.to_thread(last.differs, now):
            last.changed_s = time.monotonic()
        return last.as_previous()

    async def _observed(self, frame: Frame, taken_s: float, look: ObserveOptions) -> ObservedFrame:
        hashed_s = time.monotonic()
        value = await asyncio.to_thread(frames.digest, frame)
        encoding_s = time.monotonic()
        unchanged = look.unless_hash == value
        image, size = b"", look.image_size(frame.size) if unchanged else frame.size
        if not unchanged and look.format is not ImageFormat.NONE:
            image, size = await _encoded(frame, look)
        info = FrameInfo(
            hash=value,
            format=look.format,
            width=size[0],
            height=size[1],
            screen=frame.size,
            unchanged=unchanged,
            t_ms=round((taken_s - self._started_s) * 1000, 3),
        )
        spent = {
            "capture": round((encoding_s - hashed_s) * 1000, 3),
            "encode": round((time.monotonic() - encoding_s) * 1000, 3),
        }
        return ObservedFrame(Observation(info, seq=self.steps.last_seq, timing_ms=spent), image)


async def _encoded(frame: Frame, look: ObserveOptions) -> tuple[bytes, tuple[int, int]]:
    """Encode a frame as requested.

    Raises:
        RefusedRequest: 400, the region is outside the screen.
    """
    try:
        look.check_region(frame.size)
    except WireFormatError as exc:
        raise RefusedRequest(400, GuestErrorCode.BAD_REQUEST, str(exc)) from exc
    quality = DEFAULT_IMAGE_QUALITY if look.quality is None else look.quality
    image, width_px, height_px = await asyncio.to_thread(
        frames.encode,
        frame,
        look.format,
        quality=quality,
        size=look.size,
        region=look.region,
    )
    return image, (width_px, height_px)


def _is_final(settled: SettledScreen) -> bool:
    """Return whether the wait ended because the screen had come to rest, as seen from outside."""
    return settled.reason is not SettleReason.TIMEOUT


def _settle_info(policy: SettlePolicy, settled: SettledScreen) -> SettleInfo:
    change = settled.last_change_ms
    return SettleInfo(
        policy, settled.reason, round(settled.wait_ms, 3), None if change is None else round(change, 3)
    )


def _timing(input_s: float, settle_s: float, began_s: float) -> dict[str, float]:
    return {
        "input": round(input_s * 1000, 3),
        "settle": round(settle_s * 1000, 3),
        "total": round((time.monotonic() - began_s) * 1000, 3),
    }
