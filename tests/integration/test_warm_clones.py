"""Warm replicas that are clones of the first, by CRIU: as clean, as shut in, and gone with their host."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import ImageChops
from tests.integration.test_local_templates import ISOLATION
from tests.support.host_process import HostProcess, running_host, start_host, wait_until
from tests.support.template_episodes import (
    SHIPPED,
    Api,
    assert_clones_begin_alike,
    assert_oracle_earns_all,
    between_panels,
)

from osgym_host.images.store import Image, default_data_dir
from osgym_host.runtimes.local.criu.installed import find_criu

CRIU = find_criu()
pytestmark = [
    pytest.mark.desktop,
    pytest.mark.skipif(not CRIU.usable, reason=f"missing: {CRIU.lacking}"),
]

SETTINGS = ("warm_clones=on",)


def points_of(host: HostProcess) -> list[Path]:
    """The dumps of a host, as they lie on its disk."""
    return list((host.data_dir / "run" / host.instance / "points").glob("p*"))


def dumped_or_skip(host: HostProcess) -> None:
    """Wait until a host has dumped its first replica."""
    wait_until(lambda: points_of(host) or "could not be dumped" in host.tail(), 30, f"a dump\n{host.tail()}")
    if "rlimit" in host.tail():
        pytest.skip("missing: root with CAP_SYS_RESOURCE, which criu dump needs")
    assert "could not be dumped" not in host.tail()


@pytest.fixture
def host(small_image: Image, tmp_path: Path) -> Iterator[HostProcess]:
    with running_host(f"clone-{os.getpid()}", log_dir=tmp_path, warm=1, settings=SETTINGS) as host:
        dumped_or_skip(host)
        yield host


def test_a_clone_is_as_good_as_the_first(host: HostProcess) -> None:
    """Same first frames with and without a task, as isolated, and the oracle earns 1 on both."""
    with Api(host) as api:
        first = api.create(SHIPPED.task, "first")  # r1, which was dumped, and went on
        assert first.meta["replica_id"] == "r1"
        clones = [api.create(SHIPPED.task, f"clone-{n}") for n in range(2)]
        for record in clones:
            box = ImageChops.difference(between_panels(first), between_panels(record)).getbbox()
            assert box is None, f"the first frames differ in {box}"
        told = [api.run(record.meta, ISOLATION) for record in (first, *clones)]
        assert told[0] == told[1] == told[2]
        assert {"network closed", "devices closed"} <= set(told[0])
        for record in (first, *clones):
            assert_oracle_earns_all(api, record.meta, SHIPPED)
            api.close(record.meta)
    assert len(points_of(host)) == 1


def test_what_one_clone_does_no_later_one_sees(host: HostProcess) -> None:
    """Each has its own processes and its own layer."""
    with Api(host) as api:
        api.close(api.create(SHIPPED.task, "first").meta)
        one = api.create(SHIPPED.task, "one").meta
        api.run(one, "echo mine > ~/Desktop/own; sleep 999 & true")
        api.close(one)
        two = api.create(SHIPPED.task, "two").meta
        assert api.run(two, "cat ~/Desktop/own 2>/dev/null || echo absent; pgrep -c sleep") == ["absent", "0"]
        api.close(two)


def test_a_clone_whose_agent_froze_is_noticed(host: HostProcess) -> None:
    """As soon as one that was made from the image: within 5 s, in which it could have answered."""
    with Api(host) as api:
        api.close(api.create(SHIPPED.task, "first").meta)
        episode = api.create(SHIPPED.task, "frozen").meta
        api.run(episode, "(sleep 1; sudo pkill -STOP -f osgym_guest) >/dev/null 2>&1 & true")
        began = time.monotonic()

        def mine() -> bool:
            return any(r["replica_id"] == episode["replica_id"] for r in host.replicas("leased"))

        wait_until(lambda: not mine(), 30, f"the end of a frozen replica\n{host.tail()}")
        assert time.monotonic() - began < 1 + 7, "it is noticed late"
        assert "guest_hung" in host.tail()


def test_a_dump_that_was_changed_is_not_used(host: HostProcess) -> None:
    """Replicas are made from the image again, and the first of them is dumped."""
    with Api(host) as api:
        (point,) = points_of(host)
        (point / "images" / "core-1.img").write_bytes(b"broken")
        for number in range(3):
            api.close(api.create(SHIPPED.task, f"e{number}").meta)
        (again,) = wait_until(
            lambda: [p for p in points_of(host) if p != point] or None, 30, f"another dump\n{host.tail()}"
        )
        assert again != point
        assert "could not be cloned from a warm replica" in host.tail()


def test_nothing_of_a_dump_outlives_a_killed_host_agent(small_image: Image, tmp_path: Path) -> None:
    """The next start removes it."""
    name = f"clone-kill-{os.getpid()}"
    killed = start_host(name, log_dir=tmp_path, warm=1, settings=SETTINGS)
    try:
        dumped_or_skip(killed)
    finally:
        killed.stop(signal.SIGKILL)
    assert points_of(killed)
    with running_host(name, log_dir=tmp_path, warm=1) as host:
        assert not points_of(host)
    assert not (default_data_dir() / "run" / name / "points").exists()


def test_a_task_template_can_be_taken_of_a_clone(small_image: Image, tmp_path: Path) -> None:
    """A dump of what was restored is restored once more."""
    with running_host(
        f"clone-tpl-{os.getpid()}", log_dir=tmp_path, warm=1, settings=(*SETTINGS, "task_templates=on")
    ) as host:
        dumped_or_skip(host)
        with Api(host) as api:
            api.close(api.create({**SHIPPED.task, "config": []}, "first").meta)
            made = api.create(SHIPPED.task, "made")
            assert made.meta["template"] == "made"
            hits = assert_clones_begin_alike(api, made, SHIPPED.task)
            for record in (made, hits[0]):
                assert_oracle_earns_all(api, record.meta, SHIPPED)
            for record in (made, *hits):
                api.close(record.meta)
