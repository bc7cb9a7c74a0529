"""What every runtime promises (`osgym_host.runtimes.base`), run against each of them for real.

A runtime joins by adding a kit to `KITS` (`tests/support/runtime_kits.py`): how to make it, the image
that runs what a test sends, and how to see from outside whether anything of a replica is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import ROOT
from tests.support.runtime_kits import Kit, LocalKit, QemuKit, contract_spec, threads_of
from tests.support.runtime_probe import build_python_image

from osgym_host.addresses import TcpAddress
from osgym_host.guest_client import GuestError
from osgym_host.runtimes import base
from osgym_host.runtimes.base import ExitReason, Replica, ReplicaSpec, Runtime
from osgym_host.runtimes.qemu.cloning.replica import QemuReplica

DEADLINE_S = 30.0
OWN_COMMAND = Path("/proc/self/cmdline").read_text()
KITS = ("local_kit", "qemu_kit")


@pytest.fixture(scope="module")
def local_kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    return LocalKit(build_python_image(tmp_path_factory.mktemp("image") / "rootfs"))


@pytest.fixture(scope="module")
def qemu_kit(request: pytest.FixtureRequest) -> Kit:
    return QemuKit(request.getfixturevalue("small_snapshot"))


@pytest.fixture(params=KITS)
def kit(request: pytest.FixtureRequest) -> Kit:
    found: Kit = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def runtime(kit: Kit, tmp_path: Path) -> AsyncIterator[Runtime]:
    """A started runtime; at the end nothing of it is left."""
    descriptors = len(os.listdir("/proc/self/fd"))
    runtime = kit.make(tmp_path)
    await runtime.start()
    replicas: list[Replica] = []
    original = runtime.create

    async def create(spec: ReplicaSpec) -> Replica:
        replica = await original(spec)
        replicas.append(replica)
        return replica

    runtime.create = create  # type: ignore[method-assign]  # remembers what the test made
    yield runtime
    await runtime.stop()
    assert kit.traces(tmp_path) == []
    assert all(replica.exit_info is not None for replica in replicas)
    assert not any(exists(replica.pid) for replica in replicas)
    assert len(os.listdir("/proc/self/fd")) <= descriptors


@pytest.fixture
def spec(kit: Kit) -> ReplicaSpec:
    return contract_spec(kit)


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def settled(condition: Callable[[], bool]) -> bool:
    """Whether it becomes true within seconds: work in the background ends."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110  # polls any condition
                await asyncio.sleep(0.02)
    return condition()


async def dead(replica: Replica) -> base.ExitInfo:
    return await asyncio.wait_for(replica.wait_dead(), DEADLINE_S)


# Start and stop ------------------------------------------------------------------------------


async def test_a_runtime_that_is_not_started_makes_nothing(
    kit: Kit, tmp_path: Path, spec: ReplicaSpec
) -> None:
    """Before start and after stop, create says so."""
    runtime = kit.make(tmp_path)
    with pytest.raises(base.RuntimeNotRunning):
        await runtime.create(spec)
    await runtime.start()
    await runtime.stop()
    with pytest.raises(base.RuntimeNotRunning):
        await runtime.create(spec)


async def test_start_twice_changes_nothing(runtime: Runtime, spec: ReplicaSpec) -> None:
    """A second start neither reaps nor restarts."""
    replica = await runtime.create(spec)
    report = await runtime.start()
    assert report == base.StartReport()
    assert replica.exit_info is None


async def test_a_rival_is_refused_and_touches_nothing(
    runtime: Runtime, kit: Kit, tmp_path: Path, spec: ReplicaSpec
) -> None:
    """Two host agents on one directory: the second gets DataDirBusy, the first goes on."""
    replica = await runtime.create(spec)
    with pytest.raises(base.DataDirBusy):
        await kit.make(tmp_path).start()
    assert await kit.run_inside(replica, "result = 1 + 1") == 2


async def test_stop_then_start_again(kit: Kit, tmp_path: Path, spec: ReplicaSpec) -> None:
    """A stopped runtime can be started again, and a stopped one stopped again."""
    runtime = kit.make(tmp_path)
    for _round in range(2):
        await runtime.start()
        replica = await runtime.create(spec)
        await runtime.stop()
        assert (await dead(replica)).reason is ExitReason.DESTROYED
        assert runtime.replicas() == []
        assert kit.traces(tmp_path) == []
    await runtime.stop()


async def test_stop_waits_for_what_is_being_created(kit: Kit, tmp_path: Path, spec: ReplicaSpec) -> None:
    """Creates under way when stop is called are taken away as well, and later ones refused."""
    runtime = kit.make(tmp_path)
    await runtime.start()
    tasks = [asyncio.create_task(runtime.create(replace(spec, replica_id=f"r{n}"))) for n in range(4)]
    await asyncio.sleep(0.001)
    stopping = asyncio.create_task(runtime.stop())
    await asyncio.sleep(0)
    with pytest.raises(base.RuntimeNotRunning):
        await runtime.create(replace(spec, replica_id="late"))
    await stopping
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, base.RuntimeFault) or (await dead(result)).reason is ExitReason.DESTROYED
    assert kit.traces(tmp_path) == []


# Create --------------------------------------------------------------------------------------


async def test_a_replica_is_reachable_as_soon_as_it_is_created(
    runtime: Runtime, kit: Kit, spec: ReplicaSpec
) -> None:
    """The guest socket accepts at once, and the session got its identity."""
    replica = await runtime.create(replace(spec, token="s3cret"))
    assert (replica.replica_id, replica.generation) == ("r1", 7)
    assert replica.guest_token == "s3cret"
    assert await kit.knows(replica) == {"generation": "7", "token": "s3cret", "screen": str(kit.screen)}
    assert [r.replica_id for r in runtime.replicas()] == ["r1"]


async def test_an_id_is_used_once_at_a_time(runtime: Runtime, spec: ReplicaSpec) -> None:
    """A live id is refused; after destroy it is free."""
    first = await runtime.create(spec)
    with pytest.raises(base.ReplicaExists):
        await runtime.create(replace(spec, generation=8))
    await runtime.destroy(first)
    second = await runtime.create(replace(spec, generation=8))
    assert second.generation == 8
    assert second.pid != first.pid


async def test_many_are_created_at_once(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """Concurrent creates do not disturb each other."""
    specs = [replace(spec, replica_id=f"r{n}", generation=10 + n) for n in range(6)]
    replicas = await asyncio.gather(*map(runtime.create, specs))
    known = await asyncio.gather(*map(kit.knows, replicas))
    assert [knows["generation"] for knows in known] == [str(10 + n) for n in range(6)]


@pytest.mark.parametrize("replica_id", ["", "../x", "a/b", "a" * 65, "ä", "a b"])
async def test_a_malformed_id_is_refused(runtime: Runtime, spec: ReplicaSpec, replica_id: str) -> None:
    """Ids become folder names; nothing else than plain names gets through."""
    with pytest.raises(ValueError, match="replica_id"):
        await runtime.create(replace(spec, replica_id=replica_id))


async def test_what_cannot_be_enforced_is_refused(runtime: Runtime, spec: ReplicaSpec) -> None:
    """An egress policy that the runtime does not list is an error, never ignored."""
    for policy in set(base.Egress) - runtime.capabilities().egress:
        with pytest.raises(base.RuntimeUnsupported):
            await runtime.create(replace(spec, egress=policy))


async def test_a_create_that_fails_leaves_nothing(
    runtime: Runtime, kit: Kit, tmp_path: Path, spec: ReplicaSpec
) -> None:
    """A broken image: a typed error that names the step, and no trace."""

    with pytest.raises(base.ReplicaCreateFailed) as failure:
        await runtime.create(replace(spec, image=kit.broken_image(tmp_path)))
    assert failure.value.step
    assert kit.traces(tmp_path) == []
    await runtime.create(spec)  # the id is free again


async def test_a_cancelled_create_leaves_nothing(
    runtime: Runtime, kit: Kit, tmp_path: Path, spec: ReplicaSpec
) -> None:
    """Cancelled at any moment, a replica is taken away again in the background."""
    for delay_s in kit.moments_s:
        task = asyncio.create_task(runtime.create(spec))
        await asyncio.sleep(delay_s)
        if not task.cancel():
            await runtime.destroy(await task)
            continue
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    await runtime.destroy(await runtime.create(spec))
                    break
                except base.ReplicaExists:
                    await asyncio.sleep(0.01)
    assert kit.traces(tmp_path) == []


# Destroy -------------------------------------------------------------------------------------


async def test_destroy_kills_everything_and_removes_everything(
    runtime: Runtime, kit: Kit, tmp_path: Path, spec: ReplicaSpec
) -> None:
    """Daemons in sessions of their own die too; files, groups and sockets are gone on return."""
    replica = await runtime.create(spec)
    await kit.run_inside(
        replica,
        """
        import os, signal, time
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                if os.fork() == 0:
                    os.setsid()
                time.sleep(1000)
        open("/scratch/file", "w").write("x" * 1000)
        """,
    )
    assert kit.traces(tmp_path) != []
    inside = (await runtime.usage(replica)).processes
    assert inside is not None and inside >= (1 if kit.own_kernel else 7)
    await runtime.destroy(replica)
    assert kit.traces(tmp_path) == []
    assert (await dead(replica)).reason is ExitReason.DESTROYED
    assert not exists(replica.pid)


async def test_destroy_is_idempotent(runtime: Runtime, spec: ReplicaSpec) -> None:
    """Twice, at once and one after the other, and after the replica died by itself."""
    replica = await runtime.create(spec)
    await asyncio.gather(runtime.destroy(replica), runtime.destroy(replica))
    await runtime.destroy(replica)
    other = await runtime.create(spec)
    os.kill(other.pid, signal.SIGKILL)
    assert (await dead(other)).reason is ExitReason.KILLED
    await runtime.destroy(other)
    await runtime.destroy(replica)
    assert runtime.replicas() == []


async def test_a_cancelled_destroy_goes_on(
    runtime: Runtime, kit: Kit, tmp_path: Path, spec: ReplicaSpec
) -> None:
    """The caller may go away; the replica still does."""
    replica = await runtime.create(spec)
    task = asyncio.create_task(runtime.destroy(replica))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await dead(replica)).reason is ExitReason.DESTROYED
    await runtime.destroy(replica)
    assert kit.traces(tmp_path) == []


async def test_nothing_leaks_over_many_clones(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """Create and destroy in a row leave no descriptor, process or task behind."""
    cycles = int(os.environ.get("OSGYM_TEST_CYCLES", kit.cycles))
    await runtime.destroy(await runtime.create(spec))
    descriptors, tasks = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
    for _cycle in range(cycles):
        replica = await runtime.create(spec)
        await kit.run_inside(replica, "open('/scratch/x', 'w').write('x')")
        await runtime.destroy(replica)
    assert await settled(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)
    assert await settled(lambda: len(asyncio.all_tasks()) <= tasks)


# Death ---------------------------------------------------------------------------------------


async def test_the_end_from_within_is_typed(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """A session that ends, a lost display, a guest that is switched off: told apart, with last words."""
    for number, ending in enumerate(kit.endings):
        replica = await runtime.create(replace(spec, replica_id=f"r{number}"))
        waiters = [asyncio.create_task(dead(replica)) for _ in range(3)]
        with contextlib.suppress(GuestError):
            await kit.run_inside(replica, ending.code)
        answers = await asyncio.gather(*waiters)
        assert {answer.reason for answer in answers} == {ending.reason}
        assert answers[0].exit_code == ending.exit_code
        assert "last words" in answers[0].log_tail
        assert replica.exit_info == answers[0] == await dead(replica)


async def test_running_out_of_memory_is_typed(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """Over the cap the whole replica dies, even when a child was the one that ate."""
    if not runtime.capabilities().caps_memory:
        pytest.skip("missing: a memory controller of control groups")
    replica = await runtime.create(replace(spec, ram_mib=kit.small_ram_mib))
    await kit.run_inside(
        replica,
        """
        import os
        if os.fork() == 0:
            data = []
            while True:
                data.append(bytearray(os.urandom(1 << 20)))
        """,
    )
    info = await dead(replica)
    assert info.reason is ExitReason.OUT_OF_MEMORY
    assert f"{kit.small_ram_mib} MiB" in info.detail


async def test_files_in_memory_count_to_the_cap(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """A replica cannot hide memory in /dev/shm or /tmp."""
    if not runtime.capabilities().caps_memory:
        pytest.skip("missing: a memory controller of control groups")
    replica = await runtime.create(replace(spec, ram_mib=kit.small_ram_mib))
    await kit.run_inside(
        replica,
        """
        import os
        if os.fork() == 0:
            with open("/dev/shm/x", "wb") as f:
                for _ in range(400):
                    f.write(os.urandom(1 << 20))
            os._exit(0)
        """,
    )
    assert (await dead(replica)).reason is ExitReason.OUT_OF_MEMORY


async def test_processes_are_capped(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """A fork bomb stops at the cap and harms only its replica."""
    if not runtime.capabilities().caps_pids:
        pytest.skip("missing: a pids controller of control groups")
    replica = await runtime.create(replace(spec, pids=20))
    made = await kit.run_inside(
        replica,
        """
        import os, time
        result = 0
        try:
            for result in range(100):
                if os.fork() == 0:
                    time.sleep(1000)
        except BlockingIOError:
            pass
        """,
    )
    if kit.own_kernel:  # what it starts is no process of the host; the cap is that of its machine
        assert threads_of(replica.pid) <= 20
    else:
        assert 5 < made < 20


# Isolation -----------------------------------------------------------------------------------


async def test_the_golden_image_is_untouched(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """Writing, replacing, deleting and changing owners inside changes nothing in the image."""
    before = kit.fingerprint()
    replica = await runtime.create(spec)
    await kit.run_inside(
        replica,
        """
        import os, shutil
        open("/scratch/new", "w").write("x")
        shutil.rmtree("/scratch", ignore_errors=True)
        for action in (
            lambda: open("/etc/passwd", "a").write("evil"),
            lambda: os.chmod("/usr/lib/osgym/session", 0),
            lambda: os.chown("/etc", 1000, 1000),
            lambda: os.unlink("/etc/passwd"),
            lambda: shutil.rmtree("/usr/lib/osgym"),
            lambda: open("/marker", "w").write("x"),
        ):
            try:
                action()
            except OSError:
                pass
        """,
    )
    await runtime.destroy(replica)
    assert kit.fingerprint() == before
    fresh = await runtime.create(spec)
    assert await kit.run_inside(
        fresh, "import os; result = [os.path.exists(p) for p in ('/marker', '/scratch/new', '/etc/passwd')]"
    ) == [False, False, True]


async def test_replicas_see_nothing_of_each_other(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """Files, processes, abstract sockets, TCP ports and System V memory stay in their replica."""
    one = await runtime.create(spec)
    two = await runtime.create(replace(spec, replica_id="r2"))
    await kit.run_inside(
        one,
        """
        import ctypes, os, socket, time
        for folder in ("/scratch", "/tmp", "/dev/shm", "/run"):
            open(folder + "/secret-of-one", "w").write("secret")
        if os.fork() == 0:
            abstract = socket.socket(socket.AF_UNIX)
            abstract.bind(chr(0) + "/tmp/.X11-unix/X7")
            abstract.listen()
            tcp = socket.create_server(("127.0.0.1", 5555))
            open("/scratch/listening", "w").close()
            time.sleep(1000)
        libc = ctypes.CDLL(None)
        assert libc.shmget(0x05671234, 4096, 0o1666) >= 0
        while not os.path.exists("/scratch/listening"):
            time.sleep(0.01)
        """,
    )
    seen = await kit.run_inside(
        two,
        """
        import ctypes, glob, os, socket
        def connects(family, address):
            with socket.socket(family) as sock:
                try:
                    sock.connect(address)
                    return True
                except OSError:
                    return False
        result = {
            "files": [f for d in ("/scratch", "/tmp", "/dev/shm", "/run") for f in glob.glob(d + "/secret*")],
            "abstract": connects(socket.AF_UNIX, chr(0) + "/tmp/.X11-unix/X7"),
            "tcp": connects(socket.AF_INET, ("127.0.0.1", 5555)),
            "shm": ctypes.CDLL(None).shmget(0x05671234, 4096, 0o666) >= 0,
            "processes": [p for p in os.listdir("/proc") if p.isdigit()],
        }
        """,
    )
    processes = seen.pop("processes")
    assert seen == {"files": [], "abstract": False, "tcp": False, "shm": False}
    assert kit.own_kernel or processes == ["1"]


async def test_a_replica_sees_nothing_of_the_host(
    runtime: Runtime, kit: Kit, spec: ReplicaSpec, tmp_path: Path
) -> None:
    """No host process, file, socket, network interface or descriptor is within reach of its root."""
    (tmp_path / "host-secret").write_text("secret")
    replica = await runtime.create(spec)
    with socket.create_server(("127.0.0.1", 0)) as service:
        seen = await kit.run_inside(
            replica,
            """
            import os, socket
            def read(path):
                try:
                    return open(path).read()
                except OSError:
                    return None
            def connects(address):
                try:
                    socket.create_connection(address, timeout=2).close()
                    return True
                except OSError:
                    return False
            result = {
                "file": os.path.exists(secret),
                "host process": read(f"/proc/{host_pid}/cmdline") == host_command,
                "host service": [a for a in ("127.0.0.1", "10.0.2.2") if connects((a, port))],
                "interfaces": [name for _, name in socket.if_nameindex()],
                "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:4],
                "root": os.listdir("/proc/1/root") == os.listdir("/"),
                "old root": [l for l in open("/proc/mounts") if l.split()[0].startswith("/dev/v")],
            }
            """,
            secret=str(tmp_path / "host-secret"),
            host_pid=os.getpid(),
            host_command=OWN_COMMAND,
            port=service.getsockname()[1],
        )
    own_disk = seen.pop("old root")
    assert seen == {
        "file": False,
        "host process": False,
        "host service": [],
        "interfaces": ["lo", "eth0"] if kit.own_kernel else ["lo"],
        "descriptors": [0, 1, 2, 3],
        "root": True,
    }
    assert kit.own_kernel or own_disk == []


# Usage ---------------------------------------------------------------------------------------


async def test_usage_follows_what_the_replica_does(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """Memory, CPU time, disk and processes are measured, and a dead replica uses nothing."""
    replica = await runtime.create(spec)
    await kit.run_inside(replica, "result = 0")
    before = await runtime.usage(replica)
    await kit.run_inside(
        replica,
        """
        import os, time
        if os.fork() == 0:
            ballast = bytearray(os.urandom(32 << 20))
            open("/scratch/full", "w").close()
            time.sleep(1000)
        open("/scratch/file", "wb").write(os.urandom(8 << 20))
        os.sync()
        while not os.path.exists("/scratch/full"):
            time.sleep(0.01)
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
        """,
    )
    after = await runtime.usage(replica)
    assert before.pss_mib is not None and after.pss_mib is not None
    assert after.pss_mib - before.pss_mib > 28
    assert before.overlay_mib is not None and after.overlay_mib is not None
    assert after.overlay_mib - before.overlay_mib > 7
    assert before.cpu_s is not None and after.cpu_s is not None
    assert 0.25 < after.cpu_s - before.cpu_s < 5
    shallow = await runtime.usage(replica, deep=False)
    assert shallow.pss_mib is None and shallow.overlay_mib is None
    os.kill(replica.pid, signal.SIGKILL)
    await dead(replica)
    gone = await runtime.usage(replica)
    assert (gone.pss_mib, gone.processes) == (0, 0)
    await runtime.destroy(replica)
    with pytest.raises(base.ReplicaNotFound):
        await runtime.usage(replica)


# Branching and adoption, where there are ----------------------------------------------------


async def test_a_child_goes_on_from_its_parents_moment(runtime: Runtime, kit: Kit, spec: ReplicaSpec) -> None:
    """It has what the parent had, is somebody else, and neither sees what the other does from then on."""
    parent = await runtime.create(spec)
    if not runtime.capabilities().branching:
        with pytest.raises(base.RuntimeUnsupported):
            await runtime.branch(parent)
        return
    await kit.run_inside(parent, "open('/scratch/before', 'w').write('x')")
    point = await runtime.branch(parent)
    await kit.run_inside(parent, "open('/scratch/after', 'w').write('x')")
    child = await runtime.create(replace(spec, replica_id="child", generation=8, origin=point))
    await runtime.release_point(point)
    await runtime.release_point(point)
    look = "import os; result = sorted(os.listdir('/scratch'))"
    assert await kit.run_inside(child, look) == ["before"]
    await kit.run_inside(child, "os = __import__('os'); os.unlink('/scratch/before')")
    assert await kit.run_inside(parent, look) == ["after", "before"]
    assert (await kit.knows(child))["generation"] == "8"
    assert child.guest_token != parent.guest_token
    with pytest.raises(base.PointNotFound):
        await runtime.create(replace(spec, replica_id="late", generation=9, origin=point))
    await runtime.destroy(parent)
    assert await kit.run_inside(child, look) == []


_AGENT = """
import asyncio, json, os, signal, sys
from dataclasses import replace
from pathlib import Path
from tests.support.runtime_kits import QemuKit, contract_spec
from osgym_host.images.snapshots import SnapshotStore
from osgym_host.images.store import default_data_dir

async def main():
    kit = QemuKit(SnapshotStore(default_data_dir()).resolve({digest!r}))
    runtime = kit.make(Path({data_dir!r}))
    await runtime.start()
    one = await runtime.create(contract_spec(kit))
    two = await runtime.create(replace(contract_spec(kit), replica_id="r2", generation=8))
    half_made = asyncio.create_task(
        runtime.create(replace(contract_spec(kit), replica_id="r3", generation=9))
    )
    await asyncio.sleep(0.05)
    print(json.dumps([one.pid, two.pid, one.guest_token]), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_replicas_outlive_a_killed_host_agent(kit: Kit, tmp_path: Path, spec: ReplicaSpec) -> None:
    """The next one finds them, carries on the one it adopts, and takes all others away."""
    runtime = kit.make(tmp_path)
    unknown = base.ReplicaRecord("r9", 1, kit.image.digest, 1, TcpAddress("127.0.0.1", 1))
    if not isinstance(kit, QemuKit):
        await runtime.start()
        assert not runtime.capabilities().adoption
        with pytest.raises(base.RuntimeUnsupported):
            await runtime.adopt(unknown)
        await runtime.stop()
        return
    code = _AGENT.format(digest=kit.image.digest, data_dir=str(tmp_path))
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    said, _ = await asyncio.wait_for(agent.communicate(), 60)
    assert agent.returncode == -signal.SIGKILL
    pid, other_pid, token = json.loads(said)
    assert exists(pid) and exists(other_pid)

    report = await runtime.start()
    try:
        assert sorted(record.replica_id for record in report.adoptable) == ["r1", "r2"]
        assert report.reaped_processes >= 1  # parked ones, and one half made
        first, second = sorted(report.adoptable, key=lambda record: record.replica_id)
        with pytest.raises(base.ReplicaNotFound):
            await runtime.adopt(unknown)
        adopted = await runtime.adopt(first)
        assert (adopted.pid, adopted.generation, adopted.guest_token) == (pid, 7, token)
        assert await kit.run_inside(adopted, "result = 6 * 7") == 42
        assert (await runtime.usage(adopted)).processes == 1
        fresh = await runtime.create(replace(spec, replica_id="fresh", generation=20))
        assert isinstance(fresh, QemuReplica) and isinstance(adopted, QemuReplica)
        assert fresh.vm.ram == adopted.vm.ram  # one golden RAM for both
        await runtime.reap(second)
        await runtime.reap(second)
        assert await settled(lambda: not exists(other_pid))
        os.kill(pid, signal.SIGKILL)
        assert (await dead(adopted)).reason is ExitReason.KILLED
        await runtime.destroy(adopted)
        await runtime.destroy(fresh)
        assert kit.traces(tmp_path) == []
    finally:
        await runtime.stop()
    assert kit.traces(tmp_path) == []
