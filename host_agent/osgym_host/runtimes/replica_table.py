"""Table of the replicas of one runtime: makes and destroys them so that cancelled callers leave nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from osgym_host.runtimes.base import Replica, ReplicaExists, ReplicaNotFound, RuntimeFault, RuntimeNotRunning

log = logging.getLogger(__name__)

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_name(what: str, name: str) -> None:
    """Refuse an id or an instance that cannot be the name of a file and of a control group.

    Raises:
        ValueError: The name is malformed.
    """
    if not _PLAIN_NAME.fullmatch(name):
        raise ValueError(f"{what} must match {_PLAIN_NAME.pattern}, not {name!r}")


R = TypeVar("R", bound=Replica)


class ReplicaTable(Generic[R]):
    """Implementation of `create`, `destroy` and `replicas` of the contract for any kind of replica.

    A cancelled create goes on and is undone; a cancelled destroy goes on.
    """

    def __init__(self, runtime: str, kind: type[R], destroy: Callable[[R], Awaitable[None]]) -> None:
        """Args:
        destroy: Kills a replica and removes all of it; raises ReplicaDestroyFailed.
        """
        self._runtime = runtime
        self._kind = kind
        self._destroy_one = destroy
        self._live: dict[str, R] = {}
        self._creating: dict[str, asyncio.Task[R]] = {}
        self._destroying: dict[R, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._closing = False

    def open(self) -> None:
        """Allow `create`, after a `close` too."""
        self._closing = False

    def refuse(self) -> None:
        """Refuse `create` from now on."""
        self._closing = True

    def all(self) -> list[R]:
        """Return the replicas created or added and not yet destroyed."""
        return list(self._live.values())

    def require(self, replica: Replica) -> R:
        """Return a replica as the kind that it is.

        Raises:
            ReplicaNotFound: It was destroyed.
            TypeError: Another runtime made it.
        """
        found = self._of_kind(replica)
        if found.removed:
            raise ReplicaNotFound(f"{found.replica_id} was destroyed", replica_id=found.replica_id)
        return found

    def check_free(self, replica_id: str) -> None:
        """Refuse an id that is in use.

        Raises:
            ReplicaExists: A replica has it.
        """
        if replica_id in self._live or replica_id in self._creating:
            raise ReplicaExists(f"{replica_id} exists", replica_id=replica_id)

    def add(self, replica: R) -> None:
        self._live[replica.replica_id] = replica

    async def create(self, replica_id: str, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Reserve the id, make the replica and keep it.

        Raises:
            ReplicaExists: The id is in use.
            RuntimeNotRunning: After `refuse`.
            RuntimeFault: What `make` raised.
        """
        if self._closing:
            raise RuntimeNotRunning(f"the {self._runtime} runtime is stopping")
        self.check_free(replica_id)
        task = asyncio.create_task(self._create(replica_id, make), name=f"create {replica_id}")
        self._creating[replica_id] = task
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            undoing = asyncio.create_task(self._undo_create(task))
            self._background.add(undoing)
            undoing.add_done_callback(self._background.discard)
            raise

    async def _create(self, replica_id: str, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        try:
            replica = await make()
        finally:
            del self._creating[replica_id]
        self._live[replica_id] = replica
        return replica

    async def _undo_create(self, task: asyncio.Task[R]) -> None:
        with contextlib.suppress(RuntimeFault):
            await self.destroy(await task)

    async def destroy(self, replica: Replica) -> None:
        """Destroy a replica; concurrent callers wait for the same end. Idempotent.

        Raises:
            ReplicaDestroyFailed: Something is left; calling again tries again.
        """
        found = self._of_kind(replica)
        if found.removed:
            return
        task = self._destroying.get(found)
        if task is None:
            task = asyncio.create_task(self._destroy(found), name=f"destroy {found.replica_id}")
            self._destroying[found] = task
            self._background.add(task)
            task.add_done_callback(lambda done: self._destroyed(found, done))
        await asyncio.shield(task)

    async def _destroy(self, replica: R) -> None:
        await self._destroy_one(replica)
        replica.removed = True
        if self._live.get(replica.replica_id) is replica:
            del self._live[replica.replica_id]

    def _destroyed(self, replica: R, task: asyncio.Task[None]) -> None:
        self._destroying.pop(replica, None)
        self._background.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            log.warning("replica %s could not be destroyed: %s", replica.replica_id, exc)

    async def close(self) -> list[BaseException]:
        """Wait for pending work, destroy all replicas, and return the errors."""
        self.refuse()
        while work := {*self._creating.values(), *self._background}:
            await asyncio.wait(work)
        results = await asyncio.gather(*map(self.destroy, self.all()), return_exceptions=True)
        return [result for result in results if isinstance(result, BaseException)]

    def _of_kind(self, replica: Replica) -> R:
        if not isinstance(replica, self._kind):
            raise TypeError(f"this is not a replica of this runtime: {replica!r}")
        return replica
