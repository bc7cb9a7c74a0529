"""Host API v1: requests for a replica: repeated, undone, waiting, without capacity, in turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.support.api_answers import error
from tests.support.fake_runtime import TASK, Service, record, running_service, slow_task
from tests.support.waiting import until

from osgym_protocol.host_api import CLIENT_HEADER


async def test_repeating_a_request_id_gives_the_same_episode(service: Service) -> None:
    """At once or later: one replica, one lease."""
    both = await asyncio.gather(*(service.create(request_id="same", task=TASK) for _ in range(2)))
    later = await service.create(request_id="same", task=TASK)
    assert {x["episode_id"] for x in (*both, later)} == {both[0]["episode_id"]}
    assert later["lease"] == both[0]["lease"]
    assert service.agent.pool.view().leased == 1


@pytest.mark.parametrize(
    "other", [{"task": None}, {"max_steps": 9}, {"lease_ttl_s": 7}, {"settle": {"policy": "fast"}}]
)
async def test_a_request_id_means_one_thing(service: Service, other: dict[str, Any]) -> None:
    """Used again for something else it is refused; another patience is not something else."""
    first = await service.create(request_id="same", task=TASK)
    body = {"request_id": "same", "task": TASK, **other}
    assert error(await service.http.post("/v1/episodes", json=body)) == (409, "bad_request")
    again = await service.create(request_id="same", task=TASK, wait_s=1)
    assert again["episode_id"] == first["episode_id"]
    assert service.agent.pool.view().leased == 1


async def test_an_episode_may_name_its_image(service: Service) -> None:
    """By flavor or digest; another one is refused with the host's own, and takes no desktop."""
    own = (await service.http.get("/v1/host")).json()["image"]
    for name in own.values():
        assert (await service.create(request_id=f"of-{name}", image=name))["episode_id"]
    refused = await service.http.post("/v1/episodes", json={"request_id": "other", "image": "windows"})
    assert error(refused) == (404, "unknown_image")
    assert refused.json()["details"] == {"image": own, "images": [own]}
    assert service.agent.pool.view().leased == len(own)


async def test_undoing_a_request(service: Service) -> None:
    """Done, waiting, or still to come: it holds nothing afterwards; unknown ids are fine."""
    done = await service.create(request_id="done")
    assert (await service.http.delete("/v1/requests/done")).status_code == 204
    assert error(await service.step(done, 1, "wait()")) == (409, "cancelled")
    assert (await service.http.delete("/v1/requests/early")).status_code == 204
    early = await service.http.post("/v1/episodes", json={"request_id": "early"})
    assert error(early) == (409, "cancelled")
    waiting = asyncio.create_task(
        service.http.post("/v1/episodes", json={"request_id": "setup", "task": slow_task(service)})
    )
    await until(lambda: any(r.agent.commands for r in service.runtime.alive.values()))
    assert (await service.http.delete("/v1/requests/setup")).status_code == 204
    assert error(await waiting) == (409, "cancelled")
    await until(lambda: service.agent.pool.view().leased == 0)


async def test_no_capacity_is_bounded_and_says_why(tmp_path: Path) -> None:
    """503 within wait_s."""
    async with running_service(tmp_path, warm=0, max_replicas=1) as service:
        await service.create()
        answer = await service.http.post("/v1/episodes", json={"request_id": "b", "wait_s": 0.2})
        assert error(answer) == (503, "no_capacity")
        assert answer.json()["details"]["blocked"] == "max_replicas"
        assert answer.json()["details"]["setting"] == "max_replicas"
        assert answer.json()["details"]["value"] == 1


@pytest.mark.parametrize(
    ("settings", "blocked", "said"),
    [
        ({"cpu_per_replica": 1000.5}, "cpu", "blocked by cpu: cpu_per_replica=1000.5, "),
        ({"ram_reserve_mib": 10**9}, "ram", "blocked by ram: ram_reserve_mib=1000000000, "),
        ({"disk_reserve_mib": 10**9}, "disk", "blocked by disk: disk_reserve_mib=1000000000, "),
        ({"max_starting": 1, "warm": 4}, "concurrency", "blocked by concurrency: max_starting=1, "),
    ],
)
async def test_what_blocks_names_the_setting_and_its_value(
    tmp_path: Path, settings: dict[str, Any], blocked: str, said: str
) -> None:
    """In the message and in the details."""
    async with running_service(tmp_path, **{"warm": 0, **settings}) as service:
        service.runtime.create_gate.clear()
        answer = await service.http.post("/v1/episodes", json={"request_id": "b", "wait_s": 0.2})
        service.runtime.create_gate.set()
        assert error(answer) == (503, "no_capacity")
        assert said in answer.json()["message"]
        details = answer.json()["details"]
        assert details["blocked"] == blocked
        assert f"{details['setting']}={details['value']}" in said


async def test_clients_take_turns(tmp_path: Path) -> None:
    """One client's thirty-two waiting requests cost another's single one no more than a turn."""
    async with running_service(tmp_path, warm=0, max_replicas=1) as service:
        served: list[str] = []

        async def use(name: str, number: int) -> None:
            body = {"request_id": f"{name}-{number}", "wait_s": 60, "lease_ttl_s": 60}
            answer = await service.http.post("/v1/episodes", json=body, headers={CLIENT_HEADER: name})
            episode = record(answer).meta
            served.append(name)
            headers = {"OSGym-Lease": episode["lease"]}
            assert (
                await service.http.delete(f"/v1/episodes/{episode['episode_id']}", headers=headers)
            ).status_code == 204

        held = await service.create()
        greedy = [asyncio.create_task(use("greedy", number)) for number in range(32)]
        await until(lambda: service.agent.pool.view().waiting == 32)
        modest = asyncio.create_task(use("modest", 0))
        await until(lambda: service.agent.pool.view().waiting == 33)
        await service.http.delete(
            f"/v1/episodes/{held['episode_id']}", headers={"OSGym-Lease": held["lease"]}
        )
        await modest
        assert served.index("modest") <= 2
        await asyncio.gather(*greedy)
        assert len(served) == 33
