"""The host agent stopped, killed and started again: nothing is left, clients learn the truth."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.host_process import HostProcess, running_host, start_host, wait_until

from osgym_host.images.store import Image
from osgym_sdk import AsyncClient, Client, EpisodeLost, NoCapacity, OSGymError, Timeouts

pytestmark = pytest.mark.desktop

QUICK = Timeouts(retry_s=1.5)


@pytest.fixture
def instance(request: pytest.FixtureRequest) -> str:
    """A name of its own for each host."""
    return f"life-{os.getpid()}-{abs(hash(request.node.name)) % 10_000}"


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_an_episode_leaves_nothing(
    small_image: Image, instance: str, tmp_path: Path, sig: signal.Signals
) -> None:
    """The service ends cleanly with code 0; the client is told that its episode is lost."""
    host = start_host(instance, log_dir=tmp_path)
    with Client(host.url, timeouts=QUICK) as client, client.episode() as episode:
        episode.step("move(5,5)")
        assert host.stop(sig) == 0, host.tail()
        with pytest.raises(EpisodeLost):
            episode.step("move(6,6)")
        evaluation = episode.evaluate()
        assert evaluation.reward is None
    host.assert_nothing_left()


def test_a_signal_while_it_starts_leaves_nothing(small_image: Image, instance: str, tmp_path: Path) -> None:
    """Ctrl-C before the pool is warm."""
    host = start_host(instance, log_dir=tmp_path, warm=4, wait=False)
    assert host.stop(signal.SIGINT) == 0, host.tail()
    host.assert_nothing_left()


def test_a_killed_service_is_cleared_up_by_the_next(
    small_image: Image, instance: str, tmp_path: Path
) -> None:
    """kill -9: the next start removes what was left and serves; old episodes are lost, typed."""
    first = start_host(instance, log_dir=tmp_path)
    with Client(first.url, timeouts=QUICK) as client, client.episode(lease_ttl_s=30) as episode:
        episode.step("move(5,5)")
        first.replicas()
        old = {r["pid"] for r in first.replicas()}
        first.process.kill()
        first.process.wait(10)
        with running_host(instance, log_dir=tmp_path, port=first.port) as second:
            for pid in old:
                assert pid not in {r["pid"] for r in second.replicas()}
            with pytest.raises(EpisodeLost) as caught:
                episode.step("move(6,6)")
            assert caught.value.cause == "host_restarted"
            with client.episode() as fresh:
                assert fresh.step("move(7,7)").step == 1
    first.assert_nothing_left()


async def test_clients_queue_for_a_full_host(small_image: Image, instance: str, tmp_path: Path) -> None:
    """With one replica a second episode waits its turn, and gets NoCapacity when that never comes."""
    with running_host(instance, log_dir=tmp_path, warm=1, max_replicas=1) as host:
        async with AsyncClient(host.url) as client:
            async with client.episode():
                with pytest.raises(NoCapacity):
                    await client.episode(wait_s=0.5).start()
            async with client.episode(wait_s=30) as second:
                assert (await second.step("move(3,3)")).step == 1


async def test_two_hosts_share_the_load_and_one_dies(
    small_image: Image, instance: str, tmp_path: Path
) -> None:
    """Episodes spread over both; when one is killed only its own are lost, new ones go to the other."""
    one = start_host(f"{instance}-a", log_dir=tmp_path, warm=2, max_replicas=3)
    try:
        with running_host(f"{instance}-b", log_dir=tmp_path, warm=2, max_replicas=3) as two:
            client = AsyncClient([one.url, two.url], timeouts=QUICK)
            async with client, client.episode(wait_s=30) as first, client.episode(wait_s=30) as second:
                assert {first.host, second.host} == {one.url, two.url}
                mine, other = (first, second) if first.host == one.url else (second, first)
                one.replicas()
                one.process.kill()
                one.process.wait(10)
                with pytest.raises(EpisodeLost) as caught:
                    await mine.step("move(3,3)")
                assert caught.value.cause == "host_unreachable"
                assert (await other.step("move(3,3)")).step == 1
                async with client.episode(wait_s=30) as third:
                    assert third.host == two.url
    finally:
        _clear_up(one, tmp_path)


async def test_a_token_is_needed_when_one_is_set(small_image: Image, instance: str, tmp_path: Path) -> None:
    """Without it nothing but health is answered."""
    with running_host(instance, log_dir=tmp_path, wait=False, settings=["token=s3cret"]) as host:
        async with AsyncClient(host.url) as stranger:
            [state] = (await stranger.host_states()).values()
            assert isinstance(state, OSGymError) and state.code == "unauthorized"
        async with AsyncClient(host.url, token="s3cret") as client, client.episode(wait_s=60) as episode:
            assert (await episode.step("move(3,3)")).step == 1
        assert "s3cret" not in host.tail()


def test_a_trainer_that_is_interrupted_leaves_no_lease(small_image: Image, host: HostProcess) -> None:
    """Ctrl-C in the middle of a batch frees every replica at once, not when leases run out."""
    code = (
        "from osgym_sdk import Client\n"
        f"with Client({host.url!r}) as c:\n"
        "    tasks = ({'id': str(i)} for i in range(10**6))\n"
        "    for r in c.run((None for _ in range(10**6)), lambda o, t, s: 'move(5,5)', concurrency=2):\n"
        "        print(r.index, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code.replace("concurrency=2", "concurrency=2, max_steps=3")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip().isdigit()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in errors
    leased: list[Any] = host.replicas("leased")
    assert leased == []


def _clear_up(host: HostProcess, log_dir: Path) -> None:
    """What a killed service left is removed by a start under the same name."""
    again = start_host(host.instance, log_dir=log_dir, warm=0)
    again.stop()
    again.assert_nothing_left()
    host.assert_nothing_left()


async def test_many_episodes_leave_nothing_in_the_running_host(
    small_image: Image, instance: str, tmp_path: Path
) -> None:
    """After 30 episodes the service holds no more descriptors, threads, processes and overlays."""
    with running_host(instance, log_dir=tmp_path, warm=1, max_replicas=3) as host:

        async def some(count: int) -> tuple[int, ...]:
            """Two at a time; then what the host holds when it has come to rest and the client is gone."""
            async with AsyncClient(host.url) as client:

                async def one() -> None:
                    async with client.episode(wait_s=60) as episode:
                        await episode.step("move(5,5)")

                for _ in range(count):
                    await asyncio.gather(one(), one())
            wait_until(lambda: [r["state"] for r in host.replicas()] == ["ready"], 20, "a quiet pool")
            return _holdings(host)

        before = await some(3)
        after = await some(15)
        # A connection to a guest may be open at one moment and not at another; a leak would be 30.
        assert all(now <= was + 3 for now, was in zip(after, before, strict=True)), (before, after)


def _holdings(host: HostProcess) -> tuple[int, ...]:
    """Descriptors and threads of the service, its child processes, overlays, replicas."""
    pid = host.process.pid
    replicas = len(host.replicas())
    overlays = len(list((host.data_dir / "run" / host.instance / "replicas").iterdir()))
    threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    # The thread pool of asyncio grows to its bound by itself; connections are ours and as many as before.
    return (
        len(list(Path(f"/proc/{pid}/fd").iterdir())),
        max(threads, 16),
        len(host.descendants_now()),
        overlays,
        replicas,
    )
