"""Egress of virtual machines: real namespaces, links and rules; the guest is a namespace at the tap."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.network_rig import PORT, Guest, World, forwarding, guest, world
from tests.support.tap_rig import MARK, everything, far_ends, left, make_network

from osgym_host.addresses import EnclosedAddress, TcpAddress, UnixAddress
from osgym_host.runtimes.base import Egress, RuntimeUnsupported
from osgym_host.runtimes.egress import tools
from osgym_host.runtimes.egress.gate import LinkOptions
from osgym_qemu.machine.records import GuestReach
from osgym_qemu.network.base import Attachment, FoundGuest
from osgym_qemu.network.tap import TapNetwork
from osgym_qemu.network.user import UserNetwork

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, who makes network namespaces"),
    pytest.mark.skipif(shutil.which("nft") is None, reason="missing: nft"),
    pytest.mark.skipif(not os.path.exists("/dev/net/tun"), reason="missing: /dev/net/tun"),
]


@pytest.fixture(scope="module")
def places() -> Iterator[World]:
    """The world, with this host forwarding into it."""
    with forwarding(), world() as made:
        yield made


@pytest.fixture
async def network(places: World) -> AsyncIterator[TapNetwork]:
    """A started network; afterwards nothing of it is left."""
    made = make_network()
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
    assert left() == []


@pytest.fixture
def not_forwarding() -> None:
    """A host that does not forward packets."""
    if Path("/proc/sys/net/ipv4/ip_forward").read_text() != "0\n":
        pytest.skip("missing: a host that does not forward")


@contextlib.asynccontextmanager
async def machine(network: TapNetwork, name: str) -> AsyncIterator[tuple[Attachment, Guest]]:
    """A machine on the network, with a guest."""
    attachment = await network.attach(name)
    tap = os.dup(next(iter(attachment.fds.values())))
    await network.started(attachment)
    try:
        with guest(f"guest-{os.getpid()}-{name}", tap) as inside:
            yield attachment, inside
    finally:
        os.close(tap)
        await network.detach(name)


async def reached(guest: Guest, *hosts: str, port: int = PORT) -> set[str]:
    """Those of the addresses that the guest reaches."""
    return await asyncio.to_thread(guest.reaches, hosts, port)


async def test_a_host_that_does_not_forward_offers_none_only(not_forwarding: None) -> None:
    """Policies that need forwarding are not offered, and refused, with what to do about it."""
    network = make_network()
    await network.start()
    try:
        assert network.egress == {Egress.NONE}
        await network.attach("vm")
        await network.allow("vm", Egress.NONE)
        with pytest.raises(RuntimeUnsupported, match="ip_forward"):
            await network.allow("vm", Egress.OPEN)
    finally:
        await network.stop()
    assert left() == []


async def test_without_rules_the_world_answers_the_host(places: World) -> None:
    """The addresses that guests must not reach are really there."""
    for address in (places.near, places.far, places.private, places.metadata, places.azure):
        _, writer = await asyncio.wait_for(asyncio.open_connection(address, PORT), 5)
        writer.close()
        await writer.wait_closed()


async def test_an_attached_machine_reaches_nothing_until_it_is_allowed(
    network: TapNetwork, places: World
) -> None:
    """Nothing answers a guest whose policy was never set, nor one whose policy is none."""
    async with machine(network, "vm") as (_, inside):
        assert await reached(inside, *everything(places)) == set()
        await network.allow("vm", Egress.OPEN)
        await network.allow("vm", Egress.NONE)
        assert await reached(inside, *everything(places)) == set()


async def test_open_egress_is_the_internet_and_nothing_else(network: TapNetwork, places: World) -> None:
    """Public addresses answer; the host, private networks and metadata services do not."""
    async with machine(network, "vm") as (_, inside):
        await network.allow("vm", Egress.OPEN)
        assert await reached(inside, *everything(places)) == {places.near, places.far}


async def test_the_allowlist_is_what_is_named(network: TapNetwork, places: World) -> None:
    """A named network answers, even a private one; a public address that is not named does not."""
    async with machine(network, "vm") as (_, inside):
        await network.allow("vm", Egress.ALLOWLIST)
        assert await reached(inside, *everything(places)) == {places.private}


_ASK = """
import socket, struct, sys
def ask(name):
    question = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + bytes(1)
    query = struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + question + struct.pack("!2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.settimeout(3)
        end.sendto(query, ("10.0.2.3", 53))
        answer = end.recv(512)
    code, count = answer[3] & 15, struct.unpack_from("!H", answer, 6)[0]
    tail = answer[len(query):]
    return [code, [".".join(str(byte) for byte in tail[16 * i + 12 : 16 * i + 16]) for i in range(count)]]
import json
print(json.dumps({name: ask(name) for name in NAMES}))
"""


async def ask(guest: Guest, *names: str) -> dict[str, list[object]]:
    """What the guest's resolver says of names: code and addresses."""
    return json.loads(await asyncio.to_thread(guest.run, _ASK.replace("NAMES", repr(names))))


async def test_an_allowed_name_leads_to_its_addresses(network: TapNetwork, places: World) -> None:
    """After the guest asked for an allowed name, its address answers; other names are refused."""
    async with machine(network, "vm") as (_, inside):
        await network.allow("vm", Egress.ALLOWLIST)
        assert await reached(inside, places.far) == set()
        answers = await ask(inside, "files.example.org", "inside.example.org", "elsewhere.test")
        assert answers == {
            "files.example.org": [0, [places.far]],
            "inside.example.org": [3, []],  # its addresses are all forbidden
            "elsewhere.test": [5, []],
        }
        assert await reached(inside, places.far, places.near) == {places.far}


async def test_what_one_machine_learnt_is_not_the_next_ones(network: TapNetwork, places: World) -> None:
    """A name that one guest asked for opens nothing for another, nor for a later user of its link."""
    async with machine(network, "one") as (_, first), machine(network, "two") as (_, second):
        for name in ("one", "two"):
            await network.allow(name, Egress.ALLOWLIST)
        await ask(first, "files.example.org")
        assert await reached(second, places.far) == set()
    async with machine(network, "three") as (_, third):
        await network.allow("three", Egress.ALLOWLIST)
        assert await reached(third, places.far) == set()


async def test_machines_do_not_reach_each_other(network: TapNetwork, places: World) -> None:
    """Each is reached by us from inside its namespace, and by no other machine at any address."""
    async with machine(network, "one") as (_, first), machine(network, "two") as (there, second):
        assert isinstance(there.guest, EnclosedAddress)
        for name in ("one", "two"):
            await network.allow(name, Egress.OPEN)
        script = "import socket; s = socket.create_server(('0.0.0.0', 5000)); s.accept()[0].sendall(b'world')"
        serving = asyncio.create_task(asyncio.to_thread(second.run, script))
        assert await reached(first, *far_ends(), "10.0.2.15", port=5000) == set()
        reader, writer = await asyncio.wait_for(connect(there.guest), 5)
        assert await reader.read(5) == b"world"
        writer.close()
        await writer.wait_closed()
        await serving


async def connect(guest: EnclosedAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, trying again while nobody listens yet."""
    while True:
        sock = guest.namespace.make_socket()
        try:
            await asyncio.get_running_loop().sock_connect(sock, (guest.host, guest.port))
            return await asyncio.open_connection(sock=sock)
        except OSError:
            sock.close()
            await asyncio.sleep(0.05)


async def test_nobody_but_us_reaches_a_machine(network: TapNetwork, places: World) -> None:
    """Neither a neighbour that routes packets for a guest to this host, nor a user of the host itself."""
    async with machine(network, "vm") as (attachment, inside):
        assert attachment.guest is not None
        [far_end] = far_ends()
        await network.allow("vm", Egress.OPEN)
        name = f"world-{os.getpid()}"
        tools.run_tool(["ip", "-n", name, "route", "add", "198.18.0.0/15", "via", places.host])
        script = "import socket; s = socket.create_server(('0.0.0.0', 5000)); s.settimeout(3); s.accept()"
        serving = asyncio.create_task(asyncio.to_thread(inside.run, script))
        outside = Guest(name)
        assert await reached(outside, far_end, port=5000) == set()
        with pytest.raises(OSError):
            await asyncio.wait_for(asyncio.open_connection(far_end, 5000), 1)
        with pytest.raises(tools.NetworkFailed, match="timed out"):
            await serving


async def test_a_false_sender_is_dropped(network: TapNetwork, places: World) -> None:
    """A guest with another address than its own reaches nothing."""
    async with machine(network, "vm") as (_, inside):
        await network.allow("vm", Egress.OPEN)
        tools.run_tool(["ip", "-n", inside.name, "address", "add", "10.0.2.77/24", "dev", "eth0"])
        tools.run_tool(
            ["ip", "-n", inside.name, "route", "replace", "default", "via", "10.0.2.2", "src", "10.0.2.77"]
        )
        assert await reached(inside, places.far) == set()


def found_guest(attachment: Attachment) -> FoundGuest:
    """Where the guest agent of an attached machine was reached, as its record says."""
    assert isinstance(attachment.guest, EnclosedAddress)
    return FoundGuest(attachment.guest.host, attachment.guest.port, GuestReach.NAMESPACE, os.getpid())


async def test_a_killed_agents_connections_are_found_adopted_and_reaped(places: World) -> None:
    """The next host agent keeps what it adopts, working, and removes the rest."""
    former = make_network()
    await former.start()
    kept, lost = await former.attach("kept"), await former.attach("lost")
    assert kept.guest is not None
    tap = os.dup(next(iter(kept.fds.values())))
    for attachment in (kept, lost):
        await former.started(attachment)
    await former.allow("kept", Egress.OPEN)
    await former.close()  # as if killed: links, namespaces and rules stay

    network = make_network()
    await network.start()
    try:
        with guest(f"guest-{os.getpid()}-kept", tap) as inside:
            assert await reached(inside, places.far) == set()  # not before it is adopted
            found = await network.adopt("kept", Egress.OPEN, found_guest(kept))
            assert isinstance(found, EnclosedAddress) and (found.host, found.port) == ("10.0.2.15", 5000)
            assert await network.adopt("never", Egress.OPEN, found_guest(kept)) is None
            assert await network.reap() == 1
            assert [link.machine for link in tools.find_links(MARK, "osgym")] == ["kept"]
            assert await reached(inside, *everything(places)) == {places.near, places.far}
            assert (await ask(inside, "elsewhere.test"))["elsewhere.test"] == [0, [places.near]]
    finally:
        os.close(tap)
        await network.stop()
    assert left() == []


async def test_reaping_and_stopping_twice_is_nothing(places: World) -> None:
    """Everything that removes can be called again."""
    network = make_network()
    await network.start()
    await network.start()
    await network.attach("vm")
    await network.detach("vm")
    await network.detach("vm")
    assert await network.reap() == 0
    await network.stop()
    await network.stop()
    assert left() == []


async def test_links_that_the_host_uses_are_refused(places: World) -> None:
    """A network of links that overlaps one of the host's is an error that says so."""
    with pytest.raises(RuntimeUnsupported, match=r"203\.0\.113\.0/24"):
        await TapNetwork(MARK, LinkOptions(network="203.0.112.0/22")).start()
    assert left() == []


async def test_many_are_attached_at_once(network: TapNetwork) -> None:
    """No two get one link; who gives up halfway leaves nothing."""
    attached = await asyncio.gather(*(network.attach(f"vm{number}") for number in range(6)))
    assert len({attachment.guest for attachment in attached}) == 6
    for moment_s in (0.0, 0.01, 0.03):
        task = asyncio.create_task(network.attach("late"))
        await asyncio.sleep(moment_s)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
            await network.detach("late")
    assert len(tools.find_links(MARK, "osgym")) == len(tools.find_namespaces(MARK)) == 6


async def test_an_agent_may_change_the_kind_of_network(places: World, tmp_path: Path) -> None:
    """Without taps, the next one removes those of the former, and carries on what needs none."""
    former = make_network()
    await former.start()
    attachment = await former.attach("vm")
    await former.started(attachment)
    await former.close()
    pid = os.getpid()
    here = FoundGuest("127.0.0.1", 4711, GuestReach.PORT, pid)
    enclosed = FoundGuest("127.0.0.1", 5000, GuestReach.NAMESPACE, pid)
    tapped = FoundGuest("10.0.2.15", 5000, GuestReach.NAMESPACE, pid)
    user = UserNetwork(tmp_path, forwards=False, mark=MARK)
    await user.start()
    assert await user.adopt("vm", Egress.NONE, tapped) is None
    for network in (former, user):
        assert await network.adopt("old", Egress.NONE, here) == TcpAddress("127.0.0.1", 4711)
        found = await network.adopt("enclosed", Egress.NONE, enclosed)
        assert isinstance(found, EnclosedAddress) and (found.host, found.port) == ("127.0.0.1", 5000)
        await network.detach("enclosed")
    assert await user.reap() == 1
    assert await user.reap() == 0
    assert left() == []


async def test_user_networking_offers_none_only(tmp_path: Path) -> None:
    """There are no rules in user-mode networking, so nothing else is promised."""
    network = UserNetwork(tmp_path, forwards=True)
    await network.start()
    attachment = await network.attach("vm")
    try:
        assert network.egress == {Egress.NONE}
        assert isinstance(attachment.guest, UnixAddress) and attachment.guest.path.is_socket()
        with pytest.raises(RuntimeUnsupported, match="tap"):
            await network.allow("vm", Egress.OPEN)
    finally:
        await network.detach("vm")
    with pytest.raises(OSError):
        os.fstat(attachment.guest_listener or -1)
