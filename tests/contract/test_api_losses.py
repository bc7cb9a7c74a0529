"""Host API v1: what dies, lies or goes away costs its own episode only, with a typed cause."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support import fake_guest
from tests.support.api_answers import error
from tests.support.fake_runtime import TASK, Served, Service, record, running_service, slow_task
from tests.support.waiting import until

from osgym_host.core.reasons import Reason
from osgym_host.runtimes import base
from osgym_host.server import GRACE_S, TELL_S
from osgym_sdk import wire


@pytest.mark.parametrize("code", ["answer_lost", "unauthorized", "body_too_large", "transaction_failed"])
async def test_what_is_between_host_and_guest_is_not_the_clients_fault(service: Service, code: str) -> None:
    """The episode is lost with its cause; the client is not told that its request was bad."""
    episode = await service.create()
    service.guest_of(episode).agent.refuses = code
    answer = await service.step(episode, 1, "click(1,2)")
    assert error(answer) == (410, "episode_lost")
    assert answer.json()["details"]["cause"] == "guest_protocol"


@pytest.mark.parametrize("code", ["internal", "body_too_large", "transaction_failed"])
async def test_a_guest_that_fails_while_it_looks_is_no_fault_of_the_host(service: Service, code: str) -> None:
    """The episode is lost with its cause, as with a step: never a 500 by what a guest says."""
    episode = await service.create()
    agent = service.guest_of(episode).agent
    agent.refuses, agent.refused_paths = code, frozenset({"/v1/observe"})
    path = f"/v1/episodes/{episode['episode_id']}/observe"
    answer = await service.http.post(path, json={"lease": episode["lease"]})
    assert error(answer) == (410, "episode_lost")
    assert answer.json()["details"]["cause"] == "guest_protocol"


async def test_a_guest_that_refuses_to_say_how_far_it_is_is_lost(service: Service) -> None:
    """It takes no step and does not say why: a loss with a cause, not a fault of the host."""
    episode = await service.create()
    agent = service.guest_of(episode).agent
    agent.refuses, agent.refused_paths = "bad_sequence", frozenset({"/v1/step", "/v1/health"})
    answer = await service.step(episode, 1, "click(1,2)")
    assert error(answer) == (410, "episode_lost")
    assert answer.json()["details"]["cause"] == "guest_protocol"


@pytest.mark.parametrize(
    ("how", "cause"),
    [(base.ExitReason.KILLED, "killed"), (base.ExitReason.HOST_OUT_OF_MEMORY, "host_out_of_memory")],
)
async def test_a_replica_that_dies_in_mid_step_is_a_typed_loss(
    service: Service, how: base.ExitReason, cause: str
) -> None:
    """410 with the cause at once, now and later; replaced; an evaluation gives no reward of 0."""
    episode = await service.create(task=TASK)
    guest = service.guest_of(episode)
    guest.agent.step_gate.clear()
    step = asyncio.create_task(service.step(episode, 1, "click(1,2)"))
    await until(lambda: guest.agent.steps_begun == 1)
    guest.die(how)
    answer = await step
    assert error(answer) == (410, "episode_lost")
    assert answer.json()["details"]["cause"] == cause
    assert error(await service.step(episode, 2, "wait()")) == (410, "episode_lost")
    path = f"/v1/episodes/{episode['episode_id']}"
    verdict = await service.http.post(f"{path}/evaluate", json={"lease": episode["lease"]})
    assert error(verdict) == (410, "episode_lost")
    state = wire.EpisodeState.from_dict((await service.http.get(path)).json())
    assert (state.state, state.termination_reason) == ("ended", "replica_lost")
    assert state.error is not None
    await until(lambda: service.agent.pool.view().ready == 1)


async def test_nonsense_from_a_guest_loses_the_replica_only(service: Service) -> None:
    """Neighbours notice nothing."""
    bad, good = await service.create(), await service.create()
    service.guest_of(bad).agent.nonsense = True
    answer = await service.step(bad, 1, "wait()")
    assert (answer.status_code, answer.json()["details"]["cause"]) == (410, "guest_protocol")
    assert record(await service.step(good, 1, "wait()")).meta["step"] == 1


@pytest.mark.parametrize(
    ("place", "text"),
    [("hash", '"\\ud800"'), ("t_ms", "1e999"), ("t_ms", "9" * 400), ("width", "9" * 5000)],
    ids=["half a character", "infinity", "no float", "no int"],
)
async def test_what_cannot_be_passed_on_loses_the_replica_only(
    service: Service, monkeypatch: pytest.MonkeyPatch, place: str, text: str
) -> None:
    """Half a surrogate pair and numbers that are none are JSON to a careless reader."""
    episode = await service.create()
    agent = service.guest_of(episode).agent
    frame = agent.frame

    def marked(seq: int, observe: Any) -> dict[str, Any]:
        meta = frame(seq, observe)
        meta["frame"][place] = "@"
        return meta

    def hostile(meta: dict[str, Any], blob: bytes) -> bytes:
        encoded = json.dumps(meta).replace('"@"', text).encode()
        return len(encoded).to_bytes(4, "big") + len(blob).to_bytes(4, "big") + encoded + blob

    with monkeypatch.context() as patch:
        patch.setattr(fake_guest, "encode_record", hostile)
        patch.setattr(agent, "frame", marked)
        answer = await service.step(episode, 1, "wait()")
    assert error(answer) == (410, "episode_lost")
    assert answer.json()["details"]["cause"] == "guest_protocol"
    assert record(await service.step(await service.create(), 1, "wait()")).meta["step"] == 1


async def test_a_refusal_in_half_a_character_is_passed_on(service: Service) -> None:
    """What a guest says of a refused action may hold half a surrogate pair; the client gets the rest."""
    episode = await service.create()
    agent = service.guest_of(episode).agent
    agent.refuse_steps_with = "half \ud800"
    answer = await service.step(episode, 1, "click(1,2)")
    assert error(answer) == (400, "invalid_action")
    assert answer.json()["message"] == "half ?"


async def test_a_replica_that_dies_under_setup_is_replaced_by_another(service: Service) -> None:
    """The client notices the time only."""
    await until(lambda: service.agent.pool.view().ready == 1)
    task = slow_task(service)
    creating = asyncio.create_task(service.create(task=task))
    await until(lambda: any(r.agent.commands for r in service.runtime.alive.values()))
    next(r for r in service.runtime.alive.values() if r.agent.commands).die()
    episode = await creating
    assert episode["generation"] > 1
    assert record(await service.step(episode, 1, "wait()")).meta["step"] == 1


async def test_stopping_ends_long_waits_and_episodes(tmp_path: Path) -> None:
    """Who waits is told; a held episode is lost with the cause."""
    async with running_service(tmp_path, warm=0, max_replicas=1) as service:
        held = await service.create()
        waiting = asyncio.create_task(service.http.post("/v1/episodes", json={"request_id": "w"}))
        poll = asyncio.create_task(service.http.get("/v1/events?after=1000&wait_s=60"))
        await until(lambda: service.agent.pool.view().waiting == 1)
        service.agent.begin_stop()
        assert error(await waiting) == (503, "shutting_down")
        assert (await poll).status_code == 200
        await service.agent.episodes.close()
        answer = await service.step(held, 1, "wait()")
        assert (answer.status_code, answer.json()["details"]["cause"]) == (410, Reason.SHUTDOWN.value)


def test_a_client_that_goes_away_while_it_waits_frees_what_it_got(tmp_path: Path) -> None:
    """Over a real connection: the set-up is broken off, the replica replaced, nothing stays leased."""
    with Served(tmp_path, warm=1, max_replicas=1) as served:
        until_s = time.monotonic() + 10
        while not served.runtime.alive:
            assert time.monotonic() < until_s
            time.sleep(0.01)
        first = next(iter(served.runtime.alive.values()))
        served.loop.call_soon_threadsafe(first.agent.execute_gate.clear)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{served.urls[0]}/v1/episodes", json={"request_id": "q", "task": TASK}, timeout=0.5)
        while first.replica_id in served.runtime.alive:
            assert time.monotonic() < until_s
            time.sleep(0.01)
        answer = httpx.post(f"{served.urls[0]}/v1/episodes", json={"request_id": "q2"}, timeout=10)
        assert record(answer).meta["generation"] > first.generation
        state = httpx.get(f"{served.urls[0]}/v1/host", timeout=10).json()
        assert state["capacity"]["leased"] == 1


def test_a_call_that_outlasts_a_stop_is_told_why(tmp_path: Path) -> None:
    """It is lost by the shutdown, within the grace of the server; not a failure of the host."""
    with Served(tmp_path, warm=1, max_replicas=1) as served, ThreadPoolExecutor(1) as pool:
        answer = httpx.post(f"{served.urls[0]}/v1/episodes", json={"request_id": "q"}, timeout=10)
        episode = record(answer).meta
        (replica,) = served.runtime.alive.values()
        served.loop.call_soon_threadsafe(replica.agent.step_gate.clear)
        step = pool.submit(
            httpx.post,
            f"{served.urls[0]}/v1/episodes/{episode['episode_id']}/step",
            json={"lease": episode["lease"], "seq": 1, "actions": ["wait()"]},
            timeout=30,
        )
        until_s = time.monotonic() + 10
        while not replica.agent.steps_begun:
            assert time.monotonic() < until_s
            time.sleep(0.01)
        began = time.monotonic()
        served.server.should_exit = True
        lost = step.result(30)
        assert time.monotonic() - began >= GRACE_S - TELL_S
    assert (error(lost), lost.json()["details"]["cause"]) == ((410, "episode_lost"), Reason.SHUTDOWN.value)
