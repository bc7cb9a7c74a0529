"""A replica that uses up what the kernel counts: it reaches its own bound, and its neighbour notices nothing.

Every attack here is bounded to a little more than a replica may have.
"""

# ruff: noqa: ASYNC240 -- the only task of a test blocks nobody

from __future__ import annotations

import os
import subprocess
import textwrap
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.runtime_probe import build_python_image, run_inside

from osgym_host.images.idmap import ID_COUNT, current_idmap
from osgym_host.runtimes.base import ImageLike, Replica, ReplicaSpec
from osgym_host.runtimes.local import isolation
from osgym_host.runtimes.local.runtime import LocalRuntime

as_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="missing: root (an ordinary user's replicas share one range of ids)"
)

HOLD = """
import array, ctypes, errno, fcntl, os, resource, socket, threading, time
import builtins
kept = builtins.__dict__.setdefault("kept", [])  # outlives this request
libc = ctypes.CDLL(None, use_errno=True)
def last_error():
    return errno.errorcode[ctypes.get_errno()]
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageLike:
    return build_python_image(tmp_path_factory.mktemp("image") / "rootfs")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path, "isolation")
    await runtime.start()
    yield runtime
    await runtime.stop()
    assert not list((tmp_path / "run/isolation/replicas").iterdir())


@pytest.fixture
def spec(image: ImageLike) -> ReplicaSpec:
    return ReplicaSpec("r1", 1, image, ram_mib=512, pids=256)


async def two(runtime: LocalRuntime, spec: ReplicaSpec) -> tuple[Replica, Replica]:
    """An attacker and its neighbour."""
    return await runtime.create(spec), await runtime.create(replace(spec, replica_id="r2"))


async def attack(replica: Replica, code: str, **values: object) -> Any:
    """Run code whose list `kept` lives as long as the replica."""
    return await run_inside(replica, HOLD + textwrap.dedent(code), **values)  # type: ignore[arg-type]  # a name is no timeout


NAMESPACES = {
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "cgroup": 0x02000000,
    "time": 0x00000080,
}

MAKE_NAMESPACES = """
for name in os.listdir("/proc/sys/user"):
    try:
        open("/proc/sys/user/" + name, "w").write("1000000")  # its own limits, of which it is master
    except OSError:
        pass
def run():
    global made, why
    file = "/proc/thread-self/ns/" + {"time": "time_for_children"}.get(kind, kind)
    made, why = 0, ""
    while made < most:
        if libc.unshare(flag):
            why = last_error()
            break
        kept.append(os.open(file, os.O_RDONLY))
        made += 1
thread = threading.Thread(target=run)
thread.start()
thread.join()
result = [made, why]
"""


@pytest.mark.parametrize("kind", NAMESPACES)
async def test_namespaces_are_bounded_for_each_replica(
    runtime: LocalRuntime, spec: ReplicaSpec, kind: str
) -> None:
    """However a guest's root sets its own limits, it gets no more than those around it, and clones go on."""
    attacker = await runtime.create(spec)
    bound = isolation.counts(own_ids=not runtime.ids_shared_because)[f"max_{kind}_namespaces"]
    made, why = await attack(attacker, MAKE_NAMESPACES, kind=kind, flag=NAMESPACES[kind], most=bound + 64)
    assert why == "ENOSPC"
    assert bound - 8 <= made <= bound
    neighbour = await runtime.create(replace(spec, replica_id="r2"))
    assert await attack(neighbour, "result = libc.unshare(0x04000000)") == 0


NESTED = """
wait, tell = os.pipe()
stay, leave = os.pipe()
def make_children():
    for number in range(most):
        pid = os.fork()
        if pid == 0:
            code = 0 if libc.unshare(0x10000000 | flag) == 0 else ctypes.get_errno()
            os.write(tell, bytes([code]))
            os.read(stay, 1)
            os._exit(0)
        kept.append(pid)
        if os.read(wait, 1)[0] != 0:
            return number
    return most
result = make_children()
for pid in kept:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
"""


async def test_user_namespaces_of_a_guest_count_towards_its_bound(
    runtime: LocalRuntime, spec: ReplicaSpec
) -> None:
    """A namespace within the replica's own has its own limits, and still counts in the one around both."""
    attacker = await runtime.create(replace(spec, pids=1024))
    made = await attack(attacker, NESTED, flag=0x04000000, most=280)
    assert 200 <= made <= 256


async def test_inotify_instances_run_out_for_the_greedy_one_only(
    runtime: LocalRuntime, spec: ReplicaSpec
) -> None:
    """The bound is that of an ordinary desktop's user, and a neighbour has all of its own."""
    attacker, neighbour = await two(runtime, spec)
    make = """
        made = 0
        while made < most and (fd := libc.inotify_init()) >= 0:
            kept.append(fd)
            made += 1
        result = made
    """
    bound = isolation.counts(own_ids=not runtime.ids_shared_because)["max_inotify_instances"]
    assert await attack(attacker, make, most=bound + 64) == bound
    assert await attack(neighbour, make, most=8) == 8


async def test_queued_signals_run_out_for_the_greedy_one_only(
    runtime: LocalRuntime, spec: ReplicaSpec
) -> None:
    """All users of a replica together have one bound, and a neighbour can still make a timer."""
    attacker, neighbour = await two(runtime, spec)
    made = await attack(
        attacker,
        """
        import signal
        queued = 0
        for uid in (0, 1000, 1001):
            pid = os.fork()
            if pid == 0:
                signal.pthread_sigmask(signal.SIG_BLOCK, range(34, 60))
                os.setresuid(uid, uid, uid)
                while queued < most and libc.sigqueue(os.getpid(), 40, None) == 0:
                    queued += 1
                with open(f"/tmp/queued-{uid}", "w") as file:
                    file.write(str(queued))
                time.sleep(60)
                os._exit(0)
            while not os.path.exists(f"/tmp/queued-{uid}") or not open(f"/tmp/queued-{uid}").read():
                time.sleep(0.01)
        result = sum(int(open(f"/tmp/queued-{uid}").read()) for uid in (0, 1000, 1001))
        """,
        most=isolation.SIGPENDING + 512,
    )
    assert isolation.SIGPENDING - 64 <= made <= isolation.SIGPENDING
    timer = "t = ctypes.c_void_p(); result = libc.timer_create(1, None, ctypes.byref(t))"
    assert await attack(neighbour, timer) == 0


SEND_DESCRIPTORS = """
sent = 0
null = os.open("/dev/null", os.O_RDONLY)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
try:
    while sent < most:
        pair = socket.socketpair()
        kept.append(pair)
        pair[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [null] * 100))])
        sent += 100
except OSError as exc:
    sent = errno.errorcode[exc.errno]
result = sent
"""


@as_root
async def test_descriptors_in_flight_are_counted_for_each_replica(
    runtime: LocalRuntime, spec: ReplicaSpec
) -> None:
    """Browsers pass descriptors between their processes: 1,500 of one replica stop nobody else's."""
    attacker, neighbour = await two(runtime, spec)
    assert await attack(attacker, SEND_DESCRIPTORS, most=1500, soft=4096) == 1500
    assert await attack(neighbour, SEND_DESCRIPTORS, most=100, soft=1024) == 100


@as_root
async def test_pipe_buffers_are_counted_for_each_replica(runtime: LocalRuntime, spec: ReplicaSpec) -> None:
    """Pipes beyond a user's share of memory get small buffers; a neighbour's stay as they are."""
    pages = int(Path("/proc/sys/fs/pipe-user-pages-soft").read_text())
    if not 0 < pages <= 65_536:
        pytest.skip(f"missing: a bound on pipes that is small enough to reach ({pages} pages)")
    attacker, neighbour = await two(runtime, spec)
    make = """
        kept += [os.pipe() for _ in range(number)]
        result = fcntl.fcntl(kept[-1][0], 1032)
    """
    assert await attack(attacker, make, number=pages // 16 + 64) < 65_536
    assert await attack(neighbour, make, number=8) == 65_536


@as_root
async def test_each_replica_has_ids_of_its_own(
    runtime: LocalRuntime, spec: ReplicaSpec, tmp_path: Path
) -> None:
    """Two replicas are different users of the host, none of them the image's, and see the image as theirs."""
    replicas = await two(runtime, spec)
    assert runtime.ids_shared_because == ""
    bases = set()
    for replica in replicas:
        seen = await run_inside(
            replica,
            """
            import os
            open("/scratch/file", "w").close()
            result = [os.stat("/usr").st_uid, os.stat("/scratch").st_gid, os.stat("/scratch/file").st_uid]
            """,
        )
        assert seen == [0, 0, 0]
        made = (tmp_path / f"run/isolation/replicas/{replica.replica_id}/upper/scratch/file").stat()
        assert made.st_uid == made.st_gid
        bases.add(made.st_uid)
    assert len(bases) == 2
    assert all((base - current_idmap().uid_base) // ID_COUNT >= 2 for base in bases)


@as_root
async def test_ranges_come_back(runtime: LocalRuntime, spec: ReplicaSpec) -> None:
    """After many replicas no range is in use, also after some that could not be made."""
    ranges = runtime._require().isolation._ranges
    assert ranges is not None
    for number in range(4):
        replica = await runtime.create(replace(spec, replica_id=f"r{number}"))
        assert len(ranges._taken) == 1
        await runtime.destroy(replica)
    broken = replace(spec, image=replace(spec.image, rootfs=Path("/nonexistent")))  # type: ignore[type-var]
    with pytest.raises(Exception, match="nonexistent"):
        await runtime.create(broken)
    assert not ranges._taken


@pytest.fixture
def unmappable(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system whose ids no mount can map."""
    folder = tmp_path / "ramfs"
    folder.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "ramfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@as_root
async def test_without_id_mapped_mounts_replicas_share_ids_and_keep_their_bounds(
    unmappable: Path, runtime: LocalRuntime
) -> None:
    """An image on a file system that cannot do it still runs, it is said why, and counters stay bounded."""
    image = build_python_image(unmappable / "rootfs")
    attacker = await runtime.create(ReplicaSpec("r1", 1, image))
    assert "id-mapped image" in runtime.ids_shared_because
    assert runtime.ids_shared_because in runtime.capabilities().notes
    neighbour = await runtime.create(ReplicaSpec("r2", 1, image))
    make = """
        made = 0
        while made < most and (fd := libc.inotify_init()) >= 0:
            kept.append(fd)
            made += 1
        result = made
    """
    assert await attack(attacker, make, most=200) <= 16
    assert await attack(neighbour, make, most=8) == 8
