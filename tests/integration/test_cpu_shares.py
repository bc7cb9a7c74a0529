"""A replica that used up its credit of CPU time leaves processors to its neighbours, and gets them back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.runtime_probe import build_python_image, run_inside
from tests.support.waiting import stays, until

from osgym_host.core.cpu_credit import CreditTerms
from osgym_host.core.states import ReplicaState
from osgym_host.replicas.cpu_shares import CpuShares
from osgym_host.runtimes.base import ImageLike, Replica, ReplicaSpec
from osgym_host.runtimes.local.runtime import LocalRuntime

LOOPS = f"""
import builtins, os
builtins.loops = []
for _ in range({os.cpu_count()}):
    pid = os.fork()
    if not pid:
        while True:
            pass
    builtins.loops.append(pid)
"""
END = f"""
import builtins, os
for pid in builtins.loops:
    os.kill(pid, {int(signal.SIGKILL)})
    os.waitpid(pid, 0)
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageLike:
    return build_python_image(tmp_path_factory.mktemp("image") / "rootfs")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path, "shares")
    await runtime.start()
    try:
        if not runtime.capabilities().caps_cpu:
            pytest.skip("missing: control groups with the cpu controller")
        yield runtime
    finally:
        await runtime.stop()


async def used_s(runtime: LocalRuntime, replicas: list[Replica], seconds: float) -> list[float]:
    """What each computes in so long a time."""
    before = [runtime.used_cpu_s(replica) or 0.0 for replica in replicas]
    await asyncio.sleep(seconds)
    return [(runtime.used_cpu_s(r) or 0.0) - at for r, at in zip(replicas, before, strict=True)]


async def test_a_low_weight_leaves_the_processors_to_others(runtime: LocalRuntime, image: ImageLike) -> None:
    """Both would take all: with the same weight they share, with a low one nearly all is the other's."""
    replicas = [await runtime.create(ReplicaSpec(name, 1, image)) for name in ("loud", "quiet")]
    for replica in replicas:
        await run_inside(replica, LOOPS)
    runtime.set_cpu_weight(replicas[0], 2)
    loud, quiet = await used_s(runtime, replicas, 1.5)
    assert quiet > 5 * loud
    runtime.set_cpu_weight(replicas[0], 100)
    loud, quiet = await used_s(runtime, replicas, 1.5)
    assert 0.4 < quiet / loud < 2.5


async def test_who_loops_is_lowered_and_who_stops_is_raised(
    runtime: LocalRuntime, image: ImageLike, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica that rests keeps its weight."""
    set_to: dict[str, list[int]] = {"loud": [], "quiet": []}
    change = runtime.set_cpu_weight

    def noted(replica: Replica, weight: int) -> None:
        change(replica, weight)
        set_to[replica.replica_id].append(weight)

    monkeypatch.setattr(runtime, "set_cpu_weight", noted)
    replicas = [await runtime.create(ReplicaSpec(name, 1, image)) for name in set_to]
    managers: list[Any] = [
        SimpleNamespace(state=ReplicaState.LEASED, clone=replica, awake=True) for replica in replicas
    ]
    terms = CreditTerms(burst_cpu_s=0.2, cores=0.1, low_weight=2)
    shares = CpuShares(runtime, lambda: cast(Any, managers), terms, tick_s=0.05)
    looking = asyncio.create_task(shares.run())
    try:
        await until(lambda: all(set_to.values()), 20)
        await run_inside(replicas[0], LOOPS)
        await until(lambda: set_to["loud"] == [100, 2], 20)
        await until(lambda: [manager.cpu_lowered for manager in managers] == [True, False], 20)
        await run_inside(replicas[0], END)
        await until(lambda: set_to["loud"] == [100, 2, 100], 20)
        await until(lambda: not managers[0].cpu_lowered, 20)
        await runtime.destroy(replicas[0])
        managers.append(SimpleNamespace(state=ReplicaState.LEASED, clone=None, awake=True))
        # A few more looks, one at a replica that is gone.
        await stays(lambda: set_to["quiet"] == [100], 0.2)
        assert not looking.done()
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
