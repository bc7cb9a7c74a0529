"""Task templates over virtual machines: a known set-up is cloned, and no template outlives the host agent."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.support.host_process import MACHINES, running_host, start_host
from tests.support.template_episodes import SHIPPED, Api, assert_clones_begin_alike, assert_oracle_earns_all

from osgym_host.images.store import default_data_dir
from osgym_qemu.snapshots import Snapshot

pytestmark = pytest.mark.desktop

SETTINGS = (*MACHINES, "task_templates=on")
SELF = "cat /etc/machine-id /proc/sys/kernel/random/boot_id; head -c 16 /dev/urandom | od -An -tx1; date +%s"


def test_a_clone_of_a_set_up_is_as_good_as_the_set_up(small_snapshot: Snapshot, tmp_path: Path) -> None:
    """The same first frame and score as the one that was set up; its own identity, randomness and clock."""
    with (
        running_host(f"tpl-{os.getpid()}", log_dir=tmp_path, warm=1, settings=SETTINGS) as host,
        Api(host) as api,
    ):
        made = api.create(SHIPPED.task, "made")
        assert made.meta["template"] == "made"
        hits = assert_clones_begin_alike(api, made, SHIPPED.task)
        selves = [api.run(record.meta, SELF) for record in (made, *hits)]
        for index in range(3):
            assert len({lines[index] for lines in selves}) == 3, (index, selves)
        now = time.time()
        assert all(abs(int(lines[3]) - now) < 60 for lines in selves), (now, selves)
        for record in (made, hits[0]):
            assert_oracle_earns_all(api, record.meta, SHIPPED)
        for record in (made, *hits):
            api.close(record.meta)


def test_templates_end_with_a_killed_host_agent_and_episodes_go_on(
    small_snapshot: Snapshot, tmp_path: Path
) -> None:
    """kill -9: the next agent has no template and no file of one; the episode of a clone counts on."""
    instance = f"tplk-{os.getpid()}"
    points = default_data_dir() / "run" / instance / "points"
    first = start_host(instance, log_dir=tmp_path, warm=1, settings=SETTINGS)
    with Api(first) as api:
        api.close(api.create(SHIPPED.task, "made").meta)
        hit = api.create(SHIPPED.task, "hit").meta
        assert hit["template"] == "hit"
        assert api.step(hit, 1, [{"op": "move", "x": 5, "y": 5}])["step"] == 1
        assert list(points.iterdir())
        first.process.kill()
        first.process.wait(10)
    with (
        running_host(instance, log_dir=tmp_path, warm=1, port=first.port, settings=SETTINGS) as second,
        Api(second) as api,
    ):
        assert not list(points.iterdir())
        assert api.step(hit, 2, [{"op": "move", "x": 9, "y": 9}])["step"] == 2
        anew = api.create(SHIPPED.task, "anew").meta
        assert anew["template"] == "made"
        api.close(anew)
        api.close(hit)
    first.assert_nothing_left()
