"""Host API v1: tasks that are wrong, set-up that fails, and what a score means."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support.api_answers import error
from tests.support.fake_guest import PNG
from tests.support.fake_runtime import TASK, Service, record
from tests.support.waiting import stays, until

from osgym_protocol import limits
from osgym_sdk import wire


def _failing_setup(*commands: list[str]) -> dict[str, Any]:
    """The task with other setup steps: `["status", "3", "oops"]` ends with 3 and says so."""
    return {**TASK, "config": [{"type": "execute", "parameters": {"command": c}} for c in commands]}


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
    assert first.json()["evidence"] == "guest"
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
    await stays(lambda: ["answer"] not in guest.commands, 0.05)
    guest.step_gate.set()
    assert record(await step).meta["step"] == 1
    assert (await check).json()["reward"] == 1.0
