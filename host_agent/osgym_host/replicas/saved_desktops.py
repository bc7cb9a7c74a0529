"""Saved desktops: the branch points that a host agent holds, each for one purpose within its budget.

Runtimes own the files and memory of a point. This store counts and bounds them, and releases them: when their
user does, when they expire or are displaced, and, but for kept ones, when the host agent stops.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from osgym_host.core.desktop_budget import BudgetedDesktops, DesktopBudget, OverBudget
from osgym_host.runtimes import base

log = logging.getLogger(__name__)

BRANCH_S = 30.0
KEEP_S = 120.0
"""Deadline of a branch point that is written to disk."""
RELEASE_S = 60.0
EXPIRY_S = 2.0
"""Longest interval of checks for expired desktops."""


@dataclass(frozen=True, slots=True, eq=False)
class SavedDesktop:
    """Branch point that the host agent holds: of a fork or for warm clones, or base of others."""

    point: base.BranchPoint

    @property
    def name(self) -> str:
        """Name by which it is found, unique among those of its purpose."""
        return self.point.point_id

    @property
    def expires_at(self) -> float | None:
        """Unix time at which it is released; None: never."""
        return None

    @property
    def mib(self) -> float:
        """RAM and disk space in use."""
        return self.point.ram_mib + self.point.disk_mib


D = TypeVar("D", bound=SavedDesktop)


class SavedDesktops:
    """Saved desktops of one host agent. For one event loop.

    Attributes:
        on_release: Callbacks by type of desktop for releases that have a cause.
        creations_of: Function that returns events for the ends of creations from a point.
    """

    def __init__(
        self, runtime: base.Runtime, budgets: Mapping[type[SavedDesktop], DesktopBudget] | None = None
    ) -> None:
        """Start without desktops; those of a type without a budget are unbounded."""
        self.runtime = runtime
        self.on_release: dict[type[SavedDesktop], Callable[[Any, str], None]] = {}
        self.creations_of: Callable[[base.BranchPoint], Iterable[asyncio.Event]] = lambda _: ()
        self._budgets = budgets or {}
        self._held: dict[type[SavedDesktop], BudgetedDesktops[Any]] = {}
        self._releases: set[asyncio.Task[None]] = set()
        self._expiry: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Release desktops from now on when they expire."""
        self._expiry = asyncio.create_task(self._expire(), name="saved desktops:expiry")

    async def close(self) -> None:
        """Release the desktops that are not kept, and wait for all releases. Idempotent."""
        if self._expiry is not None:
            self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)
        for desktop in self._all():
            if not desktop.point.kept:
                self.release(desktop, "stopped")
        await asyncio.gather(*self._releases, return_exceptions=True)

    async def _expire(self) -> None:
        while True:
            now = time.time()
            due = [(d.expires_at, d) for d in self._all() if d.expires_at is not None]
            for at, desktop in due:
                if at <= now:
                    self.release(desktop, "expired")
            await asyncio.sleep(max(0.01, min([EXPIRY_S, *(at - now for at, _ in due if at > now)])))

    def _all(self) -> list[SavedDesktop]:
        return [desktop for held in self._held.values() for desktop in held.values()]

    def of(self, kind: type[D]) -> BudgetedDesktops[D]:
        """Return the desktops of a type with their budget, to look at; only this store changes them."""
        if kind not in self._held:
            self._held[kind] = BudgetedDesktops(self._budgets.get(kind, DesktopBudget()))
        return self._held[kind]

    # Saving ------------------------------------------------------------------------------------

    async def take(self, replica: base.Replica, *, keep: bool = False) -> base.BranchPoint:
        """Take a branch point of a replica, which goes on; the caller must `add` it.

        Raises:
            ReplicaNotFound, PointFailed, RuntimeUnsupported: As `Runtime.branch`.
        """
        async with deadline(KEEP_S if keep else BRANCH_S, "taken"):
            return await self.runtime.branch(replica, keep=keep)

    def add(self, desktop: D) -> D:
        """Hold a new desktop, or release it if it does not fit.

        Raises:
            OverBudget: It does not fit.
        """
        try:
            self.of(type(desktop)).check(desktop.mib)
        except OverBudget:
            self._start_release(desktop.point)
            raise
        return self.hold(desktop)

    def hold(self, desktop: D) -> D:
        """Hold a desktop whatever its size, such as a kept one that the runtime found at its start."""
        for displaced in self.of(type(desktop)).put(desktop.name, desktop):
            self._released(displaced, "displaced")
        return desktop

    # Releasing ---------------------------------------------------------------------------------

    def release(self, desktop: SavedDesktop, cause: str | None = None) -> bool:
        """Release a desktop once no replica of it is being made; return whether it was held.

        Args:
            cause: Reason for `on_release`; None calls nobody.
        """
        held = self.of(type(desktop)).drop(desktop.name, desktop)
        if held:
            self._released(desktop, cause)
        return held

    def _released(self, desktop: SavedDesktop, cause: str | None) -> None:
        self._start_release(desktop.point)
        callback = self.on_release.get(type(desktop))
        if callback is not None and cause is not None:
            callback(desktop, cause)

    def _start_release(self, point: base.BranchPoint) -> None:
        task = asyncio.create_task(self._release(point), name=f"release:{point.point_id}")
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _release(self, point: base.BranchPoint) -> None:
        try:
            async with asyncio.timeout(RELEASE_S):
                for creation in self.creations_of(point):
                    await creation.wait()
                await self.runtime.release_point(point)
        except (base.RuntimeFault, OSError) as error:
            log.warning("branch point %s could not be released: %s", point.point_id, str(error) or "too slow")
        except Exception:  # the top of a task
            log.exception("branch point %s: internal error", point.point_id)


@asynccontextmanager
async def deadline(limit_s: float, what: str) -> AsyncIterator[None]:
    """Turn a timeout into the error of a point that was not `what` in time."""
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError as error:
        raise base.PointFailed(f"the branch point was not {what} within {limit_s:g} s") from error
