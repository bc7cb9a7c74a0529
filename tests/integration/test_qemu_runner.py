"""QEMU in a runner container, for real: what a stand-in for it finds around itself, and machines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.support import ROOT
from tests.support.docker_daemon import docker_daemon
from tests.support.launch_probe import MARK, probe, told
from tests.support.runtime_kits import DEADLINE_S, QemuKit, contract_spec
from tests.support.waiting import until

from osgym_host.addresses import UnixAddress
from osgym_host.guest_client import GuestClient
from osgym_host.runtimes.base import ExitReason, RuntimeUnsupported
from osgym_host.runtimes.cgroups import instance_group_name
from osgym_host.runtimes.processes import ProcessIdentity
from osgym_host.runtimes.replica_cgroup import Caps, MemoryEnd
from osgym_qemu.cloning.parked_pool import ParkedPoolOptions
from osgym_qemu.cloning.replica import QemuReplica
from osgym_qemu.machine.launcher import LaunchFailed, LaunchRequest
from osgym_qemu.network.user import UserNetwork
from osgym_qemu.runner.container import ContainerLauncher
from osgym_qemu.runner.daemon import DockerDaemon
from osgym_qemu.runner.runner_image import build_runner_image, find_runner_image
from osgym_qemu.runtime import QemuOptions, QemuRuntime
from osgym_qemu.snapshots import Snapshot

SLEEP = ["/usr/bin/python3", "-c", "import time; time.sleep(100)"]


@pytest.fixture(scope="module")
def daemon_url() -> Iterator[str]:
    """A Docker daemon."""
    with docker_daemon() as url:
        yield url


@pytest.fixture(scope="module")
def runner_image(daemon_url: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The runner image, built when the daemon has none."""

    async def build() -> str:
        daemon = DockerDaemon(daemon_url)
        try:
            await daemon.open()
            image, _ = await build_runner_image(daemon, tmp_path_factory.mktemp("runner"))
        finally:
            await daemon.close()
        return image.tag

    return asyncio.run(build())


@pytest.fixture
async def containers(daemon_url: str, runner_image: str) -> AsyncIterator[ContainerLauncher]:
    """A launcher of containers; afterwards no container of ours is left."""
    launcher = ContainerLauncher(MARK, DockerDaemon(daemon_url))
    await launcher.prepare()
    yield launcher
    await launcher.close()
    after = ContainerLauncher(MARK, DockerDaemon(daemon_url))
    await after.prepare()
    left = await after.find()
    await after.reap()
    await after.close()
    assert left == []


# Containers ------------------------------------------------------------------------------------------


async def test_the_runner_image_is_found_again(daemon_url: str, runner_image: str, tmp_path: Path) -> None:
    """Nothing is built when nothing changed; the image says which QEMU it has."""
    daemon = DockerDaemon(daemon_url)
    try:
        await daemon.open()
        image, built = await build_runner_image(daemon, tmp_path)
        assert (image.tag, built) == (runner_image, False)
        assert await find_runner_image(daemon) == image
    finally:
        await daemon.close()
    launcher = ContainerLauncher(MARK, DockerDaemon(daemon_url), qemu_version="1.0")
    with pytest.raises(RuntimeUnsupported, match="osgym image runner --refresh"):
        await launcher.prepare()
    await launcher.close()
    assert image.qemu_version


async def test_a_container_has_nothing_but_its_folder(containers: ContainerLauncher, tmp_path: Path) -> None:
    """No capability, no network, no device, a read-only root; descriptors are where they were wanted."""
    (tmp_path / "other").mkdir()
    request, listener = probe(tmp_path)
    found = await told(containers, request, listener)
    assert found["pid"] == 1
    assert found["uid"] != 0
    assert int(str(found["caps"]), 16) == int(str(found["bounding"]), 16) == 0
    assert found["no_new_privs"] == "1"
    assert found["seccomp"] == "2"
    assert found["interfaces"] == ["lo"]
    assert found["writable"] == [str(request.folder)]
    assert found["fds"] == [0, 1, 2, 7]
    assert (found["home"], found["devices"], found["shells"]) == (False, False, [])


async def test_a_containers_caps_are_enforced(containers: ContainerLauncher, tmp_path: Path) -> None:
    """A container that takes more memory than its cap is killed, and its end says why."""
    if "memory" not in containers.caps_enforced:
        pytest.skip("missing: a memory controller")
    argv = ["/usr/bin/python3", "-c", "x = bytearray(300 << 20)"]
    process = await containers.launch(LaunchRequest("vm", argv, folder=tmp_path, caps=Caps(64)))
    end = await asyncio.wait_for(process.wait(), DEADLINE_S)
    assert (end.signal, end.memory) == (9, MemoryEnd.CAP)
    await process.remove()
    await process.remove()


async def test_a_refusal_inside_is_told(containers: ContainerLauncher, tmp_path: Path) -> None:
    """A program that the image does not have is an error with its name, and nothing is left."""
    with pytest.raises(LaunchFailed, match="no-such-qemu"):
        await containers.launch(LaunchRequest("vm", ["no-such-qemu"], folder=tmp_path))


async def test_a_cancelled_launch_leaves_nothing(containers: ContainerLauncher, tmp_path: Path) -> None:
    """Whoever gives up while a container starts leaves none behind."""
    for moment_s in (0.0, 0.1):
        request = LaunchRequest("vm", SLEEP, folder=tmp_path)
        task = asyncio.create_task(containers.launch(request))
        await asyncio.sleep(moment_s)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await task).remove()


async def test_containers_of_a_killed_agent_are_adopted_or_reaped(
    containers: ContainerLauncher, daemon_url: str, tmp_path: Path
) -> None:
    """They are found by their labels; those of another instance are not ours to touch."""
    other = ContainerLauncher(f"{MARK}-other", DockerDaemon(daemon_url))
    await other.prepare()
    processes = []
    for launcher, name in ((containers, "kept"), (containers, "lost"), (other, "theirs")):
        (tmp_path / name).mkdir()
        request = LaunchRequest(name, SLEEP, folder=tmp_path / name)
        processes.append(await launcher.launch(request))
    kept, lost, theirs = processes
    successor = ContainerLauncher(MARK, DockerDaemon(daemon_url))
    await successor.prepare()
    try:
        assert {entry.name for entry in await successor.find()} == {"kept", "lost"}
        adopted = await successor.adopt("kept", kept.identity, kept.keeper)
        assert adopted is not None and adopted.pid == kept.pid
        assert await successor.adopt("lost", kept.identity, lost.keeper) is None
        assert await successor.reap() == 1
        await asyncio.wait_for(lost.wait(), DEADLINE_S)
        assert kept.end is None and theirs.end is None
        await adopted.remove()
        await asyncio.wait_for(kept.wait(), DEADLINE_S)
    finally:
        await theirs.remove()
        await successor.close()
        await other.close()


async def test_without_a_daemon_the_reason_is_said(tmp_path: Path) -> None:
    """No daemon, or one elsewhere, is unsupported with a remedy."""
    for url, said in ((f"unix://{tmp_path}/none.sock", "systemctl start docker"), ("tcp://[::1]:1", "unix")):
        launcher = ContainerLauncher(MARK, DockerDaemon(url))
        with pytest.raises(RuntimeUnsupported, match=said):
            await launcher.prepare()
        await launcher.close()


# Machines in containers ------------------------------------------------------------------------------


@dataclass
class ContainerKit(QemuKit):
    """Machines of the small snapshot, each in a container."""

    mark: str = MARK
    daemon_url: str = ""

    def make(self, data_dir: Path, options: QemuOptions | None = None) -> QemuRuntime:
        return QemuRuntime(
            data_dir,
            "contract",
            lambda tree: ContainerLauncher(self.mark, DockerDaemon(self.daemon_url)),
            UserNetwork(data_dir / "run" / "contract", forwards=True),
            options or QemuOptions(parked=ParkedPoolOptions(target=self.parked)),
            self.image,
        )


@pytest.fixture
def kit(small_snapshot: Snapshot, daemon_url: str, runner_image: str) -> ContainerKit:
    """How machines in containers are made."""
    return ContainerKit(small_snapshot, daemon_url=daemon_url)


async def test_a_machine_in_a_container_is_a_replica_like_any_other(
    kit: ContainerKit, containers: ContainerLauncher, tmp_path: Path
) -> None:
    """It answers, is capped and measured, branches, survives its host agent and goes without a trace."""
    runtime = kit.make(tmp_path)
    await runtime.start()
    try:
        parent = await runtime.create(contract_spec(kit))
        assert isinstance(parent, QemuReplica) and parent.vm.machine.process.keeper
        assert await kit.run_inside(parent, "open('/root/mark', 'w').write('here'); result = 1 + 1") == 2
        usage = await runtime.usage(parent)
        assert usage.pss_mib and usage.charged_mib and usage.cpu_s
        point = await runtime.branch(parent)
        child = await runtime.create(
            replace(contract_spec(kit), replica_id="child", generation=8, origin=point)
        )
        assert await kit.run_inside(child, "result = open('/root/mark').read()") == "here"
        await runtime.release_point(point)
        await runtime.destroy(child)
        # A flood through the forwarded port arrives whole.
        async with GuestClient(parent.guest, token=parent.guest_token) as guest:
            ended = await guest.execute(["sh", "-c", "head -c 3000000 /dev/zero | tr \\\\0 x"], timeout_s=40)
        assert len(ended.output) == 3_000_000
        os.kill(parent.pid, 9)
        exit_info = await asyncio.wait_for(parent.wait_dead(), DEADLINE_S)
        assert exit_info.reason is ExitReason.KILLED
    finally:
        await runtime.stop()
    assert not (tmp_path / "run" / "contract" / "vms").exists()


async def test_only_we_reach_a_guest_in_a_container(kit: ContainerKit, tmp_path: Path) -> None:
    """By a unix socket in a folder that nobody else enters; no port of the host leads in."""
    before = listening_ports()
    runtime = kit.make(tmp_path)
    await runtime.start()
    try:
        replica = await runtime.create(contract_spec(kit))
        assert isinstance(replica.guest, UnixAddress)
        assert replica.guest.path.stat().st_mode & 0o777 == 0o600
        assert replica.guest.path.parent.stat().st_mode & 0o777 == 0o700
        assert listening_ports() <= before
    finally:
        await runtime.stop()


def listening_ports() -> set[str]:
    """Addresses of the host at which somebody listens."""
    table = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return {line.split()[1] for line in table if line.split()[3] == "0A"}


_AGENT = """
import asyncio, os, signal, sys
from pathlib import Path
from osgym_qemu.snapshots import SnapshotStore
from osgym_host.images.store import default_data_dir
from tests.support.runtime_kits import QemuKit, contract_spec
from tests.integration.test_qemu_runner import ContainerKit

async def main():
    snapshot = SnapshotStore(default_data_dir()).resolve({digest!r})
    kit = ContainerKit(snapshot, mark={mark!r}, daemon_url={url!r}) if {url!r} else QemuKit(snapshot)
    runtime = kit.make(Path({data_dir!r}))
    await runtime.start()
    replica = await runtime.create(contract_spec(kit))
    print(replica.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def killed_agent(kit: ContainerKit, data_dir: Path, *, containers: bool) -> int:
    """Let a host agent make a replica and die; return the replica's process."""
    code = _AGENT.format(
        digest=kit.image.digest,
        mark=kit.mark,
        url=kit.daemon_url if containers else "",
        data_dir=str(data_dir),
    )
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    said, _ = await asyncio.wait_for(agent.communicate(), 60)
    assert agent.returncode == -9
    return int(said)


async def gone(pid: int) -> None:
    """Wait until a process is no more; its new parent may take a moment to notice."""
    await until(lambda: ProcessIdentity.of(pid) is None, DEADLINE_S)


async def test_a_machine_in_a_container_outlives_its_agent(kit: ContainerKit, tmp_path: Path) -> None:
    """The next host agent adopts it, guest port and all."""
    pid = await killed_agent(kit, tmp_path, containers=True)
    runtime = kit.make(tmp_path)
    report = await runtime.start()
    try:
        [record] = report.adoptable
        adopted = await runtime.adopt(record)
        assert adopted.pid == pid
        assert await kit.run_inside(adopted, "result = 6 * 7") == 42
    finally:
        await runtime.stop()
    await gone(pid)


async def test_an_agent_may_change_how_it_runs_machines(
    kit: ContainerKit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the former one ran the other way is not adopted, but taken away."""
    monkeypatch.setenv("DOCKER_HOST", kit.daemon_url)
    bare = QemuKit(kit.image)
    for former_in_containers, successor in ((False, kit), (True, bare)):
        mark = instance_group_name(tmp_path / "run" / "contract")
        former = replace(kit, mark=mark)
        pid = await killed_agent(former, tmp_path, containers=former_in_containers)
        runtime = successor.make(tmp_path)
        try:
            report = await runtime.start()
            assert report.adoptable == ()
            assert report.reaped_processes >= 1
            await gone(pid)
        finally:
            await runtime.stop()
        after = ContainerLauncher(mark, DockerDaemon(kit.daemon_url))
        await after.prepare()
        assert await after.find() == []
        await after.close()
