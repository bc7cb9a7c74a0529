"""Replicas that exist: their managers, each in a task, with generations from the journal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from osgym_host.core.reasons import Reason
from osgym_host.replicas.journal import ReplicaJournal
from osgym_host.replicas.manager import Deadlines, ManagerListener, ReplicaManager
from osgym_host.replicas.rest import ReplicaRest
from osgym_host.replicas.saved_desktops import SavedDesktops
from osgym_host.replicas.warming import Warming
from osgym_host.runtimes import base

log = logging.getLogger(__name__)


class ReplicaSet:
    """Starts replicas and knows those that are not gone. For one event loop."""

    def __init__(
        self,
        saved: SavedDesktops,
        journal: ReplicaJournal,
        deadlines: Deadlines,
        make_spec: Callable[[str, int, str], base.ReplicaSpec],
        warming: Mapping[str, Warming],
    ) -> None:
        """Start empty. `make_rest` may be set, so that replicas rest between calls.

        Args:
            make_spec: Returns the specification for an id, a generation and the digest of an image.
            warming: Preparation of clean replicas of each image that is served, the default one first.
        """
        self.saved = saved
        saved.creations_of = lambda point: [
            manager.creation_over for manager in self.managers() if manager.spec.origin == point
        ]
        self.runtime = saved.runtime
        self._journal = journal
        self._deadlines = deadlines
        self._make_spec = make_spec
        self.make_rest: Callable[[base.Replica], ReplicaRest] | None = None
        self.warming = warming
        self.images = tuple(warming)
        self._managers: dict[str, ReplicaManager] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._managers)

    def managers(self) -> list[ReplicaManager]:
        """Return the managers of all replicas that are not gone."""
        return list(self._managers.values())

    def find(self, replica_id: str) -> ReplicaManager | None:
        """Return the manager of a replica that is not gone."""
        return self._managers.get(replica_id)

    def clean_spec(self, image: str) -> base.ReplicaSpec:
        """Return the next specification of a clean replica of an image."""
        return self._next_spec(image, self.warming[image].origin)

    def child_spec(self, origin: base.BranchPoint | None) -> base.ReplicaSpec:
        """Return the next specification of a child of a branch point, or of the default image."""
        return self._next_spec(self._served("" if origin is None else origin.image_digest), origin)

    def _served(self, image: str) -> str:
        """Return the image if it is served here, else the default one: the runtime refuses a wrong one."""
        return image if image in self.warming else self.images[0]

    def _next_spec(self, image: str, origin: base.BranchPoint | None) -> base.ReplicaSpec:
        generation = self._journal.next_generation()
        if origin is not None and generation == origin.generation:
            # A checkpoint of another host: its guest takes a number for a new one only if it differs.
            generation = self._journal.next_generation()
        return replace(self._make_spec(f"r{generation}", generation, image), origin=origin)

    def adopted_spec(self, record: base.ReplicaRecord) -> base.ReplicaSpec:
        """Return the specification of a replica of a previous host agent."""
        return self._make_spec(record.replica_id, record.generation, self._served(record.image_digest))

    def start(
        self, spec: base.ReplicaSpec, listener: ManagerListener, record: base.ReplicaRecord | None = None
    ) -> ReplicaManager:
        """Make a replica, or adopt the one of `record`; its manager reports to `listener`."""
        self._journal.created(spec.replica_id, spec.generation)
        warming = self.warming[spec.image.digest]
        manager = ReplicaManager(
            spec, self.runtime, listener, self._deadlines, warming, record, self.make_rest
        )
        self._managers[spec.replica_id] = manager
        task = asyncio.create_task(manager.run(), name=f"{spec.replica_id}:manager")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return manager

    def forget(self, manager: ReplicaManager) -> None:
        self._managers.pop(manager.replica_id, None)
        self._journal.gone(manager.replica_id)

    def retire_all(self, reason: Reason) -> None:
        for manager in self.managers():
            manager.retire(reason)

    async def wait_gone(self, timeout_s: float) -> bool:
        """Wait until all managers have ended, and release desktops; return whether they ended in time."""
        late: set[asyncio.Task[None]] = set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=timeout_s)
        await self.saved.close()
        return not late

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a replica manager failed", exc_info=task.exception())
