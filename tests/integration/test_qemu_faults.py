"""Each way in which a virtual machine can fail, provoked for real, beside a neighbour that must not notice.

Detection is timed against `NOTICED_S`, which allows for a busy machine; on a quiet one everything but a
silent guest is noticed within two seconds (`benchmarks/vm_faults.py` prints the table).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.support.machine_ends import MachineEnd, end_from_inside
from tests.support.runtime_kits import QemuKit, contract_spec

from osgym_host.guest_client import GuestClient, GuestError
from osgym_host.runtimes.base import ExitInfo, ExitReason
from osgym_qemu.cloning.managed_vm import ManagedVm, VmOptions
from osgym_qemu.cloning.parked_pool import ParkedPoolOptions
from osgym_qemu.cloning.replica import QemuReplica
from osgym_qemu.health.rules import HealthOptions
from osgym_qemu.machine.argv import BASE_NODE, DISK_FILE_NODE, DISK_NODE, NET_DEVICE
from osgym_qemu.runtime import QemuOptions, QemuRuntime
from osgym_qemu.snapshots import Snapshot

NOTICED_S = 8.0
SILENT_S = 20.0
EAGER = HealthOptions(idle_probe_s=2.0, probe_timeout_s=1.0, hang_s=3.0)
DISK_MIB = 64


@dataclass
class Pair:
    """A machine to be harmed and a neighbour."""

    runtime: QemuRuntime
    kit: QemuKit
    victim: QemuReplica
    neighbour: QemuReplica

    async def inside(self, shell: str) -> None:
        """Run a command as root in the victim, which may not live to answer."""
        with contextlib.suppress(GuestError):
            async with GuestClient(self.victim.guest, token=self.victim.guest_token) as guest:
                await guest.execute(["sudo", "-n", "sh", "-c", shell], timeout_s=10)


async def _pair(runtime: QemuRuntime, kit: QemuKit, ram_mib: int | None = None) -> Pair:
    spec = contract_spec(kit)
    neighbour = await runtime.create(replace(spec, replica_id="neighbour"))
    victim = await runtime.create(replace(spec, replica_id="victim", generation=8, ram_mib=ram_mib))
    assert isinstance(victim, QemuReplica) and isinstance(neighbour, QemuReplica)
    return Pair(runtime, kit, victim, neighbour)


@contextlib.asynccontextmanager
async def running(
    kit: QemuKit, data_dir: Path, disk_mib: int | None = None, health: HealthOptions | None = None
) -> AsyncIterator[QemuRuntime]:
    """A runtime; afterwards nothing of it is left."""
    options = QemuOptions(
        vms=VmOptions(disk_mib=disk_mib), parked=ParkedPoolOptions(target=1), health=health or HealthOptions()
    )
    runtime = kit.make(data_dir, options)
    await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.stop()
    assert kit.traces(data_dir) == []


@pytest.fixture
def kit(small_snapshot: Snapshot) -> QemuKit:
    return QemuKit(small_snapshot)


@pytest.fixture
async def pair(kit: QemuKit, tmp_path: Path) -> AsyncIterator[Pair]:
    async with running(kit, tmp_path, DISK_MIB) as runtime:
        yield await _pair(runtime, kit)


async def _dies(pair: Pair, harm: Callable[[], Awaitable[object]], within_s: float = NOTICED_S) -> ExitInfo:
    """Do harm, wait for the victim's end, replace it; the neighbour must have noticed nothing."""
    pid = pair.neighbour.pid
    loop = asyncio.get_running_loop()
    began = loop.time()
    harming = asyncio.ensure_future(harm())
    try:
        info = await asyncio.wait_for(pair.victim.wait_dead(), within_s)
    finally:
        harming.cancel()
        await asyncio.gather(harming, return_exceptions=True)
    await pair.runtime.destroy(pair.victim)
    again = await pair.runtime.create(replace(pair.victim.spec, generation=9, token=None))
    print(f"{info.reason.value}: replaced {loop.time() - began:.2f} s after the harm; {info.detail}")
    async with GuestClient(again.guest, token=again.guest_token) as guest:
        assert str((await guest.health()).generation) == "9"
    async with GuestClient(pair.neighbour.guest, token=pair.neighbour.guest_token) as guest:
        assert str((await guest.health()).generation) == "7"
    assert pair.neighbour.exit_info is None and pair.neighbour.pid == pid
    return info


def _signal(pair: Pair, number: signal.Signals) -> Callable[[], Awaitable[object]]:
    async def harm() -> None:
        os.kill(pair.victim.pid, number)

    return harm


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGKILL, ExitReason.KILLED),
        (signal.SIGTERM, ExitReason.KILLED),
        (signal.SIGSEGV, ExitReason.EMULATOR_FAILED),
        (signal.SIGSTOP, ExitReason.STOPPED),
    ],
)
async def test_signals_to_qemu(pair: Pair, number: signal.Signals, reason: ExitReason) -> None:
    """Killed, told to end, crashed, stopped: each is what it is."""
    assert (await _dies(pair, _signal(pair, number))).reason is reason


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (MachineEnd.PANIC, ExitReason.GUEST_PANIC),
        (MachineEnd.RESET, ExitReason.GUEST_REBOOTED),
        (MachineEnd.POWER_OFF, ExitReason.GUEST_SHUTDOWN),
        (MachineEnd.POWER_BUTTON, ExitReason.GUEST_SHUTDOWN),
    ],
)
async def test_what_a_guest_does_to_itself(pair: Pair, end: MachineEnd, reason: ExitReason) -> None:
    """A panic, a restart and a power-off are told apart; the last may take its time inside."""
    info = await _dies(pair, lambda: end_from_inside(pair.victim.vm.machine, end), within_s=40)
    assert info.reason is reason
    if reason is ExitReason.GUEST_PANIC:
        assert "panic" in info.log_tail.lower()


async def test_paused_by_somebody(pair: Pair) -> None:
    """Nobody but the runtime may stop its processors."""
    info = await _dies(pair, pair.victim.vm.machine.stop)
    assert (info.reason, "paused" in info.detail) == (ExitReason.STOPPED, True)


async def test_more_than_its_disk(pair: Pair) -> None:
    """Its overlay is bounded by the kernel: the write that goes beyond is its last."""
    info = await _dies(pair, lambda: pair.inside("dd if=/dev/urandom of=/big bs=1M count=200 conv=fsync"), 40)
    assert info.reason is ExitReason.DISK_FULL


async def test_a_disk_that_fails(pair: Pair) -> None:
    """An error of the disk that is not for want of space."""
    qmp = pair.victim.vm.machine.qmp
    error = {"event": "write_aio", "errno": 5, "once": False}
    await qmp.execute(
        "blockdev-add", driver="blkdebug", node_name="bad", image=DISK_FILE_NODE, inject_error=[error]
    )
    top = {"driver": "qcow2", "node-name": DISK_NODE, "file": "bad", "backing": BASE_NODE}
    await qmp.execute("blockdev-reopen", options=[top])
    info = await _dies(pair, lambda: pair.inside("echo x >/some-file; sync"), 20)
    assert info.reason is ExitReason.IO_ERROR


async def _cut_off(pair: Pair) -> None:
    """Take away the link to the guest agent, which then answers nobody."""
    await pair.victim.vm.machine.qmp.hmp(f"set_link {NET_DEVICE} off")


async def test_a_guest_agent_that_stands_still(kit: QemuKit, tmp_path: Path) -> None:
    """The guest's kernel goes on, but nothing answers: noticed by asking, after a while."""
    async with running(kit, tmp_path, health=EAGER) as runtime:
        pair = await _pair(runtime, kit)
        info = await _dies(pair, lambda: _cut_off(pair), SILENT_S)
        assert (info.reason, "not answered" in info.detail) == (ExitReason.HUNG, True)


async def test_more_than_its_memory(kit: QemuKit, tmp_path: Path) -> None:
    """The kernel takes the machine that reached its cap, and no other."""
    async with running(kit, tmp_path) as runtime:
        if not runtime.capabilities().caps_memory:
            pytest.skip("missing: a memory controller of control groups")
        pair = await _pair(runtime, kit, ram_mib=kit.small_ram_mib)
        fill = "dd if=/dev/urandom of=/dev/shm/x bs=1M count=600"
        assert (await _dies(pair, lambda: pair.inside(fill), 30)).reason is ExitReason.OUT_OF_MEMORY


async def _mount(*argv: str) -> None:
    process = await asyncio.create_subprocess_exec(*argv)
    assert await asyncio.wait_for(process.wait(), 10) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, for a file system that can be full")
async def test_the_hosts_disk_is_full(kit: QemuKit, tmp_path: Path) -> None:
    """The machine that writes when there is no space is lost; those that do not write go on."""
    run = tmp_path / "run"
    run.mkdir()
    await _mount("mount", "-t", "tmpfs", "-o", "size=48m", "osgym-test", str(run))
    try:
        async with running(kit, tmp_path) as runtime:
            pair = await _pair(runtime, kit)
            fill = "dd if=/dev/urandom of=/big bs=1M count=200 conv=fsync"
            assert (await _dies(pair, lambda: pair.inside(fill), 40)).reason is ExitReason.HOST_DISK_FULL
    finally:
        await _mount("umount", str(run))


async def _parked(runtime: QemuRuntime) -> ManagedVm:
    """Return a parked machine."""
    async with asyncio.timeout(10):
        while True:
            if parked := runtime._require().resumer.pools.parked():
                return parked[0]
            await asyncio.sleep(0.02)


async def test_a_parked_process_that_dies_or_stands_still_is_replaced(kit: QemuKit, tmp_path: Path) -> None:
    """Nobody who asks for a replica gets to know."""
    async with running(kit, tmp_path) as runtime:
        first = await _pair(runtime, kit)
        for number in (signal.SIGKILL, signal.SIGSTOP):
            parked = await _parked(runtime)
            os.kill(parked.pid, number)
            await runtime.destroy(first.victim)
            made = await runtime.create(replace(first.victim.spec, generation=20, token=None))
            assert made.pid != parked.pid
            first.victim = made  # type: ignore[assignment]  # what the runtime makes
