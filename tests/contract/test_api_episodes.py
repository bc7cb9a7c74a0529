"""Host API v1: an episode from its creation to its end: shapes, sequence numbers, leases, batches."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.support.api_answers import error
from tests.support.fake_guest import PNG
from tests.support.fake_runtime import TASK, Service, record
from tests.support.waiting import until

from osgym_sdk import wire


async def test_a_whole_episode_in_the_words_of_the_wire(service: Service) -> None:
    """Create, step, observe, final, evaluate, state, close: each answer is what `osgym_sdk.wire` says."""
    answer = await service.http.post("/v1/episodes", json={"request_id": "q", "task": TASK})
    made = record(answer)
    created = wire.CreateAnswer.from_dict(made.meta)
    assert made.blob == PNG
    assert created.screen == (1920, 1080)
    assert set(created.timing_ms) == {"wait", "setup", "observe", "total"}
    assert service.guest_of(made.meta).agent.commands == [["prepare"]]

    step = record(await service.step(made.meta, 1, "click(1,2) & type(x)"))
    stepped = wire.StepAnswer.from_dict(step.meta)
    assert step.blob == PNG
    assert (stepped.step, stepped.done) == (1, None)
    assert stepped.actions == ({"op": "click", "x": 1, "y": 2}, {"op": "type", "text": "x"})
    assert stepped.timing_ms["host"] >= stepped.timing_ms["guest"] > 0

    path = f"/v1/episodes/{created.episode_id}"
    looked = record(await service.http.post(f"{path}/observe", json={"lease": created.lease}))
    assert wire.StepAnswer.from_dict(looked.meta).observation is not None
    body = {"lease": created.lease, "seq": 1, "timeout_ms": 100}
    final = wire.StepAnswer.from_dict(record(await service.http.post(f"{path}/final", json=body)).meta)
    assert final.observation is not None
    assert final.observation.final is True

    end = wire.StepAnswer.from_dict(record(await service.step(made.meta, 2, "finish()")).meta)
    assert end.done is wire.Done.DONE
    verdict = await service.http.post(f"{path}/evaluate", json={"lease": created.lease})
    evaluation = wire.EvaluationAnswer.from_dict(verdict.json())
    assert (evaluation.reward, evaluation.termination_reason) == (1.0, "done")
    assert evaluation.valid_for_training
    assert service.guest_of(made.meta).agent.released == 1
    again = await service.http.post(f"{path}/evaluate", json={"lease": created.lease})
    assert again.json() == verdict.json()

    state = wire.EpisodeState.from_dict((await service.http.get(path)).json())
    assert (state.state, state.step, state.last_seq, state.task_id) == ("active", 2, 2, "say-yes")
    for _ in range(2):
        closed = await service.http.delete(path, headers={wire.LEASE_HEADER: created.lease})
        assert closed.status_code == 204
    state = wire.EpisodeState.from_dict((await service.http.get(path)).json())
    assert (state.state, state.termination_reason, state.error) == ("ended", "done", None)


async def test_the_trajectory_tells_the_whole_story(service: Service) -> None:
    """Start, every step with its frame, evaluation, end."""
    episode = await service.create(task=TASK)
    await service.step(episode, 1, "click(1,2)")
    await service.step(episode, 1, "click(1,2)")
    path = f"/v1/episodes/{episode['episode_id']}"
    await service.http.post(f"{path}/evaluate", json={"lease": episode["lease"]})
    await service.http.delete(path, headers={wire.LEASE_HEADER: episode["lease"]})
    answer = await service.http.get(f"{path}/trajectory")
    lines = list(wire.RecordDecoder().feed(answer.content))
    assert [line.meta["kind"] for line in lines] == ["start", "step", "evaluation", "end"]
    assert [line.blob for line in lines] == [PNG, PNG, b"", b""]
    assert lines[1].meta["actions"] == [{"op": "click", "x": 1, "y": 2}]
    assert lines[2].meta["reward"] == 1.0


async def test_a_repeated_seq_acts_no_second_time(service: Service) -> None:
    """The stored answer comes back; other numbers are refused and use up nothing."""
    episode = await service.create()
    agent = service.guest_of(episode).agent
    first = record(await service.step(episode, 1, "click(1,2)")).meta
    again = record(await service.step(episode, 1, "click(1,2)")).meta
    assert again["observation"]["replayed"] is True
    assert (again["step"], again["actions"]) == (first["step"], first["actions"])
    assert len(agent.acted) == 1
    assert error(await service.step(episode, 3, "click(1,2)")) == (409, "bad_sequence")
    assert error(await service.step(episode, 1_000_000, "click(1,2)")) == (409, "bad_sequence")
    assert record(await service.step(episode, 2, "click(1,2)")).meta["step"] == 2


async def test_the_same_step_twice_at_once_acts_once(service: Service) -> None:
    """A retry that overtakes its first try waits for it."""
    episode = await service.create()
    agent = service.guest_of(episode).agent
    agent.step_gate.clear()
    both = [asyncio.create_task(service.step(episode, 1, "click(1,2)")) for _ in range(2)]
    await until(lambda: agent.steps_begun == 1)
    agent.step_gate.set()
    assert [answer.status_code for answer in await asyncio.gather(*both)] == [200, 200]
    assert len(agent.acted) == 1


async def test_a_step_that_no_guest_would_take_is_the_clients_fault(service: Service) -> None:
    """Thirty long texts are refused with the bound, use up no number, and cost nobody an episode."""
    episode = await service.create()
    answer = await service.step(episode, 1, *[{"op": "type", "text": "x" * 80_000}] * 30)
    assert error(answer) == (400, "invalid_action")
    assert "1048576" in answer.json()["message"]
    fits = [{"op": "type", "text": "ü" * 80_000}] * 6
    assert record(await service.step(episode, 1, *fits)).meta["step"] == 1
    assert len(service.guest_of(episode).agent.acted) == 6


async def test_a_busy_guest_is_asked_again(service: Service) -> None:
    """It did nothing: the number is still free, and the episode goes on."""
    episode = await service.create()
    agent = service.guest_of(episode).agent
    agent.refuses = "busy"
    assert error(await service.step(episode, 1, "click(1,2)")) == (504, "timeout")
    agent.refuses = ""
    assert record(await service.step(episode, 1, "click(1,2)")).meta["step"] == 1


@pytest.mark.parametrize(
    ("action", "status"),
    [
        ("clack(1,2)", 400),
        ({"op": "click", "x": 1}, 400),
        ("click(1920,1)", 400),
        (5, 422),
        ({"op": "wait", "duration_ms": 10**400}, 400),
        ({"op": "hold", "keys": ["a"], "duration_ms": 10**400}, 400),
    ],
)
async def test_a_refused_step_does_nothing_and_uses_up_no_number(
    service: Service, action: Any, status: int
) -> None:
    """Grammar errors, and what the guest refuses."""
    episode = await service.create()
    answer = await service.step(episode, 1, action)
    assert answer.status_code == status
    assert error(answer)[1] in ("invalid_action", "bad_request")
    assert service.guest_of(episode).agent.acted == []
    assert record(await service.step(episode, 1, "click(1,2)")).meta["step"] == 1


async def test_max_steps_ends_it(service: Service) -> None:
    """The last step says so; one more is refused, evaluation is not."""
    episode = await service.create(task=TASK, max_steps=2)
    assert record(await service.step(episode, 1, "wait()")).meta["done"] is None
    assert record(await service.step(episode, 2, "wait()")).meta["done"] == "max_steps"
    assert error(await service.step(episode, 3, "wait()")) == (409, "episode_ended")
    assert record(await service.step(episode, 2, "wait()")).meta["done"] == "max_steps"
    path = f"/v1/episodes/{episode['episode_id']}/evaluate"
    verdict = (await service.http.post(path, json={"lease": episode["lease"]})).json()
    assert (verdict["reward"], verdict["termination_reason"]) == (1.0, "max_steps")


async def test_leases_are_secrets(service: Service) -> None:
    """Neither steps nor closes without the lease; unknown episodes are told apart."""
    episode = await service.create()
    other = {**episode, "lease": "guess"}
    assert error(await service.step(other, 1, "wait()")) == (403, "lease_mismatch")
    path = f"/v1/episodes/{episode['episode_id']}"
    assert error(await service.http.delete(path)) == (403, "lease_mismatch")
    assert error(await service.http.delete("/v1/episodes/nope")) == (404, "unknown_episode")
    assert record(await service.step(episode, 1, "wait()")).meta["step"] == 1


async def test_a_lease_that_nobody_renews_runs_out(service: Service) -> None:
    """The replica is really destroyed; a renewed one lives on; the lost one is named."""
    kept = await service.create(lease_ttl_s=1)
    lost = await service.create(lease_ttl_s=1)
    for _ in range(5):
        await asyncio.sleep(0.3)
        answer = await service.http.post("/v1/leases/renew", json={"leases": [kept["lease"]]})
        assert answer.json() == {"renewed": [kept["lease"]], "lost": []}
    body = {"leases": [lost["lease"], kept["lease"], "unknown"]}
    renewed = wire.RenewAnswer.from_dict((await service.http.post("/v1/leases/renew", json=body)).json())
    assert renewed.renewed == (kept["lease"],)
    assert [(x.lease, x.error.code) for x in renewed.lost] == [
        (lost["lease"], "lease_expired"),
        ("unknown", "unknown_episode"),
    ]
    assert lost["replica_id"] not in service.runtime.alive
    assert error(await service.step(lost, 1, "wait()")) == (410, "lease_expired")
    assert record(await service.step(kept, 1, "wait()")).meta["step"] == 1


async def test_a_call_in_flight_keeps_the_lease(service: Service) -> None:
    """A step longer than the lease is no reason to lose it."""
    episode = await service.create(lease_ttl_s=1)
    agent = service.guest_of(episode).agent
    agent.step_gate.clear()
    step = asyncio.create_task(service.step(episode, 1, "wait()"))
    await asyncio.sleep(1.5)
    agent.step_gate.set()
    assert (await step).status_code == 200


async def test_a_lost_answer_is_fetched_again_without_acting_twice(service: Service) -> None:
    """The connection to the guest broke after it had acted: the same number brings the answer."""
    episode = await service.create()
    agent = service.guest_of(episode).agent
    record(await service.step(episode, 1, "click(1,2)"))
    agent.drop_next_answer = True
    assert record(await service.step(episode, 2, "click(3,4)")).meta["step"] == 2
    assert [a["x"] for a in agent.acted] == [1, 3]


async def test_the_guest_agent_alone_may_start_anew_between_steps(service: Service) -> None:
    """The desktop and the episode live on; numbers go on for the client."""
    episode = await service.create()
    agent = service.guest_of(episode).agent
    for seq in (1, 2):
        record(await service.step(episode, seq, "click(1,2)"))
    agent.restart()
    for seq in (3, 4):
        meta = record(await service.step(episode, seq, "click(1,2)")).meta
        assert (meta["observation"]["seq"], meta["step"]) == (seq, seq)
    assert len(agent.acted) == 4


async def test_a_batch_answers_each_step_as_it_is_ready(service: Service) -> None:
    """The slow one comes last, the wrong one as an error; all with their index."""
    slow, quick = await service.create(), await service.create()
    gate = service.guest_of(slow).agent.step_gate
    gate.clear()
    asyncio.get_running_loop().call_later(0.2, gate.set)
    steps = [
        {"episode_id": slow["episode_id"], "lease": slow["lease"], "seq": 1, "actions": ["wait()"]},
        {"episode_id": "nope", "lease": "x", "seq": 1, "actions": ["wait()"]},
        {"episode_id": quick["episode_id"], "lease": quick["lease"], "seq": 1, "actions": ["wait()"]},
    ]
    answer = await service.http.post("/v1/steps", json={"steps": steps})
    assert answer.headers["content-type"] == wire.RECORDS_TYPE
    records = list(wire.RecordDecoder().feed(answer.content))
    assert [r.meta["index"] for r in records] == [1, 2, 0]
    parsed = [wire.StepAnswer.from_dict(r.meta) for r in records]
    assert parsed[0].error is not None
    assert parsed[0].error.code == "unknown_episode"
    assert [len(r.blob) for r in records] == [0, len(PNG), len(PNG)]


async def test_the_hot_calls_are_dispatched_by_the_lean_route(service: Service) -> None:
    """No solving of dependencies: a body is JSON whatever its content type says."""
    episode = await service.create()
    body = json.dumps({"lease": episode["lease"], "seq": 1, "actions": ["wait()"]})
    answer = await service.http.post(f"/v1/episodes/{episode['episode_id']}/step", content=body)
    assert record(answer).meta["step"] == 1


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        ([5], 422),
        ([None], 422),
        ([[1]], 422),
        (["wait()", True], 422),
        (["wait()"] * 257, 400),
        ([{"x": [[[]]]}], 400),
    ],
)
async def test_an_action_of_another_type_is_an_invalid_action(
    service: Service, bad: list[Any], status: int
) -> None:
    """Also beside good steps of others in one request: it is its own step's error, and nothing is done."""
    spoilt, good = await service.create(), await service.create()
    assert error(await service.step(spoilt, 1, *bad)) == (status, "invalid_action")
    steps = [
        {"episode_id": episode["episode_id"], "lease": episode["lease"], "seq": 1, "actions": actions}
        for episode, actions in ((spoilt, bad), (good, ["wait()"]))
    ]
    answer = await service.http.post("/v1/steps", json={"steps": steps})
    assert answer.status_code == 200
    metas = {r.meta["index"]: r.meta for r in wire.RecordDecoder().feed(answer.content)}
    assert metas[0]["error"]["code"] == "invalid_action"
    assert metas[1]["step"] == 1
    assert service.guest_of(spoilt).agent.acted == []
    assert record(await service.step(spoilt, 1, "wait()")).meta["step"] == 1
