"""Steps with sequence numbers on a screen seen from outside; the counterpart of the guest agent's engine.

One task at a time uses the display. Between steps nobody looks: whether the last frame stayed final is
found out when the next call comes, by one look, so an idle machine costs nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from osgym_host.runtimes.qemu.agentless import frames, plan, settle
from osgym_host.runtimes.qemu.agentless.display import Display, DisplayFailed, DisplayLost
from osgym_host.runtimes.qemu.agentless.frames import Frame, Packed
from osgym_host.runtimes.qemu.agentless.options import check_region
from osgym_host.runtimes.qemu.agentless.plan import Drain, Held, Planner, PointerEvent
from osgym_host.runtimes.qemu.agentless.serve import Refused
from osgym_host.runtimes.qemu.agentless.settle import Settled
from osgym_host.runtimes.qemu.agentless.vcpu import Vcpus
from osgym_sdk.wire import ImageFormat, ObserveOptions, SettleOptions, SettlePolicy, SettleReason

MAX_WAITING = 16
READY_TURN_S = 0.1
READY_LOOK_MS = 50.0
"""Often enough to see that nobody works, and seldom enough to cost nothing while a system boots."""
QUALITY = 85


@dataclass(frozen=True, slots=True)
class Step:
    """Meta and image of an answer; of a step it is kept until the next one."""

    meta: dict[str, Any]
    image: bytes = field(repr=False)


@dataclass(slots=True)
class _Last:
    """The frame of the last step's answer, to tell whether it stayed final; packed, for it may stay long."""

    seq: int
    frame: Packed
    taken_s: float
    changed_s: float | None = None

    def meta(self) -> dict[str, Any]:
        after = None if self.changed_s is None else round((self.changed_s - self.taken_s) * 1000, 3)
        return {"seq": self.seq, "final": after is None, "changed_after_ms": after}


class Engine:
    """State of one guest without an agent."""

    def __init__(self, display: Display, vcpus: Vcpus | None) -> None:
        """Nothing is looked at before the first call."""
        self._display = display
        self._vcpus = vcpus
        self._planner = Planner()
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._step: tuple[int, asyncio.Task[Step]] | None = None
        self._answer: Step | None = None
        self._last: _Last | None = None
        self._final_waits = False
        self._started_s = time.monotonic()
        self._screen: tuple[int, int] | None = None
        self.pointer: tuple[int, int] | None = None
        self.is_ready = False
        self.last_seq = 0

    # Access ----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[Display]:
        if self._waiting >= MAX_WAITING:
            raise Refused(429, "busy", f"{MAX_WAITING} calls wait for the screen already")
        self._waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._waiting -= 1
        try:
            yield self._display
        except DisplayLost as exc:
            raise Refused(503, "display_gone", str(exc)) from exc
        except DisplayFailed as exc:
            raise Refused(503, "not_ready", str(exc)) from exc
        finally:
            self._display.rest()
            self._lock.release()

    async def screen_size(self) -> tuple[int, int]:
        """Return the size of the screen as it was last seen, in pixels."""
        if self._screen is None:
            async with self._exclusive():
                await self._grab()
        assert self._screen is not None
        return self._screen

    async def _grab(self) -> Frame:
        frame = await self._display.grab()
        self._screen = frame.size
        return frame

    async def close(self) -> None:
        """End what runs, and close the display."""
        if self._step is not None:
            self._step[1].cancel()
            await asyncio.gather(self._step[1], return_exceptions=True)
        await self._display.close()

    # Readiness -------------------------------------------------------------------------------

    async def ready(self, timeout_s: float, quiet_s: float, size: tuple[int, int] | None = None) -> None:
        """Wait until something is drawn, of this size, and screen and guest were quiet for `quiet_s`.

        Raises:
            Refused: 504 `not_ready` when it was not in time.
        """
        ends_s = time.monotonic() + timeout_s
        missing = "it was not looked at"
        while (left_s := ends_s - time.monotonic()) > 0:
            try:
                missing = await self._not_ready(left_s, quiet_s, size)
            except Refused as exc:
                if exc.code != "not_ready":
                    raise
                missing = exc.message
            if not missing:
                self.is_ready = True
                return
            await asyncio.sleep(min(READY_TURN_S, left_s))
        raise Refused(504, "not_ready", f"not within {timeout_s:g} s: {missing}")

    async def _not_ready(self, left_s: float, quiet_s: float, size: tuple[int, int] | None) -> str:
        """Wait for quiet; what is then still missing, nothing when it is ready."""
        quiet_ms = quiet_s * 1000
        rule = settle.Rule(
            quiet_ms, quiet_ms, 0.1, 3 * quiet_ms, least_ms=0, turn_ms=READY_LOOK_MS, max_ms=left_s * 1000
        )
        async with self._exclusive() as display:
            found = await settle.settle(display, self._vcpus, rule, before=None, began_s=time.monotonic())
            self._screen = found.frame.size
        if size is not None and found.frame.size != size:
            return "the screen is {}x{} and not {}x{}".format(*found.frame.size, *size)
        if found.reason is SettleReason.TIMEOUT:
            return "the screen is not quiet"
        return "the screen is blank" if await asyncio.to_thread(frames.is_blank, found.frame) else ""

    # Steps -----------------------------------------------------------------------------------

    async def step(self, seq: int, run: Callable[[], Awaitable[Step]]) -> Step:
        """Do a step once: a repeated number gets the stored answer.

        Raises:
            Refused: 409 `bad_sequence` or `busy`; and what `run` raises, which uses up no number.
        """
        if self._step is not None:
            current, task = self._step
            if seq == current:
                return _replayed(await asyncio.shield(task))
            raise Refused(409, "busy", f"step {current} is still running", {"seq": current})
        if seq == self.last_seq and seq > 0:
            if self._answer is None:
                raise Refused(409, "answer_lost", f"step {seq} failed", {"last_seq": self.last_seq})
            return _replayed(self._answer)
        if seq != self.last_seq + 1:
            message = f"step {seq} does not follow step {self.last_seq}"
            raise Refused(409, "bad_sequence", message, {"last_seq": self.last_seq})
        task = asyncio.ensure_future(run())
        self._step = (seq, task)
        task.add_done_callback(self._step_ended)
        return await asyncio.shield(task)

    def _step_ended(self, task: asyncio.Task[Step]) -> None:
        self._step = None
        if not task.cancelled() and task.exception() is None:
            self._answer = task.result()

    async def act(
        self,
        seq: int,
        plans: Sequence[tuple[str, list[plan.Op]]],
        held: Held,
        wait: SettleOptions,
        look: ObserveOptions,
    ) -> Step:
        """Act, settle, observe (what `step` runs).

        Args:
            plans: Name and plan of each action.
            held: What is held after all of them.
        """
        began_s = time.monotonic()
        async with self._exclusive() as display:
            before = await self._grab()
            previous = await self._previous(before)
            self._answer, self.last_seq = None, seq
            results, failed = await self._perform(plans, held, before.size)
            acted_s = time.monotonic()
            if wait.policy is SettlePolicy.FIXED and wait.pause_ms is not None:
                done = await settle.pause(display, wait.pause_ms, before=before, began_s=acted_s)
            else:
                rule = settle.rule_for(wait.policy, quiet_ms=wait.quiet_ms, max_ms=wait.max_ms)
                done = await settle.settle(display, self._vcpus, rule, before=before, began_s=acted_s)
            self._screen = done.frame.size
            self._last = _Last(seq, await asyncio.to_thread(Packed.of, done.frame), done.taken_s)
            meta, image = await self._observed(done.frame, done.taken_s, look)
        times = (acted_s - began_s, done.wait_ms / 1000)
        meta |= {
            "seq": seq,
            "replayed": False,
            "results": results,
            "failed_index": failed,
            "settle": _settle_meta(wait.policy, done),
            "previous": previous,
        }
        meta["timing_ms"] |= _timing(*times, began_s)
        return Step(meta, image)

    async def _perform(
        self, plans: Sequence[tuple[str, list[plan.Op]]], held: Held, screen: tuple[int, int]
    ) -> tuple[list[dict[str, Any]], int | None]:
        self._planner.held = held  # also when it fails: letting go of what is not held does no harm
        results: list[dict[str, Any]] = []
        for index, (name, ops) in enumerate(plans):
            try:
                await self._carry_out(ops, screen)
            except DisplayLost:
                raise
            except DisplayFailed as exc:
                error = {"code": "internal", "message": str(exc)}
                results.append({"ok": False, "op": name, "error": error})
                return results, index
            results.append({"ok": True, "op": name})
        return results, None

    async def _carry_out(self, ops: Sequence[plan.Op], screen: tuple[int, int]) -> None:
        places = [op for op in ops if isinstance(op, PointerEvent)]
        if places:
            self.pointer = (places[-1].x, places[-1].y)
        await self._display.carry_out(ops, screen, self._drained)

    async def _drained(self, drain: Drain) -> None:
        await settle.drained(self._vcpus, pointer=drain.pointer)

    async def observe(self, look: ObserveOptions) -> Step:
        """Return the screen as it is now."""
        began_s = time.monotonic()
        async with self._exclusive():
            frame = await self._grab()
            previous = await self._previous(frame)
            meta, image = await self._observed(frame, time.monotonic(), look)
        meta |= self._plain(previous, None)
        meta["timing_ms"] |= _timing(0.0, 0.0, began_s)
        return Step(meta, image)

    async def final(self, seq: int, timeout_ms: float, look: ObserveOptions) -> Step:
        """Return the frame after step `seq` once it is final, or when the time is up or a step comes.

        Raises:
            Refused: 409 `bad_sequence` when `seq` is not the last step.
        """
        began_s = time.monotonic()
        if seq != self.last_seq or self._step is not None:
            message = f"step {seq} is not the last one, which is {self.last_seq}"
            raise Refused(409, "bad_sequence", message, {"last_seq": self.last_seq})
        async with self._exclusive() as display:
            rule = settle.with_limit(settle.FINAL, timeout_ms)
            done = await settle.settle(
                display,
                self._vcpus,
                rule,
                before=None,
                began_s=began_s,
                stop=lambda: self._step is not None,
            )
            previous = await self._previous(done.frame)
            meta, image = await self._observed(done.frame, done.taken_s, look)
        meta |= self._plain(previous, _settle_meta(SettlePolicy.EXACT, done))
        meta |= {"seq": seq, "final": done.reason is not SettleReason.TIMEOUT}
        meta["timing_ms"] |= _timing(0.0, done.wait_ms / 1000, began_s)
        return Step(meta, image)

    async def release(self) -> dict[str, list[int]]:
        """Let go of every held key and button; return what they were."""
        async with self._exclusive():
            held = self._planner.held
            released = {"keys": list(held.keys), "buttons": list(held.buttons)}
            await self._carry_out(self._planner.release(), self._screen or (1, 1))
        return released

    def planned(
        self, actions: Sequence[Any], names: Sequence[str]
    ) -> tuple[list[tuple[str, list[plan.Op]]], Held]:
        """Plan all actions of a step, and what they will leave held. Nothing is done yet.

        Raises:
            Refused: 400 `invalid_action` with the index of the first that cannot be done.
        """
        planner = Planner(self._planner.held.copy())
        try:
            plans = plan.plan_all(planner, actions)
        except plan.Unsupported as exc:
            raise Refused(400, "invalid_action", str(exc), {"index": exc.index}) from exc
        return list(zip(names, plans, strict=True)), planner.held

    # Pieces ----------------------------------------------------------------------------------

    async def _previous(self, now: Frame) -> dict[str, Any] | None:
        """Say whether the last step's frame is still what the screen shows."""
        last = self._last
        if last is None:
            return None
        if last.changed_s is None:
            box = await asyncio.to_thread(last.frame.difference, now)
            if box is not None and not frames.is_caret(box):
                last.changed_s = time.monotonic()
        return last.meta()

    async def _observed(
        self, frame: Frame, taken_s: float, look: ObserveOptions
    ) -> tuple[dict[str, Any], bytes]:
        hashed_s = time.monotonic()
        value = await asyncio.to_thread(frames.digest, frame)
        encoding_s = time.monotonic()
        unchanged = look.unless_hash == value
        image, size = b"", frame.size
        if not unchanged and look.format is not ImageFormat.NONE:
            image, size = await _encoded(frame, look)
        meta = {
            "hash": value,
            "format": look.format.value,
            "width": size[0],
            "height": size[1],
            "screen": list(frame.size),
            "unchanged": unchanged,
            "t_ms": round((taken_s - self._started_s) * 1000, 3),
        }
        spent = {
            "capture": round((encoding_s - hashed_s) * 1000, 3),
            "encode": round((time.monotonic() - encoding_s) * 1000, 3),
        }
        return {"frame": meta, "timing_ms": spent}, image

    def _plain(self, previous: dict[str, Any] | None, settled: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "seq": self.last_seq,
            "replayed": False,
            "results": [],
            "failed_index": None,
            "settle": settled,
            "previous": previous,
        }


async def _encoded(frame: Frame, look: ObserveOptions) -> tuple[bytes, tuple[int, int]]:
    """Encode what was asked for.

    Raises:
        Refused: 400, the region is outside the screen.
    """
    check_region(look, frame.size)
    quality = QUALITY if look.quality is None else look.quality
    image, width_px, height_px = await asyncio.to_thread(
        frames.encode,
        frame,
        ImageFormat(look.format.value),
        quality=quality,
        size=look.size,
        region=look.region,
    )
    return image, (width_px, height_px)


def _settle_meta(policy: SettlePolicy, settled: Settled) -> dict[str, Any]:
    change = settled.last_change_ms
    return {
        "policy": policy.value,
        "reason": settled.reason.value,
        "wait_ms": round(settled.wait_ms, 3),
        "last_change_ms": None if change is None else round(change, 3),
    }


def _timing(input_s: float, settle_s: float, began_s: float) -> dict[str, float]:
    return {
        "input": round(input_s * 1000, 3),
        "settle": round(settle_s * 1000, 3),
        "total": round((time.monotonic() - began_s) * 1000, 3),
    }


def _replayed(answer: Step) -> Step:
    return Step({**answer.meta, "replayed": True}, answer.image)


__all__ = ["Engine", "Step"]
