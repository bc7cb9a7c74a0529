"""Attribution of missing answers, by the CPU time that real processes got."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.fake_runtime import TASK, FakeImage, FakeReplica, FakeRuntime, Service, running_service

from osgym_host.core.slowness import is_of_the_host
from osgym_host.episodes import step_sender
from osgym_host.replicas.stall_watch import StallWatch
from osgym_host.runtimes import base
from osgym_host.runtimes.processes import cpu_s, disk_io_mib, host_io_stalled_s, host_reclaims

CPU = max(os.sched_getaffinity(0))
SPIN = f"import os\nos.sched_setaffinity(0, {{{CPU}}})\nwhile True: pass"
LOOK_S = 0.1
STALL_S = 2.0


@pytest.fixture
def spinning() -> Iterator[list[int]]:
    """Yield four processes that compute on one processor; the first stands for a guest agent."""
    with ExitStack() as stack:
        pids = []
        for _ in range(4):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", SPIN]))
            stack.callback(process.kill)
            pids.append(process.pid)
        yield pids


def replica(monkeypatch: pytest.MonkeyPatch, folder: Path, agent: int) -> FakeReplica:
    """Return a replica whose guest agent is that process."""
    monkeypatch.setattr(FakeReplica, "agent_pid", lambda self: agent)
    return FakeReplica(base.ReplicaSpec("r1", 1, FakeImage()), folder)


@pytest.mark.parametrize(("own", "of_the_host"), [(1, True), (4, False)], ids=["neighbours", "its own"])
async def test_whose_programs_starve_an_agent(
    spinning: list[int], own: int, of_the_host: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Load by others is the host's fault, the same load by the desktop's own programs is not."""
    clone = replica(monkeypatch, tmp_path, spinning[0])
    watch = StallWatch(clone, lambda _: cpu_s(spinning[1:own]), LOOK_S)
    until = time.monotonic() + STALL_S
    while time.monotonic() < until:
        watch.look()
        await asyncio.sleep(LOOK_S)
    stall = watch.measure(cpu_lowered=False)
    assert stall.passed_s == pytest.approx(STALL_S, rel=0.5)
    assert stall.starved_s > stall.passed_s / 3
    assert is_of_the_host(stall) is of_the_host


async def test_time_in_which_nobody_looked_is_the_hosts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Time in which the host agent did not run is the host's, since it could not read answers either."""
    watch = StallWatch(replica(monkeypatch, tmp_path, os.getpid()), lambda _: 0.0, 0.01, waited_s=0.5)
    assert is_of_the_host(watch.measure(cpu_lowered=True))


def test_what_processes_write_is_counted(tmp_path: Path) -> None:
    """Data that reaped children wrote counts as well."""
    file = str(tmp_path / "f")
    write = f"import os; f = open({file!r}, 'wb'); f.write(os.urandom(3 << 20)); os.fsync(f.fileno())"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {write!r}]); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE) as process:
        until = time.monotonic() + 20
        while (disk_io_mib([process.pid]) or 0.0) < 3:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert process.stdin is not None
        process.stdin.close()
    assert disk_io_mib([process.pid]) == 0
    assert host_reclaims() >= 0 and host_io_stalled_s() >= 0


@pytest.mark.parametrize(
    ("own_share", "cause", "whose"), [(0.0, "guest_slow", "infra"), (1.0, "guest_hung", "policy")]
)
async def test_a_step_whose_deadline_passes_under_load(
    spinning: list[int],
    own_share: float,
    cause: str,
    whose: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """No reward if other replicas took the processor; 0 if the desktop's own programs did."""
    monkeypatch.setattr(step_sender, "STEP_SLACK_S", 0.5)
    monkeypatch.setattr(FakeReplica, "agent_pid", lambda self: spinning[0])
    monkeypatch.setattr(FakeRuntime, "used_cpu_s", lambda self, _: own_share * cpu_s(spinning))
    async with running_service(tmp_path, warm=1, max_replicas=1, replica_cpu_burst_s=0) as service:
        details = await timed_out_step(service)
    assert (details["cause"], details["error_class"]) == (cause, whose)


async def test_a_step_whose_deadline_passes_without_load_is_the_policys(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a shortage the desktop could have answered."""
    monkeypatch.setattr(step_sender, "STEP_SLACK_S", 0.5)
    monkeypatch.setattr(FakeReplica, "agent_pid", lambda self: os.getppid())
    async with running_service(tmp_path, warm=1, max_replicas=1) as service:
        details = await timed_out_step(service)
    assert (details["cause"], details["error_class"]) == ("guest_hung", "policy")


async def timed_out_step(service: Service) -> dict[str, str]:
    """Return the details of the loss by a step that the guest agent never answers."""
    episode = await service.create(task=TASK)
    await service.step(episode, 1, "click(1,2)")
    service.guest_of(episode).agent.step_gate.clear()
    answer = await service.step(episode, 2, "click(1,2)")
    details: dict[str, str] = answer.json()["details"]
    return details
