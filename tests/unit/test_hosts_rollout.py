"""The order in which hosts of a fleet are updated: who goes when, and when nobody does any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from osgym_infra.hosts.rollout import Rollout, UpdateStopped
from osgym_infra.links.errors import CommandFailed, Interrupted

BROKEN = CommandFailed("root@c", "bootstrap.sh up health", 1, "no desktop became ready", "health")


class Fleet:
    """Hosts that are updated at once; each stays away until it is let back."""

    def __init__(self, names: str, most_away: int) -> None:
        self.rollout = Rollout()
        self.back: dict[str, asyncio.Future[Exception | None]] = {}
        self.order: list[str] = []
        self.most_seen = 0
        self.tasks = {name: asyncio.create_task(self._update(name, most_away)) for name in names}

    async def _update(self, name: str, most_away: int) -> None:
        turn = self.rollout.turn(name, most_away)
        await turn.take(serves=True)
        self.order.append(name)
        self.back[name] = asyncio.get_running_loop().create_future()
        self.most_seen = max(self.most_seen, self.rollout.away)
        error = await self.back[name]
        await turn.end(error)
        if error is not None:
            raise error

    async def settle(self) -> None:
        """Until nobody moves any more."""
        for _ in range(20):
            await asyncio.sleep(0)

    @property
    def away(self) -> list[str]:
        """Who is away now, in the order in which they went."""
        return [name for name in self.order if not self.back[name].done()]


async def test_the_first_goes_alone_and_the_others_some_at_a_time() -> None:
    """What breaks hosts breaks one; what works is not slower than it has to be."""
    fleet = Fleet("abcde", 2)
    await fleet.settle()
    assert fleet.away == ["a"]
    fleet.back["a"].set_result(None)
    await fleet.settle()
    assert fleet.away == ["b", "c"]
    fleet.back["b"].set_result(None)
    await fleet.settle()
    assert fleet.away == ["c", "d"]
    for name in "cd":
        fleet.back[name].set_result(None)
    await fleet.settle()
    fleet.back["e"].set_result(None)
    await asyncio.gather(*fleet.tasks.values())
    assert fleet.most_seen == 2


async def test_a_host_that_does_not_come_back_stops_the_update() -> None:
    """Those that wait stay as they were, and say which host to look at; what is under way ends."""
    fleet = Fleet("abcde", 2)
    await fleet.settle()
    fleet.back["a"].set_result(None)
    await fleet.settle()
    fleet.back["b"].set_result(BROKEN)
    await fleet.settle()
    assert fleet.away == ["c"]
    fleet.back["c"].set_result(None)
    ends = await asyncio.gather(*fleet.tasks.values(), return_exceptions=True)
    assert fleet.order == ["a", "b", "c"]
    assert [type(end) for end in ends] == [
        type(None),
        CommandFailed,
        type(None),
        UpdateStopped,
        UpdateStopped,
    ]
    assert "host d: this host was not updated and still serves: the update stopped at host b" in str(ends[3])


async def test_what_does_not_serve_never_waits_but_counts() -> None:
    """A host that is away already is put right at once, and no other is taken out meanwhile."""
    rollout = Rollout()
    broken = rollout.turn("broken", 1)
    await broken.take(serves=False)
    await broken.take(serves=True)
    serving = asyncio.create_task(rollout.turn("serving", 1).take(serves=True))
    await asyncio.sleep(0.01)
    assert not serving.done()
    await broken.end(BROKEN)
    with pytest.raises(UpdateStopped):
        await serving
    await rollout.turn("new", 1).take(serves=False)


async def test_an_interrupted_turn_proves_nothing_and_stops_nobody() -> None:
    """Ctrl-C is not the update's fault; and one that waited and was cancelled holds nothing."""
    rollout = Rollout()
    first, second = rollout.turn("first", 5), rollout.turn("second", 5)
    await first.take(serves=True)
    waiting = asyncio.create_task(second.take(serves=True))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await first.end(Interrupted("first", "interrupted"))
    assert rollout.away == 0
    await second.take(serves=True)
    assert not rollout.may_go(5), "the next goes alone again"


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 15), st.sets(st.integers(0, 11)), st.randoms())
def test_never_more_are_away_than_may_be(hosts: int, most_away: int, broken: set[int], random: Any) -> None:
    """Whoever comes back when: the bound holds, the first goes alone, nobody waits for ever."""

    async def run() -> None:
        names = "abcdefghijkl"[:hosts]
        fleet = Fleet(names, most_away)
        while not all(task.done() for task in fleet.tasks.values()):
            await fleet.settle()
            away = fleet.away
            if not away:
                continue
            assert len(away) <= (most_away if fleet.order[0] != away[0] else 1)
            name = random.choice(away)
            fleet.back[name].set_result(BROKEN if names.index(name) in broken else None)
        ends = await asyncio.gather(*fleet.tasks.values(), return_exceptions=True)
        failed = [end for end in ends if isinstance(end, CommandFailed)]
        stopped = [end for end in ends if isinstance(end, UpdateStopped)]
        assert bool(stopped) <= bool(failed)
        assert len(fleet.order) + len(stopped) == hosts

    asyncio.run(run())
