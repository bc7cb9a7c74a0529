"""Every task on real desktops: its oracle earns 1; nothing, something near and every wrong way earn 0.

The oracle earns 0, too, where files of the home that no task mentions were lost.

An oracle that presses Enter after a text earns the same where the text itself ends in a line break.

And the screen on which an oracle ends, which `make demo` shows, is the final one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.oracles import with_enters_in_texts
from benchmarks.settle.live import PANEL_HEIGHT_PX
from benchmarks.settle.truth import Box, difference
from tests.support.host_process import HostProcess, running_host

from osgym_host.images.errors import ImageError
from osgym_host.images.store import ImageStore, default_data_dir
from osgym_host.tasks.shipped import ShippedTask, Step, Steps, load_shipped, next_actions
from osgym_sdk import AsyncClient, AsyncObservation, Result

TASKS = load_shipped()
SMALL = [task for task in TASKS if task.flavor == "small"]
FULL = [task for task in TASKS if task.flavor == "full"]
ENTERS = "oracle with Enters in its texts"
LOSSES = "oracle after files were lost"
LOSE = {"type": "execute", "parameters": {"command": "rm -r ~/Music ~/.bash_logout", "shell": True}}
DONE = [{"op": "done"}]
TRUTH_S = 3.0
"""When a screen counts as final, as in `benchmarks.settle`."""


class Scripted:
    """Plays the way that a task is marked with."""

    def __init__(self, tasks: list[ShippedTask]) -> None:
        self.by_id = {task.task["id"]: task for task in tasks}
        self.watched: dict[str, str] = {}
        """Of each task the last screen of its oracle: what changed on it later."""

    def jobs(self) -> list[dict[str, Any]]:
        """Each task in each way that it has."""
        return [
            {**task.task, "way": way, "config": [*task.task["config"], *([LOSE] if way == LOSSES else [])]}
            for task in self.by_id.values()
            for way, steps in ways_of(task).items()
            if way != ENTERS or steps != task.oracle
        ]

    async def act(self, obs: Any, task: dict[str, Any], step: int) -> list[dict[str, Any]]:
        """The next step of the way."""
        steps = ways_of(self.by_id[task["id"]])[task["way"]]
        actions = await next_actions(obs, steps, step)
        if task["way"] == "oracle" and 0 < step == len(steps) - 1:
            self.watched[task["id"]] = await changed_later(await obs.final())
        return actions


def ways_of(task: ShippedTask) -> dict[str, Steps]:
    """All ways to play a task, by name."""
    return {
        "oracle": task.oracle,
        ENTERS: with_enters_in_texts(task.oracle),
        "near": task.near,
        "nothing": (Step(DONE),),
        LOSSES: task.oracle,
        **task.wrong,
    }


async def changed_later(obs: AsyncObservation) -> str:
    """What is different on the screen after three seconds, panel and carets apart; empty: nothing."""
    await asyncio.sleep(TRUTH_S)  # not a wait for something: what is measured is that nothing comes
    later = (await obs.episode.observe()).image
    found = difference(obs.image, later, [Box(0, later.height - PANEL_HEIGHT_PX, later.width, later.height)])
    return "" if found is None else f"{found.pixels} px in {found.box}"


async def play(url: str, tasks: list[ShippedTask]) -> list[Result]:
    """All ways of all tasks, two desktops at a time."""
    scripted = Scripted(tasks)
    async with AsyncClient(url) as client, asyncio.timeout(900):
        results = [r async for r in client.run(scripted.jobs(), scripted, concurrency=2, wait_s=120)]
    acting = [
        task.task["id"] for task in tasks if len(task.oracle) > 1
    ]  # one only says that it cannot be done
    assert scripted.watched == dict.fromkeys(acting, ""), "oracles end on screens that are not final"
    return results


def check(results: list[Result]) -> None:
    """Rewards are exact; whatever is wrong is named with the reason."""
    wrong = []
    for result in results:
        way = result.task["way"]
        wanted = 1.0 if way in ("oracle", ENTERS) else 0.0
        if result.reward != wanted:
            evaluation = result.trajectory.evaluation
            why = result.failure or (evaluation.details if evaluation else None)
            wrong.append(f"{result.task['id']} by {way}: {result.reward}, not {wanted}: {why}")
    assert not wrong, "\n".join(wrong)


def test_there_are_enough_tasks() -> None:
    """At least 14 tasks over 7 applications, half of them without office suite and browser."""
    assert len(TASKS) >= 14
    assert len(SMALL) >= 7
    assert len({app for task in TASKS for app in task.apps}) >= 7
    assert len({task.task["id"] for task in TASKS}) == len(TASKS)


@pytest.mark.desktop
@pytest.mark.timeout(900)
async def test_small_tasks(host: HostProcess) -> None:
    """Tasks over small applications, in every way."""
    check(await play(host.url, SMALL))


@pytest.fixture(scope="module")
def full_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host with the full image, or a skip that says what is missing."""
    try:
        ImageStore(default_data_dir()).resolve("full")
    except ImageError as error:
        pytest.skip(f"missing: {error}")
    logs = tmp_path_factory.mktemp("full-host")
    with running_host(f"oracles-{os.getpid()}", image="full", log_dir=logs) as running:
        yield running


@pytest.mark.desktop
@pytest.mark.full_image
@pytest.mark.timeout(900)
async def test_full_tasks(full_host: HostProcess) -> None:
    """Tasks over office suite, browser, image editor and player, in every way."""
    check(await play(full_host.url, FULL))
