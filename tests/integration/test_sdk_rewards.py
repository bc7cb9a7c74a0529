"""Verifiers of one's own: `run(..., reward=...)` on stand-in replicas over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_runtime import TASK, Served

import osgym_sdk
from osgym_sdk import AsyncClient, AsyncEpisode, Client, Result


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A host agent over stand-in replicas."""
    with Served(tmp_path, warm=2) as running:
        yield running


def policy(obs: Any, task: Any, step: int) -> str | None:
    """One step."""
    return "click(1,2)" if step == 0 else None


async def run(served: Served, reward: Any, tasks: list[Any], **options: Any) -> list[Result]:
    """The results, in the order of the tasks."""
    async with AsyncClient(served.urls[0]) as client:
        found = [r async for r in client.run(tasks, policy, reward=reward, **options)]
    return sorted(found, key=lambda result: result.index)


async def test_a_verifier_gives_the_reward(served: Served) -> None:
    """It has the episode and the task, after the acting; also where there is no task; None scores nothing."""

    async def reward(episode: AsyncEpisode, task: Any) -> float | None:
        assert len(episode.trajectory.steps) == 1
        if task is None:
            return None
        return 0.25 if task["id"] == "a" else (await episode.evaluate()).reward

    tasks = [{**TASK, "id": "a"}, {**TASK, "id": "b"}, None]
    first, second, third = await run(served, reward, tasks)
    assert (first.reward, first.failure, first.valid_for_training) == (0.25, None, True)
    assert first.termination_reason == "policy_stopped"
    assert (second.reward, second.failure) == (1.0, None)
    assert (third.reward, third.failure) == (None, None)


async def test_what_a_verifier_does_wrong_stays_in_its_episode(served: Served) -> None:
    """What it raises, gives or leaves undone is a typed failure with the class of who was at fault."""

    async def reward(episode: AsyncEpisode, task: Any) -> Any:
        match task["id"]:
            case "raises":
                raise KeyError("nothing")
            case "exits":
                raise SystemExit(3)
            case "text":
                return "1.0"
            case "nan":
                return float("nan")
            case "hangs":
                await asyncio.sleep(3600)
            case "stubborn":
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    return 1.0
            case "ours":
                raise osgym_sdk.EpisodeLost("gone", code="episode_lost")
        return 1.0

    names = ["raises", "exits", "text", "nan", "hangs", "stubborn", "ours", "fine"]
    tasks = [{**TASK, "id": name} for name in names]
    found = await run(served, reward, tasks, reward_timeout_s=0.3, retries=0)
    by_name = dict(zip(names, found, strict=True))
    for name in ("raises", "exits", "text", "nan"):
        failure = by_name[name].failure
        assert failure is not None
        assert (by_name[name].reward, failure.code, failure.error_class) == (None, "reward_error", "task")
        assert not by_name[name].valid_for_training
    assert "KeyError" in by_name["raises"].failure.details["traceback"]
    for name in ("hangs", "stubborn"):
        failure = by_name[name].failure
        assert failure is not None and (failure.code, failure.error_class) == ("reward_timeout", "task")
    lost = by_name["ours"].failure
    assert lost is not None and (lost.code, lost.error_class) == ("episode_lost", "infra")
    assert by_name["fine"].reward == 1.0


def test_what_is_no_verifier_is_refused_at_once(served: Served) -> None:
    """And the client without `async` takes a coroutine function too."""

    async def reward(episode: AsyncEpisode, task: Any) -> float:
        return 0.5

    with Client(served.urls[0]) as client:
        with pytest.raises(osgym_sdk.ConfigError):
            client.run([TASK], policy, reward=lambda episode, task: 1.0)
        with pytest.raises(osgym_sdk.ConfigError):
            client.run([TASK], policy, reward=reward, reward_timeout_s=0)
        assert [result.reward for result in client.run([TASK], policy, reward=reward)] == [0.5]
