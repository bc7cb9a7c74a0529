"""Of the namespace runtime: supervisors and host agents that are killed, and what the next one finds."""

# ruff: noqa: ASYNC220, ASYNC240 -- reading /proc in the only task of a test blocks nobody

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.runtime_kits import DEADLINE_S, gone, running_local
from tests.support.runtime_probe import build_python_image, run_inside

from osgym_host.runtimes import cgroups
from osgym_host.runtimes.base import ExitReason, ImageLike, ReplicaSpec
from osgym_host.runtimes.local.instance import record_process
from osgym_host.runtimes.local.runtime import LocalRuntime


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageLike:
    return build_python_image(tmp_path_factory.mktemp("image") / "rootfs")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    async with running_local(tmp_path) as running:
        yield running


@pytest.fixture
def spec(image: ImageLike) -> ReplicaSpec:
    return ReplicaSpec("r1", 1, image)


async def test_replicas_die_with_their_supervisor_and_are_replaced(
    runtime: LocalRuntime, spec: ReplicaSpec, tmp_path: Path
) -> None:
    """kill -9 of the zygote: each death is typed, and the next create starts a new zygote."""
    replicas = [await runtime.create(replace(spec, replica_id=f"r{n}")) for n in range(3)]
    zygote = json.loads((tmp_path / "run/local/zygote.json").read_text())["pid"]
    os.kill(zygote, signal.SIGKILL)
    for replica in replicas:
        info = await asyncio.wait_for(replica.wait_dead(), DEADLINE_S)
        assert info.reason is ExitReason.RUNTIME_LOST
        assert gone(replica.pid)
    fresh = await runtime.create(replace(spec, replica_id="fresh"))
    assert await run_inside(fresh, "result = 2") == 2
    for replica in replicas:
        await runtime.destroy(replica)


AGENT = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {tree!r})
from tests.support.runtime_probe import run_inside
from osgym_host.runtimes.base import ReplicaSpec
from osgym_host.runtimes.local.probe_image import ProbeImage, ProbeManifest
from osgym_host.runtimes.local.runtime import LocalRuntime

async def main():
    data, rootfs, uid, gid = sys.argv[1:]
    image = ProbeImage("probe", Path(rootfs), ProbeManifest(int(uid), int(gid)))
    runtime = LocalRuntime(Path(data), "local")
    await runtime.start()
    replicas = [await runtime.create(ReplicaSpec(f"old{{n}}", 1, image)) for n in range(2)]
    for replica in replicas:
        await run_inside(replica, {before_death!r})
    print(*[replica.pid for replica in replicas], flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


def killed_agent(tmp_path: Path, image: ImageLike, *, zygote_too: bool, before_death: str = "") -> list[int]:
    """Run a host agent with two replicas, kill -9 it, return the PIDs of its processes."""
    program = AGENT.format(tree=str(Path(__file__).parents[2]), before_death=before_death)
    argv = [sys.executable, "-c", program, str(tmp_path), str(image.rootfs)]
    argv += [str(image.manifest.uid_base), str(image.manifest.gid_base)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        pids = [int(pid) for pid in agent.stdout.readline().split()]
        pids.append(json.loads((tmp_path / "run/local/zygote.json").read_text())["pid"])
        assert len(pids) == 3
        if zygote_too:
            os.kill(pids[2], signal.SIGKILL)
        agent.kill()
    return pids


@pytest.mark.parametrize("zygote_too", [False, True])
async def test_a_killed_host_agent_is_cleared_away(
    tmp_path: Path, image: ImageLike, spec: ReplicaSpec, zygote_too: bool
) -> None:
    """After kill -9, its processes end by themselves and the next start removes the rest."""
    pids = await asyncio.to_thread(killed_agent, tmp_path, image, zygote_too=zygote_too)
    runtime = LocalRuntime(tmp_path, "local")
    report = await runtime.start()
    try:
        assert all(gone(pid) for pid in pids)
        assert report.reaped_replicas == 2
        assert list((tmp_path / "run/local/replicas").iterdir()) == []
        name = cgroups.instance_group_name(tmp_path / "run/local")
        assert not list(Path("/sys/fs/cgroup").glob(f"**/{name}/old*"))
        assert await run_inside(await runtime.create(spec), "result = 3") == 3
    finally:
        await runtime.stop()


CLEAR_DEATH_SIGNAL = """
import ctypes, os
os.setresuid(1000, 1000, 0)  # for all threads, the first one included; the kernel then forgets the signal
os.setresuid(0, 0, 0)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setresuid(1000, 1000, 1000)
            while True:
                ctypes.CDLL(None).pause()
        os._exit(0)
"""


async def test_a_guest_that_clears_its_death_signal_ends_with_a_killed_agent(
    tmp_path: Path, image: ImageLike
) -> None:
    """Agent and zygote killed at once: the kernel ends all processes of the replicas by itself."""
    pids = await asyncio.to_thread(
        killed_agent, tmp_path, image, zygote_too=True, before_death=CLEAR_DEATH_SIGNAL
    )
    assert all(gone(pid, timeout_s=5.0) for pid in pids)
    name = cgroups.instance_group_name(tmp_path / "run/local")
    groups = list(Path("/sys/fs/cgroup").glob(f"**/{name}/old*/cgroup.procs"))
    assert [group for group in groups if group.read_text().strip()] == []
    runtime = LocalRuntime(tmp_path, "local")
    assert (await runtime.start()).reaped_processes == 0
    await runtime.stop()


async def test_control_groups_of_a_former_place_are_removed(tmp_path: Path) -> None:
    """A host agent restarted from another session finds the groups of the first; foreign names stay."""
    parents = [h.own for h in cgroups.parse_hierarchies(*proc_cgroups()) if h.version == 1]
    if os.geteuid() != 0 or not parents:
        pytest.skip("missing: root and control groups of version 1")
    run_dir = tmp_path / "run/local"
    run_dir.mkdir(parents=True)
    elsewhere = parents[0] / f"osgym-test-elsewhere-{os.getpid()}"
    ours, foreign = elsewhere / cgroups.instance_group_name(run_dir), elsewhere / "foreign"
    for folder in (elsewhere, ours, ours / "r1", foreign):
        folder.mkdir()
    try:
        (run_dir / "cgroups.json").write_text(json.dumps([str(ours), str(foreign), 7, "/etc"]))
        with subprocess.Popen(["sleep", "1000"]) as leftover:
            (ours / "r1/cgroup.procs").write_text(str(leftover.pid))
            runtime = LocalRuntime(tmp_path, "local")
            report = await runtime.start()
            assert report.reaped_processes == 1
            assert leftover.wait(DEADLINE_S) == -signal.SIGKILL
        await runtime.stop()
        assert not ours.exists()
        assert foreign.exists()
    finally:
        for folder in (ours / "r1", ours, foreign, elsewhere):
            if folder.exists():
                folder.rmdir()


def proc_cgroups() -> tuple[str, str]:
    return Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text()


async def test_a_reused_pid_is_spared(tmp_path: Path, image: ImageLike) -> None:
    """A leftover record that names a PID with another start time kills nobody."""
    folder = tmp_path / "run/local/replicas/old"
    folder.mkdir(parents=True)
    with subprocess.Popen(["sleep", "1000"]) as innocent:
        try:
            record_process(folder / "replica.json", innocent.pid)
            record = json.loads((folder / "replica.json").read_text())
            record["start_ticks"] -= 1
            (folder / "replica.json").write_text(json.dumps(record))
            runtime = LocalRuntime(tmp_path, "local")
            report = await runtime.start()
            await runtime.stop()
            assert (report.reaped_replicas, report.reaped_processes) == (1, 0)
            assert innocent.poll() is None
        finally:
            innocent.kill()
