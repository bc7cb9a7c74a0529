"""The namespace runtime with a baked desktop: life, partial and whole deaths, and no trace after many."""

# ruff: noqa: ASYNC240 -- the only task of a test blocks nobody

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.harness import harness_processes
from tests.support.waiting import until

from osgym_host.guest_client import GuestClient, GuestUnreachable
from osgym_host.images.errors import ImageError
from osgym_host.images.store import Image, ImageStore, default_data_dir
from osgym_host.runtimes.base import ExitReason, ReplicaSpec, Screen
from osgym_host.runtimes.local.runtime import LocalRuntime

pytestmark = pytest.mark.desktop
DEADLINE_S = 30.0


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path, "desktop")
    await runtime.start()
    yield runtime
    await runtime.stop()
    assert not list((tmp_path / "run/desktop/replicas").iterdir())


@pytest.fixture
def spec(small_image: Image) -> ReplicaSpec:
    return ReplicaSpec("d1", 1, small_image, ram_mib=2048, pids=512)


async def inside(guest: GuestClient, command: str) -> str:
    done = await guest.execute(command, shell=True, timeout_s=DEADLINE_S)
    assert done.returncode == 0, done
    return done.output.strip()


async def test_a_desktop_is_drawn(runtime: LocalRuntime, spec: ReplicaSpec) -> None:
    """A clone becomes ready, its screen has the size asked for, and the user is who he should be."""
    replica = await runtime.create(replace(spec, screen=Screen(1280, 720), generation=42))
    async with GuestClient(replica.guest) as guest:
        health = await guest.ready(timeout_s=DEADLINE_S)
        assert (health.desktop_ready, health.generation) == (True, "42")
        frame = await guest.observe()
        assert frame.observation.frame.screen == (1280, 720)
        assert len(frame.image) > 10_000
        assert await inside(guest, "id -un; pwd; hostname; sudo id -u") == "user\n/home/user\ndesktop\n0"


async def test_two_desktops_have_the_same_display_and_share_nothing(
    runtime: LocalRuntime, spec: ReplicaSpec
) -> None:
    """Both are :0, and a window of one is not on the other."""
    replicas = [await runtime.create(replace(spec, replica_id=name)) for name in ("d1", "d2")]
    async with GuestClient(replicas[0].guest) as one, GuestClient(replicas[1].guest) as two:
        for guest in (one, two):
            await guest.ready(timeout_s=DEADLINE_S)
            assert await inside(guest, "echo $DISPLAY") == ":0"
        await inside(one, "mkdir -p ~/only-in-one")
        await one.open_file("/home/user/only-in-one", timeout_s=DEADLINE_S)
        assert "only-in-one" in await inside(one, "wmctrl -l")
        assert "only-in-one" not in await inside(two, "wmctrl -l")
        assert await inside(two, "ls ~/only-in-one || echo absent") == "absent"


async def begun(first_pid: int) -> None:
    """Wait until a command that makes /tmp/begun runs."""
    await until(lambda: Path(f"/proc/{first_pid}/root/tmp/begun").exists(), DEADLINE_S)


async def test_the_guest_agent_alone_may_die(runtime: LocalRuntime, spec: ReplicaSpec) -> None:
    """The call in flight fails typed, the agent comes back on the same socket, the desktop lives on."""
    replica = await runtime.create(spec)
    async with GuestClient(replica.guest) as guest:
        before = await guest.ready(timeout_s=DEADLINE_S)
        (x_server,) = harness_processes(replica.pid, "Xvfb")
        (agent,) = harness_processes(replica.pid, "osgym_guest.pyc")
        with pytest.raises(GuestUnreachable) as unreachable:
            call = asyncio.ensure_future(guest.execute("touch /tmp/begun; sleep 10", shell=True))
            await begun(replica.pid)
            os.kill(agent, signal.SIGKILL)
            await call
        assert unreachable.value.delivered
        after = await guest.ready(timeout_s=DEADLINE_S)
        assert after.uptime_s < before.uptime_s + 10
        assert after.last_seq == 0
        assert harness_processes(replica.pid, "Xvfb") == [x_server]
        assert await inside(guest, "echo started by the new agent") == "started by the new agent"
    assert replica.exit_info is None


@pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, who may signal a replica's first process")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_no_signal_but_sigkill_ends_a_session_from_outside(
    runtime: LocalRuntime, spec: ReplicaSpec, number: signal.Signals
) -> None:
    """Other signals from outside would look like a session that its programs ended."""
    replica = await runtime.create(spec)
    async with GuestClient(replica.guest) as guest:
        await guest.ready(timeout_s=DEADLINE_S)
        os.kill(replica.pid, number)
        assert await inside(guest, "echo goes on") == "goes on"
    assert replica.exit_info is None


async def test_one_that_may_be_dumped_is_in_one_pid_namespace(
    runtime: LocalRuntime, spec: ReplicaSpec
) -> None:
    """CRIU dumps no nested PID namespaces, so the desktop's programs share the agent's."""
    replica = await runtime.create(replace(spec, environment=(("OSGYM_ONE_PID_NAMESPACE", "1"),)))
    async with GuestClient(replica.guest) as guest:
        await guest.ready(timeout_s=DEADLINE_S)
        assert await inside(guest, "pgrep -cx Xvfb; pgrep -cx dbus-daemon; pgrep -cx tint2") == "1\n1\n1"
        assert await inside(guest, "cat /proc/1/comm") == "session"
    spaces = {os.readlink(f"/proc/{pid}/ns/pid") for pid in replica.processes() or ()}
    assert len(spaces) == 1


async def test_a_dead_x_server_ends_the_replica(runtime: LocalRuntime, spec: ReplicaSpec) -> None:
    """Without its display a desktop is worth nothing: the replica dies, and says why."""
    replica = await runtime.create(spec)
    async with GuestClient(replica.guest) as guest:
        await guest.ready(timeout_s=DEADLINE_S)
        (x_server,) = harness_processes(replica.pid, "Xvfb")
        os.kill(x_server, signal.SIGKILL)
    info = await asyncio.wait_for(replica.wait_dead(), DEADLINE_S)
    assert info.reason is ExitReason.DISPLAY_LOST


def fingerprint(rootfs: Path) -> int:
    """Names, kinds, modes, owners, sizes and times of all files (inodes may be shared with other images)."""
    value = 0
    for folder, _folders, files in os.walk(rootfs):
        for path in (folder, *(os.path.join(folder, file) for file in files)):
            stat = os.lstat(path)
            value ^= hash((path, stat.st_mode, stat.st_uid, stat.st_gid, stat.st_size, stat.st_mtime_ns))
    return value


async def test_many_desktops_leave_no_trace(
    runtime: LocalRuntime, spec: ReplicaSpec, small_image: Image, tmp_path: Path
) -> None:
    """Clone after clone: no process, mount, descriptor, group or file is left, the image is untouched."""
    cycles = int(os.environ.get("OSGYM_TEST_CYCLES", "4"))
    before = fingerprint(small_image.rootfs)
    mounts = Path("/proc/self/mounts").read_text()

    async def cycle() -> None:
        replica = await runtime.create(spec)
        async with GuestClient(replica.guest) as guest:
            await guest.ready(timeout_s=DEADLINE_S)
            await inside(
                guest, "echo written > ~/Desktop/file; sudo touch /usr/bin/new; sudo rm /etc/hostname"
            )
        group = replica.spec.replica_id
        await runtime.destroy(replica)
        assert not list(Path("/sys/fs/cgroup").glob(f"*/osgym-desktop-*/{group}"))
        assert not list((tmp_path / "run/desktop/replicas").iterdir())

    await cycle()
    descriptors = len(os.listdir("/proc/self/fd"))
    zygote_descriptors = len(os.listdir(f"/proc/{runtime.supervisor_pid}/fd"))
    for _number in range(cycles - 1):
        await cycle()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert len(os.listdir(f"/proc/{runtime.supervisor_pid}/fd")) == zygote_descriptors
    children = Path(f"/proc/{runtime.supervisor_pid}/task/{runtime.supervisor_pid}/children")
    assert children.read_text() == ""
    assert Path("/proc/self/mounts").read_text() == mounts
    assert fingerprint(small_image.rootfs) == before


BROWSER = """
echo '<title>sand</title><h1>box</h1>' >/tmp/page.html
chromium --no-first-run file:///tmp/page.html >/tmp/chromium.log 2>&1 &
for _ in $(seq 100); do wmctrl -l | grep -q sand && break; sleep 0.2; done
wmctrl -l | grep -o sand
renderer=$(pgrep -f '[t]ype=renderer' | head -n 1)
for name in user pid net; do
    [ "$(sudo readlink /proc/$renderer/ns/$name)" = "$(readlink /proc/self/ns/$name)" ] || echo "own $name"
done
pgrep -f 'sub-type=[n]etwork.mojom.NetworkService' >/dev/null && echo network service
"""


@pytest.mark.full_image
async def test_large_applications_run_behind_the_filter(runtime: LocalRuntime) -> None:
    """Chromium with its own sandbox (namespaces within ours) and its network service, LibreOffice, a server
    on a port of root's."""
    try:
        image = ImageStore(default_data_dir()).resolve("full")
    except ImageError:
        pytest.skip("missing: golden image 'full'")
    replica = await runtime.create(ReplicaSpec("d1", 1, image, ram_mib=4096, pids=1024))
    async with GuestClient(replica.guest) as guest:
        await guest.ready(timeout_s=DEADLINE_S)
        seen = await guest.execute(BROWSER, shell=True, timeout_s=60)
        assert seen.output.split("\n")[:-1] == ["sand", "own user", "own pid", "own net", "network service"]
        await inside(guest, "pkill chromium; printf 'a,b\\n1,2\\n' >/tmp/t.csv")
        await guest.execute("cd /tmp && soffice --headless --convert-to pdf t.csv", shell=True, timeout_s=90)
        assert await inside(guest, "head -c 4 /tmp/t.pdf") == "%PDF"
        serve = "sudo timeout 20 python3 -m http.server 80 --bind 127.0.0.1 >/dev/null 2>&1 & sleep 0.5"
        await guest.execute(serve, shell=True, timeout_s=30)
        fetch = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:80/', timeout=10).status)"
        assert await inside(guest, f'python3 -c "{fetch}"') == "200"
        assert "127.0.0.1" in await inside(guest, "ip -br address")
