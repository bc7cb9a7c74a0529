"""Forks and checkpoints through the SDK, against the real service over fake replicas, by real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.fake_runtime import TASK, Served
from tests.support.waiting import until

from osgym_sdk import (
    AsyncClient,
    BadRequest,
    BranchFailed,
    CheckpointNotFound,
    Client,
    ConfigError,
    EpisodeEnded,
    NoCapacity,
    ParentInfo,
    Unsupported,
)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A host with room for eight."""
    with Served(tmp_path, warm=1, max_replicas=8) as running:
        yield running


def leased(served: Served) -> int:
    """Replicas that clients hold now."""
    assert served.agent is not None
    return served.agent.pool.view().leased


def named(folder: Path, prefix: str) -> list[str]:
    """Files whose names begin so."""
    return [path.name for path in folder.iterdir() if path.name.startswith(prefix)]


async def none_leased(served: Served) -> None:
    """Waits until nothing is held."""
    await until(lambda: not leased(served), 5)


async def test_children_are_episodes_like_any_other(served: Served) -> None:
    """Stepped, scored, forked, closed; trajectories name their parents; the parent goes on."""
    async with AsyncClient(served.urls[0]) as client:
        async with client.episode(TASK, max_steps=9) as parent:
            await parent.step("click(1,1)")
            children = await parent.fork(3)
            assert len({c.lease for c in (parent, *children)}) == 4
            for number, child in enumerate(children):
                async with child:
                    assert child.observation.hash == parent.observation.hash
                    assert child.observation.image.size == (1920, 1080)
                    obs = await child.step(f"click({number},5)")
                    assert (obs.step, obs.seq) == (2, 2)
                    assert (await child.observe()).step == 2
                    assert (await obs.final()).is_final is True
                    assert (await child.evaluate()).reward == 1.0
                    assert child.trajectory.parent == ParentInfo(parent.episode_id, 1)
                    assert [step.step for step in child.trajectory.steps] == [2]
                    assert child.trajectory.task_id == "say-yes"
            assert (await parent.step("click(2,2)")).step == 2
            (child,) = await parent.fork()
            (grandchild,) = await child.fork(lease_ttl_s=5)
            assert grandchild.lease_ttl_s == 5
            assert grandchild.trajectory.parent == ParentInfo(child.episode_id, 2)
        await child.aclose()
        assert (await grandchild.step("wait()")).step == 3
    await none_leased(served)


async def test_a_child_can_finish_the_last_frame_of_its_parent(served: Served) -> None:
    """Its first observation is its own: `final()` asks the child's desktop."""
    async with AsyncClient(served.urls[0]) as client, client.episode() as parent:
        await parent.step("click(1,1)")
        (child,) = await parent.fork()
        await parent.aclose()
        assert (await child.observation.final()).is_final is True


async def test_what_can_go_wrong_is_typed_and_leaves_the_parent(served: Served) -> None:
    """No room, a child that fails, an episode that is over, a wrong argument."""
    async with AsyncClient(served.urls[0]) as client, client.episode(TASK) as parent:
        with pytest.raises(NoCapacity):
            await parent.fork(8, wait_s=0.1)
        served.runtime.fail_children = {1}
        with pytest.raises(BranchFailed):
            await parent.fork(2)
        served.runtime.fail_children = set()
        with pytest.raises(ConfigError):
            await parent.fork(0)
        assert (await parent.step("finish()")).done == "done"
        with pytest.raises(EpisodeEnded):
            await parent.fork(2)
        with pytest.raises(EpisodeEnded):
            await parent.checkpoint()
        assert (await parent.evaluate()).reward == 1.0
    await none_leased(served)


async def test_cancelling_a_fork_leaves_no_child(served: Served) -> None:
    """Whatever it had made is given back, and the parent goes on."""
    async with AsyncClient(served.urls[0]) as client, client.episode() as parent:
        served.loop.call_soon_threadsafe(served.runtime.create_gate.clear)
        forking = asyncio.create_task(parent.fork(3))
        await until(lambda: served.runtime.points.taken != 0, 5)
        forking.cancel()
        await asyncio.gather(forking, return_exceptions=True)
        served.loop.call_soon_threadsafe(served.runtime.create_gate.set)
        assert (await parent.step("wait()")).step == 1
        await until(lambda: not (leased(served) > 1 or served.runtime.points.states), 5)
    await none_leased(served)


async def test_leases_of_children_are_renewed(served: Served) -> None:
    """A child that does nothing lives on while its client does."""
    async with AsyncClient(served.urls[0]) as client, client.episode() as parent:
        children = await parent.fork(2, lease_ttl_s=1)
        await asyncio.sleep(1.6)
        for child in children:
            assert (await child.step("wait()")).step == 1


async def test_checkpoints_are_kept_listed_restored_and_deleted(served: Served) -> None:
    """By object or by bare id; restored ones know where they come from."""
    async with AsyncClient(served.urls[0]) as client:
        async with client.episode(TASK) as parent:
            await parent.step("click(1,1)")
            checkpoint = await parent.checkpoint(keep=True)
            await parent.step("click(2,2)")
        assert (checkpoint.host, checkpoint.info.step) == (served.urls[0], 1)
        assert [c.checkpoint_id for c in await client.checkpoints()] == [checkpoint.checkpoint_id]
        for which in (checkpoint, checkpoint.checkpoint_id):
            async with await client.restore(which) as restored:
                assert restored.trajectory.parent is not None
                assert restored.trajectory.parent.checkpoint_id == checkpoint.checkpoint_id
                assert restored.observation.step == 1
                assert (await restored.step("click(3,3)")).step == 2
                assert (await restored.evaluate()).reward == 1.0
        await checkpoint.delete()
        await checkpoint.delete()
        assert await client.checkpoints() == []
        with pytest.raises(CheckpointNotFound):
            await client.restore(checkpoint)
        with pytest.raises(CheckpointNotFound):
            await client.restore(checkpoint.checkpoint_id)
    await none_leased(served)


async def test_a_suspended_episode_is_resumed_once(served: Served) -> None:
    """By object or id; the episode is closed, nothing is leased meanwhile, nothing is kept afterwards."""
    async with AsyncClient(served.urls[0]) as client:
        for by_id in (False, True):
            async with client.episode(TASK) as episode:
                await episode.step("click(1,1)")
                suspended = await episode.suspend(ttl_s=60)
                assert suspended.info.suspended
                await none_leased(served)
                with pytest.raises(EpisodeEnded):
                    await episode.step("wait()")
            which = suspended.checkpoint_id if by_id else suspended
            async with await client.resume(which) as resumed:
                assert await client.checkpoints() == []
                assert (await resumed.step("click(2,2)")).step == 2
                assert (await resumed.evaluate()).reward == 1.0
            with pytest.raises(CheckpointNotFound):
                await client.resume(which)
    await none_leased(served)


async def test_a_checkpoint_travels_between_hosts(served: Served, tmp_path: Path) -> None:
    """Exported to a file, taken in by the other host, looked up among both by its bare id."""
    with Served(tmp_path / "other") as other:
        async with AsyncClient([served.urls[0], other.urls[0]]) as client:
            async with AsyncClient(served.urls[0]) as first, first.episode(TASK) as parent:
                await parent.step("click(1,1)")
                await parent.checkpoint(keep=True)
                fleeting = await parent.checkpoint()
                with pytest.raises(BadRequest):
                    await fleeting.export(tmp_path / "no")
            (checkpoint,) = await client.checkpoints()
            file = await checkpoint.export(tmp_path / "moved.checkpoint")
            assert named(tmp_path, "moved") == [file.name]
            with pytest.raises(ConfigError):
                await client.import_checkpoint(file)
            taken = await client.import_checkpoint(file, host=other.urls[0])
            await checkpoint.delete()
            async with await client.restore(taken.checkpoint_id) as restored:
                assert restored.host == other.urls[0]
                assert (await restored.step("click(2,2)")).step == 2
            await taken.delete()
            file.write_bytes(file.read_bytes()[:50])
            with pytest.raises(BadRequest):
                await client.import_checkpoint(file, host=other.urls[0])
            with pytest.raises(ConfigError):
                await client.import_checkpoint(tmp_path / "nothing", host=other.urls[0])


async def test_a_host_that_cannot_branch_says_so(tmp_path: Path) -> None:
    """Unsupported, with the remedy; the state of the host tells it before."""
    with Served(tmp_path) as served:
        served.runtime.branching = False
        async with AsyncClient(served.urls[0]) as client, client.episode() as parent:
            with pytest.raises(Unsupported, match="`runtime: qemu`"):
                await parent.fork(2)
            (state,) = (await client.host_states()).values()
            assert getattr(state, "branching", None) is False
            assert (await parent.step("wait()")).step == 1


def test_the_same_without_async(served: Served, tmp_path: Path) -> None:
    """The synchronous client has all of it."""
    with Client(served.urls[0]) as client:
        with client.episode(TASK) as parent:
            parent.step("click(1,1)")
            for child in parent.fork(2):
                with child:
                    assert child.step("click(2,2)").step == 2
                    assert child.trajectory.parent == ParentInfo(parent.episode_id, 1)
            checkpoint = parent.checkpoint(keep=True)
            suspended = parent.suspend()
        with client.resume(suspended) as resumed:
            assert resumed.step("wait()").step == 2
        assert "step=1" in repr(checkpoint)
        file = checkpoint.export(tmp_path / "c")
        checkpoint.delete()
        taken = client.import_checkpoint(file)
        assert [c.checkpoint_id for c in client.checkpoints()] == [taken.checkpoint_id]
        with client.restore(taken) as restored:
            assert restored.step("wait()").step == 2
        with client.restore(taken.checkpoint_id) as restored:
            assert restored.evaluate().reward == 1.0
        taken.delete()
