"""Pool of clean replicas, made ahead of demand and handed out to clients in turn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from osgym_host.core.admission import MIN_SAMPLES, Admission, Budget, RestingLoad
from osgym_host.core.backoff import Backoff
from osgym_host.core.cpu_credit import CreditTerms
from osgym_host.core.fair_queue import UNNAMED, ClientKey
from osgym_host.core.image_split import RecentDemand, updated_split
from osgym_host.core.plan import Blocked, PoolSpec, PoolView, blocked_by, plan, sum_of
from osgym_host.core.reasons import Reason, Recovery, consequence
from osgym_host.core.rest import RestStage, RestTerms
from osgym_host.core.states import ReplicaState
from osgym_host.replicas.cpu_shares import CpuShares
from osgym_host.replicas.events import EventLog
from osgym_host.replicas.guest_pulse import GuestPulse, PulseOptions
from osgym_host.replicas.lease_queue import LeaseQueue, Waiter
from osgym_host.replicas.manager import OnRevoked, ReplicaManager
from osgym_host.replicas.measured_admission import LoadProbe, MeasuredAdmission
from osgym_host.replicas.pool_errors import PoolExhausted, PoolStopping, blocking_setting
from osgym_host.replicas.replica_set import ReplicaSet
from osgym_host.replicas.reservations import Reservation, Reservations
from osgym_host.replicas.rest import ReplicaRest, RestController, RestingReplica
from osgym_host.replicas.usage_monitor import UsageMonitor, UsageOptions
from osgym_host.replicas.wake_slots import WakeSlots
from osgym_host.runtimes import base
from osgym_host.runtimes.swap import read_swap

log = logging.getLogger(__name__)

_NO_ROOM = (Blocked.MAX_REPLICAS, Blocked.RAM, Blocked.CPU, Blocked.DISK)
_BEING_MADE = (ReplicaState.CREATING, ReplicaState.BOOTING)
REPLAN_S = 2.0
"""Interval of plans while something outside the pool blocks it."""

_REST = {ReplicaState.READY, ReplicaState.LEASED}


class Pool:
    """Keeps warm replicas ahead of demand and leases them to waiting clients in turn.

    A used replica never comes back: whoever got one retires it, and the plan replaces it.

    Attributes:
        queue: Those that are ready, and those who wait for one.
        reservations: Room that is kept for children.
        admission: Capacity of the host for more replicas.
        retired: Retirements since the start.
        targets: Number of warm replicas that each image should have.
        blocked, last_failure: Cause that keeps the pool from growing; error of the last failed creation.
    """

    def __init__(
        self,
        *,
        replicas: ReplicaSet,
        events: EventLog,
        spec: PoolSpec,
        budget: Budget,
        probe: LoadProbe,
        usage_options: UsageOptions | None = None,
        pulse_options: PulseOptions | None = None,
        credit_terms: CreditTerms | None = None,
        rest_terms: RestTerms | None = None,
    ) -> None:
        """Make an empty pool. Without `rest_terms`, replicas never rest."""
        self.replicas = replicas
        self.spec = spec
        self.queue = LeaseQueue(self._replan, self._exhausted)
        for image, warming in replicas.warming.items():
            warming.somebody_waits = partial(self._somebody_waits, image)
        self.reservations = Reservations(self._replan, self._exhausted)
        self.admission = MeasuredAdmission(budget, probe)
        self.retired: Counter[Reason] = Counter()
        self.blocked = Blocked.NOTHING
        self.last_failure = ""
        self._events = events
        self._backoffs: dict[str, Backoff] = {}
        self._demand = RecentDemand(replicas.images)
        self.targets: Mapping[str, int] = {}
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._background: list[asyncio.Task[None]] = []
        options = usage_options or UsageOptions()
        self._pulse = GuestPulse(replicas.managers, replicas.runtime.used_cpu_s, pulse_options)
        self._usage = UsageMonitor(replicas.runtime, replicas.managers, self.admission.disk_room, options)
        self._cpu_shares = CpuShares(replicas.runtime, replicas.managers, credit_terms)
        self.rest: RestController | None = None
        if rest_terms is not None:
            self.rest = RestController(
                replicas.runtime,
                self._resting,
                self.admission.available_mib,
                budget.ram_reserve_mib,
                rest_terms,
            )
            replicas.make_rest = self.rest.rest_of
        else:  # replicas still rest while a policy thinks, where an episode asks for that
            slots, wakes = WakeSlots(lambda: math.inf, 1), Counter[RestStage]()
            replicas.make_rest = lambda clone: ReplicaRest(replicas.runtime, clone, slots, wakes)

    def view(self) -> PoolView:
        """Return the numbers of replicas by state; one that is made for a lease counts as leased."""
        return sum_of(self.views().values())

    def views(self) -> dict[str, PoolView]:
        """Return the numbers of `view` for each image, by its digest."""
        promised, waiting = self.queue.promised, self.queue.waiting
        counts = Counter(
            (m.spec.image.digest, ReplicaState.LEASED if m.replica_id in promised else m.state)
            for m in self.replicas.managers()
        )
        return {
            image: PoolView(
                starting=counts[image, ReplicaState.CREATING] + counts[image, ReplicaState.BOOTING],
                ready=counts[image, ReplicaState.READY],
                leased=counts[image, ReplicaState.LEASED],
                retiring=counts[image, ReplicaState.RETIRING],
                waiting=waiting[image],
                stopping=self.queue.refuses,
            )
            for image in self.replicas.images
        }

    @property
    def capacity(self) -> int:
        """Number of replicas that could exist at once, as far as is known."""
        return min(self.admission.budget.max_replicas, len(self.replicas) + self.admission.now.room)

    @property
    def full(self) -> bool:
        """True if a client waits and gets nothing before a leased replica ends."""
        views = self.views().values()
        unserved = sum(view.unserved for view in views)
        return unserved > sum(view.retiring for view in views) and self.blocked in _NO_ROOM

    # Life --------------------------------------------------------------------------------------

    def start(self) -> None:
        self._background = [
            asyncio.create_task(self._keep_filled(), name="pool:fill"),
            asyncio.create_task(self._usage.run(), name="pool:measure"),
            asyncio.create_task(self._pulse.run(), name="pool:ask guests"),
            asyncio.create_task(self._cpu_shares.run(), name="pool:share processors"),
        ]
        if self.rest is not None:
            self._background.append(asyncio.create_task(self.rest.run(), name="pool:rest"))
        self._replan()

    def stop_leasing(self, refusal: Callable[[], PoolStopping] = PoolStopping) -> None:
        """Refuse all requests with the error of `refusal`, until `resume`. Idempotent."""
        if refusal is PoolStopping:
            self._stopping.set()
        self.queue.refuse(refusal)
        self.reservations.refuse_all(refusal)

    def resume(self) -> None:
        self.queue.resume()
        self._replan()

    async def close(self, timeout_s: float) -> bool:
        """Retire every replica and wait for their end; return whether all ended in time.

        Whoever waits gets `PoolStopping`. Idempotent.
        """
        self.stop_leasing()
        self.replicas.retire_all(Reason.SHUTDOWN)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        return await self.replicas.wait_gone(timeout_s)

    # Handing out -------------------------------------------------------------------------------

    async def acquire(
        self,
        lease_id: str,
        on_revoked: OnRevoked,
        wait_s: float,
        client: ClientKey = UNNAMED,
        image: str | None = None,
    ) -> ReplicaManager:
        """Return a clean replica of an image (its digest; None: the default one), leased.

        `on_revoked` is called if the replica ends under the lease. Clients take turns; each is served in the
        order of its asking. Cancelling is safe at any time: a replica that was just handed over goes back
        untouched.

        Raises:
            PoolExhausted: None was free within `wait_s`.
            PoolStopping: The service is stopping.
        """
        image = self.replicas.images[0] if image is None else image
        self._demand.add(image, time.monotonic())
        return await self.queue.acquire(image, lease_id, on_revoked, wait_s, client)

    async def reserve(self, count: int, wait_s: float, client: ClientKey = UNNAMED) -> Reservation:
        """Reserve capacity for `count` replicas of `start_for_lease`; idle ready ones retire if needed.

        Whoever got it gives back what is left of it with `reservations.give_back`.

        Raises:
            PoolExhausted: There was none within `wait_s`.
            PoolStopping: The service is stopping.
        """
        self.queue.check()
        return await self.reservations.ask(count, wait_s, client)

    def start_for_lease(
        self,
        lease_id: str,
        on_revoked: OnRevoked,
        *,
        reservation: Reservation | None = None,
        origin: base.BranchPoint | None = None,
        record: base.ReplicaRecord | None = None,
    ) -> tuple[ReplicaManager, Waiter]:
        """Make (from `origin`) or adopt (`record`) a replica for one lease; never for the pool.

        The waiter's answer is the leased manager, or `ReplicaNotMade`, or `PoolStopping`. Who gives it
        up retires the manager. Failures do not slow the pool down.

        Raises:
            PoolStopping: The service is stopping.
        """
        self.queue.check()
        if reservation is not None:
            self.reservations.take(reservation)
        spec = self.replicas.child_spec(origin) if record is None else self.replicas.adopted_spec(record)
        waiter = self.queue.promise(spec, lease_id, on_revoked)
        return self.replicas.start(spec, self, record), waiter

    # What managers report ----------------------------------------------------------------------

    def on_ready(self, manager: ReplicaManager) -> None:
        self.queue.add(manager)

    def on_unavailable(self, manager: ReplicaManager) -> None:
        self.queue.remove(manager)

    def on_change(self, manager: ReplicaManager, before: ReplicaState) -> None:
        """Count and report the new state, and plan again."""
        if manager.state is ReplicaState.READY and before is ReplicaState.BOOTING and manager.clean:
            self._backoffs.pop(manager.spec.image.digest, None)
            self.last_failure = ""
        if manager.state is ReplicaState.RETIRING and manager.reason is not None:
            self._judge_retirement(manager, manager.reason, made=before not in _BEING_MADE)
            self.queue.remove(manager)
        self._events.add(
            "replica",
            replica_id=manager.replica_id,
            generation=manager.generation,
            state=manager.state.value,
            **({"reason": manager.reason.value} if manager.reason else {}),
            **({"detail": manager.detail[:500]} if manager.detail else {}),
        )
        self._replan()

    def on_gone(self, manager: ReplicaManager, reason: Reason) -> None:
        self.admission.remember(manager)
        self.replicas.forget(manager)
        self._replan()

    async def wait_stop(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` for the pool's final stop; return whether it has begun."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                return await self._stopping.wait()
        return False

    def _judge_retirement(self, manager: ReplicaManager, reason: Reason, *, made: bool) -> None:
        self.retired[reason] += 1
        recovery = consequence(reason).recovery
        if recovery is Recovery.REPLACE_AND_COUNT and not made:  # its start was too much for its caps
            recovery = Recovery.BACK_OFF
        if recovery is Recovery.BACK_OFF and not manager.clean:
            log.warning("replica %s could not be branched or adopted: %s", manager.replica_id, manager.detail)
        elif recovery is Recovery.BACK_OFF and manager.spec.origin is not None:
            self.replicas.warming[manager.spec.image.digest].failed(manager.spec.origin)
            log.warning(
                "replica %s could not be cloned from a warm replica: %s", manager.replica_id, manager.detail
            )
        elif recovery is Recovery.BACK_OFF:
            image = manager.spec.image.digest
            backoff = self._backoffs.get(image, Backoff())
            self._backoffs[image] = backoff.failed(self.spec.backoff, time.monotonic())
            self.last_failure = manager.detail[:500]
            log.warning("replica %s could not be made: %s", manager.replica_id, manager.detail)
        elif recovery is Recovery.REPLACE_AND_COUNT:
            log.warning("replica %s failed (%s): %s", manager.replica_id, reason.value, manager.detail)

    # Background --------------------------------------------------------------------------------

    def _somebody_waits(self, image: str) -> bool:
        return self.queue.waiting[image] > 0

    def _replan(self) -> None:
        self._changed.set()

    def _exhausted(self, waited_s: float) -> PoolExhausted:
        setting = blocking_setting(self.blocked, self.spec, self.admission.budget)
        return PoolExhausted(waited_s, self.blocked, self.last_failure, setting)

    async def _keep_filled(self) -> None:
        while True:
            self._changed.clear()
            try:
                pause_s = self._plan_once()
            except OSError:
                log.exception("the host's load cannot be read")
                pause_s = REPLAN_S
            try:
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _plan_once(self) -> float | None:
        """Carry out the plan once; return the time until the next look."""
        now = time.monotonic()
        views = self.views()
        view = sum_of(views.values())
        held = self.reservations.held
        admission = self.admission.measure(
            self.replicas.managers(),
            pending=view.starting + len(self.queue.promised) + held,
            existing=view.existing + held,
            resting=self._resting_load(),
        )
        self.admission.now = admission = self._grant_reservations(admission, view)
        warm = 0 if self.reservations.waiting else self.spec.warm
        self.targets = updated_split(self.targets, warm, self._demand.counts(), self.spec.per_image_min)
        todo = plan(self.spec, views, self.targets, admission, self._backoffs, now)
        self.blocked = todo.blocked
        for image in todo.start:
            self.replicas.start(self.replicas.clean_spec(image), self)
        if self.reservations.waiting:
            if self.blocked is Blocked.NOTHING:
                self.blocked = blocked_by(admission.limit)
            return REPLAN_S
        for image, count in todo.give_up.items():
            self.queue.retire_ready(image, count)
        if todo.wake_at is not None:
            return max(0.01, todo.wake_at - now)
        return None if todo.blocked is Blocked.NOTHING else REPLAN_S

    def _resting(self) -> list[RestingReplica]:
        """Return the replicas that may rest."""
        turns = {manager: turn for turn, manager in enumerate(self.queue.ready_managers())}
        return [
            RestingReplica(m.replica_id, m.clone, m.rest, turns.get(m))
            for m in self.replicas.managers()
            if m.state in _REST and m.clone is not None and m.rest is not None and not m.points_under_way
        ]

    def rest_stages(self) -> Counter[RestStage]:
        """Return the numbers of live replicas by their stage of rest; empty where replicas never rest."""
        return Counter(m.rest.stage for m in self.replicas.managers() if m.rest is not None)

    def _resting_load(self) -> RestingLoad | None:
        """Return the memory of resting replicas for admission; None where none was reclaimed yet."""
        if self.rest is None:
            return None
        rests = [m.rest for m in self.replicas.managers() if m.rest is not None]
        awake = sum(rest.stage is RestStage.AWAKE for rest in rests)
        each_mib = [rest.resting_mib for rest in rests if rest.resting_mib is not None]
        if len(each_mib) < MIN_SAMPLES:
            return None
        return RestingLoad(each_mib, self.rest.headroom_mib(awake), read_swap().free_mib)

    def _grant_reservations(self, admission: Admission, view: PoolView) -> Admission:
        """Grant capacity to waiting requests; ready replicas are retired for the first request when
        that is enough. Return what is left."""
        room, short = self.reservations.grant(admission.room)
        short -= view.retiring
        if short <= self.queue.ready:
            self.queue.retire_any_ready(short)
        return replace(admission, room=room)
