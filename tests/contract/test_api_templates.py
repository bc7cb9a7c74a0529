"""Host API v1: task templates. A known set-up is cloned; whatever fails costs a set-up, never an episode."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.branching_calls import checkpoint, close, evaluate, forked
from tests.support.fake_guest import Guest
from tests.support.fake_runtime import TASK, Service, record, running_service
from tests.support.waiting import until

from osgym_host.episodes.task_templates import TaskTemplates, TemplateChoice
from osgym_host.replicas.brancher import ReplicaBrancher
from osgym_host.tasks.downloads import DownloadCache
from osgym_host.tasks.parse import parse_task
from osgym_host.tasks.policy import TaskPolicy
from osgym_sdk import wire

TWIN = {**TASK, "id": "twin", "instruction": "Say it."}
"""Another task with the set-up of `TASK`."""


def prepared(name: str) -> dict[str, Any]:
    """A task with a set-up of its own."""
    return {**TASK, "config": [{"type": "execute", "parameters": {"command": ["prepare", name]}}]}


def commands(service: Service, episode: dict[str, Any]) -> list[Any]:
    """What was run in its desktop, in a clone also before it was one."""
    return service.guest_of(episode).agent.commands


def live_points(service: Service) -> int:
    """How many branch points there are."""
    return len(service.runtime.points.states)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A service with task templates, one warm fake replica and room for eight."""
    async with running_service(tmp_path, warm=1, max_replicas=8, task_templates="on") as running:
        yield running


async def test_a_known_set_up_is_cloned(service: Service) -> None:
    """Also for another task of that set-up; steps count from 1 in both, and the score is the same."""
    first = await service.create(task=TASK)
    assert first["template"] == "made"
    record(await service.step(first, 1, "click(1,1)"))
    second = await service.create(task=TWIN)
    answer = wire.CreateAnswer.from_dict(second)
    assert (answer.template, answer.step, answer.last_seq, answer.parent) == ("hit", 0, 0, None)
    assert commands(service, second) == [["prepare"]]
    assert service.guest_of(second).spec.origin is not None
    for x in (3, 4):
        assert record(await service.step(second, x - 2, f"click({x},1)")).meta["step"] == x - 2
    clicked = [a["x"] for a in service.guest_of(second).agent.acted if a["op"] == "click"]
    assert clicked == [3, 4], "nothing that the first one did"
    assert (await evaluate(service, second))["reward"] == (await evaluate(service, first))["reward"] == 1.0
    await close(service, first)
    assert (await service.create(task=TASK))["template"] == "hit", "it outlives the episode it was made of"


async def test_templates_are_off_unless_asked_for(tmp_path: Path) -> None:
    """Then answers say nothing of them, and nothing is branched."""
    async with running_service(tmp_path, warm=1) as service:
        assert "template" not in await service.create(task=TASK)
        assert service.runtime.points.taken == 0


async def test_a_runtime_that_does_not_branch_says_so(tmp_path: Path) -> None:
    """And sets the task up."""
    async with running_service(tmp_path, warm=1, branching=False, task_templates="on") as service:
        episode = await service.create(task=TASK)
        assert episode["template"] == "no (this runtime cannot branch a replica)"
        assert commands(service, episode) == [["prepare"]]


async def test_what_cannot_be_a_template_is_set_up_each_time(service: Service) -> None:
    """Chance in commands, a failed command, no set-up: with the reason."""
    dice = {**TASK, "config": [{"type": "execute", "parameters": {"command": ["sh", "-c", "echo $RANDOM"]}}]}
    failing = {**TASK, "config": [{"type": "execute", "parameters": {"command": ["status", "3", "no"]}}]}
    for task, why in (
        (dice, "step 0, execute: $RANDOM has another value each time"),
        (failing, "a command of the set-up failed"),
        (None, "there is no set-up"),
    ):
        for _ in range(2):
            episode = await service.create(task=task)
            assert episode["template"] == f"no ({why})"
            await close(service, episode)
    assert service.runtime.points.taken == 0


async def test_a_desktop_that_does_not_rest_is_no_template(service: Service) -> None:
    """Tried twice, then no more; the episode begins all the same, and its first step is step 1."""
    reasons = []
    for _ in range(3):
        await until(lambda: service.agent.pool.view().ready == 1)
        for replica in service.runtime.alive.values():
            replica.agent.restless = True
        episode = await service.create(task=TASK)
        reasons.append(episode["template"])
        assert record(await service.step(episode, 1, "wait()")).meta["step"] == 1
        await close(service, episode)
    rest = "no (the desktop did not come to rest within 5 s)"
    assert reasons == [rest, rest, "no (an earlier attempt to make the template failed)"]
    assert service.runtime.points.taken == 0


async def test_a_template_that_cannot_be_taken_costs_no_episode(service: Service) -> None:
    """The one that was set up begins; the next one makes it."""
    service.runtime.fail_branches = 1
    episode = await service.create(task=TASK)
    assert episode["template"].startswith("no (the branch point of the template failed: ")
    assert record(await service.step(episode, 1, "wait()")).meta["step"] == 1
    assert (await service.create(task=TASK))["template"] == "made"


async def test_a_clone_that_cannot_be_made_falls_back_to_the_set_up(service: Service) -> None:
    """And drops the template, which is made anew, until it failed twice."""
    assert (await service.create(task=TASK))["template"] == "made"
    for expected in ("made", "no (an earlier attempt to make the template failed)"):
        service.runtime.fail_children = {0}
        episode = await service.create(task=TASK)
        service.runtime.fail_children = set()
        assert episode["template"] == expected
        assert commands(service, episode) == [["prepare"]]
        assert record(await service.step(episode, 1, "wait()")).meta["step"] == 1
    await until(lambda: not live_points(service))


async def test_a_point_that_is_gone_falls_back_to_the_set_up(service: Service) -> None:
    """As when the runtime lost it."""
    await service.create(task=TASK)
    service.runtime.points.states.clear()
    episode = await service.create(task=TASK)
    assert episode["template"] == "made"
    assert commands(service, episode) == [["prepare"]]


async def test_templates_are_bounded(tmp_path: Path) -> None:
    """By count, the one used longest ago goes; one that is too large is none."""
    options: dict[str, Any] = {"warm": 1, "max_replicas": 8, "task_templates": "on"}
    async with running_service(tmp_path / "a", **options, task_templates_max=2) as service:
        for name, expected in (
            ("a", "made"),
            ("b", "made"),
            ("a", "hit"),
            ("c", "made"),
            ("a", "hit"),
            ("b", "made"),
        ):
            episode = await service.create(task=prepared(name))
            assert (name, episode["template"]) == (name, expected)
            await close(service, episode)
        await until(lambda: live_points(service) == 2)
    async with running_service(tmp_path / "b", **options, task_templates_max_mib=41) as service:
        episode = await service.create(task=TASK)
        assert episode["template"] == "no (the template's 42 MiB are more than task_templates_max_mib)"
        await until(lambda: not live_points(service))


async def test_a_changed_file_of_the_host_is_another_set_up(service: Service, tmp_path: Path) -> None:
    """A template never shows an older file than a set-up would."""
    file = tmp_path / "a.txt"
    upload = {"type": "upload_file", "parameters": {"files": [{"path": "/tmp/a", "local_path": "a.txt"}]}}
    given = {**TASK, "config": [upload]}
    templates = TaskTemplates(
        ReplicaBrancher(service.agent.pool),
        enabled=True,
        connects=False,
        downloads=DownloadCache(tmp_path / "cache", TaskPolicy(task_files_dir=tmp_path)),
        events=service.agent.events,
    )
    task = parse_task(given)
    choices = []
    for text in ("one", "one", "three"):
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
        choices.append(await templates.choose(given, task, "d", (1920, 1080), has_clock=False))
    assert choices[0] == choices[1]
    assert choices[0].key != choices[2].key
    file.unlink()
    choice = await templates.choose(given, task, "d", (1920, 1080), has_clock=False)
    assert choice == TemplateChoice(reason="a file of the host that the set-up uploads cannot be read")


async def test_many_at_once_make_one(service: Service) -> None:
    """Nobody waits for the maker; all begin."""
    episodes = await asyncio.gather(*(service.create(task=TASK, wait_s=20) for _ in range(4)))
    told = sorted(episode["template"] for episode in episodes)
    assert told.count("made") == 1
    assert set(told) <= {"made", "hit", "no (another episode is making the template)"}
    assert service.runtime.points.taken == 1


async def test_a_repeated_create_says_the_same(service: Service) -> None:
    """By its request id."""
    await service.create(task=TASK)
    told = [(await service.create(task=TASK, request_id="same")) for _ in range(2)]
    assert told[0]["episode_id"] == told[1]["episode_id"]
    assert [answer["template"] for answer in told] == ["hit", "hit"]


async def test_clones_fork_and_are_saved_like_others(service: Service) -> None:
    """Their numbers go on in children and in checkpoints that were written down."""
    await service.create(task=TASK)
    episode = await service.create(task=TASK)
    record(await service.step(episode, 1, "click(1,1)"))
    (child,) = await forked(service, episode, 1)
    assert record(await service.step(child, 2, "click(2,2)")).meta["step"] == 2
    saved = (await checkpoint(service, episode, keep=True)).json()["checkpoint_id"]
    restored = await service.create(checkpoint=saved)
    assert record(await service.step(restored, 2, "click(3,3)")).meta["step"] == 2
    await service.http.delete(f"/v1/checkpoints/{saved}")


async def test_a_clone_that_dies_at_its_first_frame_is_replaced(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its template is dropped, the task is set up on another replica."""
    await service.create(task=TASK)
    cut: list[Guest] = []
    take, frame = Guest.take, Guest.frame

    def cut_off(guest: Guest, seq: int, observe: Any) -> dict[str, Any]:
        if guest in cut:
            raise ConnectionResetError
        return frame(guest, seq, observe)

    monkeypatch.setattr(Guest, "take", lambda guest, state: (cut.append(guest), take(guest, state)))
    monkeypatch.setattr(Guest, "frame", cut_off)
    episode = await service.create(task=TASK)
    assert len(cut) == 1
    assert episode["template"] == "made"
    assert commands(service, episode) == [["prepare"]]
