"""Rest of replicas between calls: they are paused when idle, and a call wakes them.

Where memory is needed, that of paused replicas goes to swap. `core.rest` decides; here are the effects. All
for one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from osgym_host.core.rest import (
    RestPlan,
    RestStage,
    RestTerms,
    RestView,
    expected_rest_s,
    mean_pause_s,
    plan_rest,
)
from osgym_host.guest_client import GuestClient, GuestError, HostSocketError
from osgym_host.replicas.thinking import ThinkingClock
from osgym_host.replicas.wake_slots import ROOM_LOOK_S, WakeSlots
from osgym_host.runtimes import base

log = logging.getLogger(__name__)

TICK_S = 0.5
WAKE_TIMEOUT_S = 300.0
"""Deadline of a wake. Nearly all of it is the wait for memory when more replicas wake than fit."""
RECLAIMS_PER_CORE = 1
RECLAIM_S = 1.0
RETRY_S = 30.0
"""Time after which a reclaim is repeated that freed less than `_LEAST_MIB` and left more than `_LEFT_MIB`."""
_LEAST_MIB = 1.0
_LEFT_MIB = 8.0
_PROBE_S = 30.0
_SAME_STEP_S = 0.5
"""Time between two calls below which they belong to one step of a client."""


class ReplicaRest:
    """Rest of one replica: the calls that use it, and its stage.

    Attributes:
        stage: Its present state.
        calls: Number of calls in flight; while there is one, the replica is awake.
        resting_mib: Memory that it occupied when it was last reclaimed; None before.
        working_set_mib: Memory that its last reclaim freed; None before.
        before_pause: Called before each pause. It closes idle connections: a paused guest agent would close
            them only after its wake, when a request may be on one.
        thinking: Its clock, where the replica is paused at the end of each call; None: where it is not.
    """

    def __init__(
        self, runtime: base.Runtime, clone: base.Replica, slots: WakeSlots, wakes: Counter[RestStage]
    ) -> None:
        self.stage = RestStage.AWAKE
        self._idle_since = time.monotonic()
        self.calls = 0
        self.thinking: ThinkingClock | None = None
        self._going = 0
        self._changes: asyncio.Task[None] | None = None
        self.resting_mib: float | None = None
        self.working_set_mib: float | None = None
        self.before_pause: Callable[[], None] = lambda: None
        self._mean_pause_s: float | None = None
        self._reclaim_after = 0.0
        self._cpu_s: tuple[float, float] | None = None
        self._runtime = runtime
        self._clone = clone
        self._slots = slots
        self._wakes = wakes
        self._changing = asyncio.Lock()

    @property
    def can_pause(self) -> bool:
        """Whether the replica can be paused."""
        return self._runtime.can_pause(self._clone)

    def begin_thinking(self, *, real_time: bool) -> asyncio.Task[None]:
        """Pause the replica from now on whenever no call uses it; arguments as for `ThinkingClock`.

        Returns:
            Task of the first pause, which does not fail.
        """
        self.thinking = ThinkingClock(self._clone, real_time=real_time)
        self._changes = asyncio.create_task(self._pause_for_thought(), name="rest:pause for a thought")
        return self._changes

    async def acquire(self, *, still: bool = False) -> None:
        """Wake the replica, and keep it awake until `release`; see `WakeLock`."""
        if not self.calls:
            pause_s = time.monotonic() - self._idle_since
            if pause_s >= _SAME_STEP_S:
                self._mean_pause_s = mean_pause_s(self._mean_pause_s, pause_s)
        self.calls += 1
        self._going += not still
        clock = None if still else self.thinking
        awake = self.stage is RestStage.AWAKE and not self._changing.locked()
        if awake and (clock is None or not (clock.held or clock.charges)):
            return
        try:
            await self._wake(clock)
        except BaseException:
            self.release(still=still)
            raise

    def release(self, *, still: bool = False) -> None:
        """End what one `acquire` began."""
        self.calls -= 1
        self._going -= not still
        self._idle_since, self._cpu_s = time.monotonic(), None
        if self.thinking is None:
            return
        if not self.calls:
            self._changes = asyncio.create_task(self._pause_for_thought(), name="rest:pause for a thought")
        elif self._going and self.thinking.held:  # by a step that ended while other calls still run
            self._changes = asyncio.create_task(self._go_on(self.thinking), name="rest:go on")

    async def _pause_for_thought(self) -> None:
        """Pause the replica; on failure it runs on, and its clock stands still if its agent answered."""
        try:
            await self.pause()
        except (base.RuntimeFault, GuestError, OSError) as error:
            if not self._clone.destroying and self._clone.exit_info is None:
                log.warning("replica %s could not be paused: %s", self._clone.replica_id, error)

    async def _go_on(self, clock: ThinkingClock) -> None:
        """Let the clock go on for the calls that need it; their own deadlines tell if it does not."""
        async with self._changing:
            if self._going:
                with contextlib.suppress(GuestError):
                    await clock.resume()

    def view(self, key: str, turn: int | None) -> RestView:
        """Return the facts for `plan_rest`. Reads the CPU time of an awake replica, which blocks 20 µs."""
        idle_s = time.monotonic() - self._idle_since
        cpu = self._used_cpu() if self.stage is RestStage.AWAKE else None
        return RestView(key, self.stage, idle_s, expected_rest_s(self._mean_pause_s, idle_s), cpu, turn)

    @property
    def can_be_reclaimed(self) -> bool:
        """Whether the replica is paused, and its last reclaim, if it freed nothing, is `RETRY_S` ago."""
        return self.stage is RestStage.PAUSED and time.monotonic() >= self._reclaim_after

    async def pause(self, idle_s: float = 0.0) -> None:
        """Pause the replica, unless a call uses it or has used it within `idle_s`.

        A call may have come and gone since the pause was planned, and may have started a program.

        Raises:
            RuntimeFault, GuestError, OSError: It could not be paused, and runs on.
        """
        async with self._changing:
            if self.calls or self.stage is not RestStage.AWAKE:
                return
            if time.monotonic() - self._idle_since < idle_s:
                return
            if self.thinking is not None:
                await self.thinking.hold()
                if self.calls:
                    return
            self.before_pause()
            await self._runtime.pause(self._clone)
            self._enter(RestStage.PAUSED)

    async def reclaim(self) -> None:
        """Move the memory of the paused replica to swap, unless a call has come meanwhile.

        Raises:
            RuntimeFault, OSError: The memory stays.
        """
        async with self._changing:
            if self.calls or not self.can_be_reclaimed:
                return
            found = await self._runtime.reclaim(self._clone)
            if found is not None and found.left_mib > _LEFT_MIB and found.freed_mib < _LEAST_MIB:
                self._reclaim_after = time.monotonic() + RETRY_S  # swap is full, most likely
                return
            if found is not None:
                self.resting_mib, self.working_set_mib = found.occupied_mib, found.freed_mib
            self._enter(RestStage.RECLAIMED)

    async def _wake(self, clock: ThinkingClock | None) -> None:
        """Let the processes run, and then the clock go on, if there is one."""
        try:
            async with asyncio.timeout(WAKE_TIMEOUT_S), self._changing:
                if self.stage is not RestStage.AWAKE:
                    await self._run_on()
                if clock is not None:
                    await clock.resume()
        except TimeoutError as exc:
            raise HostSocketError(
                f"The replica could not be woken within {WAKE_TIMEOUT_S:g} s: the host has too little memory"
                " or swap.",
                delivered=False,
            ) from exc
        except (base.RuntimeFault, OSError) as exc:
            raise HostSocketError(f"The replica could not be woken: {exc}", delivered=False) from exc

    async def _run_on(self) -> None:
        before = self.stage
        if before is RestStage.PAUSED:
            await self._unpause()
        else:
            async with self._slots.slot():
                await self._unpause()
                await self._probe()
        self._wakes[before] += 1

    async def _unpause(self) -> None:
        """Unpause the replica, which is awake from then on, even if its caller gives up."""
        await self._runtime.unpause(self._clone)
        self._enter(RestStage.AWAKE)

    async def _probe(self) -> None:
        """Wait until the guest agent answers: its memory is back then."""
        async with GuestClient(self._clone.guest, token=self._clone.guest_token) as client:
            with contextlib.suppress(GuestError):  # the call that follows tells what is wrong
                await client.health(timeout_s=_PROBE_S)

    def _enter(self, stage: RestStage) -> None:
        self.stage, self._cpu_s = stage, None

    def _used_cpu(self) -> float | None:
        """Return the share of a core used since the last look at this replica; None at the first."""
        if self.calls:
            return None
        try:
            used_s = self._runtime.used_cpu_s(self._clone)
        except (base.RuntimeFault, OSError):
            return None
        now_s = time.monotonic()
        before, self._cpu_s = self._cpu_s, None if used_s is None else (now_s, used_s)
        if before is None or used_s is None:
            return None
        return (used_s - before[1]) / max(TICK_S / 2, now_s - before[0])


@dataclass(frozen=True, slots=True)
class RestingReplica:
    """A live replica, as the controller sees it. `turn` as in `RestView`."""

    key: str
    clone: base.Replica
    rest: ReplicaRest
    turn: int | None


class RestController:
    """Pauses and reclaims the replicas of a pool that nobody uses, until it is cancelled.

    Attributes:
        slots: Shared by the rests of all replicas.
        wakes: Number of wakes by the stage before.
    """

    def __init__(
        self,
        runtime: base.Runtime,
        replicas: Callable[[], Sequence[RestingReplica]],
        available_mib: Callable[[], float],
        reserve_mib: float,
        terms: RestTerms,
    ) -> None:
        """Args:
        replicas: Returns the live replicas.
        available_mib: Returns the host's available memory, read afresh.
        reserve_mib: Memory that is left to the rest of the host.
        terms: When replicas rest.
        """
        self.wakes: Counter[RestStage] = Counter()
        self.slots = WakeSlots(lambda: available_mib() - reserve_mib, terms.awake)
        self._runtime = runtime
        self._replicas = replicas
        self._available_mib = available_mib
        self._reserve_mib = reserve_mib
        self._terms = terms
        self._failed: set[str] = set()
        self._at_once = RECLAIMS_PER_CORE * len(os.sched_getaffinity(0))
        self._behind = self._somebody_waits = False

    def rest_of(self, clone: base.Replica) -> ReplicaRest:
        """Return the rest of a new replica."""
        return ReplicaRest(self._runtime, clone, self.slots, self.wakes)

    def headroom_mib(self, awake: int) -> float:
        """Return the memory that must stay free for replicas that are to wake beside `awake` ones."""
        return max(0, self._terms.awake - awake) * self.slots.each_mib

    async def run(self) -> None:
        """Look at the replicas until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ROOM_LOOK_S if self._behind else TICK_S):
                    await self.slots.short.wait()
            self._somebody_waits = self.slots.short.is_set()
            self.slots.short.clear()
            try:
                await self._look()
            except OSError:
                log.exception("the host's memory cannot be read")
            await asyncio.sleep(ROOM_LOOK_S)

    async def _look(self) -> None:
        live = {replica.key: replica for replica in self._replicas()}
        self._failed &= live.keys()
        free = [live[key] for key in live.keys() - self._failed if not live[key].rest.calls]
        awake = sum(replica.rest.stage is RestStage.AWAKE for replica in live.values())
        self.slots.awake = awake
        short_mib = self._reserve_mib + self.headroom_mib(awake) - self._available_mib()
        if self._somebody_waits:
            short_mib = max(short_mib, self._terms.awake * self.slots.each_mib)
        views = [replica.rest.view(replica.key, replica.turn) for replica in free]
        plan = plan_rest(self._terms, views, short_mib, self.slots.each_mib)
        await self._pause(plan, live, {view.key: view.idle_s for view in views})
        await self._reclaim(plan, live)

    async def _pause(
        self, plan: RestPlan, live: Mapping[str, RestingReplica], idle_s: Mapping[str, float]
    ) -> None:
        for key in plan.pause:
            replica = live[key]
            try:
                if self._runtime.can_pause(replica.clone):
                    await replica.rest.pause(idle_s[key])
                else:
                    self._failed.add(key)
            except (base.RuntimeFault, GuestError, OSError) as error:
                self._failed.add(key)
                log.warning("replica %s could not be paused: %s", replica.clone.replica_id, error)

    async def _reclaim(self, plan: RestPlan, live: Mapping[str, RestingReplica]) -> None:
        """Reclaim one after the other, `RECLAIMS_PER_CORE` at once, for at most `RECLAIM_S`.

        The next look sees who was used meanwhile.
        """
        keys, until = iter(plan.reclaim), time.monotonic() + RECLAIM_S

        async def work() -> None:
            while time.monotonic() < until and (key := next(keys, None)) is not None:
                await self._reclaim_one(live[key])

        await asyncio.gather(*(work() for _ in range(self._at_once)))
        self._behind = next(keys, None) is not None

    async def _reclaim_one(self, replica: RestingReplica) -> None:
        try:
            await replica.rest.reclaim()
        except (base.RuntimeFault, OSError) as error:
            self._failed.add(replica.key)
            log.warning("the memory of replica %s stays: %s", replica.clone.replica_id, error)
        else:
            self._measure(replica.rest)

    def _measure(self, rest: ReplicaRest) -> None:
        """Follow the mean of what reclaimed replicas freed, which is what woken ones take."""
        if rest.working_set_mib is not None:
            self.slots.each_mib += 0.05 * (rest.working_set_mib - self.slots.each_mib)
