"""Desktops with a clock of their own."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from PIL import ImageChops
from tests.support.host_process import HostProcess

from osgym_sdk import AsyncClient, TaskError

pytestmark = pytest.mark.desktop
PANEL_CLOCK = (1800, 1040, 1920, 1080)
NINE = "2026-01-01T09:00"
SAYS = "cd ~; date +%FT%H:%M; touch f; stat -c %y f | cut -c1-16; sudo date +%FT%H:%M"


def says() -> dict[str, Any]:
    """A task whose setup writes into a file what time it is there."""
    return {
        "id": "clock",
        "instruction": "",
        "config": [
            {"type": "execute", "parameters": {"command": f"({SAYS}) > /home/user/out", "shell": True}}
        ],
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "vm_command_line", "command": "cat /home/user/out", "shell": True},
            "expected": {
                "type": "rule",
                "rules": {"expected": f"{NINE}\n{NINE.replace('T', ' ')}\n{NINE}\n"},
            },
        },
    }


@pytest.mark.parametrize("frozen", [False, True])
async def test_setup_and_check_see_the_clock(client: AsyncClient, frozen: bool) -> None:
    """It is set before the task's setup; files, programs of sudo and the check see it."""
    async with client.episode(says(), clock={"start": NINE, "frozen": frozen}) as episode:
        await episode.step("wait()")
        assert (await episode.evaluate()).reward == 1


async def test_the_panel_shows_it_and_the_same_one_on_each_desktop(client: AsyncClient) -> None:
    """Two desktops of the same time are the same to the pixel; one of now is not."""
    frames = []
    for clock in (NINE, NINE, None):
        async with client.episode(clock=clock) as episode:
            frames.append(episode.observation.image.convert("RGB"))
    same, other = (ImageChops.difference(frames[0], frame).getbbox() for frame in frames[1:])
    assert same is None
    assert other is not None
    assert other[0] >= PANEL_CLOCK[0]
    assert other[1] >= PANEL_CLOCK[1]


async def test_a_tasks_own_clock(client: AsyncClient) -> None:
    """The task file says it; the client's comes before it."""
    task = {**says(), "osgym": {"clock": NINE}}
    async with client.episode(task) as episode:
        assert (await episode.evaluate()).reward == 1
    async with client.episode({**task, "osgym": {"clock": "2031-05-05T05:05"}}, clock=NINE) as episode:
        assert (await episode.evaluate()).reward == 1


async def test_what_is_no_time_is_refused(host: HostProcess, client: AsyncClient) -> None:
    """Before a replica is leased, whoever says it."""
    with pytest.raises(TaskError, match=r"osgym\.clock"):
        await client.episode({**says(), "osgym": {"clock": "noon"}}).start()
    async with httpx.AsyncClient(base_url=host.url, timeout=20) as http:
        for clock in ("noon", {"start": "noon"}, {"start": NINE, "speed": 2}, 5):
            answer = await http.post("/v1/episodes", json={"request_id": f"{clock}", "clock": clock})
            assert answer.status_code in (400, 422)
            assert answer.json()["code"] == "bad_request"
