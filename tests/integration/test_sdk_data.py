"""Recording as episodes run, over real HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_v1_host import FakeV1Host, Running, serving

from osgym_sdk import AsyncClient, Client, Decision, EpisodeLost, Timeouts
from osgym_sdk.data import Dataset, DatasetWriter

QUICK = Timeouts(connect_s=2.0, control_s=3.0, step_s=5.0, setup_s=5.0, evaluate_s=5.0, retry_s=1.0)


@pytest.fixture
def running() -> Iterator[Running]:
    """A host with four replicas."""
    with serving(FakeV1Host()) as started:
        yield started


async def test_a_batch_is_recorded_as_it_runs(running: Running, tmp_path: Path) -> None:
    """Steps are in the folder before the next decision; failures, refusals and words are there at the end."""
    seen: list[int] = []

    async def policy(obs: Any, task: Any, step: int) -> Decision | str | None:
        if task["id"] == "raises":
            raise ZeroDivisionError("oops")
        if step == 2:
            writer.sync()
            mine = [one for one in Dataset.open(tmp_path).episodes() if one.task_id == task["id"]]
            seen.append(len(mine[0]))
        if task["id"] == "nonsense" and step == 1:
            return Decision(object(), {"text": "no action"})
        return Decision(
            "click(1,1)" if step < 3 else "finish()", {"text": f"step {step}", "logprobs": [-1.0]}
        )

    tasks = [{"id": f"t{i}", "osgym": {"seed": i}} for i in range(5)] + [{"id": "raises"}, {"id": "nonsense"}]
    with DatasetWriter(tmp_path) as writer:
        async with AsyncClient(running.url, timeouts=QUICK) as client:
            batch = client.run(tasks, policy, concurrency=4, on_invalid="noop", record=writer)
            results = [result async for result in batch]
    assert seen == [2] * 6
    found = {str(one.task_id): one for one in Dataset.open(tmp_path).episodes()}
    assert len(found) == len(results) == 7
    for result in results:
        episode = found[str(result.task_id)]
        assert (episode.reward, len(episode)) == (result.reward, len(result.steps))
        assert episode.values["termination_reason"] == result.termination_reason
        assert episode.values["valid_for_training"] == result.valid_for_training
        assert (episode.values["episode_id"], episode.values["index"]) == (
            result.trajectory.episode_id,
            result.index,
        )
        assert [step["requested"] for step in episode.steps] == [
            list(step.requested) for step in result.steps
        ]
        assert [step["final"] for step in episode.steps] == [step.final for step in result.steps]
    t3 = found["t3"]
    assert (t3.values["seed"], t3.values["image_flavor"], t3.steps[0]["text"]) == (3, "small", "step 0")
    assert t3.steps[0]["logprobs"] == [-1.0] and t3.steps[3].image is not None
    assert found["raises"].values["failure_code"] == "policy_error"
    assert "ZeroDivisionError" in found["raises"].first["failure_details"]["traceback"]
    refused = found["nonsense"].steps[1]
    assert refused["refused"] and refused["text"] == "no action"


async def test_a_lost_attempt_is_an_episode_of_its_own(running: Running, tmp_path: Path) -> None:
    """The task is tried again; both attempts are there, and the lost one has no reward."""
    lost = False

    async def policy(obs: Any, task: Any, step: int) -> str:
        nonlocal lost
        if step == 1 and not lost:
            lost = True
            running.host.lose(running.host.live()[0], "crash")
        return "click(1,1)" if step < 2 else "finish()"

    with DatasetWriter(tmp_path) as writer:
        async with AsyncClient(running.url, timeouts=QUICK) as client:
            results = [r async for r in client.run([{"id": "a"}], policy, record=writer)]
    assert results[0].attempts == 2 and results[0].ok
    found = {one.values["attempt"]: one for one in Dataset.open(tmp_path).episodes()}
    assert [(found[n].reward, found[n].values["failure_code"]) for n in (1, 2)] == [
        (None, "episode_lost"),
        (1.0, None),
    ]


def test_single_episodes_by_hand(running: Running, tmp_path: Path) -> None:
    """With the synchronous client: scored, not scored, lost."""
    with DatasetWriter(tmp_path) as writer, Client(running.url, timeouts=QUICK) as client:
        with client.episode({"id": "scored"}, record=writer) as episode:
            episode.step(Decision("click(1,1)", "I click"))
            episode.evaluate()
        with client.episode({"id": "looked at"}, record=writer) as episode:
            episode.step("click(2,2)")
        with contextlib.suppress(EpisodeLost), client.episode({"id": "lost"}, record=writer) as episode:
            running.host.lose(running.host.live()[0], "crash")
            episode.step("click(3,3)")
    found = {str(one.task_id): one for one in Dataset.open(tmp_path).episodes()}
    assert {name: (one.reward, one.values["failure_code"], len(one)) for name, one in found.items()} == {
        "scored": (1.0, None, 1),
        "looked at": (None, None, 1),
        "lost": (None, "episode_lost", 0),
    }
    assert found["scored"].steps[0]["text"] == "I click"
    assert all(one.values["complete"] for one in found.values())


async def test_a_batch_that_is_left_says_so(running: Running, tmp_path: Path) -> None:
    """Episodes that were cut off are no training data."""
    with DatasetWriter(tmp_path) as writer:
        async with AsyncClient(running.url, timeouts=QUICK) as client:
            tasks = [{"id": "short"}, {"id": "long"}]

            async def policy(obs: Any, task: Any, step: int) -> str | None:
                return None if task["id"] == "short" else "click(1,1)"

            batch = client.run(tasks, policy, concurrency=2, max_steps=10**6, record=writer)
            async for _ in batch:
                break
            await batch.aclose()
    found = {str(one.task_id): one.values for one in Dataset.open(tmp_path).episodes()}
    assert found["short"]["valid_for_training"] and found["long"]["valid_for_training"] is False
    assert found["long"]["failure_code"] == "cancelled"
