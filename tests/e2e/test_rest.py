"""Replicas that rest on a real host: they lose nothing, wake for a call, and end like others."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.browser import browser_page
from tests.support.host_process import (
    HostProcess,
    osgym,
    process_start,
    running_host,
    start_host,
    wait_until,
)

from osgym_host.images.store import Image
from osgym_host.runtimes.swap import read_swap
from osgym_sdk import AsyncClient, Client

pytestmark = pytest.mark.desktop

SOON = ("rest=reclaim", "rest_after_s=0.3", "reclaim_after_s=0.6")
REST_S = 20.0


@pytest.fixture
def host(small_image: Image, tmp_path: Path) -> Iterator[HostProcess]:
    """A host whose replicas rest after a moment."""
    with running_host(f"rest-{os.getpid()}", log_dir=tmp_path, settings=SOON) as running:
        yield running


def stage(host: HostProcess, replica_id: str) -> str | None:
    """Return how a replica rests; None once it is gone."""
    found = [r["rest"] for r in host.replicas("ready", "leased") if r["replica_id"] == replica_id]
    return str(found[0]) if found else None


def rests(host: HostProcess, replica_id: str) -> None:
    """Wait until a replica is reclaimed; on a host without swap it keeps its memory and stays paused."""
    wanted = "reclaimed" if read_swap().total_mib else "paused"
    wait_until(lambda: stage(host, replica_id) == wanted, REST_S, f"{replica_id} {wanted}")


def is_paused(host: HostProcess, replica_id: str) -> None:
    """Wait until a warm replica is paused; the next two to be leased keep their memory."""
    wait_until(lambda: stage(host, replica_id) == "paused", REST_S, f"{replica_id} paused")


def test_a_desktop_shows_after_its_rest_what_it_showed_before(host: HostProcess) -> None:
    """A window with unsaved text: the same frame after each rest, and the next key arrives."""
    with Client(host.url) as client, client.episode() as episode:
        episode.execute("xterm -geometry 60x10+100+100 -e cat >/dev/null 2>&1 &")
        wait_until(lambda: any(w.focused and w.title == "cat" for w in episode.windows()), REST_S, "a window")
        frames = [episode.step({"op": "type", "text": "before"}).hash]
        for word in ("after", "again"):
            rests(host, episode.replica_id)
            assert episode.observe().hash == frames[-1]
            frames.append(episode.step({"op": "type", "text": word}).hash)
            assert frames[-1] not in frames[:-1]


def test_a_program_that_works_keeps_its_desktop_awake(host: HostProcess) -> None:
    """What computes in the background is not stopped, however long nobody calls."""
    with Client(host.url) as client, client.episode() as episode:
        rests(host, episode.replica_id)
        episode.execute("timeout 4 sh -c 'while :; do :; done' >/dev/null 2>&1 &")
        until = time.monotonic() + 3
        while time.monotonic() < until:
            assert stage(host, episode.replica_id) == "awake"
            time.sleep(0.2)
        rests(host, episode.replica_id)


def test_the_host_and_the_commands_count_those_at_rest(host: HostProcess) -> None:
    """The state has the numbers, and the lists the stage of each with the memory that it occupies."""
    with Client(host.url) as client, client.episode() as episode:
        rests(host, episode.replica_id)
        capacity = httpx.get(f"{host.url}/v1/host", timeout=10).json()["capacity"]
        listed = osgym("replica", "ls", OSGYM_HOSTS=host.url).stdout
        top = osgym("host", "top", "--once", COLUMNS="200", OSGYM_HOSTS=host.url).stdout
        found = stage(host, episode.replica_id)
    assert capacity["paused"] + capacity["reclaimed"] >= 1
    line = next(line for line in listed.splitlines() if line.startswith(f"{episode.replica_id} "))
    assert str(found) in line and "MiB" in line
    assert "AT REST" in top and str(found) in top


@pytest.mark.timeout(120)
async def test_the_dashboard_lets_a_desktop_rest(
    host: HostProcess, chromium_root: Path | None, tmp_path: Path
) -> None:
    """Its tile says so, and is not looked at again while it rests, which would wake the desktop."""
    folder = tmp_path / "browser"
    folder.mkdir()
    async with (
        AsyncClient(host.url) as client,
        client.episode() as episode,
        browser_page(f"{host.url}/ui", folder, chromium_root) as page,
    ):
        await page.until("document.querySelector('.tile img:not([hidden])')?.naturalWidth === 320")
        await asyncio.to_thread(rests, host, episode.replica_id)  # that look has woken it
        await page.until("/paused|reclaimed/.test(document.querySelector('.tile.rests')?.innerText)")
        ended = time.monotonic() + 8  # a tile of an awake desktop is looked at every five seconds
        while time.monotonic() < ended:
            assert await asyncio.to_thread(stage, host, episode.replica_id) != "awake"
            await asyncio.sleep(0.2)
        assert page.problems == []


def test_a_resting_replica_that_dies_is_replaced(host: HostProcess) -> None:
    """Warm ones rest as well; the death of one shows without a call."""
    warm = host.replicas("ready")[-1]
    is_paused(host, warm["replica_id"])
    os.kill(warm["pid"], signal.SIGKILL)
    wait_until(lambda: stage(host, warm["replica_id"]) is None, REST_S, "its end")
    host.wait_ready(2)


def test_a_killed_host_leaves_no_resting_replica(small_image: Image, tmp_path: Path) -> None:
    """The next start removes those that are paused, too."""
    instance = f"rest-killed-{os.getpid()}"
    host = start_host(instance, log_dir=tmp_path, settings=SOON)
    try:
        for replica in host.replicas("ready"):
            is_paused(host, replica["replica_id"])
    finally:
        host.process.kill()
        host.process.wait(REST_S)
    with running_host(instance, log_dir=tmp_path, settings=SOON) as again:
        survivors = {pid for pid, started in host.seen.items() if process_start(pid) == started}
        assert not survivors, again.tail()
