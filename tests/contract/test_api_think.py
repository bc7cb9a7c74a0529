"""Host API v1: episodes whose desktop stands still while its policy thinks."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.support.api_answers import error
from tests.support.fake_runtime import TASK, FakeReplica, Service, record
from tests.support.waiting import until


@pytest.fixture
def paused(service: Service) -> Service:
    """A service whose replicas can be paused."""
    service.runtime.pausable = True
    return service


def stands(service: Service, replica: FakeReplica) -> bool:
    """Tell whether a desktop stands still, its clock included."""
    return replica.agent.held and replica.replica_id in service.runtime.paused


async def test_a_desktop_stands_still_between_steps(paused: Service) -> None:
    """From the first frame on, and with the charge of each thought; a live one does not."""
    episode, live = await paused.create(think="paused"), await paused.create(think="live")
    desktop = paused.guest_of(episode)
    await until(lambda: stands(paused, desktop))
    for seq, more in ((1, {}), (2, {"think_s": 0.2}), (3, {})):
        record(await paused.step(episode, seq, "click(3, 5)", **more))
        await until(lambda: stands(paused, desktop))
    assert desktop.agent.charges == [0.0, 0.2, 0.0]
    record(await paused.step(live, 1, "click(3, 5)"))
    assert not paused.guest_of(live).agent.held


async def test_time_that_has_not_passed_is_waited_for(paused: Service) -> None:
    """The step begins when the charged time is over, and the screen is quiet."""
    episode = await paused.create(think="paused")
    agent = paused.guest_of(episode).agent
    began, asked = time.monotonic(), agent.asked_ready
    record(await paused.step(episode, 1, "click(3, 5)", think_s=0.3))
    assert time.monotonic() - began >= 0.3
    assert agent.asked_ready == asked + 1


async def test_a_refused_step_charges_nothing(paused: Service) -> None:
    """The thought is charged with the step that follows it."""
    episode = await paused.create(think="paused")
    answer = await paused.step(episode, 1, "click(99999, 5)", think_s=0.2)
    assert error(answer)[1] == "invalid_action"
    record(await paused.step(episode, 1, "click(3, 5)"))
    assert 0.2 not in paused.guest_of(episode).agent.charges


async def test_looks_scores_and_the_end_need_no_step(paused: Service) -> None:
    """People who look do not move its clock; early scores, evaluation and the last frame do not hang."""
    episode = await paused.create(task=TASK, think="paused")
    desktop, path = paused.guest_of(episode), f"/v1/episodes/{episode['episode_id']}"
    record(await paused.step(episode, 1, "click(3, 5)"))
    await until(lambda: stands(paused, desktop))
    shot = f"/v1/replicas/{episode['replica_id']}/screenshot"
    looks, charges = desktop.agent.looks, len(desktop.agent.charges)
    for _ in range(3):  # the second and third show what the first saw, and do not wake it
        assert (await paused.http.get(f"{shot}?width=320")).status_code == 200
    assert (await paused.http.get(shot)).status_code == 200
    assert (desktop.agent.looks, len(desktop.agent.charges)) == (looks + 2, charges)
    lease: dict[str, Any] = {"lease": episode["lease"]}
    early = await paused.http.post(f"{path}/score", json={**lease, "request_id": "s1"})
    assert early.json()["reward"] == 1
    await until(lambda: stands(paused, desktop))
    final = await paused.http.post(f"{path}/final", json={**lease, "seq": 1, "timeout_ms": 100})
    assert record(final).meta["observation"]["final"]
    await until(lambda: stands(paused, desktop))
    assert (await paused.http.post(f"{path}/evaluate", json=lease)).json()["reward"] == 1


async def test_a_picture_is_taken_anew_after_a_step(paused: Service) -> None:
    """A desktop that went on in between may show something else."""
    episode = await paused.create(think="paused")
    desktop = paused.guest_of(episode)
    shot = f"/v1/replicas/{episode['replica_id']}/screenshot?width=320"
    for seq in (1, 2):
        await until(lambda: stands(paused, desktop))
        looks = desktop.agent.looks

        async def has_looked(before: int = looks) -> bool:
            assert (await paused.http.get(shot)).status_code == 200
            return desktop.agent.looks == before + 1

        await until(has_looked)  # one of a moment ago would do for a live desktop too
        record(await paused.step(episode, seq, "click(3, 5)"))


async def test_a_host_that_cannot_pause_says_so(service: Service) -> None:
    """Before the task is set up; the replica is not the client's fault."""
    answer = await service.http.post("/v1/episodes", json={"request_id": "q", "think": "paused"})
    assert error(answer) == (501, "unsupported")
    assert "control groups of version 2" in answer.json()["message"]


async def test_an_old_image_says_so(paused: Service) -> None:
    """Its guest agent knows no such call."""
    await until(lambda: paused.runtime.alive)
    for replica in paused.runtime.alive.values():
        replica.agent.refuses, replica.agent.refused_paths = "not_found", frozenset({"/v1/clock/resume"})
    answer = await paused.http.post("/v1/episodes", json={"request_id": "q", "think": "paused"})
    assert error(answer) == (501, "unsupported")


@pytest.mark.parametrize(
    "asked", [{"think": "asleep"}, {"think_charge": "real"}, {"think": "paused", "think_charge": 3}]
)
async def test_wrong_options_are_refused(paused: Service, asked: dict[str, Any]) -> None:
    """A charge needs a desktop that stands still; charges of tokens are for clients to count."""
    answer = await paused.http.post("/v1/episodes", json={"request_id": "q", **asked})
    assert error(answer)[1] == "bad_request"


async def test_charges_of_steps_are_checked(paused: Service) -> None:
    """A live desktop has had its time, and no thought takes longer than an hour."""
    live, episode = await paused.create(), await paused.create(think="paused")
    answer = await paused.step(live, 1, "click(3, 5)", think_s=1)
    assert error(answer) == (400, "bad_request") and "think" in answer.json()["message"]
    for think_s in (-1, 3601):
        assert error(await paused.step(episode, 1, "click(3, 5)", think_s=think_s))[1] == "bad_request"
    record(await paused.step(episode, 1, "click(3, 5)"))


async def test_a_person_acts_on_a_desktop_that_stands_still(paused: Service) -> None:
    """It goes on for the action, and stands still again, with one hold for each."""
    episode = await paused.create(think="paused")
    desktop = paused.guest_of(episode)
    manager = paused.agent.episodes.find(episode["episode_id"]).replica.manager
    assert manager is not None
    await until(lambda: stands(paused, desktop))
    hold = manager.hold
    assert hold is not None
    for seq in (1, 2):
        body = {"session": "s", "seq": seq, "actions": ["click(3, 5)"]}
        answer = await paused.http.post(f"/v1/replicas/{episode['replica_id']}/intervene", json=body)
        assert answer.status_code == 200
        await until(lambda: stands(paused, desktop))
        assert manager.hold == hold + seq
    assert desktop.agent.charges == [0.0, 0.0]


async def test_branches_stand_still_too(paused: Service) -> None:
    """A desktop goes on to be branched; it, a child and a restored one stand still between steps."""
    episode = await paused.create(task=TASK, think="paused")
    record(await paused.step(episode, 1, "click(3, 5)"))
    path, lease = f"/v1/episodes/{episode['episode_id']}", {"lease": episode["lease"]}
    fork = await paused.http.post(f"{path}/fork", json={**lease, "request_id": "f", "count": 1})
    (child,) = fork.json()["children"]
    kept = await paused.http.post(f"{path}/checkpoint", json={**lease, "request_id": "c"})
    restored = await paused.create(checkpoint=kept.json()["checkpoint_id"])
    for one in (episode, child, restored):
        desktop = paused.guest_of(one)
        await until(lambda desktop=desktop: stands(paused, desktop))
        record(await paused.step(one, 2, "click(4, 5)"))
        await until(lambda desktop=desktop: stands(paused, desktop))
        assert desktop.agent.charges[-1] == 0.0
    live = await paused.create(checkpoint=kept.json()["checkpoint_id"], think="live")
    record(await paused.step(live, 2, "click(4, 5)"))
    assert not paused.guest_of(live).agent.held


async def test_a_checkpoint_restored_where_nothing_can_be_paused(paused: Service) -> None:
    """It does not go on in another way than the client was promised."""
    episode = await paused.create(think="paused")
    lease = {"lease": episode["lease"], "request_id": "c"}
    kept = await paused.http.post(f"/v1/episodes/{episode['episode_id']}/checkpoint", json=lease)
    paused.runtime.pausable = False
    asked = {"request_id": "r", "checkpoint": kept.json()["checkpoint_id"]}
    assert error(await paused.http.post("/v1/episodes", json=asked)) == (501, "unsupported")
    paused.runtime.pausable = True
