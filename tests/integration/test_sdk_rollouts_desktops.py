"""Groups of rollouts on real desktops: set up one by one in namespaces, branched as virtual machines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT
from tests.support.host_process import MACHINES, HostProcess, running_host

from osgym_qemu.snapshots import Snapshot
from osgym_sdk import AsyncClient, Client, load_tasks

TASK: dict[str, Any] = {
    "id": "once",
    "config": [{"type": "execute", "parameters": {"command": ["sh", "-c", "echo set up >> /tmp/set-ups"]}}],
    "evaluator": {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": ["cat", "/tmp/set-ups"]},
        "expected": {"type": "rule", "rules": {"expected": "set up\n"}},
    },
}
"""Earns 1 where it was set up once, in this machine or in the one that it is a child of."""
TASKS = {task["id"]: task for task in load_tasks(ROOT / "tasks")}


async def test_each_member_is_set_up_where_hosts_do_not_branch(host: HostProcess) -> None:
    """Every member has the task's file, one that the policy left alone earns nothing, and none is lost."""
    task = TASKS["rename-folder"]

    async def policy(obs: Any, task: Any, step: int) -> str:
        return "move(5,5)" if step == 0 else "finish()"

    async with AsyncClient(host.url) as client:
        groups = [
            group async for group in client.rollouts([task], policy, group=2, concurrency=2, wait_s=120)
        ]
    (group,) = groups
    assert group.complete and group.rewards == (0.0, 0.0)
    assert (group.branched, group.task_id) == (False, "rename-folder")
    assert all(result.trajectory.parent is None for result in group.results)


@pytest.mark.desktop
def test_members_are_children_of_one_moment_on_virtual_machines(
    small_snapshot: Snapshot, tmp_path: Path
) -> None:
    """Their first frames are equal bit by bit; each acts alone, and nothing of the start is left."""
    name = f"groups-{os.getpid()}"

    def policy(obs: Any, task: Any, step: int) -> list[dict[str, Any]] | str:
        return "finish()" if step else [{"op": "key", "keys": ["ctrl", "h"]}, "move(700,500)"]

    with (
        running_host(name, log_dir=tmp_path, warm=1, max_replicas=3, settings=MACHINES) as host,
        Client(host.url) as client,
    ):
        before = {checkpoint.checkpoint_id for checkpoint in client.checkpoints()}  # other tests have some
        (group,) = client.rollouts([TASK], policy, group=3, concurrency=2, keep_frames=True, wait_s=120)
        assert group.complete and group.branched, group.failure
        assert group.same_start
        assert len({result.trajectory.first_data for result in group.results}) == 1
        assert len({result.trajectory.generation for result in group.results}) == 3
        assert {str(result.trajectory.parent) for result in group.results} != {"None"}
        assert group.rewards == (1.0,) * 3
        assert {checkpoint.checkpoint_id for checkpoint in client.checkpoints()} <= before
