"""The table of a runtime's replicas: whoever goes away, nothing is left and no id is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from osgym_host.addresses import GuestAddress, UnixAddress
from osgym_host.runtimes.base import (
    ExitInfo,
    ExitReason,
    Replica,
    ReplicaDestroyFailed,
    ReplicaExists,
    ReplicaNotFound,
    ReplicaSpec,
    RuntimeNotRunning,
)
from osgym_host.runtimes.replica_table import ReplicaTable, check_name


class Image:
    digest = "0" * 64


class Desk(Replica):
    """A replica without a process."""

    @property
    def guest(self) -> GuestAddress:
        return UnixAddress(None)


class Desks:
    """What a runtime does: it makes and destroys, in its own time."""

    def __init__(self) -> None:
        self.table = ReplicaTable("test", Desk, self.destroy)
        self.may_make, self.may_destroy = asyncio.Event(), asyncio.Event()
        self.may_make.set()
        self.may_destroy.set()
        self.destroyed: list[str] = []
        self.failures = 0

    async def create(self, replica_id: str) -> Desk:
        return await self.table.create(replica_id, lambda: self._make(replica_id))

    async def _make(self, replica_id: str) -> Desk:
        await self.may_make.wait()
        return Desk(ReplicaSpec(replica_id, 1, Image()))

    async def destroy(self, desk: Desk) -> None:
        await self.may_destroy.wait()
        if self.failures:
            self.failures -= 1
            raise ReplicaDestroyFailed("something is left")
        desk._dead.set_result(ExitInfo(ExitReason.DESTROYED, "the replica was destroyed"))
        self.destroyed.append(desk.replica_id)


async def cancelled(work: Any) -> None:
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_id_is_in_use_from_the_call_to_the_destroy() -> None:
    """Also while it is being made."""
    desks = Desks()
    desks.may_make.clear()
    first = asyncio.create_task(desks.create("r1"))
    await asyncio.sleep(0)
    with pytest.raises(ReplicaExists):
        await desks.create("r1")
    desks.may_make.set()
    desk = await first
    with pytest.raises(ReplicaExists):
        desks.table.check_free("r1")
    await desks.table.destroy(desk)
    assert (desk.removed, desks.table.all()) == (True, [])
    assert await desks.create("r1") is not desk


async def test_a_cancelled_create_leaves_nothing() -> None:
    """It is made to its end and destroyed then; `close` waits for that."""
    desks = Desks()
    desks.may_make.clear()
    await cancelled(desks.create("r1"))
    desks.may_make.set()
    assert await desks.table.close() == []
    assert (desks.destroyed, desks.table.all()) == (["r1"], [])


async def test_a_cancelled_destroy_goes_on() -> None:
    """Whoever asks again waits for the same end."""
    desks = Desks()
    desk = await desks.create("r1")
    desks.may_destroy.clear()
    await cancelled(desks.table.destroy(desk))
    again = asyncio.create_task(desks.table.destroy(desk))
    await asyncio.sleep(0)
    desks.may_destroy.set()
    await again
    assert desks.destroyed == ["r1"]
    await desks.table.destroy(desk)
    with pytest.raises(ReplicaNotFound):
        desks.table.require(desk)


async def test_a_destroy_that_failed_can_be_tried_again() -> None:
    """The replica is still there until then."""
    desks = Desks()
    desk = await desks.create("r1")
    desks.failures = 1
    with pytest.raises(ReplicaDestroyFailed):
        await desks.table.destroy(desk)
    assert desks.table.all() == [desk]
    await desks.table.destroy(desk)
    assert desks.table.all() == []


async def test_a_closed_table_creates_nothing_until_it_is_opened() -> None:
    """`close` destroys all and says what went wrong."""
    desks = Desks()
    await asyncio.gather(desks.create("r1"), desks.create("r2"))
    desks.failures = 1
    [error] = await desks.table.close()
    assert isinstance(error, ReplicaDestroyFailed)
    with pytest.raises(RuntimeNotRunning, match="the test runtime is stopping"):
        await desks.create("r3")
    desks.table.open()
    assert (await desks.create("r3")).replica_id == "r3"


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 65])
def test_a_name_that_could_be_a_path_is_refused(name: str) -> None:
    """Ids and instances become names of files."""
    with pytest.raises(ValueError, match="replica_id must match"):
        check_name("replica_id", name)
