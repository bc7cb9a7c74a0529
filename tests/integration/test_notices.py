"""From a cloud's metadata service to a trainer: sources, the process beside the agent, two real hosts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support import ROOT
from tests.support.fake_metadata import FakeMetadata, serving_metadata
from tests.support.fake_runtime import Served
from tests.support.host_process import HostProcess, start_host, wait_until
from tests.support.waiting import stays, until

from osgym_host.notices.sources import SourceFailed, sources_of
from osgym_protocol.records import RecordDecoder
from osgym_sdk import AsyncClient, EpisodeLost, NoCapacity, Notice

HOST = (sys.executable, "-m", "tests.support.fake_runtime_host")
LEFT_S = 6.0
MARGIN_S = 2.0


@pytest.fixture
def metadata() -> Iterator[FakeMetadata]:
    """The services of both clouds."""
    with serving_metadata() as running:
        yield running


async def test_aws_is_asked_by_imdsv2(metadata: FakeMetadata, caplog: pytest.LogCaptureFixture) -> None:
    """One token for many questions until it runs out; nothing, a recommendation, a notice, faults."""
    (source,) = sources_of("aws", metadata.url)
    try:
        assert await source.poll() is None
        metadata.set(rebalance='{"noticeTime": "2020-10-27T08:22:00Z"}')
        assert [await source.poll() for _ in range(2)] == [None, None]
        assert metadata.asked.count("PUT /latest/api/token") == 1
        said = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert ["recommends" in text for text in said] == [True], "logged once, and no notice"
        metadata.tokens.clear()
        metadata.set(spot='{"action": "stop", "time": "2017-09-18T08:22:00Z"}')
        assert await source.poll() == Notice("stop", 1505722920.0)
        assert metadata.asked.count("PUT /latest/api/token") == 2
        for fault in ({"spot": "x" * 5000}, {"spot": "<html>"}, {"broken": ""}):
            metadata.set(**fault)
            with pytest.raises(SourceFailed):
                await source.poll()
        metadata.set(broken=None, spot=None)
        assert await source.poll() is None
    finally:
        await source.aclose()


async def test_google_is_asked_to_say_when_it_changes(metadata: FakeMetadata) -> None:
    """The first answer comes at once, the next with the change; a machine that moves by itself is no
    notice; the deadline stays what it was."""
    preempted, maintenance = sources_of("gcp", metadata.url)
    try:
        assert [await preempted.poll(), await maintenance.poll()] == [None, None]
        waiting = asyncio.create_task(preempted.poll())
        moving = asyncio.create_task(maintenance.poll())
        await stays(lambda: not waiting.done(), 0.2)  # the service waits, we do not ask again
        metadata.set(preempted="TRUE", maintenance="MIGRATE_ON_HOST_MAINTENANCE")
        async with asyncio.timeout(3):
            notice = await waiting
            assert await moving is None
        assert notice is not None
        assert (notice.kind, notice.deadline) == ("preempted", pytest.approx(time.time() + 30, abs=3))
        metadata.set(broken="")
        with pytest.raises(SourceFailed, match="503"):
            await preempted.poll()
        metadata.set(broken=None)
        assert await preempted.poll() == notice
    finally:
        await preempted.aclose()
        await maintenance.aclose()


def test_the_process_beside_the_agent(metadata: FakeMetadata, tmp_path: Path) -> None:
    """It leaves a file while there is a notice, and another while it knows nothing; SIGTERM ends it."""
    path = tmp_path / "notice"
    failing = tmp_path / "notice.failing"
    path.write_text("{}")  # of a former process: it holds until the sources have spoken
    process = subprocess.Popen(
        [sys.executable, "-m", "osgym_host.notices", "gcp", str(path)],
        env={**os.environ, "OSGYM_TEST_METADATA": metadata.url},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(lambda: not path.exists(), 10, "the sources spoke")
        metadata.set(preempted="TRUE")
        wait_until(path.exists, 5, "the notice is there")
        notice = Notice.from_dict(json.loads(path.read_text()))
        assert notice.kind == "preempted"
        assert path.stat().st_mode & 0o777 == 0o644
        wait_until(lambda: not failing.exists(), 5, "it says that it knows now")
        metadata.set(broken="")
        wait_until(failing.exists, 10, "it says that it fails")
        assert Notice.from_dict(json.loads(path.read_text())) == notice, "what was told holds"
        metadata.set(broken=None, preempted="FALSE")
        wait_until(lambda: not path.exists() and not failing.exists(), 10, "it was taken back")
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=10)
    assert process.returncode == 0, said
    assert "503" in said
    assert "Traceback" not in said


async def test_a_client_goes_around_hosts_that_drain(tmp_path: Path) -> None:
    """Also one that does not want to wait; where all drain it hears why; while it asks nothing it hears of
    a notice with the renewal of its lease."""
    with Served(tmp_path / "a", warm=1) as first, Served(tmp_path / "b", warm=1) as second:
        urls = (first.urls[0], second.urls[0])
        async with AsyncClient(urls) as client, httpx.AsyncClient() as http:
            await _ready(http, urls)
            async with client.episode(lease_ttl_s=1.5) as episode:
                drained, other = urls if episode.host == urls[0] else urls[::-1]
                assert episode.notice is None
                (await http.post(f"{drained}/v1/drain", json={})).raise_for_status()
                await until(lambda: episode.notice is not None)
                assert episode.notice == Notice("operator")
                async with client.episode(wait_s=0) as elsewhere:
                    assert elsewhere.host == other
                (await http.post(f"{other}/v1/drain", json={})).raise_for_status()
                with pytest.raises(NoCapacity) as caught:
                    await client.episode(wait_s=0).start()
                assert caught.value.code == "draining"
                (await http.delete(f"{drained}/v1/drain")).raise_for_status()
                assert (await episode.step("wait()")).step == 1
                assert episode.notice is None
            await _ready(http, (drained,))
            async with client.episode(wait_s=5) as back:
                assert back.host == drained


async def _ready(http: httpx.AsyncClient, urls: tuple[str, ...]) -> None:
    for url in urls:
        async with asyncio.timeout(10):
            while (await http.get(f"{url}/v1/pool")).json()["ready"] == 0:  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.02)


@contextlib.contextmanager
def host_process(name: str, notices: str, metadata: FakeMetadata, tmp_path: Path) -> Iterator[HostProcess]:
    """`osgym host serve` over fake replicas that are processes, told of notices."""
    data_dir = Path(tempfile.mkdtemp(prefix="osgym-"))  # short: unix sockets are in it
    own = ("ram_reserve_mib=0", "replica_ram_mib=64", "disk_reserve_mib=0", f"drain_margin_s={MARGIN_S}")
    host = start_host(
        f"notice-{name}-{os.getpid()}",
        warm=1,
        log_dir=tmp_path,
        settings=(*own, f"notices={notices}"),
        data_dir=data_dir,
        command=HOST,
        cwd=ROOT,
        env={"OSGYM_TEST_METADATA": metadata.url},
    )
    try:
        yield host
    finally:
        host.stop()
        shutil.rmtree(data_dir)


async def test_a_spot_host_is_taken_away(metadata: FakeMetadata, tmp_path: Path) -> None:
    """Two hosts and a trainer: the notice reaches the running episode, the next one lands elsewhere, what is
    open at the end ends typed and in time, and the service waits to be switched off."""
    with (
        host_process("a", "aws", metadata, tmp_path) as spot,
        host_process("b", "gcp", metadata, tmp_path) as steady,
    ):
        async with (
            AsyncClient(spot.url) as own,
            AsyncClient([spot.url, steady.url]) as fleet,
            own.episode(lease_ttl_s=60) as episode,
            own.episode(lease_ttl_s=60) as resting,
        ):
            assert (await episode.step("wait()")).step == 1
            assert episode.notice is None
            taken_at = int(time.time() + LEFT_S + 5)
            metadata.interrupt("terminate", taken_at - time.time())
            while episode.notice is None:
                await asyncio.sleep(0.1)
                await episode.step("wait()")
            assert episode.notice.kind == "terminate"
            assert episode.notice.deadline == pytest.approx(taken_at, abs=1)
            health = spot.get("/v1/health")
            assert (health["draining"], health["notices"]) == (True, "watching")
            async with fleet.episode() as next_one:
                assert next_one.host == steady.url
                assert next_one.notice is None
            with pytest.raises(EpisodeLost) as caught:
                while time.time() < taken_at + 5:
                    await episode.step("wait()")
                    await asyncio.sleep(0.05)
            assert taken_at - MARGIN_S - 1 <= time.time() < taken_at
            assert caught.value.cause == "host_going"
            with pytest.raises(EpisodeLost):
                await resting.observe()
            path = f"/v1/episodes/{resting.episode_id}/trajectory"
            async with httpx.AsyncClient(base_url=spot.url) as http:
                lines = list(RecordDecoder().feed((await http.get(path)).content))
            last = lines[-1].meta
            assert (last["kind"], last["cause"]) == ("end", "host_going")
        wait_until(lambda: not spot.replicas(), 5, "no replica is left")
        assert spot.get("/v1/host")["notice"]["kind"] == "terminate"
        assert steady.get("/v1/health")["draining"] is False
        assert (spot.stop(), steady.stop()) == (0, 0), spot.tail()
