"""Calls of the host API that branch episodes, and what follows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from osgym_sdk import wire
from tests.support.fake_runtime import Service


def scratch(tmp_path: Path) -> list[Path]:
    """Files that were meant to go again."""
    return list(tmp_path.rglob("*.tmp"))


async def fork(service: Service, episode: dict[str, Any], count: int, **more: Any) -> httpx.Response:
    """Posts a fork."""
    body = {
        "request_id": f"f{count}-{episode['episode_id']}",
        "lease": episode["lease"],
        "count": count,
        **more,
    }
    return await service.http.post(f"/v1/episodes/{episode['episode_id']}/fork", json=body)


async def forked(service: Service, episode: dict[str, Any], count: int, **more: Any) -> list[dict[str, Any]]:
    """Children of a fork that is made, as what `Service.step` takes."""
    answer = await fork(service, episode, count, **more)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["children"])


async def checkpoint(service: Service, episode: dict[str, Any], **more: Any) -> httpx.Response:
    """Posts a checkpoint."""
    body = {"request_id": f"c{more}", "lease": episode["lease"], **more}
    return await service.http.post(f"/v1/episodes/{episode['episode_id']}/checkpoint", json=body)


async def kept(service: Service, episode: dict[str, Any], **more: Any) -> str:
    """The id of a checkpoint that is taken."""
    answer = await checkpoint(service, episode, **more)
    assert answer.status_code == 200, answer.text
    return wire.CheckpointInfo.from_dict(answer.json()).checkpoint_id


async def evaluate(service: Service, episode: dict[str, Any]) -> dict[str, Any]:
    """Scores an episode."""
    path = f"/v1/episodes/{episode['episode_id']}/evaluate"
    answer = await service.http.post(path, json={"lease": episode["lease"]})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def close(service: Service, episode: dict[str, Any]) -> None:
    """Closes an episode."""
    path = f"/v1/episodes/{episode['episode_id']}"
    headers = {wire.LEASE_HEADER: episode["lease"]}
    assert (await service.http.delete(path, headers=headers)).status_code == 204
