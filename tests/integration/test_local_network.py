"""Egress of local replicas: real replicas, links and rules, and servers in other network namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import ROOT
from tests.support.network_rig import ALLOWED, KNOWN_NAMES, PORT, TRY, Guest, World, forwarding, world
from tests.support.runtime_probe import build_python_image, run_inside
from tests.support.waiting import until

from osgym_host.core.egress import parse_allowlist
from osgym_host.runtimes.base import Egress, ImageLike, Replica, ReplicaSpec, RuntimeUnsupported
from osgym_host.runtimes.egress import tools
from osgym_host.runtimes.egress.gate import DEFAULT_LINKS, LinkOptions, table_name
from osgym_host.runtimes.egress.links import LINK_PREFIX, link_of
from osgym_host.runtimes.egress.resolver import NameLookup
from osgym_host.runtimes.local import network as local_network
from osgym_host.runtimes.local.network import ReplicaNetwork
from osgym_host.runtimes.local.runtime import LocalRuntime

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, who makes links"),
    pytest.mark.skipif(shutil.which("nft") is None, reason="missing: nft"),
]

MARK = f"osgym-test-local-{os.getpid()}"


def make_links(names: dict[str, list[str]] = KNOWN_NAMES, record: Path | None = None) -> ReplicaNetwork:
    """Links of this test's instance, whose names are known."""
    allowed = parse_allowlist(ALLOWED)
    return ReplicaNetwork(
        MARK,
        LinkOptions(allowed, names=NameLookup(lambda name: names.get(name, []))),
        needed=Egress.OPEN,
        record=record,
    )


def left() -> list[str]:
    """Whatever of this test's instance is on the host."""
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
    found = [line for line in tables.splitlines() if table_name(MARK) in line]
    return found + [str(link) for link in tools.find_links(MARK, LINK_PREFIX)]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageLike:
    """A root file system whose session runs what it is sent."""
    return build_python_image(tmp_path_factory.mktemp("image") / "rootfs")


@pytest.fixture
def spec(image: ImageLike) -> ReplicaSpec:
    """A replica that may reach the internet."""
    return ReplicaSpec("r1", 1, image, egress=Egress.OPEN)


@pytest.fixture(scope="module")
def places() -> Iterator[World]:
    """The world, with this host forwarding into it."""
    with forwarding(), world() as made:
        yield made


@pytest.fixture
async def runtime(places: World, tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    """A started runtime; afterwards nothing of it is left."""
    made = LocalRuntime(tmp_path, "local", make_links())
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
    assert left() == []


async def reached(replica: Replica, *hosts: str, port: int = PORT) -> list[str]:
    """Those of the addresses that the replica reaches, sorted."""
    targets = [[host, port] for host in hosts]
    found: list[tuple[str, int]] = await run_inside(replica, TRY, targets=targets, wait_s=1)
    return [host for host, _ in found]


def my_link() -> tuple[str, str]:
    """The two addresses of the only link: the host's and the replica's."""
    [found] = tools.find_links(MARK, LINK_PREFIX)
    link = link_of(found.slot, ipaddress.IPv4Network(DEFAULT_LINKS))
    return link.host_ip, link.guest_ip


def everything(places: World) -> tuple[str, ...]:
    """All addresses that answer on a host that forbids nothing."""
    return (places.near, places.far, places.private, places.metadata, places.azure, places.host)


async def test_open_is_the_internet_and_nothing_else(
    runtime: LocalRuntime, spec: ReplicaSpec, places: World
) -> None:
    """Public addresses answer; the host at any of its addresses, private networks and metadata do not."""
    replica = await runtime.create(spec)
    host_ip, _ = my_link()
    found = await reached(replica, *everything(places), host_ip, "127.0.0.1", "198.18.0.0")
    assert found == sorted([places.near, places.far])
    assert "10.77.77.7" not in found


async def test_none_has_no_link_at_all(runtime: LocalRuntime, spec: ReplicaSpec, places: World) -> None:
    """Beside replicas that go out, one with egress none has loopback only."""
    replica = await runtime.create(replace(spec, egress=Egress.NONE))
    assert tools.find_links(MARK, LINK_PREFIX) == []
    assert await run_inside(replica, "import socket; result = [n for _, n in socket.if_nameindex()]") == [
        "lo"
    ]
    assert await reached(replica, *everything(places)) == []


LOOK_UP = """
import socket
result = {}
for name in names:
    try:
        found = socket.getaddrinfo(name, 1, socket.AF_INET, socket.SOCK_STREAM)
        result[name] = sorted({entry[4][0] for entry in found})
    except OSError:
        result[name] = []
"""


async def test_the_allowlist_is_what_is_named(
    runtime: LocalRuntime, spec: ReplicaSpec, places: World
) -> None:
    """Named networks answer, and names once they were asked for; names never lead into private networks."""
    replica = await runtime.create(replace(spec, egress=Egress.ALLOWLIST))
    assert await reached(replica, *everything(places)) == [places.private]
    found = await run_inside(replica, LOOK_UP, names=list(KNOWN_NAMES))
    assert found == {"files.example.org": [places.far], "inside.example.org": [], "elsewhere.test": []}
    assert await reached(replica, *everything(places)) == [places.private, places.far]


async def test_a_name_that_turns_to_a_private_address_leads_nowhere(
    places: World, spec: ReplicaSpec, tmp_path: Path
) -> None:
    """Whoever owns an allowed name may let it point at the host, its neighbours or metadata later on."""
    now = 0.0
    known = {"files.example.org": ["198.51.100.7"]}
    links = make_links()
    links._names = NameLookup(lambda name: known.get(name, []), clock=lambda: now)
    runtime = LocalRuntime(tmp_path, "local", links)
    await runtime.start()
    try:
        replica = await runtime.create(replace(spec, egress=Egress.ALLOWLIST))
        ask = {"names": ["files.example.org"]}
        assert await run_inside(replica, LOOK_UP, **ask) == {"files.example.org": [places.far]}  # type: ignore[arg-type]  # a name is no timeout
        known["files.example.org"] = [places.metadata, "192.168.1.1", places.host.replace("203", "127")]
        now += 3600.0
        assert await run_inside(replica, LOOK_UP, **ask) == {"files.example.org": []}  # type: ignore[arg-type]  # the same
        assert await reached(replica, places.metadata) == []
    finally:
        await runtime.stop()
    assert left() == []


async def test_replicas_do_not_reach_each_other(
    runtime: LocalRuntime, spec: ReplicaSpec, places: World
) -> None:
    """Neither by the other's address nor by that of its link on the host; nor does the host or the world."""
    server = "import builtins, socket, threading\ns = builtins.s = socket.create_server(('0.0.0.0', 5000))\n"
    server += "def serve():\n while True: s.accept()[0].sendall(b'world')\n"
    server += "threading.Thread(target=serve, daemon=True).start()"
    one = await runtime.create(spec)
    host_ip, guest_ip = my_link()
    await run_inside(one, server)
    assert await reached(one, guest_ip, port=5000) == [guest_ip]  # it does serve
    other = await runtime.create(replace(spec, replica_id="r2"))
    assert await reached(other, host_ip, guest_ip, port=5000) == []
    with pytest.raises(OSError):
        await asyncio.wait_for(asyncio.open_connection(guest_ip, 5000), 1)
    name = f"world-{os.getpid()}"
    tools.run_tool(["ip", "-n", name, "route", "replace", "198.18.0.0/15", "via", places.host])
    assert await asyncio.to_thread(Guest(name).reaches, [guest_ip], 5000) == set()


ATTACK = """
import ctypes, errno, fcntl, os, socket, struct
result = {}
def attempt(name, call):
    try:
        call()
        result[name] = "done"
    except OSError as exc:
        result[name] = errno.errorcode[exc.errno]
dgram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def ioctl(request, text):
    return lambda: fcntl.ioctl(dgram, request, text)
address = struct.pack("16sHH4s8x", b"up0", socket.AF_INET, 0, socket.inet_aton("198.18.77.77"))
attempt("address", ioctl(0x8916, address))
attempt("down", ioctl(0x8914, struct.pack("16sH14x", b"up0", 0)))
attempt("hardware address", ioctl(0x8924, struct.pack("16sH6s8x", b"up0", 1, b"abcdef")))
def route():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as end:
        body = struct.pack("BBBBBBBBI", 2, 8, 0, 0, 254, 3, 0, 1, 0)
        body += struct.pack("HH4s", 8, 1, bytes([169, 254, 169, 0])) + struct.pack("HHi", 8, 4, 2)
        end.send(struct.pack("IHHII", 16 + len(body), 24, 0x605, 1, 0) + body)
        answer = end.recv(4096)
        code = struct.unpack_from("i", answer, 16)[0]
        if code:
            raise OSError(-code, "refused")
attempt("route", route)
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet", lambda: socket.socket(17, socket.SOCK_RAW, 3))
attempt("device", lambda: dgram.setsockopt(socket.SOL_SOCKET, 25, b"up0"))
attempt("name of another", lambda: open("/proc/sys/net/ipv4/ip_forward", "w").write("1"))
attempt("ipv6", lambda: open("/proc/sys/net/ipv6/conf/up0/disable_ipv6", "w").write("0"))
"""


async def test_root_inside_changes_nothing_of_its_link(
    runtime: LocalRuntime, spec: ReplicaSpec, places: World
) -> None:
    """Addresses, routes, hardware address, raw packets and sysctls: refused, and the rules hold after it."""
    replica = await runtime.create(spec)
    found = await run_inside(replica, ATTACK)
    assert found.pop("device") in ("done", "EPERM")  # binding a socket to its own link opens nothing
    assert "done" not in found.values(), found
    assert await reached(replica, *everything(places)) == sorted([places.near, places.far])


@contextlib.contextmanager
def udp_echo() -> Iterator[int]:
    """Something that answers datagrams at every address of this host; its port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.bind(("0.0.0.0", 0))
        end.settimeout(0.1)
        stopping = threading.Event()

        def serve() -> None:
            while not stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    end.sendto(*end.recvfrom(9))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield end.getsockname()[1]
        finally:
            stopping.set()
            thread.join()


async def test_only_its_own_resolver_answers_on_the_host(
    runtime: LocalRuntime, spec: ReplicaSpec, places: World
) -> None:
    """UDP to any other port or address of the host finds nobody; nor does TCP to the resolver's port."""
    replica = await runtime.create(spec)
    host_ip, _ = my_link()
    with udp_echo() as port:
        code = """
        import socket
        result = []
        for host, number in targets:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
                end.settimeout(0.5)
                try:
                    end.connect((host, number))
                    end.send(b"x")
                    result.append([host, end.recv(9).decode()])
                except OSError:
                    pass
        """
        targets = [[host, port] for host in (host_ip, places.host, "198.18.0.0")]
        assert await run_inside(replica, code, targets=targets) == []
    assert await reached(replica, host_ip, port=53) == []


async def test_a_policys_end_ends_connections(
    runtime: LocalRuntime, spec: ReplicaSpec, places: World
) -> None:
    """A connection that lasts passes the policy with every packet, not only when it is opened."""
    replica = await runtime.create(spec)
    links = runtime._egress.links
    assert links is not None
    name = f"world-{os.getpid()}"
    echo = (
        "import socket, sys\nl = socket.create_server(('0.0.0.0', 8100))\nprint('up', flush=True)\n"
        "c, _ = l.accept()\nwhile True:\n d = c.recv(9)\n if not d: break\n c.sendall(d)\n"
    )
    argv = ["ip", "netns", "exec", name, sys.executable, "-I", "-c", echo]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None and await process.stdout.readline() == b"up\n"
        open_it = (
            "import builtins, socket\nc = builtins.c = socket.create_connection((host, 8100), timeout=2)\n"
        )
        assert (
            await run_inside(
                replica, open_it + "c.sendall(b'1')\nresult = c.recv(9).decode()", host=places.far
            )
            == "1"
        )
        await links.allow("r1", Egress.NONE)
        again = "import builtins\nc = builtins.c\nc.settimeout(0.5)\nc.sendall(b'2')\n"
        again += "try:\n result = c.recv(9).decode()\nexcept OSError:\n result = 'closed'"
        assert await run_inside(replica, again) == "closed"
    finally:
        process.kill()
        await process.wait()


async def test_links_go_with_their_replicas(runtime: LocalRuntime, spec: ReplicaSpec, places: World) -> None:
    """Destroyed, killed, or cancelled on the way: no link, no rule; the next one reaches what it may."""
    many = await asyncio.gather(*(runtime.create(replace(spec, replica_id=f"m{n}")) for n in range(3)))
    assert len({link.slot for link in tools.find_links(MARK, LINK_PREFIX)}) == 3
    os.kill(many[0].pid, signal.SIGKILL)
    for replica in many:
        await runtime.destroy(replica)
    for number, moment_s in enumerate((0.0, 0.01, 0.03)):
        task = asyncio.create_task(runtime.create(replace(spec, replica_id=f"late{number}")))
        await asyncio.sleep(moment_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    # A cancelled creation does not wait for the end of what it began.
    await until(lambda: not tools.find_links(MARK, LINK_PREFIX), 30)
    last = await runtime.create(spec)
    assert await reached(last, places.far, places.private) == [places.far]


_AGENT = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.integration import test_local_network as here
here.MARK = {mark!r}
from osgym_host.runtimes.base import Egress, ReplicaSpec
from osgym_host.runtimes.local.probe_image import ProbeImage, ProbeManifest
from osgym_host.runtimes.local.runtime import LocalRuntime

async def main():
    data, image = Path({data!r}), ProbeImage("probe", Path({rootfs!r}), ProbeManifest(*{ids!r}))
    links = here.make_links(record=data / "record")
    runtime = LocalRuntime(data, "local", links)
    await runtime.start()
    await runtime.create(ReplicaSpec("r1", 1, image, egress=Egress.OPEN))
    await links.reserve("half-made")
    print("made", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize("goes_out", [True, False])
async def test_what_a_killed_agent_left_is_removed(
    goes_out: bool, places: World, image: ImageLike, spec: ReplicaSpec, tmp_path: Path
) -> None:
    """By the next host agent, whether it has egress or not; links of others stay."""
    manifest = image.manifest  # type: ignore[attr-defined]  # a folder of files has one
    ids = (manifest.uid_base, manifest.gid_base)
    rootfs = str(image.rootfs)  # type: ignore[attr-defined]  # the same
    code = _AGENT.format(mark=MARK, data=str(tmp_path), rootfs=rootfs, ids=ids)
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    said, _ = await asyncio.wait_for(agent.communicate(), 60)
    assert said == b"made\n" and agent.returncode == -9
    assert "half-made" in {link.machine for link in tools.find_links(MARK, LINK_PREFIX)}
    other = f"{LINK_PREFIX}77777"
    tools.ip_batch(
        [f"link add {other} type veth peer name {other}p", f"link set dev {other} alias {MARK}x/r1"]
    )
    try:
        if goes_out:
            runtime = LocalRuntime(tmp_path, "local", make_links(record=tmp_path / "record"))
            await runtime.start()
            assert tools.find_links(MARK, LINK_PREFIX) == []
            assert await reached(await runtime.create(spec), places.far) == [places.far]
            await runtime.stop()
        else:
            local_network.clear(MARK, tmp_path / "record")
        assert left() == [] and not (tmp_path / "record").exists()
        assert [link.machine for link in tools.find_links(f"{MARK}x", LINK_PREFIX)] == ["r1"]
    finally:
        tools.ip_batch([f"link delete dev {other}"])


async def test_without_links_egress_is_refused(spec: ReplicaSpec, tmp_path: Path) -> None:
    """The error says what would help."""
    runtime = LocalRuntime(tmp_path, "closed")
    await runtime.start()
    try:
        assert runtime.capabilities().egress == {Egress.NONE}
        with pytest.raises(RuntimeUnsupported, match="without egress open"):
            await runtime.create(spec)
    finally:
        await runtime.stop()


async def test_an_ordinary_user_is_told_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Links are root's to make: the refusal says so before anything is made, and leaves no record of it."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(RuntimeUnsupported, match="as root, or set egress_by to proxy"):
        await make_links(record=tmp_path / "record").start()
    assert os.listdir(tmp_path) == []
