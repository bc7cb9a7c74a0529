"""Managers and pool over fake replicas: handing out, failing, cancelling, stopping."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.fake_runtime import FakeReplica
from tests.support.pools import nobody, pool_of
from tests.support.waiting import until

from osgym_host.core.disk_pressure import DiskRoom
from osgym_host.core.plan import Blocked
from osgym_host.core.reasons import Reason
from osgym_host.core.states import ReplicaState
from osgym_host.replicas.events import EventLog
from osgym_host.replicas.journal import ReplicaJournal
from osgym_host.replicas.pool_errors import PoolExhausted, PoolStopping
from osgym_host.runtimes import base


async def test_warm_replicas_wait_ahead_of_demand_and_are_refilled(tmp_path: Path) -> None:
    """Two wait; taking one starts its successor at once."""
    async with pool_of(tmp_path, warm=2) as (pool, runtime):
        await until(lambda: pool.view().ready == 2)
        taken = await pool.acquire("a", nobody, 1)
        assert taken.state is ReplicaState.LEASED
        await until(lambda: pool.view().ready == 2)
        assert runtime.created == 3


async def test_a_used_replica_never_comes_back(tmp_path: Path) -> None:
    """Generations only grow, and the used one is destroyed."""
    async with pool_of(tmp_path) as (pool, runtime):
        seen = []
        for number in range(5):
            manager = await pool.acquire(str(number), nobody, 2)
            seen.append(manager.generation)
            manager.retire(Reason.CLOSED)
        assert seen == sorted(set(seen))
        await until(lambda: runtime.destroyed == 5)


async def test_first_come_first_served(tmp_path: Path) -> None:
    """Five waiters get their replicas in the order of asking."""
    async with pool_of(tmp_path, warm=0, max_replicas=1) as (pool, _):
        order: list[int] = []

        async def use(number: int) -> None:
            manager = await pool.acquire(str(number), nobody, 5)
            order.append(number)
            manager.retire(Reason.CLOSED)

        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(use(number))
                await asyncio.sleep(0)
        assert order == [0, 1, 2, 3, 4]


async def test_no_capacity_says_why(tmp_path: Path) -> None:
    """The wait is bounded, and the bound that was hit is named."""
    async with pool_of(tmp_path, warm=0, max_replicas=1) as (pool, _):
        await pool.acquire("a", nobody, 1)
        with pytest.raises(PoolExhausted) as caught:
            await pool.acquire("b", nobody, 0.1)
        assert caught.value.blocked is Blocked.MAX_REPLICAS
        assert pool.view().waiting == 0


async def test_one_who_does_not_want_to_wait_gets_a_ready_one(tmp_path: Path) -> None:
    """wait 0 is no refusal while a replica waits."""
    async with pool_of(tmp_path) as (pool, _):
        await until(lambda: pool.view().ready == 1)
        assert (await pool.acquire("a", nobody, 0)).state is ReplicaState.LEASED


@pytest.mark.parametrize("turns", range(8))
async def test_cancelling_at_any_moment_loses_no_replica(tmp_path: Path, turns: int) -> None:
    """A replica handed over to one who just left goes to the next, untouched."""
    async with pool_of(tmp_path, warm=1, max_replicas=1) as (pool, runtime):
        await until(lambda: pool.view().ready == 1)
        leaver = asyncio.create_task(pool.acquire("leaver", nobody, 5))
        for _ in range(turns):
            await asyncio.sleep(0)
        leaver.cancel()
        await asyncio.gather(leaver, return_exceptions=True)
        if not leaver.cancelled():
            leaver.result().return_unused("leaver")
        stayer = await pool.acquire("stayer", nobody, 1)
        assert stayer.generation == 1
        assert runtime.created == 1


async def test_a_replica_that_fills_the_disk_is_lost_by_that_name(tmp_path: Path) -> None:
    """Its holder hears `disk`, another takes its place, and its neighbour stays."""
    async with pool_of(tmp_path, disk_cap_mib=100) as (pool, runtime):
        told: list[tuple[Reason, str]] = []
        greedy = await pool.acquire("a", lambda reason, detail: told.append((reason, detail)), 1)
        modest = await pool.acquire("b", nobody, 1)
        runtime.overlay_mib[greedy.replica_id] = 101.0
        runtime.overlay_mib[modest.replica_id] = 99.0
        await until(lambda: told)
        assert told[0] == (Reason.DISK, "the replica wrote 101 MiB to disk; replica_disk_mib allows 100 MiB")
        await until(lambda: greedy.replica_id not in runtime.alive)
        assert modest.state is ReplicaState.LEASED
        await until(lambda: modest.overlay_mib == 99.0)


async def test_all_are_measured_when_the_disk_shrinks_fast(tmp_path: Path) -> None:
    """Long before the next look is due, once an eighth of a cap is gone."""
    async with pool_of(tmp_path, disk_cap_mib=80, interval_s=3600.0) as (pool, _):
        meter = pool._usage
        assert not meter._disk_shrinks_fast(DiskRoom(10_000))
        assert not meter._disk_shrinks_fast(DiskRoom(9_991))
        assert meter._disk_shrinks_fast(DiskRoom(9_990))
        assert not meter._disk_shrinks_fast(DiskRoom(9_990))
        assert not meter._disk_shrinks_fast(DiskRoom(10_490))
        assert meter._disk_shrinks_fast(DiskRoom(10_480))


async def test_one_whose_measurement_began_before_the_disk_shrank_is_measured_again(tmp_path: Path) -> None:
    """That measurement may lack what the replica wrote while it ran."""
    async with pool_of(tmp_path, disk_cap_mib=80, interval_s=3600.0) as (pool, _):
        meter = pool._usage
        manager = await pool.acquire("a", nobody, 1)
        manager.measured_at = 100.0
        assert not meter._is_due(manager, 101.0)
        meter._hurry_at = 100.5
        assert meter._is_due(manager, 101.0)
        manager.measured_at = 100.6
        assert not meter._is_due(manager, 101.0)


async def test_with_little_disk_left_the_biggest_writer_ends(tmp_path: Path) -> None:
    """One after the other until there is room; who wrote little stays, whoever else fills the disk."""
    async with pool_of(tmp_path, warm=0, disk_reserve_mib=1000) as (pool, runtime):
        told: list[tuple[str, Reason]] = []

        def holder(name: str) -> Callable[[Reason, str], None]:
            return lambda reason, detail: told.append((name, reason))

        big = await pool.acquire("a", holder("big"), 1)
        bigger = await pool.acquire("b", holder("bigger"), 1)
        small = await pool.acquire("c", holder("small"), 1)
        runtime.overlay_mib |= {big.replica_id: 200.0, bigger.replica_id: 300.0, small.replica_id: 60.0}
        runtime.disk_free_mib = 999.0
        await until(lambda: len(told) == 2)
        assert told == [("bigger", Reason.DISK_FULL), ("big", Reason.DISK_FULL)]
        await until(lambda: big.replica_id not in runtime.alive)
        measured = small.measured_at
        await until(lambda: small.measured_at != measured)
        assert small.state is ReplicaState.LEASED
        assert "999 MiB of the host's disk were free" in bigger.detail


@pytest.mark.parametrize(("overlay_mib", "reason"), [(499.0, Reason.DISK_FULL), (500.0, Reason.DISK)])
async def test_a_scarce_disk_is_the_doing_of_who_wrote_all_that_it_may(
    tmp_path: Path, overlay_mib: float, reason: Reason
) -> None:
    """A replica within its disk limit is not at fault for a full disk of the host; one at its limit is."""
    async with pool_of(tmp_path, warm=0, disk_reserve_mib=1000, disk_cap_mib=500) as (pool, runtime):
        told: list[Reason] = []
        big = await pool.acquire("a", lambda reason, detail: told.append(reason), 1)
        runtime.overlay_mib |= {big.replica_id: overlay_mib}
        runtime.disk_free_mib = 999.0
        await until(lambda: told == [reason])


async def test_with_room_on_the_disk_nobody_ends(tmp_path: Path) -> None:
    """What was freed in time ends nobody."""
    async with pool_of(tmp_path, disk_reserve_mib=1000) as (pool, runtime):
        manager = await pool.acquire("a", nobody, 1)
        runtime.overlay_mib[manager.replica_id] = 5000.0
        runtime.disk_free_mib = 1000.0
        await until(lambda: manager.overlay_mib == 5000.0)
        assert not pool._usage._disk_is_scarce(DiskRoom(1000.0), 1.0)
        assert manager.state is ReplicaState.LEASED


async def test_one_who_takes_long_to_measure_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Others are measured meanwhile, and it not a second time."""
    async with pool_of(tmp_path, warm=0) as (pool, runtime):
        slow = await pool.acquire("a", nobody, 1)
        runtime.slow_to_measure[slow.replica_id] = asyncio.Event()
        quick = await pool.acquire("b", nobody, 1)
        for _ in range(3):
            measured = quick.measured_at
            await until(lambda measured=measured: quick.measured_at not in (None, measured))
        runtime.slow_to_measure.pop(slow.replica_id).set()


async def test_a_replica_that_dies_under_its_lease_is_told_and_replaced(tmp_path: Path) -> None:
    """The holder hears the reason; out of memory is told apart."""
    async with pool_of(tmp_path) as (pool, runtime):
        told: list[tuple[Reason, str]] = []
        manager = await pool.acquire("a", lambda reason, detail: told.append((reason, detail)), 1)
        runtime.by_generation(manager.generation).die(base.ExitReason.OUT_OF_MEMORY)
        await until(lambda: told)
        assert told[0][0] is Reason.OUT_OF_MEMORY
        assert "for the test" in told[0][1]
        await until(lambda: manager.replica_id not in runtime.alive)
        assert pool.last_failure == ""


async def test_a_dying_guests_console_is_quoted_and_not_repeated(tmp_path: Path) -> None:
    """Its escape sequences and lines that look like ours reach neither log nor client as such."""
    forged = "2026-01-01 00:00:00,000 CRITICAL osgym_host.app: all is lost"
    async with pool_of(tmp_path) as (pool, runtime):
        told: list[tuple[Reason, str]] = []
        manager = await pool.acquire("a", lambda reason, detail: told.append((reason, detail)), 1)
        console = "x" * 100_000 + f"\x1b[2J\x1b]0;owned\x07\r\n{forged}\n\u202e"
        runtime.by_generation(manager.generation).die(base.ExitReason.GUEST_PANIC, console)
        await until(lambda: told)
        detail = told[0][1]
        assert detail.isprintable() and len(detail) < 2500
        assert f"| {forged} | \\u202e" in detail and "\\x1b[2J" in detail


async def test_a_ready_replica_that_dies_is_never_handed_out(tmp_path: Path) -> None:
    """It is withdrawn, and another one takes its place."""
    async with pool_of(tmp_path) as (pool, runtime):
        await until(lambda: pool.view().ready == 1)
        runtime.by_generation(1).die()
        manager = await pool.acquire("a", nobody, 2)
        assert manager.generation > 1
        assert pool.retired[Reason.KILLED] == 1


async def test_failing_creates_back_off_and_recover(tmp_path: Path) -> None:
    """No storm of attempts; the last failure is kept for people; then all is well again."""
    async with pool_of(tmp_path, warm=2) as (pool, runtime):
        runtime.fail_creates = 5
        await until(lambda: "no room" in pool.last_failure)
        await until(lambda: pool.view().ready == 2)
        assert pool.retired[Reason.CREATE_FAILED] == 5
        assert pool.last_failure == ""


async def test_a_desktop_that_never_gets_ready_is_given_up(tmp_path: Path) -> None:
    """The boot has a deadline; what does not answer is destroyed."""
    async with pool_of(tmp_path, boot_s=0.1) as (pool, runtime):
        runtime.boot_ready = False
        await until(lambda: runtime.alive)
        # the client allows the guest some seconds beyond its own deadline, so it dies here instead
        next(iter(runtime.alive.values())).die(base.ExitReason.SESSION_ENDED)
        await until(lambda: pool.retired[Reason.BOOT_FAILED] >= 1)
        runtime.boot_ready = True
        await until(lambda: pool.view().ready == 1)


async def test_a_replica_whose_guest_has_said_that_it_is_ready_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone of a frozen desktop tells it with its new identity; the call would only cost."""
    monkeypatch.setattr(FakeReplica, "reported_ready", property(lambda self: True))
    async with pool_of(tmp_path, warm=0) as (pool, runtime):
        runtime.boot_ready = False  # whoever asks waits for ever
        assert (await pool.acquire("a", nobody, 2)).state is ReplicaState.LEASED


async def test_a_create_that_hangs_has_a_deadline(tmp_path: Path) -> None:
    """It is cancelled and counted as failed."""
    async with pool_of(tmp_path, create_s=0.05) as (pool, runtime):
        runtime.create_gate.clear()
        await until(lambda: pool.retired[Reason.CREATE_FAILED] == 1)
        first = runtime.created
        runtime.create_gate.set()
        await until(lambda: pool.view().ready == 1)
        assert first == 1


async def test_stopping_refuses_those_who_wait(tmp_path: Path) -> None:
    """Nobody hangs in a stopping pool."""
    async with pool_of(tmp_path, warm=0, max_replicas=1) as (pool, _):
        await pool.acquire("a", nobody, 1)
        waiting = asyncio.create_task(pool.acquire("b", nobody, 60))
        await until(lambda: pool.view().waiting == 1)
        assert await pool.close(5)
        with pytest.raises(PoolStopping):
            await waiting
        with pytest.raises(PoolStopping):
            await pool.acquire("c", nobody, 1)


async def test_measured_memory_replaces_the_estimate(tmp_path: Path) -> None:
    """After a few measurements admission counts with them."""
    async with pool_of(tmp_path, warm=4) as (pool, runtime):
        runtime.pss_mib = 20.0
        await until(lambda: pool.view().ready == 4)
        await until(lambda: sum(m.pss_mib is not None for m in pool.replicas.managers()) >= 3)
        taken = await pool.acquire("a", nobody, 1)
        taken.retire(Reason.CLOSED)
        await until(lambda: pool.admission.now.replica_ram_mib < 64)


@pytest.mark.parametrize("seed", range(5))
async def test_a_storm_of_clients_deaths_and_cancellations_loses_nothing(tmp_path: Path, seed: int) -> None:
    """Whatever happens, nobody holds a replica twice, and in the end all are gone."""
    rng = random.Random(seed)
    async with pool_of(tmp_path, warm=2, max_replicas=5) as (pool, runtime):
        held: set[int] = set()

        async def client(number: int) -> None:
            try:
                async with asyncio.timeout(rng.choice([0.005, 0.05, 5])):
                    manager = await pool.acquire(f"{number}", nobody, 5)
            except (PoolExhausted, TimeoutError):
                return
            assert manager.generation not in held
            held.add(manager.generation)
            await asyncio.sleep(rng.random() * 0.01)
            if rng.random() < 0.3 and manager.replica_id in runtime.alive:
                runtime.alive[manager.replica_id].die()
            manager.retire(Reason.CLOSED)

        async def killer() -> None:
            for _ in range(20):
                await asyncio.sleep(rng.random() * 0.01)
                if runtime.alive:
                    rng.choice(list(runtime.alive.values())).die()

        async with asyncio.TaskGroup() as group:
            group.create_task(killer())
            for number in range(60):
                group.create_task(client(number))
                await asyncio.sleep(rng.random() * 0.003)
        await until(lambda: pool.view().ready == 2 and pool.view().waiting == 0)


def test_generations_survive_a_kill(tmp_path: Path) -> None:
    """The next agent of the same directory goes on counting, and knows what was left."""
    journal = ReplicaJournal(tmp_path / "j")
    journal.open()
    number = journal.next_generation()
    journal.created("r1", number)
    journal.created("r2", journal.next_generation())
    journal.gone("r1")
    with (tmp_path / "j").open("a") as file:
        file.write('{"created": "to')
    again = ReplicaJournal(tmp_path / "j")
    again.open()
    assert again.leftovers == ("r2",)
    assert again.next_generation() == 3
    journal.close()
    again.close()


async def test_events_are_bounded_and_can_be_waited_for() -> None:
    """A long poll ends with the next event, at its deadline, or when the service stops."""
    events = EventLog(size=3)
    for number in range(5):
        events.add("x", number=number)
    assert [e["id"] for e in await events.after(0, 0)] == [3, 4, 5]
    waiting = asyncio.create_task(events.after(5, 5))
    await asyncio.sleep(0)
    events.add("y")
    assert [e["kind"] for e in await waiting] == ["y"]
    assert await events.after(6, 0.01) == []
    waiting = asyncio.create_task(events.after(6, 60))
    await asyncio.sleep(0)
    events.close()
    assert await waiting == []
