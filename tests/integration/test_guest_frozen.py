"""A guest agent that froze is noticed within five seconds, whoever waits for it; one that is slow is kept."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.host_process import MACHINES, HostProcess, running_host, wait_until

from osgym_host.runtimes.processes import processes_of
from osgym_qemu.machine.records import GuestReach, VmRecord, VmRecords
from osgym_qemu.snapshots import Snapshot
from osgym_sdk import Client, Episode, EpisodeLost

pytestmark = pytest.mark.desktop

NOTICED_S = 5.0
HOGS = 3 * (os.cpu_count() or 1)
OVERLOAD_S = 8.0
_HOG = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    pass
"""


@pytest.fixture(params=["local", "qemu"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostProcess]:
    """A host of each runtime, with one desktop that waits."""
    if request.param == "qemu":
        if os.geteuid() != 0:
            pytest.skip("missing: root, who reaches a machine's guest past its host agent")
        assert isinstance(request.getfixturevalue("small_snapshot"), Snapshot)
    else:
        request.getfixturevalue("small_image")
    settings = MACHINES if request.param == "qemu" else ()
    instance = f"frozen-{request.param}-{os.getpid()}"
    with running_host(instance, log_dir=tmp_path, warm=1, max_replicas=3, settings=settings) as running:
        yield running


def freeze(host: HostProcess, row: dict[str, Any]) -> float:
    """Stop the guest agent of a replica, and return when it stands: the time of before."""
    record = vm_record(host, row["replica_id"])
    if record is None:
        [agent] = [pid for pid in processes_of(row["pid"]) if is_agent(pid)]
        began = time.monotonic()
        os.kill(agent, signal.SIGSTOP)
        return began

    # Nothing in a machine's desktop can stop its agent: to its host it is as frozen when nothing reaches it.
    assert record.reach is GuestReach.NAMESPACE  # a rule anywhere else would stay on the host
    rule = f"type filter hook input priority 0; tcp dport {record.port} drop;"
    began = time.monotonic()
    enter = ["nsenter", "-t", str(record.pid), "-n"]
    subprocess.run([*enter, "nft", f"table ip frozen {{ chain in {{ {rule} }}; }}"], check=True, timeout=5)
    return began


def vm_record(host: HostProcess, replica_id: str) -> VmRecord | None:
    """The machine that is a replica; None in other runtimes."""
    folder = host.data_dir / "run" / host.instance / "records"
    found = VmRecords(folder).read_all() if folder.is_dir() else []
    return next((r for r in found if r.replica is not None and r.replica.replica_id == replica_id), None)


def is_agent(pid: int) -> bool:
    """Whether a process is a guest agent."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return any(b"osgym_guest.pyc" in word for word in words)
    return False


def row_of(host: HostProcess, episode: Episode) -> dict[str, Any]:
    """What the host says of an episode's replica."""
    [row] = [row for row in host.replicas("leased") if row["replica_id"] == episode.replica_id]
    return row


def gone(host: HostProcess, replica_id: str) -> bool:
    """Whether a replica is not offered or used any more."""
    return not any(row["replica_id"] == replica_id for row in host.replicas("ready", "leased"))


def test_a_frozen_agent_is_noticed(host: HostProcess) -> None:
    """While a step waits for it, while its client thinks, and while it waits for a client."""
    with Client(host.url) as client:
        with client.episode(wait_s=60) as called:
            called.step("move(5,5)")
            began = freeze(host, row_of(host, called))
            with pytest.raises(EpisodeLost) as lost:
                called.step("move(6,6)")
            called_s = time.monotonic() - began
            assert lost.value.cause == "guest_hung"
        with client.episode(wait_s=60) as idle:
            idle.step("move(5,5)")
            row = row_of(host, idle)
            began = freeze(host, row)
            wait_until(lambda: gone(host, row["replica_id"]), 3 * NOTICED_S, "the idle one is noticed")
            idle_s = time.monotonic() - began
            with pytest.raises(EpisodeLost):
                idle.step("move(6,6)")
    host.wait_ready(1)
    [waiting] = host.replicas("ready")
    began = freeze(host, waiting)
    wait_until(lambda: gone(host, waiting["replica_id"]), 3 * NOTICED_S, "the waiting one is noticed")
    waiting_s = time.monotonic() - began
    print(f"\n  called {called_s:.1f} s, idle {idle_s:.1f} s, waiting {waiting_s:.1f} s")
    assert max(called_s, idle_s, waiting_s) < NOTICED_S
    host.wait_ready(1)


def test_a_slow_agent_is_kept(host: HostProcess) -> None:
    """On a host with three times as much to do as it can: steps take longer, and nobody is lost."""
    with Client(host.url) as client, client.episode(wait_s=60) as episode:
        episode.step("move(5,5)")
        waiting = next(iter(host.replicas("ready")), None)
        hogs = [subprocess.Popen([sys.executable, "-c", _HOG, str(OVERLOAD_S)]) for _ in range(HOGS)]
        try:
            end = time.monotonic() + OVERLOAD_S
            steps = 0
            while time.monotonic() < end:
                episode.step(f"move({steps % 50},7)")
                steps += 1
        finally:
            for process in hogs:
                process.kill()
                process.wait()
        assert steps > 0
        assert waiting is None or not gone(host, waiting["replica_id"])
        assert episode.step("move(9,9)").image.size == (1920, 1080)


def test_a_replica_that_somebody_on_the_host_stopped(host: HostProcess) -> None:
    """A stopped first process is the host's loss, since no program inside can stop it."""
    with Client(host.url) as client, client.episode(wait_s=60) as episode:
        episode.step("move(5,5)")
        for pid in sorted(processes_of(row_of(host, episode)["pid"])):
            os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EpisodeLost) as lost:
            episode.step("move(6,6)")
    assert (lost.value.cause, lost.value.error_class) == ("stopped", "infra")
