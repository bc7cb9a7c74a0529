"""The store of saved desktops: budgets, releases and their causes, over fake replicas."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.fake_runtime import FakeImage, FakeRuntime
from tests.support.waiting import stays, until

from osgym_host.core.desktop_budget import DesktopBudget, OverBudget
from osgym_host.replicas.saved_desktops import SavedDesktop, SavedDesktops
from osgym_host.runtimes import base

POINT_MIB = 42
"""Size of a fake point."""


@dataclass(frozen=True, slots=True, eq=False)
class Named(SavedDesktop):
    """A desktop that is found by its own name, and may expire."""

    label: str
    until: float | None = None

    @property
    def name(self) -> str:
        return self.label

    @property
    def expires_at(self) -> float | None:
        return self.until


async def store_of(tmp_path: Path, budget: DesktopBudget) -> tuple[SavedDesktops, FakeRuntime, base.Replica]:
    """A store with a budget for named desktops, and a replica to take points of."""
    runtime = FakeRuntime(tmp_path / "r")
    replica = await runtime.create(base.ReplicaSpec("r1", 1, FakeImage()))
    return SavedDesktops(runtime, {Named: budget}), runtime, replica


async def test_each_type_has_its_own_budget(tmp_path: Path) -> None:
    """One that does not fit is released, those of another type are not counted, and the rest stays."""
    saved, runtime, replica = await store_of(tmp_path, DesktopBudget(max_mib=2 * POINT_MIB))
    plain = saved.add(SavedDesktop(await saved.take(replica)))
    held = [saved.add(Named(await saved.take(replica), label)) for label in "ab"]
    with pytest.raises(OverBudget) as caught:
        saved.add(Named(await saved.take(replica), "c"))
    assert (caught.value.mib, caught.value.used_mib) == (POINT_MIB, 2 * POINT_MIB)
    await until(lambda: len(runtime.points.states) == 3)
    assert list(saved.of(Named).values()) == held
    assert saved.of(SavedDesktop).used_mib() == plain.mib == POINT_MIB
    await saved.close()
    await runtime.destroy(replica)


async def test_releases_have_a_cause_and_happen_once(tmp_path: Path) -> None:
    """Displaced, expired, by its user without a cause, and at the end; kept ones stay."""
    saved, runtime, replica = await store_of(tmp_path, DesktopBudget(max_count=3, displaces=True))
    causes: list[tuple[str, str]] = []
    saved.on_release[Named] = lambda desktop, cause: causes.append((desktop.label, cause))
    saved.start()
    saved.add(Named(await saved.take(replica), "oldest"))
    silent = saved.add(Named(await saved.take(replica), "silent"))
    saved.add(Named(await saved.take(replica), "last"))
    kept = saved.add(Named(await saved.take(replica, keep=True), "kept"))
    assert saved.release(silent)
    assert not saved.release(silent, "again")
    saved.add(Named(await saved.take(replica), "short", time.time() + 0.1))
    await until(lambda: ("short", "expired") in causes, 5)
    await saved.close()
    await saved.close()
    assert causes == [("oldest", "displaced"), ("short", "expired"), ("last", "stopped")]
    assert list(runtime.points.states) == [kept.point.point_id]
    await runtime.destroy(replica)


async def test_a_release_waits_for_creations(tmp_path: Path) -> None:
    """The runtime may still read the point's files."""
    saved, runtime, replica = await store_of(tmp_path, DesktopBudget())
    over = asyncio.Event()
    desktop = saved.add(SavedDesktop(await saved.take(replica)))
    saved.creations_of = lambda point: [over] if point == desktop.point else []
    saved.release(desktop)
    closing = asyncio.create_task(saved.close())
    await stays(lambda: bool(runtime.points.states), 0.05)
    over.set()
    await closing
    assert not runtime.points.states
    await runtime.destroy(replica)
