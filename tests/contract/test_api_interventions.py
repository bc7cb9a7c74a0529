"""Host API v1: a person beside a policy; nothing acts twice, and everything says that it happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.api_answers import error
from tests.support.branching_calls import evaluate
from tests.support.fake_runtime import TASK, Service, record, running_service
from tests.support.waiting import stays

from osgym_sdk import wire


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A service with one warm fake replica and room for four."""
    async with running_service(tmp_path, warm=1, max_replicas=4) as running:
        yield running


async def intervene(service: Service, replica: str, seq: int, *actions: Any, **more: Any) -> httpx.Response:
    """Posts what a person does."""
    body = {"session": "me", "seq": seq, "actions": list(actions), **more}
    return await service.http.post(f"/v1/replicas/{replica}/intervene", json=body)


async def lines(service: Service, episode: dict[str, Any]) -> list[dict[str, Any]]:
    """The recorded lines of an episode."""
    answer = await service.http.get(f"/v1/episodes/{episode['episode_id']}/lines")
    return list(answer.json()["lines"])


def clicked(service: Service, episode: dict[str, Any]) -> list[int]:
    """Where the desktop was clicked, in order."""
    return [action["x"] for action in service.guest_of(episode).agent.acted if "x" in action]


async def test_a_person_acts_between_two_steps(service: Service) -> None:
    """The policy's numbers go on; its later answers, the trajectory and the evaluation say what happened."""
    episode = await service.create(task=TASK)
    record(await service.step(episode, 1, "click(1,1)"))
    told = record(await intervene(service, episode["replica_id"], 1, "click(50,5)")).meta
    assert (told["step"], told["interventions"], told["actions"][0]["x"]) == (1, 1, 50)
    record(await intervene(service, episode["replica_id"], 2, "click(51,5)"))
    after = record(await service.step(episode, 2, "click(2,2)")).meta
    assert (after["step"], after["observation"]["seq"], after["interventions"]) == (2, 2, 2)
    assert after["observation"]["previous"] is None
    assert clicked(service, episode) == [1, 50, 51, 2]
    kinds = [line["kind"] for line in await lines(service, episode)]
    assert kinds == ["start", "step", "intervention", "intervention", "step"]
    answer = await evaluate(service, episode)
    assert (answer["reward"], answer["valid_for_training"]) == (1.0, False)
    events = (await service.http.get("/v1/events")).json()["events"]
    (taken,) = [event for event in events if event["kind"] == "takeover"]
    assert taken["episode_id"] == episode["episode_id"]


async def test_without_a_person_nothing_says_so(service: Service) -> None:
    """The field is left out, and the reward is for training."""
    episode = await service.create(task=TASK)
    assert "interventions" not in record(await service.step(episode, 1, "click(1,1)")).meta
    assert (await evaluate(service, episode))["valid_for_training"] is True


async def test_what_is_sent_again_acts_no_second_time(service: Service) -> None:
    """Neither the person's call, nor the policy's step when the person has acted since."""
    episode = await service.create()
    first = record(await service.step(episode, 1, "click(1,1)")).meta
    for _ in range(2):
        record(await intervene(service, episode["replica_id"], 1, "click(50,5)"))
    again = record(await service.step(episode, 1, "click(1,1)")).meta
    assert (again["observation"]["replayed"], again["actions"]) == (True, first["actions"])
    assert clicked(service, episode) == [1, 50]
    assert [line["kind"] for line in await lines(service, episode)] == ["start", "step", "intervention"]
    assert error(await intervene(service, episode["replica_id"], 3, "click(52,5)")) == (409, "bad_sequence")
    other = await intervene(service, episode["replica_id"], 1, "click(53,5)", session="somebody else")
    assert record(other).meta["interventions"] == 2


async def test_a_person_waits_for_the_running_step(service: Service) -> None:
    """It never happens in the middle of one."""
    episode = await service.create()
    agent = service.guest_of(episode).agent
    agent.step_gate.clear()
    step = asyncio.create_task(service.step(episode, 1, "click(1,1)"))
    person = asyncio.create_task(intervene(service, episode["replica_id"], 1, "click(50,5)"))
    await stays(lambda: not person.done(), 0.05)
    agent.step_gate.set()
    record(await step)
    record(await person)
    assert clicked(service, episode) == [1, 50]


async def test_what_cannot_be_done_uses_up_no_number(service: Service) -> None:
    """A bad action, an ending, a replica that nobody leases, an episode that is done or scored."""
    episode = await service.create(task=TASK)
    replica = episode["replica_id"]
    assert error(await intervene(service, replica, 1, "jump(1,1)")) == (400, "invalid_action")
    assert error(await intervene(service, replica, 1, {"op": "done"})) == (400, "invalid_action")
    assert error(await intervene(service, "r999", 1, "click(1,1)")) == (404, "not_found")
    assert error(await intervene(service, replica, 1, "click(1,1)", lease="x")) == (422, "bad_request")
    assert record(await intervene(service, replica, 1, "click(50,5)")).meta["interventions"] == 1
    record(await service.step(episode, 1, {"op": "done"}))
    assert error(await intervene(service, replica, 2, "click(51,5)")) == (409, "episode_ended")
    await evaluate(service, episode)
    assert error(await intervene(service, replica, 2, "click(51,5)")) == (409, "episode_ended")
    assert clicked(service, episode) == [50]


async def test_a_guest_agent_that_was_started_anew_is_caught_up_with(service: Service) -> None:
    """Its numbers begin at 1 again, for a person as for a policy."""
    episode = await service.create()
    record(await service.step(episode, 1, "click(1,1)"))
    record(await intervene(service, episode["replica_id"], 1, "click(50,5)"))
    service.guest_of(episode).agent.restart()
    record(await intervene(service, episode["replica_id"], 2, "click(51,5)"))
    record(await service.step(episode, 2, "click(2,2)"))
    service.guest_of(episode).agent.restart()
    record(await service.step(episode, 3, "click(3,3)"))
    assert clicked(service, episode) == [1, 50, 51, 2, 3]


async def test_an_operator_copies_and_keeps_a_desktop(service: Service) -> None:
    """A child of no run and without a bound of steps; a checkpoint that outlives its episode."""
    episode = await service.create(task=TASK, max_steps=2, run="grpo-7")
    record(await service.step(episode, 1, "click(1,1)"))
    path = f"/v1/replicas/{episode['replica_id']}"
    copies = [await service.http.post(f"{path}/fork", json={"request_id": "f"}) for _ in range(2)]
    (child,) = copies[0].json()["children"]
    assert copies[1].json()["children"] == [child]
    for seq in (2, 3, 4):
        assert record(await service.step(child, seq, "click(7,7)")).meta["done"] is None
    (run,) = (await service.http.get("/v1/runs")).json()
    assert (run["run"], run["episodes"]) == ("grpo-7", 1)
    kept = await service.http.post(f"{path}/checkpoint", json={"request_id": "c", "ttl_s": 60})
    info = wire.CheckpointInfo.from_dict(kept.json())
    restored = await service.create(checkpoint=info.checkpoint_id)
    assert restored["step"] == 1
    missing = await service.http.post("/v1/replicas/r999/fork", json={"request_id": "g"})
    assert error(missing) == (404, "not_found")
    await service.http.delete(f"/v1/checkpoints/{info.checkpoint_id}")


async def test_a_runtime_that_cannot_branch_says_so(tmp_path: Path) -> None:
    """With the remedy, as for a client's own fork."""
    async with running_service(tmp_path, branching=False, warm=1) as service:
        episode = await service.create()
        for what in ("fork", "checkpoint"):
            answer = await service.http.post(
                f"/v1/replicas/{episode['replica_id']}/{what}", json={"request_id": what}
            )
            assert error(answer) == (501, "unsupported")
