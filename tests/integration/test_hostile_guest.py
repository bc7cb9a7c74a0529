"""A hostile guest agent in a real replica, and a neighbour on the same host that goes on stepping."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from benchmarks.common import quantile
from benchmarks.hostile_guest import Attack, attack, resident_mib
from tests.support.host_process import HostProcess, running_host

from osgym_host.images.store import Image
from osgym_sdk import Client

MAX_DELAY_MS = 20.0
MAX_GROWTH_MIB = 20.0
LOST = (
    "chunks of one byte",
    "objects",
    "error of objects",
    "endless head",
    "wrong size",
    "not an image",
)
"""What ends the attacker's episode, as a fault of its guest."""


@pytest.fixture(scope="module")
def host(small_image: Image) -> Iterator[HostProcess]:
    with running_host(f"hostile-{os.getpid()}", warm=2, max_replicas=4) as running:
        yield running


def struck(host: HostProcess, shape: str) -> Attack:
    """One attack beside a neighbour."""
    sockets = host.data_dir / "run" / host.instance / "replicas"
    with Client(host.url) as client, client.episode() as neighbour:
        neighbour.step([{"op": "move", "x": 5, "y": 5}], settle="fast")
        return attack(host.url, host.process.pid, sockets, neighbour, shape, 0)


@pytest.mark.parametrize("shape", LOST)
def test_a_hostile_guest_loses_its_own_episode_only(host: HostProcess, shape: str) -> None:
    """Typed, soon, and the neighbour's steps take what they took before."""
    before = resident_mib(host.process.pid)
    done = struck(host, shape)
    assert (done.status, done.code) == (410, "episode_lost")
    # Every step of the neighbour was answered, or `attack` would have raised. Medians: the machine has other
    # work, too, among it the replica that takes the lost one's place.
    assert quantile(done.under_ms, 0.5) < quantile(done.quiet_ms, 0.5) + MAX_DELAY_MS
    assert quantile(done.health_ms, 0.5) < MAX_DELAY_MS
    assert "\x1b" not in host.log.read_text(errors="replace")
    end = time.monotonic() + 10
    while resident_mib(host.process.pid) - before > MAX_GROWTH_MIB and time.monotonic() < end:
        time.sleep(0.2)
    assert resident_mib(host.process.pid) - before < MAX_GROWTH_MIB


@pytest.mark.parametrize("shape", ["good", "large image"])
def test_answers_that_are_allowed_delay_nobody(host: HostProcess, shape: str) -> None:
    """The largest frame that can be true is passed on in pieces."""
    done = struck(host, shape)
    assert done.status == 200
    assert quantile(done.under_ms, 0.5) < quantile(done.quiet_ms, 0.5) + MAX_DELAY_MS
