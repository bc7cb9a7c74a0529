"""Host API v1: shapes, codes, sequence numbers, leases, batches, and that nothing acts twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support import fake_guest
from tests.support.fake_guest import PNG
from tests.support.fake_runtime import TASK, Served, Service, record, running_service, until

from osgym_host.core.reasons import Reason
from osgym_host.runtimes import base
from osgym_protocol import limits
from osgym_protocol.host_api import CLIENT_HEADER
from osgym_sdk import wire

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A service with one warm fake replica."""
    async with running_service(tmp_path, warm=1, max_replicas=4) as running:
        yield running


def error(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of an error, whose shape is checked."""
    info = wire.ErrorInfo.from_dict(answer.json())
    assert info.message
    assert set(answer.json()) == {"code", "message", "details"}
    return answer.status_code, info.code


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


@pytest.mark.parametrize("code", ["answer_lost", "unauthorized", "body_too_large", "transaction_failed"])
async def test_what_is_between_host_and_guest_is_not_the_clients_fault(service: Service, code: str) -> None:
    """The episode is lost with its cause; the client is not told that its request was bad."""
    episode = await service.create()
    service.guest_of(episode).agent.refuses = code
    answer = await service.step(episode, 1, "click(1,2)")
    assert error(answer) == (410, "episode_lost")
    assert answer.json()["details"]["cause"] == "guest_protocol"


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


@pytest.mark.parametrize(
    ("how", "cause"),
    [(base.ExitReason.KILLED, "guest_dead"), (base.ExitReason.OUT_OF_MEMORY, "out_of_memory")],
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


async def test_undoing_a_request(service: Service) -> None:
    """Done, waiting, or still to come: it holds nothing afterwards; unknown ids are fine."""
    done = await service.create(request_id="done")
    assert (await service.http.delete("/v1/requests/done")).status_code == 204
    assert error(await service.step(done, 1, "wait()")) == (409, "cancelled")
    assert (await service.http.delete("/v1/requests/early")).status_code == 204
    early = await service.http.post("/v1/episodes", json={"request_id": "early"})
    assert error(early) == (409, "cancelled")
    waiting = asyncio.create_task(
        service.http.post("/v1/episodes", json={"request_id": "setup", "task": _slow_task(service)})
    )
    await until(lambda: any(r.agent.commands for r in service.runtime.alive.values()))
    assert (await service.http.delete("/v1/requests/setup")).status_code == 204
    assert error(await waiting) == (409, "cancelled")
    await until(lambda: service.agent.pool.view().leased == 0)


def _slow_task(service: Service) -> dict[str, Any]:
    """A task whose set-up hangs on every replica that is alive now."""
    for replica in service.runtime.alive.values():
        replica.agent.execute_gate.clear()
    return TASK


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


@pytest.mark.parametrize(
    ("task", "status", "code"),
    [
        ({"id": "x"}, 422, "task_invalid"),
        ({**TASK, "evaluator": {"func": "no_such_metric"}}, 422, "task_unsupported"),
        ({**TASK, "config": [{"type": "execute", "parameters": {"command": ["fail"]}}]}, 424, "setup_failed"),
        *(
            (
                {
                    **TASK,
                    "config": [{"type": "download", "parameters": {"files": [{"url": url, "path": "x"}]}}],
                },
                422,
                "task_invalid",
            )
            for url in ("http://a/\0", "http://a:99999/", "http://" + "a" * 300)
        ),
    ],
)
async def test_what_is_wrong_with_a_task_is_said(
    service: Service, task: dict[str, Any], status: int, code: str
) -> None:
    """And nothing stays leased."""
    answer = await service.http.post("/v1/episodes", json={"request_id": "q", "task": task})
    assert error(answer) == (status, code)
    await until(lambda: service.agent.pool.view().leased == 0)


def _failing_setup(*commands: list[str]) -> dict[str, Any]:
    """The task with other setup steps: `["status", "3", "oops"]` ends with 3 and says so."""
    return {**TASK, "config": [{"type": "execute", "parameters": {"command": c}} for c in commands]}


async def test_a_setup_step_whose_command_fails_is_a_warning(service: Service) -> None:
    """The episode begins, as in OSWorld; the answer names the step, also when the create is repeated."""
    task = _failing_setup(["fine"], ["status", "3", "x" * 5000 + "oops"], ["status", "-9", ""])
    answer = await service.http.post("/v1/episodes", json={"request_id": "q", "task": task})
    created = wire.CreateAnswer.from_dict(record(answer).meta)
    first, second = created.setup_warnings
    assert (first.step, first.type, first.exit_status) == (1, "execute", 3)
    assert first.what.startswith("status 3 xxx")
    assert len(first.what) == limits.MAX_WARNING_COMMAND_CHARS
    assert first.stderr.endswith("oops")
    assert len(first.stderr) == limits.MAX_WARNING_STDERR_CHARS
    assert second == wire.SetupWarning(2, "execute", "status -9 ''", -9, "")
    again = await service.http.post("/v1/episodes", json={"request_id": "q", "task": task})
    assert wire.CreateAnswer.from_dict(record(again).meta).setup_warnings == created.setup_warnings
    stream = await service.http.get(f"/v1/episodes/{created.episode_id}/trajectory")
    start = next(iter(wire.RecordDecoder().feed(stream.content))).meta
    assert [warning["exit_status"] for warning in start["setup_warnings"]] == [3, -9]
    many = _failing_setup(*[["status", "1", ""]] * (limits.MAX_SETUP_WARNINGS + 5))
    assert len((await service.create(task=many))["setup_warnings"]) == limits.MAX_SETUP_WARNINGS


async def test_strict_setup_refuses_what_is_a_warning_else(service: Service) -> None:
    """At the first one, with the warning; nothing stays leased, later steps are not carried out."""
    task = _failing_setup(["status", "3", "oops"], ["later"])
    body = {"request_id": "q", "task": task, "strict_setup": True}
    answer = await service.http.post("/v1/episodes", json=body)
    assert error(answer) == (424, "setup_failed")
    details = answer.json()["details"]
    assert details["setup_warnings"] == [
        {"step": 0, "type": "execute", "what": "status 3 oops", "exit_status": 3, "stderr": "oops"}
    ]
    await until(lambda: service.agent.pool.view().leased == 0)
    assert not any(["later"] in replica.agent.commands for replica in service.runtime.alive.values())
    assert (await service.create(task=TASK, strict_setup=True))["setup_warnings"] == []


async def test_an_evaluation_that_cannot_be_made_has_no_reward(service: Service) -> None:
    """Absent, with error and class; never 0."""
    broken = {**TASK["evaluator"], "expected": {"type": "rule", "rules": {}}}
    episode = await service.create(task={**TASK, "evaluator": broken})
    path = f"/v1/episodes/{episode['episode_id']}/evaluate"
    answer = wire.EvaluationAnswer.from_dict(
        (await service.http.post(path, json={"lease": episode["lease"]})).json()
    )
    assert answer.reward is None
    assert answer.error is not None
    assert answer.error_class is not None
    assert not answer.valid_for_training
    untasked = await service.create()
    path = f"/v1/episodes/{untasked['episode_id']}/evaluate"
    assert error(await service.http.post(path, json={"lease": untasked["lease"]})) == (422, "task_invalid")


async def test_an_episode_ends_by_its_evaluation(service: Service) -> None:
    """No step follows: the check changes the desktop, and the score is that of the end."""
    episode = await service.create(task=TASK)
    await service.step(episode, 1, "click(1,1)")
    path = f"/v1/episodes/{episode['episode_id']}"
    assert (await service.http.get(path)).json()["evaluated"] is False
    first = await service.http.post(f"{path}/evaluate", json={"lease": episode["lease"]})
    for seq in (2, 3):
        refused = await service.step(episode, seq, "click(2,2)")
        assert error(refused) == (409, "episode_ended")
        assert refused.json()["details"] == {"evaluated": True}
    again = record(await service.step(episode, 1, "click(1,1)")).meta
    assert (again["step"], again["observation"]["replayed"]) == (1, True)
    guest = service.guest_of(episode).agent
    assert [action["x"] for action in guest.acted] == [1]
    state = wire.EpisodeState.from_dict((await service.http.get(path)).json())
    assert (state.state, state.last_seq, state.evaluated) == ("active", 1, True)
    assert (
        await service.http.post(f"{path}/evaluate", json={"lease": episode["lease"]})
    ).json() == first.json()
    assert record(await service.http.post(f"{path}/observe", json={"lease": episode["lease"]})).blob == PNG


async def test_a_lost_answer_scores_nothing_twice(service: Service) -> None:
    """The check goes on without the one who asked; who asks again gets its answer, and no step slips in."""
    episode = await service.create(task=TASK)
    path, body = f"/v1/episodes/{episode['episode_id']}/evaluate", {"lease": episode["lease"]}
    guest = service.guest_of(episode).agent
    guest.execute_gate.clear()
    gone = asyncio.create_task(service.http.post(path, json=body))
    await until(lambda: ["answer"] in guest.commands)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    late = asyncio.create_task(service.step(episode, 1, "click(1,1)"))
    asked = [asyncio.create_task(service.http.post(path, json=body)) for _ in range(3)]
    await asyncio.sleep(0.1)
    guest.execute_gate.set()
    answers = [(await one).json() for one in asked]
    assert answers[0]["reward"] == 1.0
    assert answers == [answers[0]] * 3
    assert error(await late) == (409, "episode_ended")
    assert guest.commands.count(["answer"]) == 1
    assert guest.acted == []
    assert (await service.http.post(path, json=body)).json() == answers[0]


async def test_a_step_before_the_evaluation_is_part_of_it(service: Service) -> None:
    """A step that was accepted, and whose answer nobody saw, is carried out before the check."""
    episode = await service.create(task=TASK)
    guest = service.guest_of(episode).agent
    guest.step_gate.clear()
    step = asyncio.create_task(service.step(episode, 1, "click(1,1)"))
    await until(lambda: guest.steps_begun == 1)
    path = f"/v1/episodes/{episode['episode_id']}/evaluate"
    check = asyncio.create_task(service.http.post(path, json={"lease": episode["lease"]}))
    await asyncio.sleep(0.05)
    assert ["answer"] not in guest.commands
    guest.step_gate.set()
    assert record(await step).meta["step"] == 1
    assert (await check).json()["reward"] == 1.0


async def test_a_replica_that_dies_under_setup_is_replaced_by_another(service: Service) -> None:
    """The client notices the time only."""
    await until(lambda: service.agent.pool.view().ready == 1)
    task = _slow_task(service)
    creating = asyncio.create_task(service.create(task=task))
    await until(lambda: any(r.agent.commands for r in service.runtime.alive.values()))
    next(r for r in service.runtime.alive.values() if r.agent.commands).die()
    episode = await creating
    assert episode["generation"] > 1
    assert record(await service.step(episode, 1, "wait()")).meta["step"] == 1


async def test_unknown_paths_methods_and_bodies(service: Service) -> None:
    """One shape for all."""
    assert error(await service.http.get("/v1/nothing")) == (404, "not_found")
    assert error(await service.http.put("/v1/host"))[0] == 405
    answer = await service.http.post("/v1/episodes", content=b"{nope")
    assert error(answer) == (422, "bad_request")
    answer = await service.http.post("/v1/episodes", json={"request_id": "q", "wiat_s": 3})
    assert error(answer) == (422, "bad_request")
    assert "wiat_s" in answer.json()["message"]


async def test_the_host_shows_itself(service: Service) -> None:
    """Host, replicas, screenshot, events, metrics, health."""
    episode = await service.create()
    host = wire.HostState.from_dict((await service.http.get("/v1/host")).json())
    assert (host.runtime, host.capacity.leased, host.image.flavor) == ("fake", 1, "small")
    (row,) = [
        r for r in (await service.http.get("/v1/replicas")).json() if r["episode_id"] == episode["episode_id"]
    ]
    assert (row["state"], row["generation"]) == ("leased", episode["generation"])
    shot = await service.http.get(f"/v1/replicas/{episode['replica_id']}/screenshot")
    assert (shot.headers["content-type"], shot.content) == ("image/png", PNG)
    assert error(await service.http.get("/v1/replicas/nope/screenshot")) == (404, "not_found")
    events = (await service.http.get("/v1/events")).json()
    assert {"replica", "episode"} <= {e["kind"] for e in events["events"]}
    later = (await service.http.get(f"/v1/events?after={events['last_id']}&wait_s=0.05")).json()
    assert later["events"] == []
    record(await service.step(episode, 1, "wait()"))
    text = (await service.http.get("/metrics")).text
    assert 'osgym_replicas{state="leased"} 1.0' in text
    assert "osgym_steps_total 1.0" in text
    assert (await service.http.get("/v1/health")).json()["status"] == "ok"


async def test_stopping_ends_long_waits_and_episodes(tmp_path: Path) -> None:
    """Who waits is told; a held episode is lost with the cause."""
    async with running_service(tmp_path, warm=0, max_replicas=1) as service:
        held = await service.create()
        waiting = asyncio.create_task(service.http.post("/v1/episodes", json={"request_id": "w"}))
        poll = asyncio.create_task(service.http.get("/v1/events?after=1000&wait_s=60"))
        await asyncio.sleep(0.05)
        service.agent.begin_stop()
        assert error(await waiting) == (503, "shutting_down")
        assert (await poll).status_code == 200
        await service.agent.episodes.close()
        answer = await service.step(held, 1, "wait()")
        assert (answer.status_code, answer.json()["details"]["cause"]) == (410, Reason.SHUTDOWN.value)


@pytest.mark.parametrize(
    ("settings", "address", "headers", "path", "status"),
    [
        ({}, "127.0.0.1", {}, "/v1/host", 200),
        ({}, "::1", {}, "/v1/host", 200),
        ({}, "10.0.0.9", {}, "/v1/host", 403),
        ({}, "127.0.0.1", {"Origin": "http://evil.example"}, "/v1/host", 403),
        ({}, "127.0.0.1", {"Host": "evil.example"}, "/v1/host", 403),
        ({"token": "s"}, "127.0.0.1", {}, "/v1/host", 401),
        ({"token": "s"}, "10.0.0.9", {"Authorization": "Bearer x"}, "/v1/host", 401),
        ({"token": "s"}, "10.0.0.9", {"Authorization": "Bearer s"}, "/v1/host", 200),
        ({"token": "s"}, "10.0.0.9", {}, "/v1/health", 200),
        ({"token": "s"}, "10.0.0.9", {}, "/metrics", 401),
        ({"token": "s"}, "10.0.0.9", {}, "/openapi.json", 401),
        ({"token": "s"}, "10.0.0.9", {}, "/screenshot?vmId=1", 403),
        ({"token": "s"}, "10.0.0.9", {"Authorization": "Bearer s"}, "/screenshot?vmId=1", 400),
        ({"allowed_ips": ["10.0.0.0/8"]}, "10.0.0.9", {}, "/screenshot?vmId=1", 400),
        ({"allowed_ips": ["10.0.0.0/8"]}, "::ffff:10.0.0.9", {}, "/screenshot?vmId=1", 400),
        ({"allowed_ips": ["10.0.0.0/8"]}, "10.0.0.9", {}, "/v1/host", 403),
        ({"allowed_ips": ["10.0.0.0/8"]}, "11.0.0.9", {}, "/screenshot?vmId=1", 403),
        ({"allowed_ips": ["10.0.0.0/8"]}, "127.0.0.1", {}, "/screenshot?vmId=1", 403),
    ],
)
async def test_who_may_call(
    tmp_path: Path, settings: dict[str, Any], address: str, headers: dict[str, str], path: str, status: int
) -> None:
    """Token for v1, addresses for the OSGym API, this machine where nothing is configured, no web pages."""
    async with running_service(tmp_path, address=address, warm=0, **settings) as service:
        answer = await service.http.get(path, headers=headers)
        assert answer.status_code == status


def test_a_client_that_goes_away_while_it_waits_frees_what_it_got(tmp_path: Path) -> None:
    """Over a real connection: the set-up is broken off, the replica replaced, nothing stays leased."""
    with Served(tmp_path, warm=1, max_replicas=1) as served:
        import time

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


async def test_the_committed_openapi_is_true(service: Service) -> None:
    """`host_agent/openapi.json` is what the service says; every call of v1 and OSGym is in it."""
    schema = (await service.http.get("/openapi.json")).json()
    committed = json.loads((ROOT / "host_agent" / "openapi.json").read_text())
    assert schema == committed, "write it anew: osgym openapi > host_agent/openapi.json"
    calls = {f"{method.upper()} {path}" for path, item in schema["paths"].items() for method in item}
    assert {
        "POST /v1/episodes",
        "POST /v1/episodes/{episode_id}/step",
        "POST /v1/steps",
        "POST /v1/episodes/{episode_id}/observe",
        "POST /v1/episodes/{episode_id}/final",
        "POST /v1/episodes/{episode_id}/evaluate",
        "POST /v1/episodes/{episode_id}/fork",
        "POST /v1/episodes/{episode_id}/checkpoint",
        "GET /v1/checkpoints",
        "DELETE /v1/checkpoints/{checkpoint_id}",
        "GET /v1/checkpoints/{checkpoint_id}/export",
        "POST /v1/checkpoints/import",
        "GET /v1/episodes/{episode_id}",
        "GET /v1/episodes/{episode_id}/trajectory",
        "DELETE /v1/episodes/{episode_id}",
        "DELETE /v1/requests/{request_id}",
        "POST /v1/leases/renew",
        "GET /v1/host",
        "GET /v1/events",
        "POST /reset",
        "POST /step",
        "POST /shutdown",
        "GET /screenshot",
    } <= calls
    step = schema["paths"]["/v1/episodes/{episode_id}/step"]["post"]
    assert step["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("StepBody")
    assert wire.RECORDS_TYPE in step["responses"]["200"]["content"]


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


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/reset", '{"task_config": {}, "timeout": %s}' % ("9" * 400), 400),
        ("/v1/episodes/x/step", '{"lease": "x", "seq": true, "actions": []}', 422),
        ("/v1/episodes/x/step", '{"lease": "x", "seq": "1", "actions": []}', 422),
        ("/v1/episodes/x/step", '{"lease": "\\ud800", "seq": 1, "actions": []}', 422),
        ("/v1/episodes", '{"request_id": "q", "wait_s": NaN}', 422),
        ("/v1/episodes", '{{"request_id": "q", "task": {}1{}}}'.format('{"a":' * 5000, "}" * 5000), 422),
    ],
)
async def test_strange_json_is_refused(service: Service, path: str, body: str, status: int) -> None:
    """Huge, half, nested and almost right: an answer of the API's own, and nothing was taken."""
    answer = await service.http.post(path, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert service.agent.pool.view().leased == 0


async def test_a_desktop_may_be_idle_for_as_long_as_anyone_likes(service: Service) -> None:
    """An idle time that no float can hold is as good as the longest."""
    body = '{{"task_config": {}, "timeout": {}}}'.format(json.dumps(TASK), "9" * 400)
    answer = await service.http.post("/reset", content=body)
    assert answer.status_code == 200
