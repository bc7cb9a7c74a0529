"""Queue of clients for ready replicas, served in turn."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from osgym_host.core.fair_queue import UNNAMED, ClientKey, FairQueue
from osgym_host.core.reasons import Reason
from osgym_host.errors import OsgymHostError
from osgym_host.replicas.manager import OnRevoked, ReplicaManager
from osgym_host.replicas.pool_errors import PoolExhausted, PoolStopping, ReplicaNotMade

HAND_OVER_S = 0.1
"""Time for a hand-over, also for a client that does not want to wait."""


@dataclass(slots=True, eq=False)
class Waiter:
    """Client that waits for a replica, or only for the replica `promised`."""

    lease_id: str
    on_revoked: OnRevoked
    answer: asyncio.Future[ReplicaManager]
    promised: bool = False
    client: ClientKey = UNNAMED

    def fail(self, error: OsgymHostError) -> None:
        """Answer with an error. Idempotent."""
        if not self.answer.done():
            self.answer.set_exception(error)


class LeaseQueue:
    """Hands ready replicas to waiting clients. For one event loop."""

    def __init__(self, replan: Callable[[], None], exhausted: Callable[[float], PoolExhausted]) -> None:
        """Start empty.

        Args:
            replan: Called when the number of those who wait changed.
            exhausted: Makes the error of one who waited so many seconds in vain.
        """
        self._replan = replan
        self._exhausted = exhausted
        self._ready: deque[ReplicaManager] = deque()
        self._waiters: FairQueue[Waiter] = FairQueue()
        self._promises: dict[str, Waiter] = {}
        self._offered = 0
        self._refusal: Callable[[], PoolStopping] | None = None

    @property
    def ready(self) -> int:
        return len(self._ready)

    def ready_managers(self) -> Sequence[ReplicaManager]:
        """Return the ready replicas, the next one first."""
        return tuple(self._ready)

    @property
    def waiting(self) -> int:
        """Number of waiting clients, including those with an offer in flight."""
        return len(self._waiters) + self._offered

    @property
    def promised(self) -> frozenset[str]:
        """Ids of replicas that are being made for one lease."""
        return frozenset(self._promises)

    @property
    def refuses(self) -> bool:
        """True while all requests are refused."""
        return self._refusal is not None

    def check(self) -> None:
        """Raise `PoolStopping` while all requests are refused."""
        if self._refusal is not None:
            raise self._refusal()

    def refuse(self, refusal: Callable[[], PoolStopping]) -> None:
        """Refuse waiting and new clients with the error of `refusal`, until `resume`. Idempotent."""
        self._refusal = refusal
        while self._waiters:
            self._waiters.pop()[1].fail(refusal())

    def resume(self) -> None:
        self._refusal = None

    async def acquire(
        self, lease_id: str, on_revoked: OnRevoked, wait_s: float, client: ClientKey = UNNAMED
    ) -> ReplicaManager:
        """Return a clean replica, leased; clients take turns. Cancelling is safe at any time.

        Raises:
            PoolExhausted: None was free within `wait_s`.
            PoolStopping: Nothing is handed out.
        """
        self.check()
        waiter = Waiter(lease_id, on_revoked, asyncio.get_running_loop().create_future(), client=client)
        self._waiters.add(client, waiter)
        self._match()
        self._replan()
        began = time.monotonic()
        try:
            async with asyncio.timeout(max(wait_s, HAND_OVER_S)):
                return await waiter.answer
        except TimeoutError:
            self._abandon(waiter)
            raise self._exhausted(time.monotonic() - began) from None
        except asyncio.CancelledError:
            self._abandon(waiter)
            raise

    def promise(self, replica_id: str, lease_id: str, on_revoked: OnRevoked) -> Waiter:
        """Reserve a replica that is about to be made for one lease."""
        answer: asyncio.Future[ReplicaManager] = asyncio.get_running_loop().create_future()
        waiter = self._promises[replica_id] = Waiter(lease_id, on_revoked, answer, promised=True)
        return waiter

    def add(self, manager: ReplicaManager) -> None:
        """Offer a ready replica to the lease it was promised to, or else, if clean, to any client."""
        waiter = self._promises.pop(manager.replica_id, None)
        if waiter is not None:
            self._offer(manager, waiter)
        elif manager.clean:
            self._ready.append(manager)
            self._match()
        else:
            manager.retire(Reason.SURPLUS)

    def remove(self, manager: ReplicaManager) -> None:
        if manager in self._ready:
            self._ready.remove(manager)
        waiter = self._promises.pop(manager.replica_id, None)
        if waiter is not None:
            waiter.fail(self._refusal_for(manager))

    def retire_ready(self, count: int) -> None:
        """Retire up to `count` ready replicas without a lease."""
        for _ in range(min(count, len(self._ready))):
            self._ready.pop().retire(Reason.SURPLUS)

    def _match(self) -> None:
        while self._waiters and self._ready:
            _, waiter = self._waiters.pop()
            if not waiter.answer.done():
                self._offer(self._ready.popleft(), waiter)

    def _offer(self, manager: ReplicaManager, waiter: Waiter) -> None:
        self._offered += 1

        def answered(given: bool) -> None:
            self._offered -= 1
            if given and waiter.answer.done():
                manager.return_unused(waiter.lease_id)
            elif given:
                waiter.answer.set_result(manager)
            elif waiter.promised or self._refusal is not None:
                waiter.fail(self._refusal_for(manager))
            elif not waiter.answer.done():
                self._waiters.put_back(waiter.client, waiter)
                self._match()

        manager.request_lease(waiter.lease_id, answered, waiter.on_revoked)

    def _abandon(self, waiter: Waiter) -> None:
        self._waiters.remove(waiter.client, waiter)
        answer = waiter.answer
        if answer.done() and not answer.cancelled() and answer.exception() is None:
            answer.result().return_unused(waiter.lease_id)
        answer.cancel()
        self._replan()

    def _refusal_for(self, manager: ReplicaManager) -> PoolStopping | ReplicaNotMade:
        if self._refusal is not None:
            return self._refusal()
        return ReplicaNotMade(manager.replica_id, manager.reason or Reason.INTERNAL, manager.detail)
