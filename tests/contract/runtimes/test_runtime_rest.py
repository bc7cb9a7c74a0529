"""The contract of runtimes: pause, reclaim, unpause."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.runtime_kits import Kit, dead

from osgym_host.runtimes import base
from osgym_host.runtimes.base import ExitReason, ReplicaSpec, Runtime
from osgym_host.runtimes.swap import read_swap

SILENCE_S = 0.5
"""Time without an answer after which a probe, which otherwise answers within milliseconds, is paused."""


async def pausable(runtime: Runtime, spec: ReplicaSpec) -> base.Replica:
    """A running replica of a runtime that can pause it."""
    replica = await runtime.create(spec)
    if not runtime.can_pause(replica):
        pytest.skip(f"missing: a way to pause replicas of the runtime {runtime.name}")
    return replica


async def test_a_paused_replica_does_nothing_and_goes_on(
    runtime: Runtime, kit: Kit, spec: ReplicaSpec
) -> None:
    """While it is paused it answers nothing and uses no CPU; then it answers what was asked meanwhile."""
    replica = await pausable(runtime, spec)
    assert await kit.run_inside(replica, "result = 1 + 1") == 2
    await runtime.pause(replica)
    await runtime.pause(replica)
    used_s = runtime.used_cpu_s(replica)
    question = asyncio.create_task(kit.run_inside(replica, "result = 2 + 2"))
    done, _ = await asyncio.wait((question,), timeout=SILENCE_S)
    assert not done
    if used_s is not None:
        assert runtime.used_cpu_s(replica) == pytest.approx(used_s, abs=0.005)
    assert (await runtime.usage(replica)).processes
    await runtime.unpause(replica)
    await runtime.unpause(replica)
    assert await question == 4


async def test_a_reclaimed_replica_keeps_its_memory(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """Its programs find their memory again, and less is charged while it is in swap."""
    replica = await pausable(runtime, spec)
    fill = (
        "import builtins, os; builtins.held = os.urandom(24 << 20)\n"
        "with open('/tmp/held', 'wb') as file:\n    result = file.write(builtins.held)"
    )
    assert await kit.run_inside(replica, fill) == 24 << 20
    digest = (  # of both, where code runs in a process that stays
        "import builtins, hashlib; held = hashlib.sha256(open('/tmp/held', 'rb').read())\n"
        "held.update(getattr(builtins, 'held', b''))\nresult = held.hexdigest()"
    )
    before = await kit.run_inside(replica, digest)
    await runtime.pause(replica)
    found = await runtime.reclaim(replica)
    if found is not None and read_swap().total_mib:
        assert found.freed_mib > 20
        assert found.occupied_mib >= found.left_mib
    await runtime.unpause(replica)
    assert await kit.run_inside(replica, digest) == before


async def test_a_paused_replica_can_be_destroyed(runtime: Runtime, spec: ReplicaSpec) -> None:
    """Destroying needs no unpause, and later calls say that it is gone."""
    replica = await pausable(runtime, spec)
    await runtime.pause(replica)
    await runtime.destroy(replica)
    assert (await dead(replica)).reason is ExitReason.DESTROYED
    with pytest.raises(base.ReplicaNotFound):
        await runtime.unpause(replica)
