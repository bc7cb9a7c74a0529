"""What clones of one running machine have in common, and what is another's from their first moment on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.runtime_kits import QemuKit, contract_spec

from osgym_host.guest_client import GuestClient
from osgym_host.runtimes.base import Replica, ReplicaSpec
from osgym_qemu.snapshots import Snapshot

pytestmark = pytest.mark.desktop

# Runs before its machine is branched, and is asked afterwards, in each child.
_PROGRAM = r"""
import json, os, random, signal, ssl, struct
NAMES = ("/etc/machine-id", "/proc/sys/kernel/random/boot_id")
ssl.RAND_bytes(4), random.random()

def layout(pid):
    aux = open(f"/proc/{pid}/auxv", "rb").read()
    vectors = dict(struct.unpack_from("QQ", aux, at) for at in range(0, len(aux) - 15, 16))
    return [vectors[9], vectors[25]]  # AT_ENTRY, AT_RANDOM: where the program and its stack lie

def tell(*_):
    told = {
        "kernel": [os.urandom(16).hex(), os.getrandom(16).hex(), open("/dev/urandom", "rb").read(16).hex()],
        "names": [open(path).read().strip() for path in NAMES],
        "random": random.random(),
        "hash": hash("x"),
        "ssl": ssl.RAND_bytes(16).hex(),
        "layout": layout("self"),
    }
    with open("/tmp/told.new", "w") as file:
        json.dump(told, file)
    os.rename("/tmp/told.new", "/tmp/told.json")

signal.signal(signal.SIGUSR1, tell)
with open("/tmp/running", "w") as file:
    file.write(str(os.getpid()))
while True:
    signal.pause()
"""
_ASK = "kill -USR1 $(cat /tmp/running); until cat /tmp/told.json 2>/dev/null; do sleep 0.1; done"
# Where a program lies that is started now.
_FRESH = "import re; print(re.search(r'^(\\w+)-.*libc', open('/proc/self/maps').read(), re.M).group(1))"


async def run(replica: Replica, *command: str) -> str:
    """What a command prints in a replica."""
    async with GuestClient(replica.guest, token=replica.guest_token) as guest:
        ended = await guest.execute(list(command), timeout_s=60)
    assert ended.returncode == 0, ended.error
    return ended.output


async def test_children_share_what_their_programs_remember_and_no_more(
    small_snapshot: Snapshot, tmp_path: Path
) -> None:
    """The kernel's randomness, names and new programs are each child's own; what runs is alike in all."""
    kit = QemuKit(small_snapshot, parked=0)
    runtime = kit.make(tmp_path)
    await runtime.start()
    try:
        parent = await runtime.create(contract_spec(kit))
        async with GuestClient(parent.guest, token=parent.guest_token) as guest:
            await guest.launch(["python3", "-c", _PROGRAM])
        await run(parent, "sh", "-c", "until [ -s /tmp/running ]; do sleep 0.1; done")
        point = await runtime.branch(parent)
        specs = [
            ReplicaSpec(f"c{number}", number, small_snapshot, kit.screen, origin=point) for number in (20, 21)
        ]
        children = await asyncio.gather(*map(runtime.create, specs))
        told: list[dict[str, Any]] = [json.loads(await run(child, "sh", "-c", _ASK)) for child in children]
        fresh = {(await run(child, "python3", "-c", _FRESH)).strip() for child in children}
    finally:
        await runtime.stop()
    one, other = told
    print(f"\n  OpenSSL of a program that ran before: {'alike' if one['ssl'] == other['ssl'] else 'differs'}")
    randoms = one["kernel"] + other["kernel"]
    assert len(set(randoms)) == len(randoms)
    assert all(mine != theirs for mine, theirs in zip(one["names"], other["names"], strict=True))
    assert len(fresh) == 2
    # What docs/security.md says is shared: programs cannot know that they were copied.
    for alike in ("random", "hash", "layout"):
        assert one[alike] == other[alike]


async def test_clones_of_a_snapshot_have_one_layout_and_their_own_randomness(
    small_snapshot: Snapshot, tmp_path: Path
) -> None:
    """The same of machines that were frozen long ago."""
    kit = QemuKit(small_snapshot, parked=0)
    runtime = kit.make(tmp_path)
    await runtime.start()
    panel = "cat /proc/$(pgrep -x tint2)/maps | head -n 1; head -c 16 /dev/urandom | od -An -tx1"
    try:
        clones = [
            await runtime.create(ReplicaSpec(f"r{number}", number, small_snapshot, kit.screen))
            for number in (1, 2)
        ]
        said = [(await run(clone, "sh", "-c", panel)).splitlines() for clone in clones]
    finally:
        await runtime.stop()
    (maps, seed), (other_maps, other_seed) = said
    assert maps == other_maps
    assert seed != other_seed
