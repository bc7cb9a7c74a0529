"""Host API v1: checkpoints, restoring, export and import; typed when it fails."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.api_answers import error
from tests.support.branching_calls import checkpoint, close, evaluate, kept, scratch
from tests.support.fake_runtime import TASK, Service, record, running_service
from tests.support.waiting import until

from osgym_sdk import wire


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A service with one warm fake replica and room for eight."""
    async with running_service(tmp_path, warm=1, max_replicas=8) as running:
        yield running


async def test_a_checkpoint_is_a_moment_to_begin_from_again_and_again(service: Service) -> None:
    """Restored episodes have the task, the numbers and the screen of that moment, not what came later."""
    parent = await service.create(task=TASK, max_steps=9)
    await service.step(parent, 1, "click(1,1)")
    checkpoint_id = await kept(service, parent)
    await service.step(parent, 2, "click(2,2)")
    for x in (5, 6):
        restored = await service.create(checkpoint=checkpoint_id)
        created = wire.CreateAnswer.from_dict(restored)
        assert (created.step, created.last_seq) == (1, 1)
        assert created.parent == wire.ParentInfo(parent["episode_id"], 1, checkpoint_id)
        record(await service.step(restored, 2, f"click({x},3)"))
        assert [a["x"] for a in service.guest_of(restored).agent.acted] == [1, x]
        assert (await evaluate(service, restored))["reward"] == 1.0
    answer = await service.http.post(
        "/v1/episodes", json={"request_id": "t", "task": TASK, "checkpoint": checkpoint_id}
    )
    assert error(answer) == (422, "bad_request")


async def test_a_checkpoint_that_is_not_kept_goes_with_its_episode(service: Service) -> None:
    """Restored episodes live on; the id is unknown afterwards."""
    parent = await service.create()
    checkpoint_id = await kept(service, parent)
    restored = await service.create(checkpoint=checkpoint_id)
    await close(service, parent)
    assert record(await service.step(restored, 1, "wait()")).meta["step"] == 1
    answer = await service.http.post("/v1/episodes", json={"request_id": "x", "checkpoint": checkpoint_id})
    assert error(answer) == (404, "unknown_checkpoint")
    await until(lambda: not service.runtime.points.states)


async def test_listing_deleting_and_times_to_live(service: Service) -> None:
    """The list says what there is; deleting is for good; a time to live ends by itself."""
    parent = await service.create(task=TASK)
    stays = await kept(service, parent, keep=True)
    goes = await kept(service, parent, keep=True, ttl_s=0.3)
    listed = wire.CheckpointList.from_dict((await service.http.get("/v1/checkpoints")).json())
    assert [c.checkpoint_id for c in listed.checkpoints] == [stays, goes]
    assert listed.used_mib == 84
    assert listed.checkpoints[0].task_id == "say-yes"
    assert listed.checkpoints[0].expires_at is None
    await until(lambda: goes not in service.runtime.points.states)
    await close(service, parent)
    restored = await service.create(checkpoint=stays)
    assert (await service.http.delete(f"/v1/checkpoints/{stays}")).status_code == 204
    assert error(await service.http.delete(f"/v1/checkpoints/{stays}")) == (404, "unknown_checkpoint")
    assert record(await service.step(restored, 1, "wait()")).meta["step"] == 1
    await until(lambda: not service.runtime.points.states)


async def test_a_repeated_checkpoint_is_one(service: Service) -> None:
    """By its request id; undone, it is gone."""
    parent = await service.create()
    first = await checkpoint(service, parent, request_id="q", keep=True)
    assert (await checkpoint(service, parent, request_id="q", keep=True)).json() == first.json()
    assert service.runtime.points.taken == 1
    assert (await service.http.delete("/v1/requests/q")).status_code == 204
    await until(lambda: not service.runtime.points.states)
    assert (await service.http.get("/v1/checkpoints")).json()["checkpoints"] == []


async def test_checkpoints_are_bounded(tmp_path: Path) -> None:
    """The setting is named; nothing of the refused one is left; deleting makes room."""
    async with running_service(tmp_path, checkpoints_max_mib=100) as service:
        parent = await service.create()
        ids = [await kept(service, parent, keep=True, request_id=str(n)) for n in range(2)]
        answer = await checkpoint(service, parent, keep=True, request_id="3")
        assert error(answer) == (503, "no_capacity")
        assert "checkpoints_max_mib" in answer.json()["message"]
        await until(lambda: len(service.runtime.points.states) == 2)
        await service.http.delete(f"/v1/checkpoints/{ids[0]}")
        await kept(service, parent, keep=True, request_id="4")


async def test_a_kept_checkpoint_outlives_the_host_agent(tmp_path: Path) -> None:
    """With task, numbers and owner; its file is for its owner's eyes only; one without a task file too."""
    async with running_service(tmp_path) as service:
        parent = await service.create(task=TASK)
        await service.step(parent, 1, "click(1,1)")
        checkpoint_id = await kept(service, parent, keep=True)
        bare_id = await kept(service, parent, keep=True, request_id="bare")
        await kept(service, parent, request_id="short-lived")
        folder = tmp_path / "data" / "state" / "default" / "checkpoints"
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
        assert folder.stat().st_mode & 0o777 == 0o700
    (folder / f"{bare_id}.json").unlink()
    (folder / "left.tmp").touch()
    async with running_service(tmp_path) as service:
        listed = (await service.http.get("/v1/checkpoints")).json()["checkpoints"]
        assert {c["checkpoint_id"] for c in listed} == {checkpoint_id, bare_id}
        assert not list(folder.glob("*.tmp"))
        restored = await service.create(checkpoint=checkpoint_id)
        assert restored["last_seq"] == 1
        record(await service.step(restored, 2, "click(2,2)"))
        assert (await evaluate(service, restored))["reward"] == 1.0
        bare = await service.create(checkpoint=bare_id)
        assert record(await service.step(bare, 2, "wait()")).meta["step"] == 2


async def test_a_checkpoint_travels(tmp_path: Path) -> None:
    """Exported by one host, taken in by another, with the same task and numbers."""
    async with running_service(tmp_path / "one") as service:
        parent = await service.create(task=TASK)
        await service.step(parent, 1, "click(1,1)")
        checkpoint_id = await kept(service, parent, keep=True)
        answer = await service.http.get(f"/v1/checkpoints/{checkpoint_id}/export")
        assert int(answer.headers["content-length"]) == len(answer.content)
        fleeting = await kept(service, parent, request_id="f")
        answer_2 = await service.http.get(f"/v1/checkpoints/{fleeting}/export")
        assert error(answer_2) == (409, "bad_request")
        assert not scratch(tmp_path)
    async with running_service(tmp_path / "two") as service:
        taken = await service.http.post("/v1/checkpoints/import", content=answer.content)
        info = wire.CheckpointInfo.from_dict(taken.json())
        assert (info.step, info.kept, info.task_id) == (1, True, "say-yes")
        restored = await service.create(checkpoint=info.checkpoint_id)
        record(await service.step(restored, 2, "click(2,2)"))
        assert [a["x"] for a in service.guest_of(restored).agent.acted] == [1, 2]
        assert (await evaluate(service, restored))["reward"] == 1.0
        assert not scratch(tmp_path)


def _spoiled(good: bytes, how: str) -> bytes:
    head, _, rest = good.partition(b"\n")
    length = int.from_bytes(rest[:4], "big")
    meta, inner = json.loads(rest[4 : 4 + length]), rest[4 + length :]

    def packed(meta: Any, inner: bytes = inner) -> bytes:
        text = json.dumps(meta).encode()
        return head + b"\n" + len(text).to_bytes(4, "big") + text + inner

    moment = meta["moment"]
    return {
        "nothing": b"",
        "another file": b"PK\x03\x04" + good,
        "cut in its head": good[:40],
        "cut in its body": good[:-20],
        "a huge head": head + b"\n" + b"\xff\xff\xff\xff" + rest[4:],
        "deep": head + b"\n" + (200_000).to_bytes(4, "big") + b"[" * 200_000,
        "no object": packed([]),
        "a path": packed({**meta, "episode_id": "../../etc"}),
        "no number": packed({**meta, "moment": {**moment, "progress": {**moment["progress"], "seq": -1}}}),
        "no action": packed(
            {**meta, "moment": {**moment, "progress": {**moment["progress"], "actions": [{"op": "rm"}]}}}
        ),
        "long settling": packed(
            {**meta, "moment": {**moment, "settle": {"policy": "exact", "max_ms": 1e12}}}
        ),
        "no screen": packed({**meta, "moment": {**moment, "screen": [1e9, 1]}}),
        "another snapshot": packed(meta, inner.replace(b"0" * 64, b"1" * 64)),
    }[how]


@pytest.mark.parametrize(
    "how",
    [
        "nothing",
        "another file",
        "cut in its head",
        "cut in its body",
        "a huge head",
        "deep",
        "no object",
        "a path",
        "no number",
        "no action",
        "long settling",
        "no screen",
        "another snapshot",
    ],
)
async def test_what_is_no_checkpoint_is_refused_and_leaves_nothing(
    service: Service, tmp_path: Path, how: str
) -> None:
    """A typed refusal, no file, no point."""
    parent = await service.create(task=TASK)
    await service.step(parent, 1, "click(1,1)")
    checkpoint_id = await kept(service, parent, keep=True)
    good = (await service.http.get(f"/v1/checkpoints/{checkpoint_id}/export")).content
    answer = await service.http.post("/v1/checkpoints/import", content=_spoiled(good, how))
    assert error(answer) == (422, "bad_request")
    assert set(service.runtime.points.states) == {checkpoint_id}
    assert not scratch(tmp_path)


async def test_an_import_is_bounded(tmp_path: Path) -> None:
    """What is larger than the room for checkpoints is refused while it comes."""
    async with running_service(tmp_path, checkpoints_max_mib=1) as service:
        sent = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal sent
            while sent < 64:
                sent += 1
                yield b"x" * 262_144

        answer = await service.http.post("/v1/checkpoints/import", content=endless())
        assert error(answer) == (413, "bad_request")
        assert sent < 16
        assert not scratch(tmp_path)
