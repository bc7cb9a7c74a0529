"""Steps that nobody waits for one by one: the first that are ready come first, from any host."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.support.fake_runtime import TASK, Served

from osgym_sdk import (
    AsyncClient,
    AsyncEpisode,
    AsyncObservation,
    Client,
    ConfigError,
    Decision,
    EpisodeEnded,
    EpisodeLost,
    InvalidAction,
    TaskError,
)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Served]]:
    """Two hosts with room for three each."""
    with (
        Served(tmp_path_factory.mktemp("a"), warm=3, max_replicas=3) as first,
        Served(tmp_path_factory.mktemp("b"), warm=3, max_replicas=3) as second,
    ):
        yield [first, second]


@pytest.fixture(autouse=True)
def no_guest_hangs(hosts: list[Served]) -> Iterator[None]:
    """A test that fails leaves no guest in the middle of a step: its host could not stop."""
    yield
    for served in hosts:
        for replica in list(served.runtime.alive.values()):
            served.loop.call_soon_threadsafe(replica.agent.step_gate.set)


def guest(hosts: list[Served], episode: AsyncEpisode) -> tuple[Served, object]:
    served = next(served for served in hosts if served.urls[0] == episode.host)
    return served, served.runtime.by_generation(episode.generation).agent


async def taken(client: AsyncClient, count: int | None = None) -> list[tuple[AsyncEpisode, object]]:
    async with asyncio.timeout(30):
        return [outcome async for outcome in client.ready(count)]


async def test_a_slow_replica_delays_nobody(hosts: list[Served]) -> None:
    """Six desktops of two hosts; one hangs in its step, the others go on, and it comes when it can."""
    async with AsyncClient([served.urls[0] for served in hosts]) as client:
        episodes = client.reset_many([TASK] * 6, max_steps=50)
        first = await taken(client)
        assert {episode for episode, _ in first} == set(episodes)
        assert all(isinstance(obs, AsyncObservation) and obs.step == 0 for _, obs in first)
        assert {episode.host for episode in episodes} == {served.urls[0] for served in hosts}
        slow = episodes[0]
        served, agent = guest(hosts, slow)
        served.loop.call_soon_threadsafe(agent.step_gate.clear)
        for episode in episodes:
            client.step_async(episode, Decision("wait()", 1))
        for _ in range(20):
            for episode, obs in await taken(client, 3):
                assert episode is not slow and isinstance(obs, AsyncObservation)
                client.step_async(episode, "wait()")
        with pytest.raises(ConfigError, match="is still running"):
            client.step_async(slow, "wait()")
        served.loop.call_soon_threadsafe(agent.step_gate.set)
        last = dict(await taken(client))
        assert set(last) == set(episodes) and slow.trajectory.steps[0].info == 1
        assert [len(slow.trajectory.steps)] == [1]
        assert sum(len(episode.trajectory.steps) for episode in episodes) == 6 + 60
        assert await taken(client, 5) == []
        await asyncio.gather(*(episode.aclose() for episode in episodes))


async def test_errors_are_each_its_own(hosts: list[Served]) -> None:
    """A start that fails, an action that is refused, a replica that dies: typed, beside good ones."""
    async with AsyncClient(hosts[0].urls[0]) as client:
        broken = {"id": "broken", "config": [{"type": "no_such_step", "parameters": {}}]}
        good, failed, mad, dies = client.reset_many([TASK, broken, TASK, TASK])
        started = dict(await taken(client))
        assert isinstance(started.pop(failed), TaskError)
        assert all(isinstance(obs, AsyncObservation) for obs in started.values())
        served, _ = guest(hosts, dies)
        served.loop.call_soon_threadsafe(served.runtime.by_generation(dies.generation).die)
        await asyncio.sleep(0)
        for episode, actions in ((good, "wait()"), (mad, "gibberish"), (dies, "wait()")):
            client.step_async(episode, actions)
        with pytest.raises(EpisodeEnded):
            client.step_async(failed, "wait()")
        outcomes = dict(await taken(client))
        kinds = {good: AsyncObservation, mad: InvalidAction, dies: EpisodeLost}
        assert {episode: type(outcome) for episode, outcome in outcomes.items()} == kinds


async def test_a_client_that_ends_waits_for_none(hosts: list[Served]) -> None:
    """What is under way is given up, and who waits for it is told."""
    async with AsyncClient(hosts[0].urls[0]) as client:
        (episode,) = client.reset_many([None])
        await taken(client)
        served, agent = guest(hosts, episode)
        served.loop.call_soon_threadsafe(agent.step_gate.clear)
        client.step_async(episode, "wait()")
        waiting = asyncio.create_task(taken(client))
        await asyncio.sleep(0)
        await client.aclose()
        served.loop.call_soon_threadsafe(agent.step_gate.set)
        ((ended, error),) = await waiting
        assert ended is episode and isinstance(error, EpisodeEnded)


def test_the_client_without_asyncio_does_the_same(hosts: list[Served]) -> None:
    """The episodes that it gives are those that it was given."""
    with Client([served.urls[0] for served in hosts]) as client:
        episodes = client.reset_many([TASK] * 3)
        for episode, obs in client.ready(3):
            assert not isinstance(obs, Exception) and obs.image.size == (1920, 1080)
            client.step_async(episode, "finish()")
        seen = [episode for episode, obs in client.ready(1)]
        seen += [episode for episode, obs in client.ready()]
        assert set(seen) == set(episodes) and len(seen) == 3
        assert {episode.evaluate().reward for episode in episodes} == {1.0}
