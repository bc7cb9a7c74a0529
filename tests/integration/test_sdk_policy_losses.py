"""A policy that breaks its own desktop, as trainers meet it: a valid 0 everywhere, and no second try.

A real host agent behind HTTP; its replicas are fake ones, which the policies end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.fake_runtime import TASK, Served
from tests.support.waiting import until

from osgym_host.core.reasons import Reason
from osgym_host.runtimes.base import ExitReason
from osgym_sdk import AsyncClient, EpisodeLost, Result, Trajectory
from osgym_sdk._environment import Environment, EnvironmentOptions
from osgym_sdk.data import Dataset, DatasetWriter
from osgym_sdk.integrations._rollouts import Rollout
from osgym_sdk.wire import ErrorClass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A host agent with a few fake replicas."""
    with Served(tmp_path, warm=2, max_replicas=6) as running:
        yield running


def task(name: str) -> dict[str, Any]:
    """Return a task whose check every replica passes."""
    return {**TASK, "id": name}


async def end(served: Served, generation: int, how: ExitReason) -> None:
    """End a replica, and wait until the host has noticed."""
    assert served.agent is not None
    replica = served.runtime.by_generation(generation)
    served.loop.call_soon_threadsafe(replica.die, how)
    await until(lambda: replica.replica_id not in served.runtime.alive, 10)


def breaking(served: Served, *names: str, how: ExitReason = ExitReason.SESSION_ENDED) -> Any:
    """A policy whose desktop ends after its first step in tasks of these names, each time it is played."""

    async def policy(obs: Any, task: Any, step: int) -> str:
        if step == 1 and task["id"] in names:
            await end(served, obs.episode.generation, how)
        return "click(1,1)" if step < 2 else "finish()"

    return policy


async def results(served: Served, policy: Any, *names: str, **options: Any) -> dict[str | None, Result]:
    """Run a batch; return its results by task."""
    async with asyncio.timeout(60), AsyncClient(served.urls[0]) as client:
        batch = client.run([task(name) for name in names], policy, **options)
        return {result.task_id: result async for result in batch}


async def test_a_batch_scores_it_and_does_not_try_again(served: Served, tmp_path: Path) -> None:
    """The cause is in the result, its JSON and the data set; the other episode is not affected."""
    with DatasetWriter(tmp_path / "data") as writer:
        found = await results(served, breaking(served, "breaks"), "breaks", "goes", retries=3, record=writer)
    broke = found["breaks"]
    assert (broke.reward, broke.failure, broke.attempts) == (0.0, None, 1)
    assert (broke.valid_for_training, broke.termination_reason) == (True, "replica_lost")
    assert broke.loss is not None
    assert (broke.loss.error_class, broke.loss.details["cause"]) == (ErrorClass.POLICY, "guest_dead")
    assert (found["goes"].reward, found["goes"].loss) == (1.0, None)
    evaluation = broke.trajectory.evaluation
    again = Trajectory.from_dict(broke.trajectory.to_dict()).evaluation
    assert evaluation is not None and again is not None
    assert (again.reward, again.loss and again.loss.details) == (0.0, broke.loss.details)
    [row] = [one for one in Dataset.open(tmp_path / "data").episodes() if one.values["task_id"] == "breaks"]
    told = {name: row.values[name] for name in ("error_class", "failure_code", "valid_for_training")}
    assert told == {"error_class": "policy", "failure_code": "episode_lost", "valid_for_training": True}
    assert row.reward == 0.0


async def test_what_the_host_did_is_tried_again(served: Served) -> None:
    """The last attempt has no reward; attempts in which the policy had acted are counted."""
    policy = breaking(served, "killed", how=ExitReason.KILLED)
    killed = (await results(served, policy, "killed", retries=2))["killed"]
    assert (killed.reward, killed.attempts, killed.losses, killed.loss) == (None, 3, 3, None)
    assert killed.failure is not None and killed.failure.error_class is ErrorClass.INFRA


async def test_a_reward_function_is_not_asked(served: Served) -> None:
    """A custom reward function is not called for a broken desktop."""
    asked = []

    async def reward(episode: Any, task: Any) -> float:
        asked.append(task["id"])
        return 0.7

    found = await results(served, breaking(served, "breaks"), "breaks", "goes", reward=reward)
    assert (found["breaks"].reward, found["goes"].reward, asked) == (0.0, 0.7, ["goes"])
    assert found["breaks"].valid_for_training


async def test_without_a_score_it_is_a_failure_of_the_class_policy(served: Served) -> None:
    """Without a check there is no reward of 0, and no other attempt."""
    found = await results(served, breaking(served, "breaks"), "breaks", evaluate=False, retries=3)
    failure = found["breaks"].failure
    assert failure is not None
    assert (found["breaks"].reward, failure.error_class, found["breaks"].attempts) == (
        None,
        ErrorClass.POLICY,
        1,
    )


async def test_a_member_of_a_group_is_a_0_and_no_hole(served: Served) -> None:
    """The group is complete: the broken desktop's member counts with 0."""
    begun = []

    async def policy(obs: Any, task: Any, step: int) -> str:
        if step == 0:
            begun.append(obs.episode.generation)
        if step == 1 and obs.episode.generation == begun[0]:
            await end(served, obs.episode.generation, ExitReason.OUT_OF_MEMORY)
        return "click(1,1)" if step < 2 else "finish()"

    async with asyncio.timeout(60), AsyncClient(served.urls[0]) as client:
        [group] = [group async for group in client.rollouts([task("t")], policy, group=3, retries=2)]
    assert (group.complete, group.lost) == (True, ())
    assert sorted(group.rewards) == [0.0, 1.0, 1.0]  # type: ignore[type-var]  # none is None
    assert [result.attempts for result in group.results] == [1, 1, 1]


async def test_an_environment_and_a_rollout_end_with_0(served: Served) -> None:
    """For trainers, the episode is terminated by the agent, and not lost."""
    async with asyncio.timeout(60), AsyncClient(served.urls[0]) as client:
        environment = Environment(client)
        obs = await environment.reset(task("t"))
        await environment.step("click(1,1)")
        await end(served, obs.episode.generation, ExitReason.DISPLAY_LOST)  # type: ignore[union-attr]  # not None
        made = await environment.step("click(2,2)")
        assert (made.terminated, made.truncated, made.reward, made.lost) == (True, False, 0.0, False)
        assert made.loss is not None and made.failure is None
        rollout = Rollout(client, EnvironmentOptions())
        await rollout.begin(task("t"))
        await rollout.act("click(1,1)")
        await end(served, rollout.episode.generation, ExitReason.DISPLAY_LOST)
        await rollout.finish()
        assert (rollout.reward, rollout.lost, rollout.ended) == (0.0, False, True)


async def test_an_episode_by_hand_says_whose_loss_it_is(served: Served) -> None:
    """The error has the class `policy`; every evaluation answers the reward 0."""
    async with asyncio.timeout(60), AsyncClient(served.urls[0]) as client, client.episode(task("t")) as one:
        await one.step("click(1,1)")
        await end(served, one.generation, ExitReason.GUEST_SHUTDOWN)
        with pytest.raises(EpisodeLost) as lost:
            await one.step("click(2,2)")
        assert (lost.value.error_class, lost.value.by_policy) == (ErrorClass.POLICY, True)
        first = await one.evaluate()
        assert (first.reward, first.valid_for_training, first.failure) == (0.0, True, None)
        assert await one.evaluate() == first


async def test_a_person_who_acted_makes_it_no_lesson(served: Served) -> None:
    """After a person's action the SDK's reward of 0 is not valid for training, as the host's."""

    async def reward(episode: Any, task: Any) -> float:
        raise AssertionError("it would find nothing to look at")

    async def policy(obs: Any, task: Any, step: int) -> str:
        if step == 1:
            body = {"session": "me", "seq": 1, "actions": ["click(3,4)"]}
            path = f"{served.urls[0]}/v1/replicas/{obs.episode.replica_id}/intervene"
            async with httpx.AsyncClient() as http:
                (await http.post(path, json=body)).raise_for_status()
        if step == 2:
            await end(served, obs.episode.generation, ExitReason.SESSION_ENDED)
        return "click(1,1)"

    found = (await results(served, policy, "t", reward=reward))["t"]
    assert (found.reward, found.valid_for_training) == (0.0, False)


async def test_a_score_that_the_client_has_not_heard_of_is_asked_for(served: Served) -> None:
    """The client asks for the score of an episode that the host ended before the answer arrived."""
    async with asyncio.timeout(60), AsyncClient(served.urls[0]) as client, client.episode(task("t")) as one:
        await one.step("click(1,1)")
        assert served.agent is not None
        episodes = served.agent.episodes
        scoring = episodes.evaluate(one.trajectory.episode_id, one.lease)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(scoring, served.loop))
        served.loop.call_soon_threadsafe(episodes.end_all, Reason.SHUTDOWN)
        with pytest.raises(EpisodeLost):
            while True:
                await one.step("click(2,2)")
        assert (await one.evaluate()).reward == 1.0
