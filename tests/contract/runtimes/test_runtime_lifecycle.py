"""The contract of runtimes: start and stop, create, destroy."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.runtime_kits import DEADLINE_S, Kit, dead, exists, settled

from osgym_host.runtimes import base
from osgym_host.runtimes.base import ExitReason, ReplicaSpec, Runtime

# Start and stop ------------------------------------------------------------------------------


async def test_a_runtime_that_is_not_started_makes_nothing(
    kit: Kit, tmp_path: Path, spec: ReplicaSpec
) -> None:
    """Before start and after stop, create says so."""
    runtime = kit.make(tmp_path)
    with pytest.raises(base.RuntimeNotRunning):
        await runtime.create(spec)
    await runtime.start()
    await runtime.stop()
    with pytest.raises(base.RuntimeNotRunning):
        await runtime.create(spec)


async def test_start_twice_changes_nothing(runtime: Runtime, spec: ReplicaSpec) -> None:
    """A second start neither reaps nor restarts."""
    replica = await runtime.create(spec)
    report = await runtime.start()
    assert report == base.StartReport()
    assert replica.exit_info is None


async def test_a_rival_is_refused_and_touches_nothing(
    runtime: Runtime, kit: Kit, tmp_path: Path, spec: ReplicaSpec
) -> None:
    """Two host agents on one directory: the second gets DataDirBusy, the first goes on."""
    replica = await runtime.create(spec)
    with pytest.raises(base.DataDirBusy):
        await kit.make(tmp_path).start()
    assert await kit.run_inside(replica, "result = 1 + 1") == 2


async def test_stop_then_start_again(kit: Kit, tmp_path: Path, spec: ReplicaSpec) -> None:
    """A stopped runtime can be started again, and a stopped one stopped again."""
    runtime = kit.make(tmp_path)
    for _round in range(2):
        await runtime.start()
        replica = await runtime.create(spec)
        await runtime.stop()
        assert (await dead(replica)).reason is ExitReason.DESTROYED
        assert runtime.replicas() == []
        assert kit.traces(tmp_path) == []
    await runtime.stop()


async def test_stop_waits_for_what_is_being_created(kit: Kit, tmp_path: Path, spec: ReplicaSpec) -> None:
    """Creates under way when stop is called are taken away as well, and later ones refused."""
    runtime = kit.make(tmp_path)
    await runtime.start()
    tasks = [asyncio.create_task(runtime.create(replace(spec, replica_id=f"r{n}"))) for n in range(4)]
    await asyncio.sleep(0.001)
    stopping = asyncio.create_task(runtime.stop())
    await asyncio.sleep(0)
    with pytest.raises(base.RuntimeNotRunning):
        await runtime.create(replace(spec, replica_id="late"))
    await stopping
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, base.RuntimeFault) or (await dead(result)).reason is ExitReason.DESTROYED
    assert kit.traces(tmp_path) == []


# Create --------------------------------------------------------------------------------------


async def test_a_replica_is_reachable_as_soon_as_it_is_created(
    runtime: Runtime, kit: Kit, spec: ReplicaSpec
) -> None:
    """The guest socket accepts at once, and the session got its identity."""
    replica = await runtime.create(replace(spec, token="s3cret"))
    assert (replica.replica_id, replica.generation) == ("r1", 7)
    assert replica.guest_token == "s3cret"
    assert await kit.knows(replica) == {"generation": "7", "token": "s3cret", "screen": str(kit.screen)}
    assert [r.replica_id for r in runtime.replicas()] == ["r1"]


async def test_an_id_is_used_once_at_a_time(runtime: Runtime, spec: ReplicaSpec) -> None:
    """A live id is refused; after destroy it is free."""
    first = await runtime.create(spec)
    with pytest.raises(base.ReplicaExists):
        await runtime.create(replace(spec, generation=8))
    await runtime.destroy(first)
    second = await runtime.create(replace(spec, generation=8))
    assert second.generation == 8
    assert second.pid != first.pid


async def test_many_are_created_at_once(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """Concurrent creates do not disturb each other."""
    specs = [replace(spec, replica_id=f"r{n}", generation=10 + n) for n in range(6)]
    replicas = await asyncio.gather(*map(runtime.create, specs))
    known = await asyncio.gather(*map(kit.knows, replicas))
    assert [knows["generation"] for knows in known] == [str(10 + n) for n in range(6)]


@pytest.mark.parametrize("replica_id", ["", "../x", "a/b", "a" * 65, "ä", "a b"])
async def test_a_malformed_id_is_refused(runtime: Runtime, spec: ReplicaSpec, replica_id: str) -> None:
    """Ids become folder names; nothing else than plain names gets through."""
    with pytest.raises(ValueError, match="replica_id"):
        await runtime.create(replace(spec, replica_id=replica_id))


async def test_what_cannot_be_enforced_is_refused(runtime: Runtime, spec: ReplicaSpec) -> None:
    """An egress policy that the runtime does not list is an error, never ignored."""
    for policy in set(base.Egress) - runtime.capabilities().egress:
        with pytest.raises(base.RuntimeUnsupported):
            await runtime.create(replace(spec, egress=policy))


async def test_a_create_that_fails_leaves_nothing(
    runtime: Runtime, kit: Kit, tmp_path: Path, spec: ReplicaSpec
) -> None:
    """A broken image: a typed error that names the step, and no trace."""

    with pytest.raises(base.ReplicaCreateFailed) as failure:
        await runtime.create(replace(spec, image=kit.broken_image(tmp_path)))
    assert failure.value.step
    assert kit.traces(tmp_path) == []
    await runtime.create(spec)  # the id is free again


async def test_a_cancelled_create_leaves_nothing(
    runtime: Runtime, kit: Kit, tmp_path: Path, spec: ReplicaSpec
) -> None:
    """Cancelled at any moment, a replica is taken away again in the background."""
    for delay_s in kit.moments_s:
        task = asyncio.create_task(runtime.create(spec))
        await asyncio.sleep(delay_s)
        if not task.cancel():
            await runtime.destroy(await task)
            continue
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    await runtime.destroy(await runtime.create(spec))
                    break
                except base.ReplicaExists:
                    await asyncio.sleep(0.01)
    assert kit.traces(tmp_path) == []


# Destroy -------------------------------------------------------------------------------------


async def test_destroy_kills_everything_and_removes_everything(
    runtime: Runtime, kit: Kit, tmp_path: Path, spec: ReplicaSpec
) -> None:
    """Daemons in sessions of their own die too; files, groups and sockets are gone on return."""
    replica = await runtime.create(spec)
    await kit.run_inside(
        replica,
        """
        import os, signal, time
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                if os.fork() == 0:
                    os.setsid()
                time.sleep(1000)
        open("/scratch/file", "w").write("x" * 1000)
        """,
    )
    assert kit.traces(tmp_path) != []
    async with asyncio.timeout(DEADLINE_S):  # the children fork when the scheduler lets them
        while ((await runtime.usage(replica)).processes or 0) < (1 if kit.own_kernel else 7):  # noqa: ASYNC110  # polls a count
            await asyncio.sleep(0.02)
    await runtime.destroy(replica)
    assert kit.traces(tmp_path) == []
    assert (await dead(replica)).reason is ExitReason.DESTROYED
    assert not exists(replica.pid)


async def test_destroy_is_idempotent(runtime: Runtime, spec: ReplicaSpec) -> None:
    """Twice, at once and one after the other, and after the replica died by itself."""
    replica = await runtime.create(spec)
    await asyncio.gather(runtime.destroy(replica), runtime.destroy(replica))
    await runtime.destroy(replica)
    other = await runtime.create(spec)
    os.kill(other.pid, signal.SIGKILL)
    assert (await dead(other)).reason is ExitReason.KILLED
    await runtime.destroy(other)
    await runtime.destroy(replica)
    assert runtime.replicas() == []


async def test_a_cancelled_destroy_goes_on(
    runtime: Runtime, kit: Kit, tmp_path: Path, spec: ReplicaSpec
) -> None:
    """The caller may go away; the replica still does."""
    replica = await runtime.create(spec)
    task = asyncio.create_task(runtime.destroy(replica))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await dead(replica)).reason is ExitReason.DESTROYED
    await runtime.destroy(replica)
    assert kit.traces(tmp_path) == []


async def test_nothing_leaks_over_many_clones(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """Create and destroy in a row leave no descriptor, process or task behind."""
    cycles = int(os.environ.get("OSGYM_TEST_CYCLES", kit.cycles))
    await runtime.destroy(await runtime.create(spec))
    descriptors, tasks = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
    for _cycle in range(cycles):
        replica = await runtime.create(spec)
        await kit.run_inside(replica, "open('/scratch/x', 'w').write('x')")
        await runtime.destroy(replica)
    assert await settled(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)
    assert await settled(lambda: len(asyncio.all_tasks()) <= tasks)
