"""A replica that uses up what the kernel counts: it reaches its own bound, and its neighbour notices nothing.

Every attack here is bounded to a little more than a replica may have.
"""

# ruff: noqa: ASYNC240 -- the only task of a test blocks nobody

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.runtime_attacks import as_root, attack, two
from tests.support.runtime_kits import running_local
from tests.support.runtime_probe import build_python_image

from osgym_host.guest_client import GuestTimeout, GuestUnreachable
from osgym_host.runtimes.base import ExitReason, ImageLike, ReplicaSpec
from osgym_host.runtimes.local import isolation
from osgym_host.runtimes.local.runtime import LocalRuntime


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageLike:
    return build_python_image(tmp_path_factory.mktemp("image") / "rootfs")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    async with running_local(tmp_path, "isolation") as running:
        yield running


@pytest.fixture
def spec(image: ImageLike) -> ReplicaSpec:
    return ReplicaSpec("r1", 1, image, ram_mib=512, pids=256)


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


FILL = {
    "unix sockets": """
        while True:
            pair = socket.socketpair()
            kept.append(pair)
            for end in pair:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
                end.setblocking(False)
                try:
                    while end.send(bytes(32768)):
                        pass
                except BlockingIOError:
                    pass
    """,
    "pipes": """
        while True:
            reader, writer = os.pipe()
            kept.append((reader, writer))
            os.set_blocking(writer, False)
            try:
                while os.write(writer, bytes(65536)):
                    pass
            except BlockingIOError:
                pass
    """,
    "a file system of its own": """
        os.mkdir("/scratch/m")
        assert libc.mount(b"m", b"/scratch/m", b"ramfs", 0, None) == 0
        with open("/scratch/m/x", "wb", 0) as file:
            while file.write(bytes(1 << 20)):
                pass
    """,
    "shared memory": """
        libc.shmat.restype = ctypes.c_void_p
        while True:
            where = libc.shmat(libc.shmget(0, 1 << 24, 0o1666), None, 0)
            ctypes.memset(where, 1, 1 << 24)
            libc.shmdt(ctypes.c_void_p(where))
    """,
    "files without a name": """
        while True:
            kept.append(os.memfd_create("x"))
            os.write(kept[-1], bytes(1 << 24))
    """,
    "events that nobody reads": """
        for _ in range(100):
            kept.append(libc.inotify_init())
            libc.inotify_add_watch(kept[-1], b"/scratch", 0xFFF)
        for number in range(1 << 20):
            open("/scratch/" + "n" * 200 + str(number), "w").close()
    """,
}


@pytest.mark.parametrize("way", FILL)
async def test_memory_that_the_kernel_holds_for_a_replica_counts_to_its_cap(
    runtime: LocalRuntime, spec: ReplicaSpec, way: str
) -> None:
    """Whoever fills the kernel's memory instead of its own ends as one out of memory; its neighbour stays."""
    if not runtime.capabilities().caps_memory:
        pytest.skip("missing: a cap on memory")
    greedy = await runtime.create(replace(spec, ram_mib=96))
    neighbour = await runtime.create(replace(spec, replica_id="r2"))
    with pytest.raises((GuestUnreachable, GuestTimeout)):
        await attack(greedy, FILL[way])
    info = await asyncio.wait_for(greedy.wait_dead(), 30)
    assert info.reason is ExitReason.OUT_OF_MEMORY
    assert await attack(neighbour, "result = 1") == 1


async def test_what_waits_in_udp_sockets_is_bounded(runtime: LocalRuntime, spec: ReplicaSpec) -> None:
    """Version 1 of the control groups does not count it as memory, so it has a cap of its own there."""
    if not runtime.capabilities().caps_memory:
        pytest.skip("missing: a cap on memory")
    greedy = await runtime.create(replace(spec, ram_mib=96))

    def held_mib() -> float:
        [line] = [line for line in Path("/proc/net/sockstat").read_text().splitlines() if line[:4] == "UDP:"]
        return int(line.split()[-1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)

    before = held_mib()
    send = """
        for _ in range(400):
            receiver, sender = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
            kept.append(receiver)
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            receiver.bind(("127.0.0.1", 0))
            for _ in range(6):
                sender.sendto(bytes(60000), receiver.getsockname())
    """
    with contextlib.suppress(GuestUnreachable):  # version 2 ends it as one out of memory
        await attack(greedy, send)
    assert held_mib() - before < 96 + 16
