"""The service over virtual machines: a real task, a killed host agent whose machines go on, clean ends."""

from __future__ import annotations

import os
import time
from pathlib import Path

import httpx
import pytest
from tests.support.host_process import MACHINES, osgym, running_host, start_host, wait_until

from osgym_host.tasks.shipped import load_shipped
from osgym_qemu.snapshots import Snapshot
from osgym_sdk import Client, Episode, EpisodeLost

pytestmark = pytest.mark.desktop

TASK = next(entry for entry in load_shipped() if entry.task["id"] == "multiply")


@pytest.fixture
def instance(request: pytest.FixtureRequest) -> str:
    """A name of its own for each host."""
    return f"vm-{os.getpid()}-{abs(hash(request.node.name)) % 10_000}"


def test_a_real_task(small_snapshot: Snapshot, instance: str, tmp_path: Path) -> None:
    """Set-up, steps with frames, a check: all as with any other replica; a killed machine is a typed loss."""
    with (
        running_host(instance, log_dir=tmp_path, warm=1, settings=MACHINES) as host,
        Client(host.url) as client,
    ):
        told = host.get("/v1/host")
        assert (told["runtime"], told["image"]["flavor"]) == ("qemu", "small@desktop")
        with client.episode(TASK.task, wait_s=60) as episode:
            for actions in TASK.oracle:
                step = episode.step(list(actions))
            assert step.done == "done"
            assert episode.evaluate().reward == 1.0
        with client.episode(wait_s=60) as reached:
            _reach_into(reached)
        with client.episode(wait_s=60) as victim:
            assert victim.step("move(5,5)").image.size == (1920, 1080)
            (row,) = [r for r in host.replicas("leased") if r["replica_id"] == victim.trajectory.replica_id]
            assert row["pss_mib"] is None or row["pss_mib"] < 1000
            began = time.monotonic()
            os.kill(row["pid"], 9)
            with pytest.raises(EpisodeLost) as caught:
                victim.step("wait()")
            assert time.monotonic() - began < 5
            assert caught.value.cause in ("killed", "replica_lost")


def _reach_into(episode: Episode) -> None:
    """Commands, files, windows, the tree and a port of a virtual machine: as of any other replica."""
    said = episode.execute("echo out; echo err >&2; exit 3")
    assert (said.returncode, said.stdout, said.stderr) == (3, "out\n", "err\n")
    data = os.urandom(1 << 20)
    episode.write_file("~/data", data)
    assert episode.read_file("~/data") == data
    assert episode.execute(["sleep", "60"], timeout_s=0.5).timed_out
    assert any(not window.ordinary for window in episode.windows()), "the panel or the desktop"
    assert any(node.role for node in episode.a11y().nodes())
    episode.execute("cd /tmp && echo over a tunnel >said && python3 -m http.server 21777 >/dev/null 2>&1 &")
    host, port = episode.expose(21777)

    def fetched() -> str | None:
        try:
            return httpx.get(f"http://{host}:{port}/said", timeout=30).text
        except httpx.TransportError:  # it does not listen yet
            return None

    assert wait_until(fetched, 60, "the server in the machine") == "over a tunnel\n"


def test_machines_and_their_episodes_outlive_a_killed_host_agent(
    small_snapshot: Snapshot, instance: str, tmp_path: Path
) -> None:
    """kill -9 of the agent: the next one takes the leased machine over, and the episode goes on in it."""
    first = start_host(instance, log_dir=tmp_path, warm=1, settings=MACHINES)
    with Client(first.url) as client, client.episode(lease_ttl_s=120, wait_s=60) as episode:
        assert episode.step("move(500,500)").step == 1
        (row,) = first.replicas("leased")
        first.process.kill()
        first.process.wait(10)
        with running_host(instance, log_dir=tmp_path, warm=1, port=first.port, settings=MACHINES) as second:
            assert episode.step("move(600,600)").step == 2
            (again,) = second.replicas("leased")
            assert (again["pid"], again["generation"]) == (row["pid"], row["generation"])
            with client.episode(wait_s=60) as fresh:
                assert fresh.step("move(7,7)").step == 1
                assert fresh.trajectory.replica_id != episode.trajectory.replica_id
    first.assert_nothing_left()


def test_clean_takes_away_what_a_killed_host_agent_left(
    small_snapshot: Snapshot, instance: str, tmp_path: Path
) -> None:
    """`osgym host clean` finds the machines by their records, though no agent runs."""
    host = start_host(instance, log_dir=tmp_path, warm=2, settings=MACHINES)
    host.replicas()
    host.process.kill()
    host.process.wait(10)
    cleaned = osgym("host", "clean", "--instance", instance)
    assert cleaned.returncode == 0, cleaned.stderr
    assert "removed" in cleaned.stdout
    host.assert_nothing_left()


def test_what_is_missing_is_named(instance: str) -> None:
    """No snapshot of that name, a size it was not frozen at: the command that makes it."""
    missing = osgym(
        "host", "serve", "--runtime", "qemu", "--image", "small", "--port", "0",
        "--set", "qemu.snapshot=nonesuch",
    )  # fmt: skip
    assert missing.returncode == 3
    assert "osgym image snapshot small --name nonesuch" in missing.stderr


def test_a_size_that_was_not_frozen_is_refused(small_snapshot: Snapshot, instance: str) -> None:
    """The desktop of a clone has the size of its snapshot."""
    arguments = ["--runtime", "qemu", "--image", "small", "--port", "0", "--set", "screen=1000x700"]
    refused = osgym("host", "serve", *arguments)
    assert refused.returncode == 3
    assert "1920x1080" in refused.stderr
