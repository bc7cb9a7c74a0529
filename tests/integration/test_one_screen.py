"""The one-screen tasks in real desktops: recorded, scored, ready to be learned from."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from examples import sft
from examples.one_screen import BLUE, make_task, oracle
from tests.support.host_process import HostProcess

from osgym_sdk import AsyncClient, Client
from osgym_sdk.data import Dataset

pytestmark = pytest.mark.desktop


async def test_the_oracle_is_recorded_and_chance_is_not_rewarded(host: HostProcess, tmp_path: Path) -> None:
    """The data set says which image it was, and shows the blue square where the oracle clicked."""

    def record() -> None:
        with Client(host.url) as client:
            sft.collect(client, tmp_path, range(2), 2)

    await asyncio.to_thread(record)
    episodes = sorted(Dataset.open(tmp_path).episodes(), key=lambda one: str(one.task_id))
    assert [(one.task_id, one.reward, len(one)) for one in episodes] == [
        ("blue-square-0", 1.0, 1),
        ("blue-square-1", 1.0, 1),
    ]
    for episode in episodes:
        step = episode.steps[0]
        assert step["image_flavor"] == "small" and step["image_digest"] and step["settle_reason"]
        assert step.image_before is not None
        where = (step.actions[0]["x"] + 40, step.actions[0]["y"] + 40)
        assert step.image_before.getpixel(where) == tuple(bytes.fromhex(BLUE[1:]))
    assert len(sft.samples(Dataset.open(tmp_path))) == 2

    def beside(obs: Any, task: Any, step: int) -> dict[str, Any]:
        return {**oracle(task), "y": 30}

    async with AsyncClient(host.url) as client:
        results = [result async for result in client.run([make_task(7)], beside, max_steps=1)]
    assert [(result.reward, result.failure) for result in results] == [(0.0, None)]
