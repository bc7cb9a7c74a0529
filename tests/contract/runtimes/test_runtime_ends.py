"""The contract of runtimes: how replicas end, what caps them, what they use."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace

import pytest
from tests.support.runtime_kits import Kit, dead, threads_of

from osgym_host.runtimes import base
from osgym_host.runtimes.base import ExitReason, ReplicaSpec, Runtime

# Death ---------------------------------------------------------------------------------------


async def test_the_end_from_within_is_typed(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """A session that ends, a lost display, a guest that is switched off: told apart, with last words."""
    for number, ending in enumerate(kit.endings):
        replica = await runtime.create(replace(spec, replica_id=f"r{number}"))
        waiters = [asyncio.create_task(dead(replica)) for _ in range(3)]
        await kit.end(replica, ending)
        answers = await asyncio.gather(*waiters)
        assert {answer.reason for answer in answers} == {ending.reason}
        assert answers[0].exit_code == ending.exit_code
        assert "last words" in answers[0].log_tail
        assert replica.exit_info == answers[0] == await dead(replica)


async def test_running_out_of_memory_is_typed(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """Over the cap the whole replica dies, even when a child was the one that ate."""
    if not runtime.capabilities().caps_memory:
        pytest.skip("missing: a memory controller of control groups")
    replica = await runtime.create(replace(spec, ram_mib=kit.small_ram_mib))
    await kit.run_inside(
        replica,
        """
        import os
        if os.fork() == 0:
            data = []
            while True:
                data.append(bytearray(os.urandom(1 << 20)))
        """,
    )
    info = await dead(replica)
    assert info.reason is ExitReason.OUT_OF_MEMORY
    assert f"{kit.small_ram_mib} MiB" in info.detail


async def test_files_in_memory_count_to_the_cap(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """A replica cannot hide memory in /dev/shm or /tmp."""
    if not runtime.capabilities().caps_memory:
        pytest.skip("missing: a memory controller of control groups")
    replica = await runtime.create(replace(spec, ram_mib=kit.small_ram_mib))
    await kit.run_inside(
        replica,
        """
        import os
        if os.fork() == 0:
            with open("/dev/shm/x", "wb") as f:
                for _ in range(400):
                    f.write(os.urandom(1 << 20))
            os._exit(0)
        """,
    )
    assert (await dead(replica)).reason is ExitReason.OUT_OF_MEMORY


async def test_processes_are_capped(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """A fork bomb stops at the cap and harms only its replica."""
    if not runtime.capabilities().caps_pids:
        pytest.skip("missing: a pids controller of control groups")
    replica = await runtime.create(replace(spec, pids=20))
    made = await kit.run_inside(
        replica,
        """
        import os, time
        result = 0
        try:
            for result in range(100):
                if os.fork() == 0:
                    time.sleep(1000)
        except BlockingIOError:
            pass
        """,
    )
    if kit.own_kernel:  # what it starts is no process of the host; the cap is that of its machine
        assert threads_of(replica.pid) <= 20
    else:
        assert 5 < made < 20


# Usage ---------------------------------------------------------------------------------------


async def test_usage_follows_what_the_replica_does(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """Memory, CPU time, disk and processes are measured, and a dead replica uses nothing."""
    replica = await runtime.create(spec)
    await kit.run_inside(replica, "result = 0")
    before = await runtime.usage(replica)
    await kit.run_inside(
        replica,
        """
        import os, time
        if os.fork() == 0:
            ballast = bytearray(os.urandom(32 << 20))
            open("/scratch/full", "w").close()
            time.sleep(1000)
        open("/scratch/file", "wb").write(os.urandom(8 << 20))
        os.sync()
        while not os.path.exists("/scratch/full"):
            time.sleep(0.01)
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
        """,
    )
    after = await runtime.usage(replica)
    assert before.pss_mib is not None and after.pss_mib is not None
    assert after.pss_mib - before.pss_mib > 28
    assert before.overlay_mib is not None and after.overlay_mib is not None
    assert after.overlay_mib - before.overlay_mib > 7
    assert before.cpu_s is not None and after.cpu_s is not None
    assert 0.25 < after.cpu_s - before.cpu_s < 5
    shallow = await runtime.usage(replica, deep=False)
    assert shallow.pss_mib is None and shallow.overlay_mib is None
    os.kill(replica.pid, signal.SIGKILL)
    await dead(replica)
    gone = await runtime.usage(replica)
    assert (gone.pss_mib, gone.processes) == (0, 0)
    await runtime.destroy(replica)
    with pytest.raises(base.ReplicaNotFound):
        await runtime.usage(replica)
