"""Groups of rollouts, against the real service over fake replicas that branch or do not, by real HTTP."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_runtime import TASK, Served

from osgym_sdk import AsyncClient, Client, ConfigError, ErrorClass, Group, Progress


@pytest.fixture(scope="module", params=["branching", "plain"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A host with room for six; children and checkpoints are possible on one of two kinds."""
    with Served(tmp_path_factory.mktemp("host"), warm=2, max_replicas=6) as running:
        running.runtime.branching = request.param == "branching"
        yield running


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every lease and every start was given back."""
    yield
    if "served" not in request.fixturenames:
        return
    served = request.getfixturevalue("served")
    until = time.monotonic() + 10
    while served.agent.episodes.active() or served.runtime.points.states:
        assert time.monotonic() < until, "leases or branch points are left"
        time.sleep(0.02)


def tasks(count: int) -> list[dict[str, Any]]:
    return [{**TASK, "id": f"t{index}"} for index in range(count)]


async def ends(obs: Any, task: Any, step: int) -> str:
    return "finish()"


class Counting:
    """Notes who began in which order, and how many acted at the same time."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.running = self.most = 0

    def reset(self, task: Any) -> Any:
        self.began.append(task["id"])
        return _OneEpisode(self)

    async def act(self, obs: Any, task: Any, step: int) -> str:
        raise AssertionError("reset gave another")


class _OneEpisode:
    def __init__(self, counts: Counting) -> None:
        self.counts = counts

    async def act(self, obs: Any, task: Any, step: int) -> str:
        self.counts.running += 1
        self.counts.most = max(self.counts.most, self.counts.running)
        await asyncio.sleep(0)
        self.counts.running -= 1
        return "finish()"


async def gathered(url: str, policy: Any, given: Any, **options: Any) -> dict[str | None, Group]:
    async with asyncio.timeout(60), AsyncClient(url) as client:
        return {group.task_id: group async for group in client.rollouts(given, policy, **options)}


async def test_members_begin_at_the_same_state(served: Served) -> None:
    """Children of one moment where hosts branch; the first tasks go first, no more than asked at a time."""
    counting = Counting()
    groups = await gathered(served.urls[0], counting, tasks(3), group=4, concurrency=3)
    assert sorted(groups) == ["t0", "t1", "t2"] and counting.most <= 3
    last = {name: index for index, name in enumerate(counting.began)}
    assert len(counting.began) == 12 and last["t0"] < last["t1"] < last["t2"]
    for name, group in groups.items():
        assert (group.complete, group.failure, group.lost, group.size) == (True, None, (), 4)
        assert (group.rewards, group.same_start) == ((1.0,) * 4, True)
        assert (group.branched, f"t{group.index}") == (served.runtime.branching, name)
        assert [result.member for result in group.results] == [0, 1, 2, 3]
        assert {result.task_id for result in group.results} == {name}
        assert len({result.trajectory.episode_id for result in group.results}) == 4
        parents = {result.trajectory.parent for result in group.results}
        assert len(parents) == 1 and (parents == {None}) is not group.branched


def killing(served: Served, unless: Callable[[str, int], bool]) -> Any:
    """A policy whose replica dies when a task is begun, unless told not to."""
    begun: dict[str, int] = {}

    async def policy(obs: Any, task: Any, step: int) -> str:
        begun[task["id"]] = begun.get(task["id"], 0) + 1
        if not unless(task["id"], begun[task["id"]]):
            replica = served.runtime.by_generation(obs.episode.generation)
            served.loop.call_soon_threadsafe(replica.die)
            await asyncio.sleep(0.05)
        return "finish()"

    return policy


async def test_lost_members_are_refilled_or_the_group_is_short(served: Served) -> None:
    """From the same start, as often as ``retries`` says; other groups do not notice."""
    policy = killing(served, lambda name, count: {"t0": count > 2, "t1": count <= 2, "t2": True}[name])
    groups = await gathered(served.urls[0], policy, tasks(3), group=3, retries=2)
    refilled, short = groups["t0"], groups["t1"]
    assert refilled.complete and refilled.rewards == (1.0,) * 3 and refilled.same_start
    assert sum(result.attempts - 1 for result in refilled.results) == 2
    assert len({result.trajectory.parent for result in refilled.results}) == 1
    assert not short.complete and short.failure is not None and len(short.lost) == 1
    assert short.failure.error_class is ErrorClass.INFRA and short.lost[0].attempts == 3
    assert sorted(map(str, short.rewards)) == ["1.0", "1.0", "None"]
    assert groups["t2"].complete


async def test_a_slow_group_blocks_no_other(served: Served) -> None:
    """Its members hold their places, the others go on; a policy's own fault is no lost member."""
    others = asyncio.Event()

    async def policy(obs: Any, task: Any, step: int) -> str:
        if task["id"] == "t0":
            await others.wait()
        if task["id"] == "t2":
            raise ValueError("no idea")
        return "finish()"

    order = []
    async with asyncio.timeout(30), AsyncClient(served.urls[0]) as client:
        async for group in client.rollouts(tasks(4), policy, group=2, concurrency=4):
            order.append(group.task_id)
            if len(order) == 3:
                others.set()
            if group.task_id == "t2":
                assert group.complete and group.rewards == (None, None) and group.lost == ()
    assert order[-1] == "t0" and sorted(map(str, order)) == ["t0", "t1", "t2", "t3"]


async def test_a_task_that_cannot_be_set_up_is_a_group_without_members(served: Served) -> None:
    """With the reason, and beside groups that are whole."""
    broken = {"id": "broken", "config": [{"type": "no_such_step", "parameters": {}}], "evaluator": {}}
    groups = await gathered(served.urls[0], ends, iter([broken, *tasks(1), "no/file.json"]), group=2)
    failure = groups["broken"].failure
    assert groups["broken"].results == () and failure is not None and not groups["broken"].complete
    assert failure.error_class is ErrorClass.TASK and groups["broken"].same_start is None
    assert groups["t0"].complete


async def test_leaving_the_loop_gives_everything_back(served: Served) -> None:
    """After the first group, in the middle of the others, and with an endless list of tasks."""

    def endless() -> Iterator[dict[str, Any]]:
        while True:
            yield TASK

    async with asyncio.timeout(30), AsyncClient(served.urls[0]) as client:
        async for group in client.rollouts(endless(), ends, group=3, concurrency=6):
            assert group.complete
            break


async def test_cancelled_in_a_set_up(served: Served) -> None:
    """No episode and no start is left of it."""
    async with AsyncClient(served.urls[0]) as client:
        for delay_s in (0.0, 0.005, 0.01, 0.02, 0.04, 0.08):
            work = asyncio.create_task(_all(client.rollouts(tasks(3), ends, group=2)))
            await asyncio.sleep(delay_s)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


async def _all(groups: Any) -> list[Group]:
    return [group async for group in groups]


def test_the_client_without_asyncio_does_the_same(served: Served) -> None:
    """Plain functions are called in threads of their own, several at a time."""
    together = threading.Barrier(2)

    def policy(obs: Any, task: Any, step: int) -> str:
        together.wait(10)
        return "finish()"

    with Client(served.urls[0]) as client:
        groups = list(client.rollouts(tasks(2), policy, group=2, max_steps=3))
        assert all(group.complete and group.rewards == (1.0, 1.0) for group in groups)
        with pytest.raises(ConfigError, match="group"):
            client.rollouts([], policy, group=0)
        with pytest.raises(ConfigError, match="'on_line'"):
            client.rollouts([], policy, on_line=True)  # type: ignore[call-arg]  # the mistake itself
        assert list(client.rollouts([], policy)) == []


async def test_the_host_of_a_start_goes_away(tmp_path: Path) -> None:
    """Its groups are short and say so; those of other hosts are whole."""
    with Served(tmp_path / "a", max_replicas=3) as first, Served(tmp_path / "b", max_replicas=3) as second:
        removed = asyncio.Event()

        async with asyncio.timeout(60), AsyncClient([first.urls[0], second.urls[0]]) as client:

            async def policy(obs: Any, task: Any, step: int) -> str:
                if obs.episode.host == first.urls[0] and not removed.is_set():
                    removed.set()
                    await client.remove_host(first.urls[0], drain=False)
                return "finish()"

            groups = [group async for group in client.rollouts(tasks(4), policy, group=2, concurrency=4)]
        assert removed.is_set() and len(groups) == 4
        for group in groups:
            if not group.complete:
                assert group.failure is not None and group.failure.error_class is ErrorClass.INFRA
        assert any(group.complete for group in groups)
        assert any(not group.complete for group in groups)


async def test_progress_counts_members_and_groups_that_never_began(served: Served) -> None:
    """Each member counts; of a group without a start all of them have failed."""
    told: list[Progress] = []
    broken = {"id": "broken", "config": [{"type": "no_such_step", "parameters": {}}], "evaluator": {}}
    groups = await gathered(served.urls[0], ends, [*tasks(1), broken], group=2, on_progress=told.append)
    assert len(groups) == 2
    last = told[-1]
    assert (last.done, last.total, last.finished, last.failed, last.running) == (True, 4, 4, 2, 0)
    assert [one.finished for one in told] == sorted(one.finished for one in told)


async def test_a_progress_line_on_a_terminal_only(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for tty, progress, shown in ((False, True, False), (True, True, True), (True, False, False)):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda tty=tty: tty)
        monkeypatch.setattr("sys.stderr", stream)
        await gathered(served.urls[0], ends, tasks(1), group=1, progress=progress)
        assert ("1/1 done" in stream.getvalue()) is shown
