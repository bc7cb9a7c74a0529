"""Rest of single replicas: calls wake them, and failures are told to the caller."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_runtime import FakeImage, FakeRuntime
from tests.support.pools import nobody, pool_of
from tests.support.waiting import until

from osgym_host.core.rest import RestStage, RestTerms
from osgym_host.guest_client import GuestClient, HostSocketError
from osgym_host.replicas.rest import ReplicaRest
from osgym_host.replicas.wake_slots import WakeSlots
from osgym_host.runtimes import base


class PausableRuntime(FakeRuntime):
    """Records pauses; can be told to fail or to take its time."""

    def __init__(self, folder: Path, **more: Any) -> None:
        super().__init__(folder, **more)
        self.calls: list[str] = []
        self.fail_unpause = False
        self.pause_gate = asyncio.Event()
        self.pause_gate.set()
        self.used_s = 0.0
        self.reclaimed = base.ReclaimedMemory(freed_mib=30.0, left_mib=2.0, occupied_mib=10.0)

    def can_pause(self, replica: base.Replica) -> bool:
        return True

    def used_cpu_s(self, replica: base.Replica) -> float:
        return self.used_s

    async def pause(self, replica: base.Replica) -> None:
        self.calls.append("pause")
        await self.pause_gate.wait()

    async def unpause(self, replica: base.Replica) -> None:
        if self.fail_unpause:
            raise base.RuntimeFault("the kernel refused")
        self.calls.append("unpause")

    async def reclaim(self, replica: base.Replica) -> base.ReclaimedMemory | None:
        self.calls.append("reclaim")
        return self.reclaimed


@pytest.fixture
async def resting(tmp_path: Path) -> Any:
    """A runtime and the rest of one replica of it."""
    runtime = PausableRuntime(tmp_path / "r")
    clone = await runtime.create(base.ReplicaSpec("r1", 1, FakeImage()))
    yield runtime, ReplicaRest(runtime, clone, WakeSlots(lambda: 1e6, 32), Counter()), clone
    await runtime.stop()


async def test_a_call_wakes_a_reclaimed_replica(resting: Any) -> None:
    """The replica is unpaused before the call goes out; its memory at rest was measured."""
    runtime, rest, clone = resting
    await rest.pause()
    await rest.reclaim()
    assert (rest.stage, rest.resting_mib, rest.working_set_mib) == (RestStage.RECLAIMED, 10.0, 30.0)
    async with GuestClient(clone.guest, wake_lock=rest) as client:
        assert (await client.health()).last_seq == 0
    assert runtime.calls == ["pause", "reclaim", "unpause"]
    assert (rest.stage, rest.calls) == (RestStage.AWAKE, 0)


async def test_a_reclaim_that_frees_nothing_is_tried_again_later(
    resting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With full swap it stays paused and keeps its memory; one that has nothing left is reclaimed."""
    runtime, rest, _ = resting
    await rest.pause()
    runtime.reclaimed = base.ReclaimedMemory(freed_mib=0.1, left_mib=40.0, occupied_mib=40.0)
    await rest.reclaim()
    assert (rest.stage, rest.can_be_reclaimed) == (RestStage.PAUSED, False)
    await rest.reclaim()
    assert runtime.calls.count("reclaim") == 1
    rest._reclaim_after = 0.0
    runtime.reclaimed = base.ReclaimedMemory(freed_mib=0.1, left_mib=2.3, occupied_mib=10.5)
    await rest.reclaim()
    assert rest.stage is RestStage.RECLAIMED


async def test_a_replica_in_use_is_not_paused(resting: Any) -> None:
    """Nothing is paused while a call holds it, nor reclaimed before it is paused."""
    runtime, rest, _ = resting
    await rest.acquire()
    await rest.pause()
    rest.release()
    await rest.reclaim()
    assert runtime.calls == []
    assert rest.stage is RestStage.AWAKE


async def test_a_call_that_comes_during_a_pause_undoes_it(resting: Any) -> None:
    """It waits for the pause that has begun, and wakes the replica."""
    runtime, rest, _ = resting
    runtime.pause_gate.clear()
    pausing = asyncio.create_task(rest.pause())
    await until(lambda: runtime.calls == ["pause"])
    call = asyncio.create_task(rest.acquire())
    await asyncio.sleep(0)
    assert not call.done()
    runtime.pause_gate.set()
    await asyncio.gather(pausing, call)
    assert runtime.calls == ["pause", "unpause"]
    assert (rest.stage, rest.calls) == (RestStage.AWAKE, 1)


async def test_a_pause_that_was_planned_before_a_call_is_dropped(resting: Any) -> None:
    """The call may have started a program, which nobody has seen to be idle."""
    runtime, rest, _ = resting
    idle_s = rest.view("r1", None).idle_s
    await rest.acquire()
    rest.release()
    await rest.pause(idle_s + 0.001)
    assert runtime.calls == []


async def test_a_caller_that_gives_up_leaves_the_replica_awake(resting: Any) -> None:
    """Its processes run by then, so that it must be watched and can rest again."""
    runtime, rest, _ = resting
    await rest.pause()
    await rest.reclaim()
    rest._probe = asyncio.Event().wait
    call = asyncio.create_task(rest.acquire())
    await until(lambda: runtime.calls[-1] == "unpause")
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert (rest.stage, rest.calls) == (RestStage.AWAKE, 0)


async def test_connections_close_before_a_pause(resting: Any) -> None:
    """The guest agent's own timeout would close them after the wake, with a request on them."""
    _, rest, clone = resting
    async with GuestClient(clone.guest, wake_lock=rest) as client:
        rest.before_pause = client.drop_idle
        await client.health()
        assert client.socket_inodes()
        await rest.pause()
        assert not client.socket_inodes()


async def test_a_failed_wake_is_the_hosts_fault(resting: Any) -> None:
    """The caller gets an error that says so, nothing was delivered, and nothing is held."""
    runtime, rest, clone = resting
    await rest.pause()
    runtime.fail_unpause = True
    async with GuestClient(clone.guest, wake_lock=rest) as client:
        with pytest.raises(HostSocketError, match="could not be woken: the kernel refused") as caught:
            await client.health()
    assert not caught.value.delivered
    assert (rest.stage, rest.calls) == (RestStage.PAUSED, 0)


async def test_a_wake_waits_for_memory_and_has_a_deadline(
    resting: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for memory, goes on as soon as there is some, and fails at its deadline."""
    _, rest, _ = resting
    free = [0.0]
    rest._slots = WakeSlots(lambda: free[0], 32)
    await rest.pause()
    await rest.reclaim()
    monkeypatch.setattr("osgym_host.replicas.rest.WAKE_TIMEOUT_S", 0.2)
    with pytest.raises(HostSocketError, match=r"within 0\.2 s: the host has too little memory"):
        await rest.acquire()
    assert rest._slots.short.is_set()
    free[0] = 1e6
    await rest.acquire()
    assert rest.stage is RestStage.AWAKE


async def test_wakes_are_bounded() -> None:
    """No more than the bound wake at once, in their order."""
    slots, inside, order = WakeSlots(lambda: 1e6, 32, count=2), [0, 0], []

    async def wake(number: int) -> None:
        async with slots.slot():
            order.append(number)
            inside[0] += 1
            inside[1] = max(inside)
            await asyncio.sleep(0.01)
            inside[0] -= 1

    await asyncio.gather(*map(wake, range(6)))
    assert inside[1] == 2
    assert order == list(range(6))


async def test_more_replicas_than_the_bound_wake_only_with_memory_to_spare() -> None:
    """Below the bound each needs its own memory; above it there must be as much for the others again."""
    free = [40.0]
    slots = WakeSlots(lambda: free[0], most_awake=2)

    async def wake() -> None:
        async with slots.slot():
            pass

    await wake()
    await wake()
    assert slots.awake == 2
    waiting = asyncio.create_task(wake())
    await until(slots.short.is_set)
    assert not waiting.done()
    free[0] = 3 * slots.each_mib
    await waiting
    assert slots.awake == 3


async def test_a_pool_lets_idle_replicas_rest_and_wakes_them(tmp_path: Path) -> None:
    """Warm and leased ones rest; a busy one does not; a call to a leased one wakes it, and it rests again."""
    terms = RestTerms(pause_after_s=0.05, reclaim_after_s=0.05, keep_ready=0)
    async with pool_of(tmp_path, warm=2, runtime=PausableRuntime, rest_terms=terms) as (pool, runtime):
        manager = await pool.acquire("a", nobody, 1)
        await until(
            lambda: [m.rest and m.rest.stage for m in pool.replicas.managers()].count("reclaimed") == 3
        )
        assert not manager.awake
        await manager.guest.health()
        assert manager.awake
        assert runtime.calls.count("unpause") == 1
        await until(lambda: not manager.awake)
        runtime.used_s = 100.0
        await manager.guest.health()
        for second in range(101, 110):
            runtime.used_s = float(second)
            await asyncio.sleep(0.2)
            assert manager.awake
