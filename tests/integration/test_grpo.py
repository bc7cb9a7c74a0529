"""examples/grpo.py against a host agent: groups come as it expects them, and teach what they should."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from examples import grpo
from examples.one_screen import make_task, oracle
from examples.sft import cell_of
from tests.support.fake_runtime import TASK, Served
from tests.support.host_process import HostProcess

from osgym_sdk import Client, Group


class Stub:
    """Chooses places in turn, from those given."""

    cells = grpo.on_board()

    def __init__(self, places: list[int]) -> None:
        self._places = iter(places)

    def choose(self, pixels: bytes) -> grpo.Choice:
        return grpo.Choice(pixels, next(self._places), -1.0)


def groups_of(url: str, tasks: list[dict[str, Any]], agent: Any, concurrency: int) -> list[Group]:
    with Client(url) as client:
        return list(grpo.rollouts(client, tasks, agent, concurrency))


def test_a_group_teaches_what_its_members_chose(tmp_path: Path) -> None:
    """Those that were scored, and only where rewards differ."""
    with Served(tmp_path, warm=2, max_replicas=10) as served:
        (group,) = groups_of(served.urls[0], [TASK], Stub(list(range(8))), 8)
    assert group.complete and group.branched and group.same_start and len(group.results) == grpo.GROUP
    assert grpo.lessons(group) == []  # all earned the same
    changed = [dataclasses.replace(one, reward=float(one.member == 3)) for one in group.results]
    changed[0] = dataclasses.replace(changed[0], reward=None, valid_for_training=False)
    taught = grpo.lessons(dataclasses.replace(group, results=tuple(changed)))
    assert sorted(lesson.choice.place for lesson in taught) == sorted(
        one.steps[0].info.place for one in changed[1:]
    )
    assert [lesson.choice.place for lesson in taught if lesson.advantage > 0] == [
        changed[3].steps[0].info.place
    ]
    short = dataclasses.replace(group, results=tuple(changed[:1]))
    assert grpo.lessons(short) == []


@pytest.mark.desktop
async def test_a_group_on_real_desktops(host: HostProcess) -> None:
    """A member that clicks the blue square has the group's advantage, the others do not."""
    task = make_task(3)
    click = oracle(task)
    right = grpo.on_board().index(cell_of(click["x"], click["y"], grpo.SCREEN))
    stub = Stub([right] + [0 if right else 1] * 7)
    (group,) = await asyncio.to_thread(groups_of, host.url, [task], stub, 2)
    assert sorted(group.rewards, key=str) == [0.0] * 7 + [1.0]
    (best,) = [lesson for lesson in grpo.lessons(group) if lesson.advantage > 0]
    assert best.choice.place == right and len(grpo.lessons(group)) == grpo.GROUP


@pytest.mark.desktop
def test_the_script_runs_to_its_picture(host: HostProcess, tmp_path: Path) -> None:
    """One update after a weak beginning: what is written says what was played."""
    pytest.importorskip("torch", reason="missing: torch")
    small = ["--minutes", "0.01", "--oracle", "2", "--oracle-epochs", "1", "--tasks", "1", "--test", "1"]
    grpo.main([*small, "--hosts", host.url, "--concurrency", "2", "--out", str(tmp_path)])
    assert {"grpo-0.json", "grpo.png"} <= {file.name for file in tmp_path.iterdir()}
