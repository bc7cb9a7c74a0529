"""Desktops that stand still while their policy thinks, on a real host."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.support.host_process import HostProcess, running_host, wait_until

from osgym_host.images.store import Image
from osgym_host.runtimes.swap import read_swap
from osgym_sdk import Client, Episode

pytestmark = pytest.mark.desktop

THOUGHT_S = 3.0
COUNTER = "i=0; while :; do i=$((i+1)); echo $i; echo $i > /tmp/count; sleep 0.1; done"


@pytest.fixture
def host(small_image: Image, tmp_path: Path) -> Iterator[HostProcess]:
    """A host whose replicas do not rest by themselves."""
    with running_host(f"think-{os.getpid()}", log_dir=tmp_path) as running:
        yield running


def count(episode: Episode) -> int:
    """Return how far the counter in the terminal has come."""
    return int(episode.execute("cat /tmp/count").stdout)


def begin(episode: Episode) -> None:
    """Start a terminal that counts, and wait in the desktop's own time until it does."""
    episode.execute(f"xterm -geometry 60x10+100+100 -e sh -c '{COUNTER}' >/dev/null 2>&1 &")
    episode.execute("until [ -s /tmp/count ]; do sleep 0.05; done")


def test_a_paused_desktop_shows_the_same_frame_after_a_thought(host: HostProcess) -> None:
    """A terminal that counts stands still, wall clock included, and then goes on at its usual pace."""
    with Client(host.url) as client, client.episode(think="paused") as episode:
        begin(episode)
        before, shown, then_s = count(episode), episode.step([]).hash, wall_s(episode)
        time.sleep(THOUGHT_S)
        assert episode.observe().hash == shown
        assert wall_s(episode) - then_s < THOUGHT_S / 3
        at_once = count(episode)
        assert at_once - before < THOUGHT_S / 0.1 / 3
        episode.execute("sleep 1")
        assert 5 <= count(episode) - at_once <= 15


def test_a_live_desktop_goes_on(host: HostProcess) -> None:
    """Without the option the same terminal counts during a thought."""
    with Client(host.url) as client, client.episode() as episode:
        begin(episode)
        before, shown = count(episode), episode.step([]).hash
        time.sleep(THOUGHT_S)
        assert episode.observe().hash != shown
        assert count(episode) - before > THOUGHT_S / 0.1 / 2


def test_a_timeout_waits_for_the_thought(host: HostProcess) -> None:
    """`timeout 1` does not end its command in 3 s of thinking, but after 1 s of the desktop's time."""
    with Client(host.url) as client, client.episode(think="paused") as episode:
        episode.execute("sh -c 'timeout 1 sleep 5; echo over > /tmp/over' >/dev/null 2>&1 &")
        time.sleep(THOUGHT_S)
        assert episode.execute("cat /tmp/over 2>/dev/null || true").stdout == ""
        episode.execute("sleep 1.5")
        assert episode.execute("cat /tmp/over").stdout == "over\n"


def test_a_thought_is_charged_the_time_that_it_took(host: HostProcess) -> None:
    """With `think_charge="real"` the clock has moved by the thought."""
    with Client(host.url) as client, client.episode(think="paused", think_charge="real") as episode:
        then_s = wall_s(episode)
        time.sleep(THOUGHT_S)
        assert wall_s(episode) - then_s == pytest.approx(THOUGHT_S, abs=1)


def test_a_thought_is_charged_what_the_policy_says(host: HostProcess) -> None:
    """The step waits for what has not really passed, and what was due by then is on its frame."""
    with Client(host.url) as client, client.episode(think="paused") as episode:
        then_s = wall_s(episode)
        began = time.monotonic()
        episode.step([], think_s=THOUGHT_S)
        assert time.monotonic() - began >= THOUGHT_S - 0.5
        assert wall_s(episode) - then_s >= THOUGHT_S


def test_a_command_beside_a_step_ends(host: HostProcess) -> None:
    """The end of the step does not stop the clock by which the command sleeps."""
    with Client(host.url) as client, client.episode(think="paused") as episode:
        with ThreadPoolExecutor(1) as threads:
            command = threads.submit(episode.execute, "sleep 2; echo over")
            for _ in range(3):
                episode.step([])
            assert command.result(timeout=20).stdout == "over\n"
        then_s = wall_s(episode)
        time.sleep(THOUGHT_S)
        assert wall_s(episode) - then_s < THOUGHT_S / 3


def test_looks_leave_the_desktop_as_it_is(host: HostProcess) -> None:
    """The dashboard's picture, windows and frames; the counter has not gone on by any of them."""
    with Client(host.url) as client, client.episode(think="paused") as episode:
        begin(episode)
        shown = episode.step([]).hash
        for _ in range(3):
            picture = httpx.get(
                f"{host.url}/v1/replicas/{episode.replica_id}/screenshot?width=320", timeout=20
            )
            assert picture.status_code == 200
            assert episode.windows()
            time.sleep(0.3)
            assert episode.observe().hash == shown
        wait_until(lambda: host.replicas("leased")[0]["rest"] == "paused", THOUGHT_S, "a pause")


def test_a_desktop_that_stands_still_rests_as_well(small_image: Image, tmp_path: Path) -> None:
    """Where replicas rest, its memory goes too; it comes back with the same frame and the same time."""
    settings = ("rest=reclaim", "rest_after_s=0.3", "reclaim_after_s=0.6")
    instance = f"think-rest-{os.getpid()}"
    with (
        running_host(instance, log_dir=tmp_path, settings=settings) as host,
        Client(host.url) as client,
        client.episode(think="paused") as episode,
    ):
        begin(episode)
        then_s = wall_s(episode)
        shown = episode.step([]).hash
        wanted = "reclaimed" if read_swap().total_mib else "paused"
        wait_until(lambda: host.replicas("leased")[0]["rest"] == wanted, 20, wanted)
        time.sleep(THOUGHT_S)
        assert episode.observe().hash == shown
        assert wall_s(episode) - then_s < THOUGHT_S / 2


def wall_s(episode: Episode) -> float:
    """Return the time that the desktop shows."""
    return float(episode.execute("date +%s.%N").stdout)
