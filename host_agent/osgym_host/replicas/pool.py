"""The pool: clean replicas that wait, made ahead of demand, handed out in the order of asking."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace

from osgym_host.core.admission import Admission, Budget, Load, admit
from osgym_host.core.backoff import Backoff
from osgym_host.core.plan import Blocked, PoolSpec, PoolView, blocked_by, plan
from osgym_host.core.reasons import Reason, Recovery, consequence
from osgym_host.core.states import ReplicaState
from osgym_host.replicas.asking import HAND_OVER_S, NoCapacity, NotMade, PoolStats, PoolStopping, Waiter
from osgym_host.replicas.events import EventLog
from osgym_host.replicas.journal import Journal
from osgym_host.replicas.manager import Deadlines, ReplicaManager, Revoked
from osgym_host.replicas.meter import Meter, MeterOptions
from osgym_host.replicas.rooms import Room, Rooms
from osgym_host.runtimes import base

log = logging.getLogger(__name__)

REPLAN_S = 2.0
"""How often the plan is looked at again while something other than the pool itself blocks it."""

LoadProbe = Callable[[], tuple[float, int, float]]
"""Returns available RAM in MiB, cores, free disk in MiB."""


class Pool:
    """Keeps warm replicas ahead of demand and gives them to those who wait, first come first served.

    A used replica never comes back: whoever got one retires it, and the plan replaces it.
    """

    def __init__(
        self,
        *,
        runtime: base.Runtime,
        journal: Journal,
        events: EventLog,
        spec: PoolSpec,
        budget: Budget,
        deadlines: Deadlines,
        make_spec: Callable[[str, int], base.ReplicaSpec],
        probe: LoadProbe,
        meter_options: MeterOptions | None = None,
    ) -> None:
        """Nothing happens before `start`."""
        self._runtime = runtime
        self._journal = journal
        self._events = events
        self.spec = spec
        self.budget = budget
        self._deadlines = deadlines
        self._make_spec = make_spec
        self._probe = probe
        self._managers: dict[str, ReplicaManager] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._free: deque[ReplicaManager] = deque()
        self._waiters: deque[Waiter] = deque()
        self._own: dict[str, Waiter] = {}
        self.rooms = Rooms(lambda: self._kick.set(), self._no_capacity)
        self._asking = 0
        self._backoff = Backoff()
        self._kick = asyncio.Event()
        self._refusal: Callable[[], PoolStopping] | None = None
        self._background: list[asyncio.Task[None]] = []
        self._peaks: deque[float] = deque(maxlen=128)
        self.blocked = Blocked.NOTHING
        self.last_failure = ""
        self.admission = Admission(0, admit(budget, Load(0, 1, 0)).limit, float(budget.ram_cap_mib))
        self.stats = PoolStats()
        self._meter = Meter(runtime, self.managers, lambda: probe()[2], meter_options or MeterOptions())

    # What others see ---------------------------------------------------------------------------

    def managers(self) -> list[ReplicaManager]:
        """Returns the managers of all replicas that are not gone."""
        return list(self._managers.values())

    def find(self, replica_id: str) -> ReplicaManager | None:
        """Returns the manager of a replica that is not gone."""
        return self._managers.get(replica_id)

    def view(self) -> PoolView:
        """Counts the replicas by what they do; one that is made for somebody counts as leased."""
        own = self._own
        counts = Counter(m.state for m in self._managers.values() if m.replica_id not in own)
        return PoolView(
            starting=counts[ReplicaState.CREATING] + counts[ReplicaState.BOOTING],
            ready=counts[ReplicaState.READY],
            leased=counts[ReplicaState.LEASED] + len(own),
            retiring=counts[ReplicaState.RETIRING],
            waiting=len(self._waiters) + self._asking,
            stopping=self._refusal is not None,
        )

    @property
    def capacity(self) -> int:
        """How many replicas could exist at once, as far as is known now."""
        return min(self.budget.max_replicas, len(self._managers) + self.admission.room)

    # Life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to fill the pool."""
        self._background = [
            asyncio.create_task(self._keep_filled(), name="pool:fill"),
            asyncio.create_task(self._meter.run(), name="pool:measure"),
        ]
        self._kick.set()

    def stop_handing_out(self, refusal: Callable[[], PoolStopping] = PoolStopping) -> None:
        """Refuses everyone who waits or comes, with what `refusal` makes, until `resume`. Idempotent."""
        self._refusal = refusal
        while self._waiters:
            self._waiters.popleft().fail(refusal())
        self.rooms.refuse_all(refusal)

    def resume(self) -> None:
        """Hands out again."""
        self._refusal = None
        self._kick.set()

    async def close(self, timeout_s: float) -> bool:
        """Retires every replica and waits for their end; returns whether all are gone in time.

        Whoever waits gets `PoolStopping`. Idempotent.
        """
        self.stop_handing_out()
        for manager in self.managers():
            manager.retire(Reason.SHUTDOWN)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if not self._tasks:
            return True
        _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
        return not late

    # Handing out -------------------------------------------------------------------------------

    async def acquire(self, lease_id: str, revoked: Revoked, wait_s: float) -> ReplicaManager:
        """Returns a clean replica that is now leased; `revoked` is called if it ends under the lease.

        First come, first served. Cancelling is safe at any moment: a replica that was just handed
        over goes back untouched.

        Raises:
            NoCapacity: None was free within `wait_s`.
            PoolStopping: The service is stopping.
        """
        if self._refusal is not None:
            raise self._refusal()
        waiter = Waiter(lease_id, revoked, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._match()
        self._kick.set()
        began = time.monotonic()
        try:
            async with asyncio.timeout(max(wait_s, HAND_OVER_S)):
                return await waiter.answer
        except TimeoutError:
            self._abandon(waiter)
            raise self._no_capacity(time.monotonic() - began) from None
        except asyncio.CancelledError:
            self._abandon(waiter)
            raise

    def _abandon(self, waiter: Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        if waiter.answer.done() and not waiter.answer.cancelled() and waiter.answer.exception() is None:
            waiter.answer.result().give_back(waiter.lease_id)
        waiter.answer.cancel()
        self._kick.set()

    def _no_capacity(self, waited_s: float) -> NoCapacity:
        return NoCapacity(waited_s, self.blocked, self.last_failure)

    def _match(self) -> None:
        while self._waiters and self._free:
            waiter = self._waiters.popleft()
            if waiter.answer.done():
                continue
            self._offer(self._free.popleft(), waiter)

    def _offer(self, manager: ReplicaManager, waiter: Waiter) -> None:
        self._asking += 1

        def granted(given: bool) -> None:
            self._asking -= 1
            if given and waiter.answer.done():
                manager.give_back(waiter.lease_id)
            elif given:
                waiter.answer.set_result(manager)
            elif not waiter.answer.done():
                if waiter.own or self._refusal is not None:
                    waiter.fail(self._why_none(manager))
                else:
                    self._waiters.appendleft(waiter)
                    self._match()

        manager.ask_lease(waiter.lease_id, granted, waiter.revoked)

    # Replicas for somebody (see `replicas.branches`) ---------------------------------------------

    @property
    def runtime(self) -> base.Runtime:
        """What makes the replicas."""
        return self._runtime

    async def ask_room(self, count: int, wait_s: float) -> Room:
        """Reserves room for `count` replicas of `start_own`; ready ones that nobody wants make way.

        Whoever got it gives back what is left of it with `rooms.give_back`.

        Raises:
            NoCapacity: There was none within `wait_s`.
            PoolStopping: The service is stopping.
        """
        if self._refusal is not None:
            raise self._refusal()
        return await self.rooms.ask(count, wait_s)

    def start_own(
        self,
        lease_id: str,
        revoked: Revoked,
        *,
        room: Room | None = None,
        origin: base.BranchPoint | None = None,
        record: base.ReplicaRecord | None = None,
    ) -> tuple[ReplicaManager, Waiter]:
        """Makes (from `origin`) or adopts (`record`) a replica for one lease; never for the pool.

        The waiter's answer is the leased manager, or `NotMade`, or `PoolStopping`. Who gives it up
        retires the manager. Failures do not slow the pool down.
        """
        if self._refusal is not None:
            raise self._refusal()
        if room is not None:
            self.rooms.take(room)
        generation = self._journal.next_generation() if record is None else record.generation
        if origin is not None and generation == origin.generation:
            # A checkpoint of another host: its guest takes a number for a new one only if it differs.
            generation = self._journal.next_generation()
        replica_id = f"r{generation}" if record is None else record.replica_id
        spec = replace(self._make_spec(replica_id, generation), origin=origin)
        waiter = Waiter(lease_id, revoked, asyncio.get_running_loop().create_future(), own=True)
        self._own[replica_id] = waiter
        return self._launch(spec, record), waiter

    # What managers report ----------------------------------------------------------------------

    def on_offer(self, manager: ReplicaManager) -> None:
        """A replica is ready: a clean one waits for anybody, another goes to whom it was made for."""
        waiter = self._own.pop(manager.replica_id, None)
        if waiter is not None:
            self._offer(manager, waiter)
        elif manager.clean:
            self._free.append(manager)
            self._match()
        else:
            manager.retire(Reason.SURPLUS)

    def on_withdraw(self, manager: ReplicaManager) -> None:
        """A replica that waited is not to be had any more."""
        if manager in self._free:
            self._free.remove(manager)

    def on_change(self, manager: ReplicaManager, before: ReplicaState) -> None:
        """A replica's state changed: note it and plan again."""
        if manager.state is ReplicaState.READY and before is ReplicaState.BOOTING and manager.clean:
            self._backoff = self._backoff.succeeded()
            self.last_failure = ""
            self.stats.ready_s.append(time.monotonic() - manager.created_at)
        if manager.state is ReplicaState.RETIRING and manager.reason is not None:
            self._note_retirement(manager, manager.reason)
            waiter = self._own.pop(manager.replica_id, None)
            if waiter is not None:
                waiter.fail(self._why_none(manager))
        self._events.add(
            "replica",
            replica_id=manager.replica_id,
            generation=manager.generation,
            state=manager.state.value,
            **({"reason": manager.reason.value} if manager.reason else {}),
            **({"detail": manager.detail[:500]} if manager.detail else {}),
        )
        self._kick.set()

    def on_buried(self, manager: ReplicaManager, reason: Reason) -> None:
        """Nothing of a replica is left."""
        if manager.peak_mib > 0:
            self._peaks.append(manager.peak_mib)
        self._managers.pop(manager.replica_id, None)
        self._journal.gone(manager.replica_id)

    def _note_retirement(self, manager: ReplicaManager, reason: Reason) -> None:
        self.stats.retired[reason] += 1
        recovery = consequence(reason).recovery
        if recovery is Recovery.BACK_OFF and not manager.clean:
            log.warning("replica %s could not be branched or adopted: %s", manager.replica_id, manager.detail)
        elif recovery is Recovery.BACK_OFF:
            self._backoff = self._backoff.failed(self.spec.backoff, time.monotonic())
            self.last_failure = manager.detail[:500]
            log.warning("replica %s could not be made: %s", manager.replica_id, manager.detail)
        elif recovery is Recovery.REPLACE_AND_COUNT:
            log.warning("replica %s failed (%s): %s", manager.replica_id, reason.value, manager.detail)

    # Background --------------------------------------------------------------------------------

    async def _keep_filled(self) -> None:
        while True:
            self._kick.clear()
            try:
                pause_s = self._plan_once()
            except OSError:
                log.exception("cannot read the host's load")
                pause_s = REPLAN_S
            try:
                async with asyncio.timeout(pause_s):
                    await self._kick.wait()
            except TimeoutError:
                continue

    def _plan_once(self) -> float | None:
        """Carries out the plan once; returns after how long to look again."""
        now = time.monotonic()
        view = self.view()
        self.admission = self._grant_rooms(admit(self.budget, self._load(view)), view)
        spec = replace(self.spec, warm=0) if self.rooms.waiting else self.spec
        todo = plan(spec, view, self.admission, self._backoff, now)
        self.blocked = todo.blocked
        for _ in range(todo.start):
            self._start_one()
        if self.rooms.waiting:
            if self.blocked is Blocked.NOTHING:
                self.blocked = blocked_by(self.admission.limit)
            return REPLAN_S
        for _ in range(todo.give_up):
            if self._free:
                self._free.pop().retire(Reason.SURPLUS)
        if todo.wake_at is not None:
            return max(0.01, todo.wake_at - now)
        return None if todo.blocked is Blocked.NOTHING else REPLAN_S

    def _grant_rooms(self, admission: Admission, view: PoolView) -> Admission:
        """Gives room to those who asked for it; ready replicas make way for the first of them when
        that is enough. Returns what is left."""
        room, short = self.rooms.grant(admission.room)
        short -= view.retiring
        if short <= len(self._free):
            for _ in range(short):
                self._free.pop().retire(Reason.SURPLUS)
        return replace(admission, room=room)

    def _load(self, view: PoolView) -> Load:
        available, cores, disk_free = self._probe()
        managers = self._managers.values()
        return Load(
            ram_available_mib=available,
            cores=cores,
            disk_free_mib=disk_free,
            peaks_mib=[*self._peaks, *(m.peak_mib for m in managers if m.peak_mib > 0)],
            now_mib=[m.pss_mib for m in managers if m.pss_mib is not None],
            pending=view.starting + len(self._own) + self.rooms.held,
            existing=view.existing + self.rooms.held,
        )

    def _start_one(self) -> None:
        generation = self._journal.next_generation()
        self._launch(self._make_spec(f"r{generation}", generation), None)

    def _launch(self, spec: base.ReplicaSpec, record: base.ReplicaRecord | None) -> ReplicaManager:
        self._journal.created(spec.replica_id, spec.generation)
        manager = ReplicaManager(spec, self._runtime, self, self._deadlines, record)
        self._managers[spec.replica_id] = manager
        self.stats.created += 1
        task = asyncio.create_task(manager.run(), name=f"{spec.replica_id}:manager")
        self._tasks.add(task)
        task.add_done_callback(self._manager_ended)
        return manager

    def _manager_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a replica manager failed", exc_info=task.exception())
        self._kick.set()

    def _why_none(self, manager: ReplicaManager) -> PoolStopping | NotMade:
        if self._refusal is not None:
            return self._refusal()
        return NotMade(manager.replica_id, manager.reason or Reason.INTERNAL, manager.detail)
