"""The example of tree search on real virtual machines: its moves do what its model says."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples.tree_search import GIVEN, PAIRS, compare, table
from tests.support.host_process import HostProcess, start_host

from osgym_qemu.snapshots import Snapshot

pytestmark = pytest.mark.timeout(600)
IN_ORDER = 6
"""Pairs of the given list that are."""


@pytest.fixture
def host(small_snapshot: Snapshot, tmp_path: Path) -> Iterator[HostProcess]:
    """A host with virtual machines; afterwards nothing of it is left."""
    made = start_host(
        f"search-{os.getpid()}",
        image="small",
        warm=1,
        max_replicas=8,
        log_dir=tmp_path,
        settings=("runtime=qemu", "qemu.parked=3", "trajectory=off", "cpu_per_replica=0"),
        wait=False,
    )
    yield made
    assert made.stop() == 0, made.tail()
    made.assert_nothing_left()
    shutil.rmtree(made.data_dir / "state" / made.instance)


def test_one_level_on_real_desktops(host: HostProcess) -> None:
    """As many steps in both arms; a move is worth one pair of items, and the search takes a good one."""
    assert len(GIVEN) == 5
    ((seed, without, with_forks),) = asyncio.run(compare(host.url, [0], levels=1, width=2))
    assert (seed, without.steps, with_forks.steps) == (0, 2, 2)
    near = {n / PAIRS for n in range(IN_ORDER + 2)}
    assert without.reward in near and with_forks.reward in near
    assert with_forks.reward >= max(IN_ORDER / PAIRS, without.reward)
    assert len(table([(seed, without, with_forks)])) == 5
