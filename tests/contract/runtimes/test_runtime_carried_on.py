"""The contract of runtimes: replicas that go on as children, or under the next host agent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import ROOT
from tests.support.runtime_kits import Kit, QemuKit, dead, exists, settled

from osgym_host.addresses import TcpAddress
from osgym_host.runtimes import base
from osgym_host.runtimes.base import ExitReason, ReplicaSpec, Runtime
from osgym_qemu.cloning.replica import QemuReplica


async def test_a_child_goes_on_from_its_parents_moment(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """It has what the parent had, is somebody else, and neither sees what the other does from then on."""
    parent = await runtime.create(spec)
    if not runtime.capabilities().branching:
        with pytest.raises(base.RuntimeUnsupported):
            await runtime.branch(parent)
        return
    await kit.run_inside(parent, "open('/scratch/before', 'w').write('x')")
    point = await runtime.branch(parent)
    await kit.run_inside(parent, "open('/scratch/after', 'w').write('x')")
    child = await runtime.create(replace(spec, replica_id="child", generation=8, origin=point))
    await runtime.release_point(point)
    await runtime.release_point(point)
    look = "import os; result = sorted(os.listdir('/scratch'))"
    assert await kit.run_inside(child, look) == ["before"]
    await kit.run_inside(child, "os = __import__('os'); os.unlink('/scratch/before')")
    assert await kit.run_inside(parent, look) == ["after", "before"]
    assert (await kit.knows(child))["generation"] == "8"
    assert child.guest_token != parent.guest_token
    with pytest.raises(base.PointNotFound):
        await runtime.create(replace(spec, replica_id="late", generation=9, origin=point))
    await runtime.destroy(parent)
    assert await kit.run_inside(child, look) == []


_AGENT = """
import asyncio, json, os, signal, sys
from dataclasses import replace
from pathlib import Path
from tests.support.runtime_kits import QemuKit, contract_spec
from osgym_qemu.snapshots import SnapshotStore
from osgym_host.images.store import default_data_dir

async def main():
    kit = QemuKit(SnapshotStore(default_data_dir()).resolve({digest!r}))
    runtime = kit.make(Path({data_dir!r}))
    await runtime.start()
    one = await runtime.create(contract_spec(kit))
    two = await runtime.create(replace(contract_spec(kit), replica_id="r2", generation=8))
    half_made = asyncio.create_task(
        runtime.create(replace(contract_spec(kit), replica_id="r3", generation=9))
    )
    await asyncio.sleep(0.05)
    print(json.dumps([one.pid, two.pid, one.guest_token]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_replicas_outlive_a_killed_host_agent(kit: Kit, tmp_path: Path, spec: ReplicaSpec) -> None:
    """The next one finds them, carries on the one it adopts, and takes all others away."""
    runtime = kit.make(tmp_path)
    unknown = base.ReplicaRecord("r9", 1, kit.image.digest, 1, TcpAddress("127.0.0.1", 1))
    if not isinstance(kit, QemuKit):
        await runtime.start()
        assert not runtime.capabilities().adoption
        with pytest.raises(base.RuntimeUnsupported):
            await runtime.adopt(unknown)
        await runtime.stop()
        return
    code = _AGENT.format(digest=kit.image.digest, data_dir=str(tmp_path))
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    said, _ = await asyncio.wait_for(agent.communicate(), 60)
    assert agent.returncode == -signal.SIGKILL
    pid, other_pid, token = json.loads(said)
    assert exists(pid) and exists(other_pid)

    report = await runtime.start()
    try:
        assert sorted(record.replica_id for record in report.adoptable) == ["r1", "r2"]
        assert report.reaped_processes >= 1  # parked ones, and one half made
        first, second = sorted(report.adoptable, key=lambda record: record.replica_id)
        with pytest.raises(base.ReplicaNotFound):
            await runtime.adopt(unknown)
        adopted = await runtime.adopt(first)
        assert (adopted.pid, adopted.generation, adopted.guest_token) == (pid, 7, token)
        assert await kit.run_inside(adopted, "result = 6 * 7") == 42
        assert (await runtime.usage(adopted)).processes == 1
        fresh = await runtime.create(replace(spec, replica_id="fresh", generation=20))
        assert isinstance(fresh, QemuReplica) and isinstance(adopted, QemuReplica)
        assert fresh.vm.ram == adopted.vm.ram  # one golden RAM for both
        await runtime.reap(second)
        await runtime.reap(second)
        assert await settled(lambda: not exists(other_pid))
        os.kill(pid, signal.SIGKILL)
        assert (await dead(adopted)).reason is ExitReason.KILLED
        await runtime.destroy(adopted)
        await runtime.destroy(fresh)
        assert kit.traces(tmp_path) == []
    finally:
        await runtime.stop()
    assert kit.traces(tmp_path) == []
