"""Host API v1: reach past the screen. What a guest says against it is typed; its faults cost it alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from tests.support.api_answers import error
from tests.support.fake_guest import GuestAnswer
from tests.support.fake_runtime import TASK, Service, record
from tests.support.waiting import until

from osgym_host.guest_client import reach as calls
from osgym_protocol.limits import MAX_REACHES_AT_ONCE
from osgym_protocol.reach import CommandResult, ReachKind
from osgym_sdk import wire

RESULT: dict[str, Any] = {
    "returncode": 0,
    "stdout": "yes\n",
    "stderr": "",
    "timed_out": False,
    "truncated": False,
    "duration_ms": 1.5,
}


async def ask(service: Service, episode: dict[str, Any], name: str, **body: Any) -> httpx.Response:
    """Posts a call of an episode."""
    path = f"/v1/episodes/{episode['episode_id']}/{name}"
    return await service.http.post(path, json={"lease": episode["lease"], **body})


async def execute(service: Service, episode: dict[str, Any], request_id: str = "r") -> httpx.Response:
    """Posts a command."""
    return await ask(service, episode, "execute", request_id=request_id, command=["true"])


async def test_each_reach_is_answered_and_recorded_once(service: Service) -> None:
    """Command, file, tree, windows: messages of the protocol; a repeated command is one event."""
    episode = await service.create(task=TASK)
    agent = service.guest_of(episode).agent
    agent.reach = {
        "/v1/reach/execute": json.dumps(RESULT).encode(),
        "/v1/reach/read": b"\0content",
        "/v1/reach/write": b"{}",
        "/accessibility": json.dumps({"AT": "<desktop-frame>" + "x" * 2000 + "</desktop-frame>"}).encode(),
        "/v1/reach/windows": b'{"windows": [], "truncated": false}',
    }
    for _ in range(2):
        answer = CommandResult.from_dict((await execute(service, episode)).json())
        assert (answer.returncode, answer.stdout) == (0, "yes\n")
    assert json.loads(agent.reached[0][1])["request_id"] == "r"
    assert "lease" not in json.loads(agent.reached[0][1])
    assert record(await ask(service, episode, "file", path="a b")).blob == b"\0content"
    path = f"/v1/episodes/{episode['episode_id']}/file"
    lease = {wire.LEASE_HEADER: episode["lease"]}
    query = {"path": "a b&c=d", "mode": "755"}
    written = await service.http.put(path, params=query, content=b"\xff", headers=lease)
    assert written.json() == {"size": 1}
    assert agent.reached[-1] == ("/v1/reach/write?path=a+b%26c%3Dd&mode=755", b"\xff")
    tree = record(await ask(service, episode, "a11y", max_bytes=1024))
    assert (tree.meta, len(tree.blob)) == ({"truncated": True}, 1024)
    assert (await ask(service, episode, "windows")).json() == {"windows": [], "truncated": False}
    assert error(await service.http.put(path, params=query, content=b"x")) == (403, "lease_mismatch")
    host = wire.HostState.from_dict((await service.http.get("/v1/host")).json())
    assert set(host.reach) == set(ReachKind)

    answer = await service.http.get(f"/v1/episodes/{episode['episode_id']}/trajectory")
    lines = [line.meta for line in wire.RecordDecoder().feed(answer.content)]
    reaches = [line for line in lines if line["kind"] == "reach"]
    assert [line["reach"] for line in reaches] == ["execute", "read_file", "write_file", "a11y", "windows"]
    assert all((line["outcome"], line["step"]) == ("ok", 0) for line in reaches)
    assert reaches[0]["arguments"] == {"command": "true", "timeout_s": 30.0}


async def test_a_running_episode_can_be_scored_many_times(service: Service) -> None:
    """By its own check; a repeated request asks nothing again; only the evaluation ends the episode."""
    shows = {"type": "execute", "parameters": {"command": ["save"]}}
    task = {**TASK, "evaluator": {**TASK["evaluator"], "postconfig": [shows]}}
    episode = await service.create(task=task)
    commands = service.guest_of(episode).agent.commands
    first = await ask(service, episode, "score", request_id="a")
    assert (first.json()["reward"], commands) == (1.0, [["prepare"], ["save"], ["answer"]])
    assert (await ask(service, episode, "score", request_id="a")).json() == first.json()
    assert len(commands) == 3
    await ask(service, episode, "score", request_id="b", prepare=False)
    assert commands[3:] == [["answer"]]
    assert record(await service.step(episode, 1, "click(1,1)")).meta["step"] == 1
    assert (await ask(service, episode, "evaluate")).json()["reward"] == 1.0
    assert error(await ask(service, episode, "score", request_id="c")) == (409, "episode_ended")
    answer = await service.http.get(f"/v1/episodes/{episode['episode_id']}/trajectory")
    lines = [line.meta for line in wire.RecordDecoder().feed(answer.content)]
    scores = [line for line in lines if line.get("reach") == "score"]
    assert [(line["step"], line["arguments"]) for line in scores] == [
        (0, {"prepare": True}),
        (0, {"prepare": False}),
    ]
    assert sum(line["kind"] == "evaluation" for line in lines) == 1


async def test_only_a_task_that_allows_it_can_be_scored_before_its_end(service: Service) -> None:
    """A bare desktop has no check."""
    forbids = await service.create(task={**TASK, "osgym": {"reach": False}})
    assert error(await ask(service, forbids, "score", request_id="a")) == (403, "reach_forbidden")
    bare = await service.create()
    assert error(await ask(service, bare, "score", request_id="a")) == (422, "task_invalid")


@pytest.mark.parametrize(
    ("said", "status", "code"),
    [
        (GuestAnswer(404, "no_such_file", "x"), 404, "path_not_found"),
        (GuestAnswer(409, "path_refused", "x"), 409, "path_refused"),
        (GuestAnswer(413, "too_large", "x"), 413, "too_large"),
        (GuestAnswer(422, "cannot_start", "x"), 422, "command_not_started"),
        (GuestAnswer(503, "busy", "x"), 429, "reach_busy"),
        (GuestAnswer(501, "not_available", "x"), 501, "unsupported"),
        (GuestAnswer(404, "not_found", "x"), 501, "unsupported"),
        (GuestAnswer(500, "display_gone", "x"), 502, "reach_failed"),
        (GuestAnswer(599, "made up", "x"), 502, "reach_failed"),
    ],
)
async def test_what_a_guest_says_against_it_is_typed(
    service: Service, said: GuestAnswer, status: int, code: str
) -> None:
    """The episode goes on, and the event has the code."""
    episode = await service.create()
    service.guest_of(episode).agent.reach["/v1/reach/execute"] = said
    assert error(await execute(service, episode)) == (status, code)
    assert record(await service.step(episode, 1, "click(1,2)")).meta["step"] == 1


@pytest.mark.parametrize("answer", [b"what?", b"[]", b"{}", b'{"returncode": "0"}', b"{" * 100_000])
async def test_nonsense_loses_its_replica(service: Service, answer: bytes) -> None:
    """As in a step."""
    episode, other = await service.create(), await service.create()
    service.guest_of(episode).agent.reach["/v1/reach/execute"] = answer
    lost = await execute(service, episode)
    assert error(lost) == (410, "episode_lost")
    assert lost.json()["details"]["cause"] == "guest_protocol"
    assert record(await service.step(other, 1, "click(1,2)")).meta["step"] == 1


async def test_a_guest_that_hangs_loses_its_replica(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the deadline of the call."""
    monkeypatch.setattr(calls, "SHORT_S", 0.2)
    episode = await service.create()
    service.guest_of(episode).agent.execute_gate.clear()
    lost = await ask(service, episode, "windows")
    assert error(lost) == (410, "episode_lost")
    assert lost.json()["details"]["cause"] == "guest_hung"


async def test_too_many_at_a_time_are_refused(service: Service) -> None:
    """Steps go on beside those that are under way."""
    episode = await service.create()
    agent = service.guest_of(episode).agent
    agent.reach["/v1/reach/execute"] = json.dumps(RESULT).encode()
    agent.execute_gate.clear()
    several = [
        asyncio.create_task(execute(service, episode, f"r{index}")) for index in range(MAX_REACHES_AT_ONCE)
    ]
    await until(lambda: len(agent.reached) == MAX_REACHES_AT_ONCE)
    assert error(await execute(service, episode, "more")) == (429, "reach_busy")
    assert record(await service.step(episode, 1, "click(1,2)")).meta["step"] == 1
    agent.execute_gate.set()
    assert [answer.status_code for answer in await asyncio.gather(*several)] == [200] * MAX_REACHES_AT_ONCE


async def test_who_may_not_is_refused_before_the_guest_is_asked(service: Service) -> None:
    """Forbidden by the task, scored, no agent inside, a body that is not what v1 says."""
    forbidding = {**TASK, "osgym": {"reach": ["windows"]}}
    episode = await service.create(task=forbidding)
    agent = service.guest_of(episode).agent
    assert error(await execute(service, episode)) == (403, "reach_forbidden")
    path = f"/v1/episodes/{episode['episode_id']}/tunnel"
    lease = {wire.LEASE_HEADER: episode["lease"]}
    assert error(await service.http.post(path, params={"port": 80}, headers=lease)) == (
        403,
        "reach_forbidden",
    )
    assert error(await service.http.post(path, params={"port": 0}, headers=lease)) == (422, "bad_request")
    assert (await ask(service, episode, "evaluate")).json()["reward"] == 1.0
    assert error(await ask(service, episode, "windows")) == (409, "episode_ended")
    unknown = {**TASK, "osgym": {"reach": ["everything"]}}
    body = {"request_id": "unknown", "task": unknown}
    assert error(await service.http.post("/v1/episodes", json=body)) == (422, "task_invalid")

    plain = await service.create()
    for wrong in ({"command": []}, {"command": ["x"], "timeout_s": 0}, {"command": ["x"], "more": 1}):
        answer = await ask(service, plain, "execute", request_id="w", **wrong)
        assert error(answer) == (422, "bad_request")
    service.agent.view._offered = frozenset()
    assert error(await execute(service, plain)) == (501, "unsupported")
    assert agent.reached == []
