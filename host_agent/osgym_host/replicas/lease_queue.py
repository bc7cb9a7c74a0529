"""Queue of clients for ready replicas, served in turn."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from osgym_host.core.fair_queue import UNNAMED, ClientKey, FairQueue
from osgym_host.core.reasons import Reason
from osgym_host.errors import OsgymHostError
from osgym_host.replicas.manager import OnRevoked, ReplicaManager
from osgym_host.replicas.pool_errors import PoolExhausted, PoolStopping, ReplicaNotMade
from osgym_host.runtimes import base

HAND_OVER_S = 0.1
"""Time for a hand-over, also for a client that does not want to wait."""


@dataclass(slots=True, eq=False)
class Waiter:
    """Client that waits for a replica of an image, or only for the replica `promised`."""

    lease_id: str
    on_revoked: OnRevoked
    answer: asyncio.Future[ReplicaManager]
    image: str
    promised: bool = False
    client: ClientKey = UNNAMED

    def fail(self, error: OsgymHostError) -> None:
        """Answer with an error. Idempotent."""
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass(slots=True)
class _ImageLine:
    """Ready replicas of one image, and those who wait for one.

    Attributes:
        offered: Number of offers in flight.
    """

    ready: deque[ReplicaManager] = field(default_factory=deque)
    waiters: FairQueue[Waiter] = field(default_factory=FairQueue)
    offered: int = 0

    @property
    def waiting(self) -> int:
        return len(self.waiters) + self.offered


class LeaseQueue:
    """Hands ready replicas to the clients that wait for their image. For one event loop."""

    def __init__(self, replan: Callable[[], None], exhausted: Callable[[float], PoolExhausted]) -> None:
        """Start empty.

        Args:
            replan: Called when the number of those who wait changed.
            exhausted: Makes the error of one who waited so many seconds in vain.
        """
        self._replan = replan
        self._exhausted = exhausted
        self._lines: defaultdict[str, _ImageLine] = defaultdict(_ImageLine)
        self._promises: dict[str, Waiter] = {}
        self._refusal: Callable[[], PoolStopping] | None = None

    @property
    def ready(self) -> int:
        return sum(len(line.ready) for line in self._lines.values())

    def ready_managers(self) -> Sequence[ReplicaManager]:
        """Return the ready replicas: the next one of each image, then the ones after those, and so on."""
        turns = [turn for line in self._lines.values() for turn in enumerate(line.ready)]
        return tuple(manager for _, manager in sorted(turns, key=lambda turn: turn[0]))

    @property
    def waiting(self) -> Counter[str]:
        """Number of waiting clients by image, including those with an offer in flight."""
        return Counter({image: line.waiting for image, line in self._lines.items()})

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
        for line in self._lines.values():
            while line.waiters:
                line.waiters.pop()[1].fail(refusal())

    def resume(self) -> None:
        self._refusal = None

    async def acquire(
        self, image: str, lease_id: str, on_revoked: OnRevoked, wait_s: float, client: ClientKey = UNNAMED
    ) -> ReplicaManager:
        """Return a clean replica of an image, leased; clients take turns. Cancelling is safe at any time.

        Raises:
            PoolExhausted: None was free within `wait_s`.
            PoolStopping: Nothing is handed out.
        """
        self.check()
        answer: asyncio.Future[ReplicaManager] = asyncio.get_running_loop().create_future()
        waiter = Waiter(lease_id, on_revoked, answer, image, client=client)
        self._lines[image].waiters.add(client, waiter)
        self._match(image)
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

    def promise(self, spec: base.ReplicaSpec, lease_id: str, on_revoked: OnRevoked) -> Waiter:
        """Reserve a replica that is about to be made for one lease."""
        answer: asyncio.Future[ReplicaManager] = asyncio.get_running_loop().create_future()
        waiter = Waiter(lease_id, on_revoked, answer, spec.image.digest, promised=True)
        self._promises[spec.replica_id] = waiter
        return waiter

    def add(self, manager: ReplicaManager) -> None:
        """Offer a ready replica to the lease it was promised to, or else, if clean, to any client."""
        waiter = self._promises.pop(manager.replica_id, None)
        if waiter is not None:
            self._offer(manager, waiter)
        elif manager.clean:
            image = manager.spec.image.digest
            self._lines[image].ready.append(manager)
            self._match(image)
        else:
            manager.retire(Reason.SURPLUS)

    def remove(self, manager: ReplicaManager) -> None:
        ready = self._lines[manager.spec.image.digest].ready
        if manager in ready:
            ready.remove(manager)
        waiter = self._promises.pop(manager.replica_id, None)
        if waiter is not None:
            waiter.fail(self._refusal_for(manager))

    def retire_ready(self, image: str, count: int) -> None:
        """Retire up to `count` ready replicas of an image without a lease."""
        ready = self._lines[image].ready
        for _ in range(min(count, len(ready))):
            ready.pop().retire(Reason.SURPLUS)

    def retire_any_ready(self, count: int) -> None:
        """Retire up to `count` ready replicas without a lease, each of the image that has most of them."""
        for _ in range(min(count, self.ready)):
            self.retire_ready(max(self._lines, key=lambda image: len(self._lines[image].ready)), 1)

    def _match(self, image: str) -> None:
        line = self._lines[image]
        while line.waiters and line.ready:
            _, waiter = line.waiters.pop()
            if not waiter.answer.done():
                self._offer(line.ready.popleft(), waiter)

    def _offer(self, manager: ReplicaManager, waiter: Waiter) -> None:
        line = self._lines[waiter.image]
        line.offered += 1

        def answered(given: bool) -> None:
            line.offered -= 1
            if given and waiter.answer.done():
                manager.return_unused(waiter.lease_id)
            elif given:
                waiter.answer.set_result(manager)
            elif waiter.promised or self._refusal is not None:
                waiter.fail(self._refusal_for(manager))
            elif not waiter.answer.done():
                line.waiters.put_back(waiter.client, waiter)
                self._match(waiter.image)

        manager.request_lease(waiter.lease_id, answered, waiter.on_revoked)

    def _abandon(self, waiter: Waiter) -> None:
        self._lines[waiter.image].waiters.remove(waiter.client, waiter)
        answer = waiter.answer
        if answer.done() and not answer.cancelled() and answer.exception() is None:
            answer.result().return_unused(waiter.lease_id)
        answer.cancel()
        self._replan()

    def _refusal_for(self, manager: ReplicaManager) -> PoolStopping | ReplicaNotMade:
        if self._refusal is not None:
            return self._refusal()
        return ReplicaNotMade(manager.replica_id, manager.reason or Reason.INTERNAL, manager.detail)
