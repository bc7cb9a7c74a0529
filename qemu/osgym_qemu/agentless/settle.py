"""Settling of a screen seen from outside: by its pixels, and by the work of the guest.

A guest's screen only changes when its processors run, and they are seen to run. So the rule is: nothing
drawn for `quiet_ms` (carets that blink do not count) and the processors at rest for `idle_ms`. Timers that
fire later cannot be foreseen from here, unlike by an agent inside; `quiet_ms` is longer for that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from osgym_protocol.codes import SettlePolicy, SettleReason
from osgym_protocol.limits import DEFAULT_SETTLE_MAX_MS
from osgym_qemu.agentless import frames
from osgym_qemu.agentless.display import GuestDisplay
from osgym_qemu.agentless.frames import Frame
from osgym_qemu.agentless.vcpu import Vcpus, VcpuWork

POINTER_LEAST_MS = 8.0
"""Least wait after input of the pointer: a USB guest fetches its reports by polling, and rests until then."""
KEY_LEAST_MS = 1.0
DRAIN_MAX_MS = 1000.0
BLIND_POINTER_MS, BLIND_KEY_MS = 25.0, 10.0
"""Waits after input where the guest's work cannot be seen."""
_DRAIN_TURN_MS = 1.0
_REMEMBERED = 16


@dataclass(frozen=True, slots=True)
class QuietRule:
    """Parameters of one policy, in milliseconds.

    Attributes:
        quiet_ms: The screen has not changed for so long.
        idle_ms: The guest's processors were at rest for so long.
        idle_share: So much of one processor still counts as rest.
        busy_quiet_ms: In place of both, where the guest never rests or cannot be seen at work.
        least_ms: From the end of the input, in which it may not have reached anybody.
        turn_ms: Between two looks at the processors.
    """

    quiet_ms: float
    idle_ms: float
    idle_share: float
    busy_quiet_ms: float
    least_ms: float = 25.0
    turn_ms: float = 8.0
    max_ms: float = DEFAULT_SETTLE_MAX_MS


EXACT = QuietRule(quiet_ms=120, idle_ms=60, idle_share=0.05, busy_quiet_ms=400)
FAST = QuietRule(quiet_ms=30, idle_ms=30, idle_share=0.10, busy_quiet_ms=150)
FINAL = QuietRule(quiet_ms=500, idle_ms=100, idle_share=0.05, busy_quiet_ms=1000, turn_ms=20)
RULES = {
    SettlePolicy.EXACT: EXACT,
    SettlePolicy.FAST: FAST,
    SettlePolicy.CERTAIN: FINAL,
    SettlePolicy.FIXED: EXACT,
}


@dataclass(frozen=True, slots=True)
class SettledScreen:
    """Result of a wait.

    Attributes:
        wait_ms: Duration from the end of the input.
        last_change_ms: Time of the last seen change from the end of the input; None without a change.
        taken_s: Time of its capture (monotonic).
    """

    reason: SettleReason
    wait_ms: float
    last_change_ms: float | None
    frame: Frame
    taken_s: float


class QuietJudge:
    """Judge of observations. Pure: the caller gives the times (monotonic, in milliseconds)."""

    def __init__(self, rule: QuietRule, began_ms: float, before: Frame | None, look_ms: float = 50.0) -> None:
        """Args:
        began_ms: End of the input.
        before: Screen before it, None when nobody looked.
        look_ms: Least time between captures while the guest is at work.
        """
        self._rule = rule
        self._look_every_ms = look_ms
        self._began_ms = began_ms
        self._frame = before
        self._looked_ms = -1.0
        self._work: VcpuWork | None = None
        self._work_ms = began_ms
        self._sees_work = False
        self._busy_ms = began_ms
        self._seen: dict[int, None] = {} if before is None else {frames.fingerprint(before): None}
        self.changed_ms: float | None = None
        self._restless_ms = began_ms

    def rested_since(self, at_ms: float) -> None:
        """Count the quiet of the screen from an earlier time, since which it has not changed."""
        self._restless_ms = at_ms

    def add_work(self, at_ms: float, work: VcpuWork | None) -> None:
        """Add the work of the processors so far; None where it cannot be seen."""
        if work is None:
            return
        before, since_ms = self._work, self._work_ms
        self._work, self._work_ms, self._sees_work = work, at_ms, True
        if before is None or at_ms <= since_ms:
            return
        used_ms = (work.cpu_ns - before.cpu_ns) / 1e6
        if used_ms > self._rule.idle_share * (at_ms - since_ms):
            self._busy_ms = at_ms

    def ignore_work_so_far(self, at_ms: float, work: VcpuWork | None) -> None:
        """Ignore the work of the processors so far, which a capture caused."""
        self._work, self._work_ms = work, at_ms

    def add_frame(self, at_ms: float, frame: Frame) -> None:
        before, self._frame, self._looked_ms = self._frame, frame, at_ms
        if before is None:
            return
        box = frames.difference(before, frame)
        if box is None:
            return
        mark = frames.fingerprint(frame)
        known = mark in self._seen
        self._seen[mark] = None
        while len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        if self.changed_ms is None or not (known or frames.is_caret(box)):
            self.changed_ms = at_ms
        # What blinks goes back to a picture that was there before; it does not put the end off.
        if not known and not frames.is_caret(box):
            self._restless_ms = at_ms

    def needs_frame(self, at_ms: float) -> bool:
        since_ms = at_ms - self._looked_ms
        if self._looked_ms < 0:
            return self._is_idle(at_ms) or at_ms - self._began_ms >= self._look_every_ms
        return since_ms >= self._look_every_ms or (self._is_due(at_ms) and since_ms > 0)

    def is_settled(self, at_ms: float) -> bool:
        """Return whether the frame added at this very time is the final one."""
        return self._looked_ms == at_ms and self._is_due(at_ms)

    def _is_idle(self, at_ms: float) -> bool:
        return self._sees_work and at_ms - self._busy_ms >= self._rule.idle_ms

    def _is_due(self, at_ms: float) -> bool:
        if at_ms - self._began_ms < self._rule.least_ms:
            return False
        quiet_ms = at_ms - self._restless_ms
        if self._is_idle(at_ms):
            return quiet_ms >= self._rule.quiet_ms
        if self._sees_work:  # it is at work: what it showed before this wait does not tell what it will show
            quiet_ms = min(quiet_ms, at_ms - self._began_ms)
        return quiet_ms >= self._rule.busy_quiet_ms


def rule_for(
    policy: SettlePolicy, *, quiet_ms: float | None = None, max_ms: float | None = None
) -> QuietRule:
    rule = RULES[policy]
    if quiet_ms is not None:
        rule = replace(rule, quiet_ms=quiet_ms, idle_ms=min(rule.idle_ms, quiet_ms))
    return rule if max_ms is None else replace(rule, max_ms=max_ms)


def still_at_rest(rule: QuietRule) -> QuietRule:
    """Return the rule for a screen that still shows a step's last frame: the guest rests as after a step."""
    busy_quiet_ms = max(rule.quiet_ms, EXACT.busy_quiet_ms)
    return replace(rule, idle_ms=EXACT.idle_ms, busy_quiet_ms=busy_quiet_ms, turn_ms=EXACT.turn_ms)


async def settle(
    display: GuestDisplay,
    vcpus: Vcpus | None,
    rule: QuietRule,
    *,
    before: Frame | None,
    began_s: float,
    rested_s: float | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> SettledScreen:
    """Wait until the screen is final by the rule, its time is up, or `stop` returns True.

    Args:
        before: The screen at the beginning of the wait; None where nobody looked.
        began_s: When the wait began (monotonic).
        rested_s: Since when the screen shows `before`, where that is known (monotonic).

    Raises:
        DisplayFailed: The screen could not be read.
    """
    judge = QuietJudge(rule, began_s * 1000, before, display.look_ms)
    if rested_s is not None:
        judge.rested_since(rested_s * 1000)
    while True:
        now_ms = time.monotonic() * 1000
        judge.add_work(now_ms, vcpus.read() if vcpus is not None else None)
        late = now_ms - began_s * 1000 >= rule.max_ms or stop()
        if late or judge.needs_frame(now_ms):
            frame = await display.capture()
            await asyncio.to_thread(judge.add_frame, now_ms, frame)
            if late or judge.is_settled(now_ms):
                return _settled(judge, frame, now_ms, began_s, late=not judge.is_settled(now_ms))
            if display.disturbs and vcpus is not None:
                judge.ignore_work_so_far(time.monotonic() * 1000, vcpus.read())
        await asyncio.sleep(rule.turn_ms / 1000)


async def pause(
    display: GuestDisplay, duration_ms: float, *, before: Frame | None, began_s: float
) -> SettledScreen:
    """Wait for a fixed time, counted from the end of the input."""
    await asyncio.sleep(max(0.0, began_s + duration_ms / 1000 - time.monotonic()))
    now_s = time.monotonic()
    frame = await display.capture()
    changed = before is not None and before != frame
    wait_ms = (now_s - began_s) * 1000
    return SettledScreen(SettleReason.FIXED, wait_ms, wait_ms if changed else None, frame, now_s)


async def drained(
    vcpus: Vcpus | None, *, pointer: bool, rest_ms: float = 0.0, busy_share: float = 0.5
) -> None:
    """Wait until the guest has processed its input and halts. Bounded by `DRAIN_MAX_MS`.

    A guest that never halts is given the time in which it takes its interrupts.

    Args:
        vcpus: What tells of its work; None where nobody can.
        pointer: The input was the pointer's, whose reports are fetched by polling.
        rest_ms: How long it must have halted.
    """
    least_ms = POINTER_LEAST_MS if pointer else KEY_LEAST_MS
    blind_ms = BLIND_POINTER_MS if pointer else BLIND_KEY_MS
    if vcpus is None:
        await asyncio.sleep(max(blind_ms, rest_ms) / 1000)
        return
    before = vcpus.read()
    await asyncio.sleep(least_ms / 1000)
    waited_ms, at_rest, rested_ms, burning_ms = least_ms, 0, 0.0, 0.0
    while before is not None and waited_ms < DRAIN_MAX_MS:
        began_s = time.monotonic()
        await asyncio.sleep(_DRAIN_TURN_MS / 1000)
        turn_ms = (time.monotonic() - began_s) * 1000
        waited_ms += turn_ms
        now = vcpus.read()
        if now is None:
            return
        used_ms = (now.cpu_ns - before.cpu_ns) / 1e6
        before = now
        busy = now.running or used_ms > 0.2 * turn_ms
        at_rest, rested_ms = (0, 0.0) if busy else (at_rest + 1, rested_ms + turn_ms)
        burning_ms += used_ms if used_ms > busy_share * turn_ms else 0.0
        if (at_rest >= 2 and rested_ms >= rest_ms) or burning_ms >= DRAIN_MAX_MS / 4:
            return


def _settled(judge: QuietJudge, frame: Frame, now_ms: float, began_s: float, *, late: bool) -> SettledScreen:
    wait_ms = now_ms - began_s * 1000
    changed = None if judge.changed_ms is None else max(0.0, judge.changed_ms - began_s * 1000)
    if late:
        reason = SettleReason.TIMEOUT
    else:
        reason = SettleReason.UNCHANGED if changed is None else SettleReason.QUIET
    return SettledScreen(reason, wait_ms, changed, frame, now_ms / 1000)
