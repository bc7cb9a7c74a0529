"""A batch goes on while its fleet changes: real host agents join, are drained, die, and are replaced."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT
from tests.support.host_process import HostProcess, start_host

from osgym_sdk import AsyncClient, HostPhase, OSGymError

FAKE_HOST = (sys.executable, "-m", "tests.support.fake_runtime_host")
TASKS, CONCURRENCY = 90, 6
USED_WITHIN_S = 8.0
"""A look at the file each second, one at the host, and an end of an episode that makes room for the next."""
pytestmark = pytest.mark.timeout(150)


class Agents:
    """Host agents as processes; their replicas are processes too, with the room for three each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = Path(tempfile.mkdtemp(prefix="osgym-"))  # a socket's path is short
        self._numbers = itertools.count()
        self.all: list[HostProcess] = []

    def start(self) -> HostProcess:
        """One more, at an address that none had before."""
        number = next(self._numbers)
        settings = ("cpu_per_replica=0", "ram_reserve_mib=0", "replica_ram_mib=64", "disk_reserve_mib=0")
        host = start_host(
            f"fleet{number}-{os.getpid()}", max_replicas=3, warm=2, data_dir=self._data / str(number),
            command=FAKE_HOST, cwd=ROOT, log_dir=self._folder, settings=settings,
        )  # fmt: skip
        self.all.append(host)
        return host

    def close(self) -> None:
        """Ends all of them, and the replicas of those that were killed."""
        for host in self.all:
            killed = host.process.poll() is not None
            host.stop()
            for pid in host.seen if killed else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self._data)


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    """Those of one test."""
    started = Agents(tmp_path)
    try:
        yield started
    finally:
        started.close()


async def policy(obs: Any, task: Any, step: int) -> str | None:
    """Three steps with some thought before each, about a second in all."""
    await asyncio.sleep(0.3)
    return "click(1,1)" if step < 3 else None


def write_fleet(path: Path, *hosts: HostProcess) -> None:
    """As `osgym fleet export` does: whole, in one step."""
    listed = [{"id": host.instance, "url": host.url} for host in hosts]
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"schema_version": 1, "hosts": listed, "ca": "", "token_secret": ""}))
    os.replace(new, path)


async def seconds_until(condition: Callable[[], Any], timeout_s: float) -> float:
    """Polls until the condition holds; gives how long that took."""
    started_s = time.monotonic()
    async with asyncio.timeout(timeout_s):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - what is polled sets no event
            await asyncio.sleep(0.02)
    return time.monotonic() - started_s


async def test_no_task_is_lost_while_hosts_join_drain_die_and_are_replaced(
    agents: Agents, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Two hosts; a third joins, the first is drained, the second is killed with what runs there, and one at a
    new address takes its place. Every task gives its result, once."""
    first, second = await asyncio.gather(*(asyncio.to_thread(agents.start) for _ in range(2)))
    path = tmp_path / "fleet.json"
    write_fleet(path, first, second)
    results = []
    async with AsyncClient.from_fleet(path) as client:

        async def consume() -> None:
            async for result in client.run([None] * TASKS, policy, concurrency=CONCURRENCY, wait_s=60):
                results.append(result)

        batch = asyncio.create_task(consume())
        await seconds_until(lambda: len(results) >= 6, 40)

        third = await asyncio.to_thread(agents.start)
        write_fleet(path, first, second, third)
        joined_s = await seconds_until(lambda: third.replicas("leased"), 30)

        assert await client.remove_host(first.url) is HostPhase.DRAINING
        drained_s = await seconds_until(lambda: not first.replicas("leased"), 30)
        assert await client.remove_host(first.url, wait_s=10) is HostPhase.GONE

        await seconds_until(lambda: len(second.replicas("leased")) >= 2, 30)  # one may be about to end
        second.process.kill()
        fourth = await asyncio.to_thread(agents.start)
        write_fleet(path, third, fourth)
        replaced_s = await seconds_until(lambda: fourth.replicas("leased"), 30)

        assert not batch.done()  # else the tasks were too few to say anything
        await asyncio.wait_for(batch, 90)
        states = await client.host_states(gone=True)
    lost = [result for result in results if not result.ok]
    again = [result for result in results if result.attempts > 1]
    figures = {"joined_s": joined_s, "drained_s": drained_s, "replaced_s": replaced_s, "again": len(again)}
    for name, value in figures.items():
        record_property(name, round(value, 2))
    print(figures)
    assert (len(results), lost) == (TASKS, [])
    assert sorted(result.index for result in results) == list(range(TASKS))
    assert 0 < len(again) <= 3  # those that ran on the host that was killed
    assert all(phase_of(states[host.url]) is HostPhase.GONE for host in (first, second))
    assert all(phase_of(states[host.url]) is HostPhase.SERVING for host in (third, fourth))
    assert joined_s < USED_WITHIN_S and replaced_s < USED_WITHIN_S


def phase_of(state: Any) -> HostPhase | None:
    """Where a host stands, whether it answered or not."""
    phase: HostPhase | None = state.phase
    assert phase is HostPhase.SERVING or isinstance(state, OSGymError)
    return phase
