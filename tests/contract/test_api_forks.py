"""Host API v1: forks; all or nothing, and typed when not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.api_answers import error
from tests.support.branching_calls import checkpoint, close, evaluate, fork, forked
from tests.support.fake_runtime import TASK, Service, record, running_service
from tests.support.waiting import stays, until

from osgym_sdk import wire


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A service with one warm fake replica and room for eight."""
    async with running_service(tmp_path, warm=1, max_replicas=8) as running:
        yield running


async def test_children_go_on_where_the_parent_is_and_diverge(service: Service) -> None:
    """Numbers, steps and task go on; nobody sees what another does; each has its own everything."""
    parent = await service.create(task=TASK, max_steps=5, lease_ttl_s=33)
    await service.step(parent, 1, "click(1,1)")
    answer = await fork(service, parent, 3)
    told = wire.ForkAnswer.from_dict(answer.json())
    assert (told.parent.episode_id, told.parent.step, told.pause_ms) == (parent["episode_id"], 1, 1.5)
    children = list(answer.json()["children"])
    assert len({c["lease"] for c in [parent, *children]}) == 4
    assert len({c["generation"] for c in [parent, *children]}) == 4
    for number, child in enumerate(children):
        assert (child["step"], child["last_seq"], child["screen"]) == (1, 1, [1920, 1080])
        meta = record(await service.step(child, 2, f"click(1{number},7)")).meta
        assert (meta["step"], meta["observation"]["seq"]) == (2, 2)
    record(await service.step(parent, 2, "click(2,2)"))
    assert [a["x"] for a in service.guest_of(parent).agent.acted] == [1, 2]
    for number, child in enumerate(children):
        agent = service.guest_of(child).agent
        assert [a["x"] for a in agent.acted] == [1, 10 + number]
        assert (await evaluate(service, child))["reward"] == 1.0
        state = wire.EpisodeState.from_dict(
            (await service.http.get(f"/v1/episodes/{child['episode_id']}")).json()
        )
        assert state.parent == wire.ParentInfo(parent["episode_id"], 1)
        assert state.task_id == "say-yes"
    ttls = {e.lease.ttl_s for e in service.agent.episodes.active()}
    assert ttls == {33}


async def test_a_child_outlives_its_parent_and_has_children(service: Service) -> None:
    """Leases are apart; a child of a child names its own parent."""
    parent = await service.create()
    (child,) = await forked(service, parent, 1, lease_ttl_s=44)
    await close(service, parent)
    await service.step(child, 1, "click(1,1)")
    (grandchild,) = await forked(service, child, 1)
    assert grandchild["parent"] == {"episode_id": child["episode_id"], "step": 1}
    assert record(await service.step(grandchild, 2, "wait()")).meta["step"] == 2


async def test_the_last_answer_of_the_parent_is_the_childs_too(service: Service) -> None:
    """A repeated number is answered from the child's own store and acts nowhere."""
    parent = await service.create()
    first = record(await service.step(parent, 1, "click(1,1)")).meta
    (child,) = await forked(service, parent, 1)
    again = record(await service.step(child, 1, "click(1,1)")).meta
    assert (again["observation"]["replayed"], again["actions"]) == (True, first["actions"])
    assert len(service.guest_of(child).agent.acted) == 1
    assert error(await service.step(child, 3, "wait()")) == (409, "bad_sequence")


async def test_a_fork_waits_for_the_running_step(service: Service) -> None:
    """It never happens in the middle of one: the children have it done."""
    parent = await service.create()
    agent = service.guest_of(parent).agent
    agent.step_gate.clear()
    step = asyncio.create_task(service.step(parent, 1, "click(1,1)"))
    await until(lambda: agent.steps_begun == 1)
    forking = asyncio.create_task(forked(service, parent, 2))
    await stays(lambda: service.runtime.points.taken == 0, 0.1)
    agent.step_gate.set()
    assert (await step).status_code == 200
    for child in await forking:
        assert child["last_seq"] == 1
        assert len(service.guest_of(child).agent.acted) == 1


async def test_what_a_desktop_still_draws_when_it_is_forked_is_in_its_children(service: Service) -> None:
    """The branch point is taken once the desktop rests, as its panel and late programs do."""
    parent = await service.create()
    agent = service.guest_of(parent).agent
    asked = agent.asked_ready
    agent.ready.clear()
    forking = asyncio.create_task(forked(service, parent, 2))
    await until(lambda: agent.asked_ready > asked or forking.done())
    late = {"op": "click", "x": 3, "y": 4}
    agent.acted.append(late)
    agent.ready.set()
    for child in await forking:
        assert service.guest_of(child).agent.acted == [late]


async def test_a_desktop_that_never_rests_is_forked_at_work(service: Service) -> None:
    """A desktop with a film never rests: the fork proceeds once the guest has said so."""
    parent = await service.create()
    agent = service.guest_of(parent).agent
    agent.refuses, agent.refused_paths = "not_ready", frozenset({"/v1/ready"})
    (child,) = await forked(service, parent, 1)
    assert child["parent"]["episode_id"] == parent["episode_id"]


async def test_a_repeated_fork_gives_the_same_children(service: Service) -> None:
    """Also at the same time; for something else the id is refused; undone, the children are gone."""
    parent = await service.create()
    first, second = await asyncio.gather(*(fork(service, parent, 2, request_id="q") for _ in range(2)))
    assert first.json() == second.json()
    assert (await fork(service, parent, 2, request_id="q")).json() == first.json()
    assert error(await fork(service, parent, 3, request_id="q")) == (409, "bad_request")
    assert service.agent.pool.view().leased == 3
    assert (await service.http.delete("/v1/requests/q")).status_code == 204
    for child in first.json()["children"]:
        assert error(await service.step(child, 1, "wait()")) == (409, "cancelled")
    assert error(await fork(service, parent, 2, request_id="q")) == (409, "cancelled")
    assert record(await service.step(parent, 1, "wait()")).meta["step"] == 1


@pytest.mark.parametrize("which", [{0}, {2}, {0, 1, 2}])
async def test_when_one_child_fails_there_is_none(service: Service, which: set[int]) -> None:
    """Those made are ended, the point is released, parent and pool go on as if nothing had been."""
    parent = await service.create()
    service.runtime.fail_children = which
    answer = await fork(service, parent, 3)
    assert error(answer) == (503, "branch_failed")
    assert answer.json()["details"]["cause"] == "create_failed"
    await until(lambda: service.agent.pool.view().leased == 1 and not service.runtime.points.states)
    assert record(await service.step(parent, 1, "wait()")).meta["step"] == 1
    assert service.agent.view.pool()["blocked"] == "nothing"
    service.runtime.fail_children = set()
    assert len(await forked(service, parent, 3, request_id="again")) == 3


async def test_a_point_that_fails_harms_nobody(service: Service) -> None:
    """The parent goes on; the error says what failed."""
    parent = await service.create()
    service.runtime.fail_branches = 2
    answer = await fork(service, parent, 2)
    assert error(answer) == (503, "branch_failed")
    assert "the disk is full" in answer.json()["message"]
    assert error(await checkpoint(service, parent)) == (503, "branch_failed")
    assert record(await service.step(parent, 1, "wait()")).meta["step"] == 1


async def test_a_fork_that_finds_no_room_makes_nothing(tmp_path: Path) -> None:
    """The bound is named, the parent never stood still; a later one that fits is made."""
    async with running_service(tmp_path, warm=0, max_replicas=4) as service:
        parent = await service.create()
        answer = await fork(service, parent, 4, wait_s=0.2)
        assert error(answer) == (503, "no_capacity")
        assert answer.json()["details"]["blocked"] == "max_replicas"
        assert service.runtime.points.taken == 0
        assert len(await forked(service, parent, 3)) == 3


async def test_warm_replicas_make_way_for_children(tmp_path: Path) -> None:
    """Idle clean replicas are no reason to refuse a fork; the pool fills again when there is room."""
    async with running_service(tmp_path, warm=3, max_replicas=4) as service:
        parent = await service.create()
        await until(lambda: service.agent.pool.view().ready == 3)
        children = await forked(service, parent, 2)
        assert len(service.runtime.alive) <= 4
        await until(lambda: service.agent.pool.view().ready == 1)
        for child in children:
            await close(service, child)
        await until(lambda: service.agent.pool.view().ready == 3)


async def test_children_are_never_handed_to_others(tmp_path: Path) -> None:
    """Somebody who waits for a clean desktop does not get a child that nobody wants any more."""
    async with running_service(tmp_path, warm=0, max_replicas=3) as service:
        parent = await service.create()
        service.runtime.create_gate.clear()
        forking = asyncio.create_task(fork(service, parent, 2))
        await until(lambda: service.runtime.created == 3)
        waiting = asyncio.create_task(service.create(wait_s=5))
        forking.cancel()
        await asyncio.gather(forking, return_exceptions=True)
        service.runtime.create_gate.set()
        fresh = await waiting
        assert fresh["parent"] is None
        assert service.guest_of(fresh).spec.origin is None


async def test_undoing_a_fork_in_its_middle_frees_everything(service: Service) -> None:
    """Cancelled at any moment: no child, no point, no room stays taken."""
    parent = await service.create()
    service.runtime.create_gate.clear()
    forking = asyncio.create_task(fork(service, parent, 3, request_id="q"))
    await until(lambda: service.runtime.points.taken == 1)
    assert (await service.http.delete("/v1/requests/q")).status_code == 204
    assert error(await forking) == (409, "cancelled")
    service.runtime.create_gate.set()
    await until(lambda: not service.runtime.points.states and service.agent.pool.view().leased == 1)
    assert service.agent.pool.reservations.held == 0
    assert record(await service.step(parent, 1, "wait()")).meta["step"] == 1


async def test_what_is_over_cannot_be_forked(service: Service) -> None:
    """Done, out of steps, scored, closed: 409 with the reason, nothing is taken."""
    done = await service.create(task=TASK)
    await service.step(done, 1, "finish()")
    answer = await fork(service, done, 1)
    assert error(answer) == (409, "episode_ended")
    assert answer.json()["details"] == {"done": "done"}
    scored = await service.create(task=TASK)
    await evaluate(service, scored)
    answer = await checkpoint(service, scored)
    assert error(answer) == (409, "episode_ended")
    assert answer.json()["details"] == {"evaluated": True}
    await close(service, done)
    assert error(await fork(service, done, 1)) == (409, "episode_ended")
    assert error(await fork(service, {**scored, "lease": "guess"}, 1)) == (403, "lease_mismatch")
    assert service.runtime.points.taken == 0


async def test_max_steps_of_children_counts_from_the_parents_first(service: Service) -> None:
    """The parent's bound holds, another may be set, one that is passed already is refused."""
    parent = await service.create(max_steps=3)
    for seq in (1, 2):
        await service.step(parent, seq, "wait()")
    assert error(await fork(service, parent, 1, max_steps=2)) == (409, "bad_request")
    (same,) = await forked(service, parent, 1)
    (more,) = await forked(service, parent, 1, request_id="more", max_steps=9)
    assert record(await service.step(same, 3, "wait()")).meta["done"] == "max_steps"
    assert record(await service.step(more, 3, "wait()")).meta["done"] is None


async def test_a_runtime_without_branches_says_so_before_anything_happens(tmp_path: Path) -> None:
    """501 with the remedy for forks, checkpoints and imports; the episode goes on."""
    async with running_service(tmp_path, branching=False) as service:
        parent = await service.create()
        for answer in (
            await fork(service, parent, 2),
            await checkpoint(service, parent),
            await service.http.post("/v1/checkpoints/import", content=b"x"),
        ):
            assert error(answer) == (501, "unsupported")
            assert "`runtime: qemu`" in answer.json()["message"]
        assert (await service.http.get("/v1/host")).json()["branching"] is False
        assert record(await service.step(parent, 1, "wait()")).meta["step"] == 1


async def test_a_childs_trajectory_names_its_parent(service: Service) -> None:
    """The start has parent, step and pause; its own steps follow; events and metrics tell as well."""
    parent = await service.create()
    await service.step(parent, 1, "wait()")
    (child,) = await forked(service, parent, 1)
    await service.step(child, 2, "click(1,2)")
    answer = await service.http.get(f"/v1/episodes/{child['episode_id']}/trajectory")
    start, step = [r.meta for r in wire.RecordDecoder().feed(answer.content)]
    assert start["parent"] == {"episode_id": parent["episode_id"], "step": 1, "pause_ms": 1.5}
    assert (start["kind"], start["step"], step["seq"]) == ("start", 1, 2)
    events = (await service.http.get("/v1/events")).json()["events"]
    (told,) = [e for e in events if e["kind"] == "fork"]
    assert told["children"] == [child["episode_id"]]
    text = (await service.http.get("/metrics")).text
    assert 'osgym_forks_total{outcome="ok"} 1.0' in text
    assert "osgym_branch_pause_seconds_count 1.0" in text
    assert "osgym_fork_children_seconds_count 1.0" in text


async def test_a_parent_that_dies_under_a_fork_is_a_typed_loss(service: Service) -> None:
    """The fork ends with the cause, no child stays."""
    parent = await service.create()
    guest = service.guest_of(parent)
    guest.agent.step_gate.clear()
    step = asyncio.create_task(service.step(parent, 1, "wait()"))
    await until(lambda: guest.agent.steps_begun == 1)
    forking = asyncio.create_task(fork(service, parent, 2))
    await asyncio.sleep(0.05)
    guest.die()
    assert error(await forking) == (410, "episode_lost")
    assert error(await step) == (410, "episode_lost")
    assert service.agent.pool.reservations.held == 0
