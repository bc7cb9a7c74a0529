"""A replica that reaches for what is not its own: ids, devices, the kernel's network."""

# ruff: noqa: ASYNC240 -- the only task of a test blocks nobody

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.runtime_attacks import as_root, attack, two
from tests.support.runtime_kits import running_local
from tests.support.runtime_probe import build_python_image, run_inside

from osgym_host.images.idmap import ID_COUNT, current_idmap
from osgym_host.runtimes.base import ImageLike, ReplicaSpec
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
    broken = replace(spec, image=replace(spec.image, rootfs=Path("/nonexistent")))
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
    assert await attack(neighbour, watch) > 2  # its own descriptor; it raises where a lock is taken
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
