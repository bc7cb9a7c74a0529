"""Room for several, children of branch points and adopted replicas, over fake replicas."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_runtime import FakeReplica, FakeRuntime
from tests.support.pools import nobody, pool_of
from tests.support.waiting import stays, until

from osgym_host.addresses import UnixAddress
from osgym_host.core.fair_queue import ClientKey
from osgym_host.core.plan import Blocked
from osgym_host.core.reasons import Reason
from osgym_host.core.states import ReplicaState
from osgym_host.replicas.brancher import LeaseHolder, ReplicaBrancher
from osgym_host.replicas.manager import ReplicaManager
from osgym_host.replicas.pool import Pool
from osgym_host.replicas.pool_errors import PoolExhausted, PoolStopping, ReplicaNotMade
from osgym_host.replicas.saved_desktops import SavedDesktop
from osgym_host.runtimes import base


def holders(count: int) -> list[LeaseHolder]:
    """Those who get children and do not care what becomes of them."""
    return [LeaseHolder(f"h{number}", nobody) for number in range(count)]


async def taken(branches: ReplicaBrancher, parent: ReplicaManager) -> SavedDesktop:
    """A desktop that is held."""
    return branches.saved.add(SavedDesktop(await branches.take(parent)))


async def test_children_are_leased_to_their_heirs_in_order(tmp_path: Path) -> None:
    """All READY, none in the pool, the warm one still there, the point gone afterwards."""
    async with pool_of(tmp_path) as (pool, runtime):
        branches = ReplicaBrancher(pool)
        parent = await pool.acquire("parent", nobody, 1)
        desktop = await taken(branches, parent)
        async with branches.reserve(3, 1) as room:
            children = await branches.make(room, desktop.point, holders(3))
            branches.saved.release(desktop)
        assert [child.state for child in children] == [ReplicaState.LEASED] * 3
        assert [child.spec.origin for child in children] == [desktop.point] * 3
        await until(lambda: pool.view().ready == 1 and not runtime.points.states)
        assert pool.view().leased == 4
        assert pool.reservations.held == 0
        children[0].return_unused("h0")  # not clean: it goes nowhere else
        await until(lambda: children[0].replica_id not in runtime.alive)


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 21, 34])
async def test_cancelling_at_any_moment_leaves_no_child(tmp_path: Path, turns: int) -> None:
    """Room, point and replicas are all given back; the pool works on."""
    async with pool_of(tmp_path, warm=0, max_replicas=4) as (pool, runtime):
        branches = ReplicaBrancher(pool)
        parent = await pool.acquire("parent", nobody, 1)

        async def fork() -> None:
            async with branches.reserve(3, 1) as room:
                desktop = await taken(branches, parent)
                try:
                    for child in await branches.make(room, desktop.point, holders(3)):
                        child.retire(Reason.CLOSED)
                finally:
                    branches.saved.release(desktop)

        task = asyncio.create_task(fork())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: len(pool.replicas.managers()) == 1 and not runtime.points.states)
        assert pool.reservations.held == 0
        parent.retire(Reason.CLOSED)
        assert (await pool.acquire("next", nobody, 2)).clean


async def test_a_point_is_released_only_when_no_child_of_it_is_being_made(tmp_path: Path) -> None:
    """A runtime that still reads the point's files does not lose them under its hands."""
    async with pool_of(tmp_path, warm=0) as (pool, runtime):
        branches = ReplicaBrancher(pool)
        desktop = await taken(branches, await pool.acquire("parent", nobody, 1))
        runtime.create_gate.clear()
        async with branches.reserve(1, 1) as room:
            making = asyncio.create_task(branches.make(room, desktop.point, holders(1)))
            await until(lambda: runtime.created == 2)
            branches.saved.release(desktop)
            await stays(lambda: desktop.point.point_id in runtime.points.states, 0.05)
            runtime.create_gate.set()
            await making
        await until(lambda: not runtime.points.states)


async def test_failing_children_do_not_slow_the_pool_down(tmp_path: Path) -> None:
    """The circuit is for clean replicas; a success of a child does not close it either."""
    async with pool_of(tmp_path, warm=0) as (pool, runtime):
        branches = ReplicaBrancher(pool)
        parent = await pool.acquire("parent", nobody, 1)
        for _ in range(4):
            desktop = await taken(branches, parent)
            runtime.fail_children = {0}
            async with branches.reserve(2, 1) as room:
                with pytest.raises(ReplicaNotMade) as caught:
                    await branches.make(room, desktop.point, holders(2))
            branches.saved.release(desktop)
            assert caught.value.reason is Reason.CREATE_FAILED
        assert pool.blocked is Blocked.NOTHING
        assert pool.last_failure == ""
        assert (await pool.acquire("fresh", nobody, 0.5)).clean
        await until(lambda: not runtime.points.states)


async def test_room_is_given_in_the_order_of_asking(tmp_path: Path) -> None:
    """A small request does not overtake a large one for ever; clients who wait are served meanwhile."""
    async with pool_of(tmp_path, warm=0, max_replicas=4) as (pool, _):
        held = [await pool.acquire(str(n), nobody, 1) for n in range(2)]
        large = asyncio.create_task(pool.reserve(4, 5))
        await asyncio.sleep(0)
        small = asyncio.create_task(pool.reserve(1, 5))
        third = await pool.acquire("client", nobody, 1)
        await stays(lambda: not large.done() and not small.done(), 0.05)
        for manager in (*held, third):
            manager.retire(Reason.CLOSED)
        room = await large
        assert not small.done()
        pool.reservations.give_back(room)
        pool.reservations.give_back(await small)
        assert pool.reservations.held == 0


async def test_clients_who_want_room_take_turns(tmp_path: Path) -> None:
    """Many forks of one client that wait cost another's single one no more than a turn."""
    greedy, modest = ClientKey("here", "greedy"), ClientKey("here", "modest")
    async with pool_of(tmp_path, warm=0, max_replicas=1) as (pool, _):
        held = await pool.acquire("held", nobody, 1)
        order: list[ClientKey] = []

        async def use(client: ClientKey) -> None:
            room = await pool.reserve(1, 10, client)
            order.append(client)
            pool.reservations.give_back(room)

        crowd = [asyncio.create_task(use(greedy)) for _ in range(16)]
        await until(lambda: len(pool.reservations._asked) == 16)
        single = asyncio.create_task(use(modest))
        await until(lambda: len(pool.reservations._asked) == 17)
        held.retire(Reason.CLOSED)
        await asyncio.gather(single, *crowd)
        assert order.index(modest) <= 1
        assert pool.reservations.held == 0
        assert not pool.reservations.waiting


async def test_no_room_says_why_and_spares_the_warm(tmp_path: Path) -> None:
    """Ready replicas make way only when that is enough."""
    async with pool_of(tmp_path, warm=2, max_replicas=4) as (pool, runtime):
        await pool.acquire("a", nobody, 1)
        await until(lambda: pool.view().ready == 2)
        with pytest.raises(PoolExhausted) as caught:
            await pool.reserve(4, 0.2)
        assert caught.value.blocked is Blocked.MAX_REPLICAS
        assert runtime.destroyed == 0
        room = await pool.reserve(3, 2)
        assert pool.view().ready == 0
        pool.reservations.give_back(room)
        await until(lambda: pool.view().ready == 2)


async def test_room_counts_as_taken(tmp_path: Path) -> None:
    """Nothing else is started in room that somebody holds."""
    async with pool_of(tmp_path, warm=0, max_replicas=3) as (pool, _):
        room = await pool.reserve(2, 1)
        await pool.acquire("a", nobody, 1)
        with pytest.raises(PoolExhausted):
            await pool.acquire("b", nobody, 0.2)
        pool.reservations.give_back(room)
        await pool.acquire("c", nobody, 1)


async def test_stopping_refuses_rooms_and_children(tmp_path: Path) -> None:
    """Whoever waits for room, or for a child, is told."""
    async with pool_of(tmp_path, warm=0, max_replicas=3) as (pool, runtime):
        branches = ReplicaBrancher(pool)
        desktop = await taken(branches, await pool.acquire("parent", nobody, 1))
        runtime.create_gate.clear()
        async with branches.reserve(1, 1) as room:
            making = asyncio.create_task(branches.make(room, desktop.point, holders(1)))
            waiting = asyncio.create_task(pool.reserve(3, 5))
            await until(lambda: runtime.created == 2)
            pool.stop_leasing()
            with pytest.raises(PoolStopping):
                await waiting
            runtime.create_gate.set()
            for manager in pool.replicas.managers():
                manager.retire(Reason.SHUTDOWN)
            with pytest.raises(PoolStopping):
                await making
        branches.saved.release(desktop)
    assert not runtime.points.states


class Adopting(FakeRuntime):
    """A runtime whose replicas can be adopted, once."""

    found: FakeReplica | None = None
    reaped = 0

    async def adopt(self, record: base.ReplicaRecord) -> base.Replica:
        if self.found is None:
            raise base.ReplicaNotFound("it is gone")
        self.alive[record.replica_id] = self.found
        return self.found

    async def reap(self, record: base.ReplicaRecord) -> None:
        self.reaped += 1


async def _adopting(pool: Pool, tmp_path: Path) -> tuple[Adopting, base.ReplicaRecord]:
    runtime = Adopting(tmp_path / "r")
    pool.replicas.runtime = runtime
    address = UnixAddress(tmp_path / "r" / "old" / "agent.sock")
    return runtime, base.ReplicaRecord("old", 77, "0" * 64, 1, address)


async def test_an_adopted_replica_goes_to_its_lease(tmp_path: Path) -> None:
    """With its own name and generation; given up, it is destroyed and not handed to others."""
    async with pool_of(tmp_path, warm=0) as (pool, _):
        runtime, record = await _adopting(pool, tmp_path)
        spec: Any = pool.replicas.adopted_spec(record)
        runtime.found = FakeReplica(spec, tmp_path / "r" / "old")
        await runtime.found.start()
        manager = await ReplicaBrancher(pool).adopt(record, LeaseHolder("lease", nobody))
        assert (manager.replica_id, manager.generation, manager.state) == ("old", 77, ReplicaState.LEASED)
        manager.retire(Reason.CLOSED)
        await until(lambda: not runtime.alive)


async def test_what_cannot_be_adopted_is_reaped(tmp_path: Path) -> None:
    """Nothing of it is left, and whoever held it hears that it was not to be had."""
    async with pool_of(tmp_path, warm=0) as (pool, _):
        runtime, record = await _adopting(pool, tmp_path)
        with pytest.raises(ReplicaNotMade):
            await ReplicaBrancher(pool).adopt(record, LeaseHolder("lease", nobody))
        await until(lambda: runtime.reaped == 1 and not pool.replicas.managers())
