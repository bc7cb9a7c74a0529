"""A host that will be taken away: who is refused, who is told, and how what is still open ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from tests.support.fake_runtime import TASK, Served, Service, record, running_service
from tests.support.waiting import stays, until

from osgym_cli.drain import drain as drain_command
from osgym_host.episodes.draining import DrainController
from osgym_protocol.host_api import Notice
from osgym_sdk import wire

MARGIN_S = 0.1


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A service with two warm fake replicas."""
    async with running_service(tmp_path, warm=2, max_replicas=4, drain_margin_s=MARGIN_S) as running:
        yield running


async def ask(service: Service, deadline_s: float | None = None) -> wire.HostState:
    """An operator empties the host."""
    answer = await service.http.post("/v1/drain", json={"deadline_s": deadline_s})
    assert answer.status_code == 200, answer.text
    return wire.HostState.from_dict(answer.json())


async def refusal(service: Service) -> httpx.Response:
    """What a create is answered."""
    return await service.http.post("/v1/episodes", json={"request_id": f"q{time.monotonic_ns()}"})


async def told(service: Service, episode: dict[str, Any], seq: int) -> list[Any]:
    """The notice in everything that a client of a running episode hears."""
    path, lease = f"/v1/episodes/{episode['episode_id']}", {"lease": episode["lease"]}
    batch = {"steps": [{"episode_id": episode["episode_id"], **lease, "seq": seq + 1, "actions": ["wait()"]}]}
    return [
        record(await service.step(episode, seq, "click(1,2)")).meta.get("notice"),
        record(await service.http.post("/v1/steps", json=batch)).meta.get("notice"),
        record(await service.http.post(f"{path}/observe", json=lease)).meta.get("notice"),
        (await service.http.get(path)).json().get("notice"),
        (await service.http.post("/v1/leases/renew", json={"leases": [episode["lease"]]}))
        .json()
        .get("notice"),
    ]


async def test_an_operator_empties_a_host_and_takes_it_back(service: Service) -> None:
    """New episodes and forks are refused, running ones are told and go on; afterwards all is as before."""
    episode = await service.create()
    assert await told(service, episode, 1) == [None] * 5

    state = await ask(service)
    assert (state.draining, state.notice, state.capacity.leased) == (True, Notice("operator"), 1)
    refused = await refusal(service)
    assert (refused.status_code, refused.json()["code"]) == (503, "draining")
    assert refused.json()["details"] == {"notice": {"kind": "operator", "deadline": None}}
    assert int(refused.headers["retry-after"]) > 0
    fork = {"request_id": "f", "lease": episode["lease"], "count": 1}
    forked = await service.http.post(f"/v1/episodes/{episode['episode_id']}/fork", json=fork)
    assert (forked.status_code, forked.json()["code"]) == (503, "draining")
    assert await told(service, episode, 3) == [{"kind": "operator", "deadline": None}] * 5
    assert (await service.http.post("/v1/drain")).json()["notice"] == {"kind": "operator", "deadline": None}
    text = (await service.http.get("/metrics")).text
    assert "osgym_draining 1.0" in text
    assert 'osgym_notice{kind="operator"} 1.0' in text
    health = (await service.http.get("/v1/health")).json()
    assert (health["status"], health["draining"], health["notices"]) == ("ok", True, "off")

    again = await ask(service, 600)
    assert again.notice is not None
    assert again.notice.deadline == pytest.approx(time.time() + 600, abs=5)

    for _ in range(2):
        undone = await service.http.delete("/v1/drain")
        assert wire.HostState.from_dict(undone.json()).draining is False
    assert await told(service, episode, 5) == [None] * 5
    await service.create()
    drains = [e["notice"] for e in service.agent.events._ring if e["kind"] == "drain"]
    assert [notice and notice["kind"] for notice in drains] == ["operator", "operator", None]


async def test_those_who_wait_are_refused_at_once(tmp_path: Path) -> None:
    """A client in the queue need not wait for its time to run out before it goes elsewhere."""
    async with running_service(tmp_path, warm=0, max_replicas=1) as service:
        await service.create()
        waiting = asyncio.create_task(refusal(service))
        await until(lambda: service.agent.pool.view().waiting == 1)
        await ask(service)
        async with asyncio.timeout(2):
            answer = await waiting
        assert (answer.status_code, answer.json()["code"]) == (503, "draining")


async def test_what_is_open_at_the_deadline_ends_as_lost(service: Service) -> None:
    """A step in flight, an episode that rests, one in its setup: each gets a typed answer, before the
    deadline; the trajectories are on disk; the host still answers, and serves again if it is kept."""
    acting = await service.create()
    resting = await service.create()
    gate = service.guest_of(acting).agent.step_gate
    gate.clear()
    step = asyncio.create_task(service.step(acting, 1, "click(1,2)"))
    await until(lambda: service.guest_of(acting).agent.steps_begun == 1)
    await until(lambda: service.agent.pool.view().ready >= 1)
    for clean in service.runtime.alive.values():
        clean.agent.execute_gate.clear()
    setup = asyncio.create_task(service.http.post("/v1/episodes", json={"request_id": "s", "task": TASK}))
    await until(lambda: any(one.agent.commands for one in service.runtime.alive.values()))

    deadline = time.time() + 0.4
    service.agent.drain.update("aws", Notice("terminate", deadline))
    async with asyncio.timeout(5):
        lost, being_made = await step, await setup
    assert deadline - MARGIN_S <= time.time() < deadline
    assert (lost.status_code, lost.json()["code"]) == (410, "episode_lost")
    assert lost.json()["details"]["cause"] == "host_going"
    assert (being_made.status_code, being_made.json()["code"]) == (503, "draining")
    late = await service.step(resting, 1, "click(1,2)")
    assert (late.status_code, late.json()["details"]["cause"]) == (410, "host_going")
    path = f"/v1/episodes/{resting['episode_id']}"
    state = wire.EpisodeState.from_dict((await service.http.get(path)).json())
    assert (state.state, state.termination_reason) == ("ended", "host_lost")
    trajectory = (await service.http.get(f"{path}/trajectory")).content
    assert [line.meta["kind"] for line in wire.RecordDecoder().feed(trajectory)] == ["start", "end"]
    await until(lambda: not service.runtime.alive)

    kept = await service.http.delete("/v1/drain")
    assert (kept.status_code, kept.json()["code"]) == (409, "draining")
    service.agent.drain.update("aws", None)
    await service.create()


async def test_a_host_without_a_deadline_waits_for_its_clients(service: Service) -> None:
    """Nothing ends by itself; and a deadline that has passed already ends at once."""
    episode = await service.create()
    await ask(service)
    await asyncio.sleep(3 * MARGIN_S)
    assert record(await service.step(episode, 1, "wait()")).meta["notice"]["deadline"] is None
    await ask(service, 0)
    await until(lambda: service.agent.pool.view().leased == 0)
    assert (await service.step(episode, 2, "wait()")).json()["details"]["cause"] == "host_going"


async def test_the_wall_clock_decides(service: Service) -> None:
    """By another clock, which jumps as clocks that are set do: nothing before its time, all after it."""
    now = 1000.0
    agent = service.agent
    drain = DrainController(
        pool=agent.pool,
        episodes=agent.episodes,
        margin_s=5,
        clock=lambda: now,
    )
    drain.start()
    await service.create()
    drain.update("gcp", Notice("preempted", 1030.0))
    now = 1024.9
    drain.update("operator", Notice("operator", 2000.0))
    await stays(lambda: len(agent.episodes.active()) == 1, 0.05)
    now = 1025.0
    await until(lambda: not agent.episodes.active())
    await drain.close()
    drain.update("gcp", None)
    drain.update("operator", None)
    assert (await refusal(service)).status_code == 503, "one that is closed changes nothing"
    agent.pool.resume()


async def test_the_osgym_api_keeps_its_shapes(service: Service) -> None:
    """No field is added to what their clients know; a refusal is one of theirs."""
    made = await service.http.post("/reset", json={"task_config": TASK, "timeout": 60})
    vm_id = made.json()["vm_id"]
    await ask(service)
    answer = (await service.http.post("/step", json={"action": "click(1,2)", "vm_id": vm_id})).json()
    assert set(answer) == {"screenshot", "is_finish", "reward"}
    refused = await service.http.post("/reset", json={"task_config": TASK, "timeout": 60})
    assert (refused.status_code, set(refused.json())) == (400, {"message", "code"})


async def test_stopping_is_not_undone(tmp_path: Path) -> None:
    """A host agent that ends hands out nothing, whatever notices come or go."""
    async with running_service(tmp_path, warm=1, max_replicas=2) as service:
        await ask(service)
        service.agent.begin_stop()
        await service.http.delete("/v1/drain")
        answer = await refusal(service)
        assert (answer.status_code, answer.json()["code"]) == (503, "shutting_down")


def test_the_command(tmp_path: Path) -> None:
    """`osgym host drain`: says what is, waits until the host is empty, takes it back."""
    run = CliRunner()
    with Served(tmp_path, warm=1, max_replicas=2, drain_margin_s=0) as served:
        url = ("--host", served.urls[0])
        body = {"request_id": "q", "lease_ttl_s": 60}
        httpx.post(f"{served.urls[0]}/v1/episodes", json=body, timeout=20).raise_for_status()
        begun = run.invoke(drain_command, [*url])
        assert (begun.exit_code, begun.output) == (0, "draining (operator), 1 replicas in use\n")
        began = time.monotonic()
        waited = run.invoke(drain_command, [*url, "--deadline-s", "0.5", "--wait"])
        assert (waited.exit_code, time.monotonic() - began > 0.4) == (0, True), waited.output
        assert waited.output == "draining (operator, 0 s left), 0 replicas in use\n"
        undone = run.invoke(drain_command, [*url, "--stop"])
        assert undone.output == "serving, 0 replicas in use\n"
        assert run.invoke(drain_command, [*url, "--stop", "--wait"]).exit_code == 2
