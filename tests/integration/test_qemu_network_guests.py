"""Egress of real guests: machines of the small snapshot, restricted or with a tap."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support import ROOT
from tests.support.network_rig import PORT, TRY, World, forwarding, world
from tests.support.runtime_kits import QemuKit, contract_spec
from tests.support.tap_rig import MARK, TapKit, everything, far_ends, left

from osgym_host.addresses import EnclosedAddress
from osgym_host.runtimes.base import Egress
from osgym_qemu.cloning.parked_pool import ParkedPoolOptions
from osgym_qemu.machine.argv import GUEST_PORT
from osgym_qemu.runtime import QemuOptions
from osgym_qemu.snapshots import Snapshot

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


async def test_a_restricted_guest_reaches_nothing(
    small_snapshot: Snapshot, places: World, tmp_path: Path
) -> None:
    """With user-mode networking neither the host, another machine, the internet nor metadata answers."""
    kit = QemuKit(small_snapshot)
    runtime = kit.make(tmp_path, QemuOptions(parked=ParkedPoolOptions(target=0)))
    await runtime.start()
    try:
        replica = await runtime.create(contract_spec(kit))
        other = await runtime.create(replace(contract_spec(kit), replica_id="r2", generation=8))
        assert isinstance(other.guest, EnclosedAddress)
        targets = [[address, PORT] for address in everything(places) if address != "127.0.0.1"]
        targets += [["10.0.2.2", other.guest.port], ["10.0.2.2", 22], ["10.0.2.3", 53]]
        assert await kit.run_inside(replica, TRY, targets=targets, wait_s=3) == []
    finally:
        await runtime.stop()


async def test_a_guest_with_a_tap_reaches_what_its_policy_says(
    small_snapshot: Snapshot, places: World, tmp_path: Path
) -> None:
    """A machine frozen with user-mode networking wakes up at a tap; its child has the same policy."""
    kit = TapKit(small_snapshot)
    runtime = kit.make(tmp_path)
    await runtime.start()
    try:
        spec = replace(contract_spec(kit), egress=Egress.OPEN)
        replica = await runtime.create(spec)
        closed = await runtime.create(replace(contract_spec(kit), replica_id="r2", generation=8))
        targets = [[address, PORT] for address in everything(places) if address != "127.0.0.1"]
        targets += [[address, GUEST_PORT] for address in far_ends()]
        allowed = [[places.far, PORT], [places.near, PORT]]
        assert sorted(await kit.run_inside(replica, TRY, targets=targets, wait_s=3)) == allowed
        assert await kit.run_inside(closed, TRY, targets=targets, wait_s=3) == []
        point = await runtime.branch(replica)
        child = await runtime.create(replace(spec, replica_id="r3", generation=9, origin=point))
        assert sorted(await kit.run_inside(child, TRY, targets=targets, wait_s=3)) == allowed
        await runtime.release_point(point)
    finally:
        await runtime.stop()
    assert left() == []


_AGENT = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.support import tap_rig
tap_rig.MARK = {mark!r}
from osgym_qemu.snapshots import SnapshotStore
from osgym_host.images.store import default_data_dir
from tests.support.runtime_kits import contract_spec

async def main():
    kit = tap_rig.TapKit(SnapshotStore(default_data_dir()).resolve({digest!r}))
    runtime = kit.make(Path({data_dir!r}))
    await runtime.start()
    replica = await runtime.create(contract_spec(kit))
    print(replica.guest.host, replica.guest.port, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_machine_with_a_tap_outlives_its_agent(small_snapshot: Snapshot, tmp_path: Path) -> None:
    """The next host agent reaches it at the same address, and takes everything away in the end."""
    kit = TapKit(small_snapshot)
    code = _AGENT.format(mark=MARK, digest=small_snapshot.digest, data_dir=str(tmp_path))
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    said, _ = await asyncio.wait_for(agent.communicate(), 60)
    assert agent.returncode == -9
    runtime = kit.make(tmp_path)
    report = await runtime.start()
    try:
        [record] = report.adoptable
        assert isinstance(record.guest, EnclosedAddress)
        assert said.decode().split() == [record.guest.host, str(record.guest.port)]
        adopted = await runtime.adopt(record)
        assert adopted.guest == record.guest
        assert await kit.run_inside(adopted, "result = 6 * 7") == 42
    finally:
        await runtime.stop()
    assert left() == []
