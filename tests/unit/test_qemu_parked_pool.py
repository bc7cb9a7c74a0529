"""The pool of parked processes: what is planned, and that nobody and nothing is lost in it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.waiting import stays

from osgym_host.core.backoff import BackoffPolicy
from osgym_host.runtimes.base import RuntimeNotRunning
from osgym_qemu.cloning.parked_pool import (
    ParkedPool,
    ParkedPoolOptions,
    ParkedPoolState,
    processes_to_start,
)

QUICK = BackoffPolicy(base_s=0.02, max_s=0.05)


class Thing:
    """Something that can be parked, and die."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ended = asyncio.Event()
        self.discarded = 0

    @property
    def is_alive(self) -> bool:
        return not self.ended.is_set()

    async def wait_end(self) -> object:
        return await self.ended.wait()


class Maker:
    """Makes things, counts them, and fails on demand."""

    def __init__(self) -> None:
        self.made: list[Thing] = []
        self.fails = 0
        self.now = self.most = 0

    async def make(self) -> Thing:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0.002)
            if self.fails:
                self.fails -= 1
                raise OSError("no")
            self.made.append(Thing(len(self.made)))
            return self.made[-1]
        finally:
            self.now -= 1

    async def discard(self, thing: Thing) -> None:
        thing.discarded += 1
        thing.ended.set()


@contextlib.asynccontextmanager
async def pool_of(target: int, at_once: int = 2) -> AsyncIterator[tuple[ParkedPool[Thing], Maker]]:
    """A started pool; at the end everything it made was taken or discarded once."""
    maker = Maker()
    pool = ParkedPool(
        ParkedPoolOptions(target, at_once, cooldown_s=0.02, backoff=QUICK), maker.make, maker.discard
    )
    pool.start()
    tasks = asyncio.all_tasks()
    try:
        yield pool, maker
    finally:
        await pool.close()
    assert pool.ready == ()
    assert maker.most <= at_once
    assert all(thing.discarded <= 1 for thing in maker.made)
    assert asyncio.all_tasks() <= tasks


async def until_ready(pool: ParkedPool[Thing], count: int) -> None:
    async with asyncio.timeout(3):
        while len(pool.ready) != count:  # noqa: ASYNC110  # polls any condition
            await asyncio.sleep(0.002)


@given(
    st.integers(0, 5),
    st.integers(1, 4),
    st.builds(
        ParkedPoolState,
        ready=st.integers(0, 5),
        starting=st.integers(0, 4),
        waiting=st.integers(0, 5),
        resuming=st.integers(0, 3),
        cooling_down=st.booleans(),
        circuit_open=st.booleans(),
    ),
)
def test_the_plan_is_bounded_and_serves_who_waits(target: int, at_once: int, view: ParkedPoolState) -> None:
    """Never more at once than allowed, never more than wanted; a waiter is never left without a start."""
    start = processes_to_start(target, at_once, view)
    assert 0 <= start <= max(0, at_once - view.starting)
    assert start == 0 or view.ready + view.starting + start <= view.waiting + target
    if view.waiting > view.ready + view.starting and view.starting < at_once:
        assert start > 0
    if view.circuit_open and view.waiting <= view.ready + view.starting:
        assert start == 0


def test_refilling_rests_while_clones_keep_all_cores_busy() -> None:
    """Who waits for one is served all the same."""
    assert processes_to_start(3, 2, ParkedPoolState(ready=1, starting=0, waiting=0, resuming=1)) == 2
    assert processes_to_start(3, 2, ParkedPoolState(ready=0, starting=0, waiting=0, resuming=2)) == 0
    assert processes_to_start(3, 2, ParkedPoolState(ready=0, starting=0, waiting=0, cooling_down=True)) == 0
    assert processes_to_start(3, 2, ParkedPoolState(ready=0, starting=0, waiting=1, resuming=2)) == 1


async def test_a_fork_has_the_cpu_for_its_children() -> None:
    """While they wake up, and a moment after, nothing is made; then the pool fills again."""
    async with pool_of(3) as (pool, maker):
        await until_ready(pool, 3)
        with contextlib.ExitStack() as stack:
            for _ in range(3):
                await pool.take()
                stack.enter_context(pool.resuming())
            await stays(lambda: (len(maker.made), maker.now) == (3, 0), 0.02)
        assert maker.now == 0
        await until_ready(pool, 3)


async def test_it_fills_and_refills() -> None:
    """What is taken is replaced, the oldest goes first."""
    async with pool_of(3) as (pool, maker):
        await until_ready(pool, 3)
        taken = await pool.take()
        assert taken is maker.made[0]
        await until_ready(pool, 3)
        assert len(maker.made) == 4
    assert taken.discarded == 0
    assert [thing.discarded for thing in maker.made[1:]] == [1, 1, 1]


async def test_one_that_died_is_replaced_and_never_handed_out() -> None:
    """Noticed while it waits, and at the latest when it is taken."""
    async with pool_of(2) as (pool, maker):
        await until_ready(pool, 2)
        dead = maker.made[0]
        dead.ended.set()
        assert (await pool.take()).is_alive
        await until_ready(pool, 2)
        assert dead.discarded == 1


async def test_many_who_wait_are_all_served() -> None:
    """A burst beyond the pool waits for its own, in order."""
    async with pool_of(1) as (pool, _):
        taken = await asyncio.gather(*(pool.take() for _ in range(9)))
        assert len({thing.number for thing in taken}) == 9


async def test_one_who_goes_away_leaves_his_in_stock() -> None:
    """Cancelled at any moment, nothing is lost."""
    async with pool_of(0) as (pool, maker):
        for steps in range(8):
            task = asyncio.create_task(pool.take())
            for _ in range(steps):
                await asyncio.sleep(0.0007)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await maker.discard(await task)
        await asyncio.sleep(0.01)
        assert all(thing.discarded or thing in pool.ready for thing in maker.made)


async def test_a_failure_reaches_who_waits_and_slows_the_filling() -> None:
    """The pool tries again by itself, later."""
    async with pool_of(0) as (pool, maker):
        maker.fails = 1
        with pytest.raises(OSError, match="no"):
            await pool.take()
        assert (await pool.take()).is_alive
    async with pool_of(2) as (pool, maker):
        maker.fails = 3
        await until_ready(pool, 2)


async def test_who_waits_when_it_closes_is_let_go() -> None:
    """Nobody waits for ever."""
    async with pool_of(0) as (pool, _):
        task = asyncio.create_task(pool.take())
        await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(RuntimeNotRunning):
            await task
