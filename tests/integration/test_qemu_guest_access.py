"""Who may connect to a virtual machine's guest agent: the host agent, and no other user of the host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.runtime_kits import QemuKit, contract_spec

from osgym_host.guest_client import GuestClient, GuestUnreachable
from osgym_host.runtimes.base import ReplicaSpec
from osgym_qemu.cloning.parked_pool import ParkedPoolOptions
from osgym_qemu.machine.namespace import NetworkNamespace
from osgym_qemu.runtime import QemuOptions
from osgym_qemu.snapshots import Snapshot

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, who makes network namespaces")
STRANGER = 65534
CREATE_S = 5.0
"""For a clone in the middle of the flood; a quiet one takes some tenths of a second."""

# Opens 400 connections to the ports it is told, says nothing on them, and keeps them open.
_FLOOD = """
import socket, sys
ports = [int(word) for word in sys.argv[1:]]
held = []
for number in range(400 if ports else 0):
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(("127.0.0.1", ports[number % len(ports)]))
    held.append(sock)
print(len(held), flush=True)
sys.stdin.read()
"""


def doors(folder: Path) -> set[int]:
    """TCP ports of the host's network at which a machine of the instance listens."""
    inodes = set()
    for record in (folder / "records").glob("*.json"):
        pid = json.loads(record.read_text())["pid"]
        for entry in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(entry))
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [words for words in table if words[3] == "0A" and f"socket:[{words[9]}]" in inodes]
    return {int(words[1].split(":")[1], 16) for words in listening}


async def create_s(runtime: object, spec: ReplicaSpec) -> float:
    """How long a replica takes that is destroyed at once."""
    begun = time.monotonic()
    replica = await runtime.create(spec)
    took_s = time.monotonic() - begun
    await runtime.destroy(replica)
    return took_s


@asynccontextmanager
async def stranger(*argv: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program of another user."""
    process = await asyncio.create_subprocess_exec(
        *argv, user=STRANGER, group=STRANGER, extra_groups=[], cwd="/",
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_another_user_of_the_host_finds_no_door(small_snapshot: Snapshot, tmp_path: Path) -> None:
    """Machines, parked ones too, open no port of the host, so a flood of connections delays nobody."""
    kit = QemuKit(small_snapshot)
    runtime = kit.make(tmp_path, QemuOptions(parked=ParkedPoolOptions(target=2)))
    await runtime.start()
    try:
        replica = await runtime.create(contract_spec(kit))
        python = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
        found = [str(port) for port in doors(tmp_path / "run" / "contract")]
        async with stranger(python, "-I", "-c", _FLOOD, *found) as flood:
            assert flood.stdout is not None
            held = int(await asyncio.wait_for(flood.stdout.readline(), 10))
            took_s = [
                await create_s(runtime, ReplicaSpec(f"c{number}", number, small_snapshot, kit.screen))
                for number in range(2, 5)
            ]
            async with GuestClient(replica.guest, token=replica.guest_token) as guest:
                assert (await guest.health()).generation == str(replica.generation)
        assert held == 0 and found == [] and doors(tmp_path / "run" / "contract") == set()
        assert max(took_s) < CREATE_S
        net = f"--net=/proc/{replica.pid}/ns/net"
        async with stranger("nsenter", net, "--", "true") as entering:
            assert await asyncio.wait_for(entering.wait(), 10) != 0
    finally:
        await runtime.stop()


async def test_a_machine_has_its_own_namespace_until_it_is_gone(
    small_snapshot: Snapshot, tmp_path: Path
) -> None:
    """Inside is nothing but its own port; afterwards nothing keeps the namespace."""
    kit = QemuKit(small_snapshot, parked=0)
    runtime = kit.make(tmp_path)
    await runtime.start()
    try:
        replica = await runtime.create(contract_spec(kit))
        inside = os.stat(f"/proc/{replica.pid}/ns/net").st_ino
        assert inside != os.stat("/proc/self/ns/net").st_ino
        table = Path(f"/proc/{replica.pid}/net/tcp").read_text().splitlines()[1:]  # noqa: ASYNC240 - of /proc
        assert [line.split()[1] for line in table if line.split()[3] == "0A"] == ["0100007F:1388"]
        guest = replica.guest
        await runtime.destroy(replica)
        with pytest.raises(GuestUnreachable):
            async with GuestClient(guest) as gone:
                await gone.health()
        assert str(inside) not in " ".join(held_namespaces())
    finally:
        await runtime.stop()


def held_namespaces() -> list[str]:
    """Network namespaces that this process has open."""
    found = []
    for entry in os.scandir("/proc/self/fd"):
        try:
            found.append(os.readlink(entry.path))
        except OSError:
            continue
    return [name for name in found if name.startswith("net:")]


def test_a_thread_comes_back_from_a_namespace() -> None:
    """Also when what it did inside failed; sockets stay where they were made."""
    own = os.stat("/proc/thread-self/ns/net").st_ino
    made = NetworkNamespace.make()
    assert os.stat("/proc/thread-self/ns/net").st_ino == own
    with pytest.raises(ZeroDivisionError), made.entered():
        assert os.stat("/proc/thread-self/ns/net").st_ino != own
        raise ZeroDivisionError
    assert os.stat("/proc/thread-self/ns/net").st_ino == own
    with made.make_socket() as server, made.make_socket() as client:
        server.bind(("127.0.0.1", 5000))
        server.listen()
        client.setblocking(True)
        client.connect(("127.0.0.1", 5000))
        with socket.socket() as outside, pytest.raises(ConnectionRefusedError):
            outside.connect(("127.0.0.1", 5000))
    made.close()
    made.close()
    with pytest.raises(OSError):
        made.make_socket()
    assert os.stat("/proc/thread-self/ns/net").st_ino == own
