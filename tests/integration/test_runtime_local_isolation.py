"""A replica that uses up what the kernel counts: it reaches its own bound, and its neighbour notices nothing.

Every attack here is bounded to a little more than a replica may have.
"""

# ruff: noqa: ASYNC240 -- the only task of a test blocks nobody

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import textwrap
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.runtime_probe import build_python_image, run_inside

from osgym_host.guest_client import GuestTimeout, GuestUnreachable
from osgym_host.images.idmap import ID_COUNT, current_idmap
from osgym_host.runtimes.base import ExitReason, ImageLike, Replica, ReplicaSpec
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


@as_root
async def test_locks_and_watches_on_a_device_stay_in_the_replica(
    runtime: LocalRuntime, spec: ReplicaSpec
) -> None:
    """Each has nodes of its own, which work as any, and none of the host."""
    attacker, neighbour = await two(runtime, spec)
    watch = """
        watch = libc.inotify_init1(os.O_NONBLOCK)
        names = ("null", "zero", "full", "random", "urandom", "tty")
        for name in names:
            assert libc.inotify_add_watch(watch, b"/dev/" + name.encode(), 0xFFF) >= 0
        kept.append(watch)
        for name in names[:-1]:  # there is no terminal
            kept.append(open("/dev/" + name, "rb"))
            fcntl.flock(kept[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.read(watch, 65536)
        result = watch
    """
    watch_fd = await attack(attacker, watch)
    assert await attack(neighbour, watch) == watch_fd
    use = """
        with open("/dev/null", "wb") as null:
            null.write(b"x")
        result = [open("/dev/zero", "rb").read(2) == bytes(2), len(open("/dev/urandom", "rb").read(8))]
        try:
            open("/dev/full", "wb", 0).write(b"x")
        except OSError as exc:
            result.append(errno.errorcode[exc.errno])
        try:
            os.mknod("/dev/kmem", 0o20666, os.makedev(1, 2))
        except PermissionError:
            result.append("no other node")
    """
    assert await attack(neighbour, use) == [True, 8, "ENOSPC", "no other node"]
    Path("/dev/null").write_bytes(b"x")
    heard = """
        try:
            result = len(os.read(watch, 65536))
        except BlockingIOError:
            result = 0
    """
    assert await attack(attacker, heard, watch=watch_fd) == 0
    assert not runtime.devices_shared


NETLINK = """
import struct
def ask(kind, flags, body):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as sock:
        sock.settimeout(5)
        sock.send(struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body)
        answer = sock.recv(65536)
        length, kind, flags, number, port = struct.unpack_from("=IHHII", answer)
        return errno.errorcode.get(-struct.unpack_from("=i", answer, 16)[0], "0") if kind == 2 else kind
def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
link = struct.pack("=BxHiII", 0, 0, 0, 0, 0)
"""


async def test_root_inside_cannot_configure_the_kernels_network(
    runtime: LocalRuntime, spec: ReplicaSpec
) -> None:
    """No kind of link, no change of loopback, no traffic control; what there is can be seen and used."""
    replica = await runtime.create(spec)
    seen = await attack(
        replica,
        NETLINK
        + """
def made(name):
    return ask(16, 0x605, link + attribute(3, b"x0") + attribute(18, attribute(1, name)))
loopback = struct.pack("=BxHiII", 0, 0, 1, 0, 1)
result = {kind: made(kind.encode()) for kind in ("dummy", "bridge", "vxlan", "veth", "bond", "wireguard")}
result["down"] = ask(16, 5, loopback)
queue = struct.pack("=BxHiIII", 0, 0, 1, 0, 0xFFFF0000, 0)
result["filter"] = ask(36, 0x605, queue + attribute(1, b"ingress"))
result["links"] = ask(18, 0x301, link)
with socket.socket() as server, socket.socket() as client:
    server.bind(("127.0.0.1", 80))
    server.listen()
    client.connect(("127.0.0.1", 80))
result["interfaces"] = [name for _, name in socket.if_nameindex()]
result["in /sys"] = os.listdir("/sys/class/net")
socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP).close()
""",
    )
    assert seen.pop("links") == 16  # RTM_NEWLINK: a description
    assert seen.pop("interfaces") == seen.pop("in /sys") == ["lo"]
    assert set(seen.values()) == {"EPERM"}, seen


async def test_what_is_left_of_sockets_is_what_a_desktop_needs(
    runtime: LocalRuntime, spec: ReplicaSpec
) -> None:
    """IPsec, netfilter, raw packets and protocols that are modules are closed, also in a namespace within."""
    replica = await runtime.create(spec)
    seen = await attack(
        replica,
        """
        def tried(*arguments):
            try:
                socket.socket(*arguments).close()
                return "open"
            except OSError as exc:
                return errno.errorcode[exc.errno]
        def option(level, number):
            with socket.socket() as sock:
                try:
                    sock.setsockopt(level, number, bytes(96))
                    return "set"
                except OSError as exc:
                    return errno.errorcode[exc.errno]
        def all_of_it():
            return {
                **{f"netlink {n}": tried(16, 3, n) for n in range(23)},
                "raw": tried(2, 3, 255), "sctp": tried(2, 1, 132), "mptcp": tried(2, 1, 262),
                "l2tp": tried(2, 2, 115), "packet": tried(17, 3, 0), "key": tried(15, 3, 2),
                "tipc": tried(30, 1, 0), "vsock": tried(40, 1, 0), "iptables": option(0, 64),
                "ip6tables": option(41, 64), "ipvs": option(0, 1216), "ulp": option(6, 31),
                "tcp": tried(2, 1, 6), "udp": tried(10, 2, 17), "nodelay": option(6, 1),
            }
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            import json
            libc.unshare(0x10000000 | 0x40000000)
            os.write(writer, json.dumps(all_of_it()).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        import json
        result = [all_of_it(), json.loads(os.read(reader, 65536))]
        """,
    )
    for found in seen:
        assert {name for name, what in found.items() if what in ("open", "set")} == {
            "netlink 0", "netlink 15", "tcp", "udp", "nodelay",
        }  # fmt: skip
        assert found["iptables"] == found["ip6tables"] == found["ipvs"] == found["ulp"] == "ENOPROTOOPT"
        assert {found[f"netlink {n}"] for n in range(23)} == {"open", "EPROTONOSUPPORT"}


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
