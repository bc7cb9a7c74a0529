"""Host API v1: suspended episodes; their replica is free, and what is kept of them goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.api_answers import error
from tests.support.branching_calls import checkpoint, evaluate, kept
from tests.support.fake_runtime import TASK, Service, record, running_service
from tests.support.waiting import until

from osgym_sdk import wire


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A service with room for one replica only."""
    async with running_service(tmp_path, warm=0, max_replicas=1) as running:
        yield running


async def test_a_suspended_episode_frees_its_replica_and_goes_on_later(service: Service) -> None:
    """Another episode has its place meanwhile; task, numbers and what was done come back."""
    parent = await service.create(task=TASK)
    await service.step(parent, 1, "click(1,1)")
    checkpoint_id = await kept(service, parent, suspend=True, ttl_s=500)
    answer = await service.step(parent, 2, "click(2,2)")
    assert error(answer) == (409, "episode_ended")
    assert "restore its checkpoint" in answer.json()["message"]
    state = (await service.http.get(f"/v1/episodes/{parent['episode_id']}")).json()
    assert state["termination_reason"] == "suspended"
    (listed,) = wire.CheckpointList.from_dict((await service.http.get("/v1/checkpoints")).json()).checkpoints
    assert (listed.suspended, listed.kept) == (True, True)
    between = await service.create()
    assert (
        await service.http.delete(
            f"/v1/episodes/{between['episode_id']}", headers={wire.LEASE_HEADER: between["lease"]}
        )
    ).status_code == 204
    resumed = await service.create(checkpoint=checkpoint_id)
    assert resumed["parent"] == {
        "episode_id": parent["episode_id"],
        "step": 1,
        "checkpoint_id": checkpoint_id,
    }
    record(await service.step(resumed, 2, "click(3,3)"))
    assert [a["x"] for a in service.guest_of(resumed).agent.acted] == [1, 3]
    assert (await evaluate(service, resumed))["reward"] == 1.0


async def test_a_suspension_that_fails_leaves_the_episode(tmp_path: Path) -> None:
    """The point fails, or there is no room for it: an error, and steps go on."""
    async with running_service(tmp_path, warm=1, checkpoints_max_mib=1) as service:
        parent = await service.create()
        assert error(await checkpoint(service, parent, suspend=True)) == (503, "no_capacity")
        service.runtime.fail_branches = 1
        assert error(await checkpoint(service, parent, suspend=True, request_id="again")) == (
            503,
            "branch_failed",
        )
        assert record(await service.step(parent, 1, "wait()")).meta["step"] == 1
        await until(lambda: not service.runtime.points.states)


async def test_undoing_the_request_deletes_nothing_of_a_suspended_episode(service: Service) -> None:
    """Its checkpoint is all that is left of it; repeating the request gives the same one."""
    parent = await service.create()
    checkpoint_id = await kept(service, parent, suspend=True, request_id="q")
    assert await kept(service, parent, suspend=True, request_id="q") == checkpoint_id
    assert (await service.http.delete("/v1/requests/q")).status_code == 204
    assert record(await service.step(await service.create(checkpoint=checkpoint_id), 1, "wait()"))


async def test_a_suspended_episode_that_nobody_resumes_expires(service: Service) -> None:
    """After its time to live nothing is kept."""
    parent = await service.create()
    checkpoint_id = await kept(service, parent, suspend=True, ttl_s=0.2)
    await until(lambda: not service.runtime.points.states)
    answer = await service.http.post("/v1/episodes", json={"request_id": "x", "checkpoint": checkpoint_id})
    assert error(answer) == (404, "unknown_checkpoint")
