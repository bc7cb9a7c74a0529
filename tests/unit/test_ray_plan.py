"""How rollout actors are spread over hosts, and the buffer between them and the trainer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_sdk import ConfigError, Ticket
from osgym_sdk.ray import resource_of, spread
from osgym_sdk.ray.buffer import RolloutBuffer
from osgym_sdk.ray.plan import missing_resources

HOSTS = ["http://a:20000", "https://b:20000", "http://c:1"]


@given(
    st.dictionaries(st.sampled_from(HOSTS), st.integers(0, 20), min_size=1),
    st.integers(1, 8),
    st.none() | st.integers(1, 70),
)
def test_no_host_gets_more_than_it_holds(room: dict[str, int], per_actor: int, replicas: int | None) -> None:
    """All that are asked for and fit, none of a host beyond its room, no actor beyond its share."""
    total = sum(room.values())
    if not total:
        with pytest.raises(ConfigError, match="no host holds"):
            spread(room, per_actor, replicas)
        return
    plans = spread(room, per_actor, replicas)
    assert sum(plan.replicas for plan in plans) == min(total, replicas or total)
    assert all(1 <= plan.replicas <= per_actor for plan in plans)
    for host, count in room.items():
        assert sum(plan.replicas for plan in plans if plan.host == host) <= count


def test_a_cluster_without_the_resource_is_told_what_to_begin() -> None:
    """The command has the numbers."""
    plans = spread({HOSTS[0]: 4}, 2)
    assert missing_resources(plans, {HOSTS[0]: 4}, {resource_of(HOSTS[0]): 4.0}) == ""
    text = missing_resources(plans, {HOSTS[0]: 4}, {"CPU": 2.0})
    assert """ray start --resources='{"osgym:a:20000": 4}'""" in text


async def test_the_buffer_holds_up_who_fills_it_and_counts_each_task_once() -> None:
    """Two results fit; the third waits until one is taken. What a dead actor had is played again."""
    buffer = RolloutBuffer(["t0", "t1", "t2"], repeat=False, capacity=2, replay=2)
    results: list[Any] = [object() for _ in range(3)]
    for index in range(2):
        assert await buffer.next("one") == (index, f"t{index}")
        assert await buffer.put("one", index, results[index])
    assert await buffer.next("two") == (2, "t2")
    await buffer.opened("two", Ticket("http://a", "e1", "lease", 60.0))
    late = asyncio.create_task(buffer.put("two", 2, results[2]))
    tickets, count = await buffer.died("two")
    assert ([ticket.episode_id for ticket in tickets], count) == (["e1"], 0)
    assert await buffer.next("three") == (2, "t2") and await buffer.next("three") is None
    waiting = asyncio.create_task(buffer.put("three", 2, results[2]))
    await asyncio.sleep(0)
    assert not waiting.done() and (await buffer.stats())["waiting"] == 2
    assert await buffer.take() is results[0]
    assert (await late, await waiting) == (False, True)
    assert [await buffer.take(), await buffer.take(), await buffer.take()] == [*results[1:], None]
    assert len(await buffer.sample(5)) == 2 and buffer.most_waiting == 2
