"""QEMU processes, QMP and clones of a golden snapshot, with the real programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.support.machine_ends import MachineEnd, end_from_inside

from osgym_host.addresses import TcpAddress
from osgym_host.guest_client import GuestClient, GuestError, GuestRefused
from osgym_host.runtimes.processes import pss_mib
from osgym_qemu.cloning.guest_identity import IdentityRefused, assign, new_identity
from osgym_qemu.golden.ram_file import RamFile, sparse_sha256, template_ram
from osgym_qemu.golden.snapshot import opened_disks
from osgym_qemu.machine.argv import INHERITED_RAM, RAM_FD, Disk, Launch, Ram, Shape, UserNet
from osgym_qemu.machine.host_checks import ask_qemu, check_host, shape_of
from osgym_qemu.machine.machine import QMP_SOCKET, Machine, MachineFailed
from osgym_qemu.machine.qmp import (
    MAX_EVENTS,
    Event,
    EventStream,
    Qmp,
    QmpClosed,
    QmpError,
    QmpTimeout,
)
from osgym_qemu.runner.process import ProcessLauncher
from osgym_qemu.snapshots import Snapshot

pytestmark = pytest.mark.skipif(
    shutil.which("qemu-system-x86_64") is None or shutil.which("qemu-img") is None,
    reason="missing: qemu-system-x86 and qemu-utils",
)

ANSWER_S = 30.0
"""A clone answers within 0.2 s; on a busy machine it may take much longer."""


@pytest.fixture
async def launcher(tmp_path: Path) -> AsyncIterator[ProcessLauncher]:
    """Starts bare processes whose folders are below the test's own."""
    made = ProcessLauncher(tmp_path, unprivileged=False)
    await made.prepare()
    yield made
    await made.close()


@pytest.fixture
async def paused(tmp_path: Path, launcher: ProcessLauncher) -> AsyncIterator[Machine]:
    """A small machine without a guest that never runs."""
    folder = tmp_path / "paused"
    folder.mkdir()
    empty(folder / "disk.qcow2")
    ram = template_ram(64)
    launch = Launch("paused", Disk(folder / "disk.qcow2"), Ram(INHERITED_RAM, share=True), paused=True)
    try:
        machine = await Machine.start(launcher, Shape(ram_mib=64), launch, folder=folder, fds={RAM_FD: ram})
    finally:
        os.close(ram)
    yield machine
    await machine.remove()
    assert not alive(machine.pid)


@pytest.fixture(scope="module")
def golden_ram(small_snapshot: Snapshot) -> RamFile:
    """The snapshot's RAM, loaded once; ends with the test process."""
    return RamFile.load(small_snapshot.ram)


class Clone:
    """A clone that took an identity."""

    def __init__(self, machine: Machine, address: TcpAddress, token: str) -> None:
        self.machine = machine
        self.address = address
        self.token = token

    def guest(self) -> GuestClient:
        return GuestClient(self.address, token=self.token)


CloneMaker = Callable[[str], contextlib.AbstractAsyncContextManager[Clone]]


@pytest.fixture
def clone(
    tmp_path: Path, launcher: ProcessLauncher, small_snapshot: Snapshot, golden_ram: RamFile
) -> CloneMaker:
    """Makes clones of `small@desktop` that are gone after the block."""

    @contextlib.asynccontextmanager
    async def make(name: str) -> AsyncIterator[Clone]:
        machine = await parked(name, tmp_path, launcher, small_snapshot, golden_ram)
        try:
            await machine.load_state(small_snapshot.state)
            address = TcpAddress("127.0.0.1", await machine.host_port())
            await machine.cont()
            token = secrets.token_urlsafe()
            identity = new_identity(7, token)
            await assign(address, small_snapshot.secret(), identity, timeout_s=ANSWER_S)
            yield Clone(machine, address, token)
        finally:
            await machine.remove()
        assert not alive(machine.pid)

    return make


async def parked(
    name: str, top: Path, launcher: ProcessLauncher, snapshot: Snapshot, ram: RamFile
) -> Machine:
    """A process that waits to become a clone."""
    folder = top / name
    folder.mkdir()
    empty(folder / "overlay.qcow2", str(snapshot.manifest.disk_format), snapshot.disk)
    launch = Launch(
        name,
        Disk(folder / "overlay.qcow2", base_image=snapshot.manifest.disk_format),
        Ram(INHERITED_RAM, share=False),
        network=UserNet(),
        incoming=True,
        paused=True,
    )
    shape = shape_of(snapshot.manifest)
    with opened_disks(snapshot.disk, snapshot.base) as disks:
        fds = {RAM_FD: ram.fd, **disks}
        return await Machine.start(launcher, shape, launch, folder=folder, fds=fds)


def empty(path: Path, backing_format: str = "", backing: Path | None = None) -> None:
    """An empty qcow2, over another or of 16 MiB."""
    over = ["-F", "qcow2", "-b", str(backing)] if backing_format else []
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", *over, str(path), *([] if over else ["16M"])]
    subprocess.run(argv, check=True)


def alive(pid: int) -> bool:
    """Whether a process is there, zombies included."""
    return Path(f"/proc/{pid}").exists()


def processes_naming(path: Path) -> list[str]:
    """PIDs of processes whose arguments name a path."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(path) in entry.read_bytes():
                found.append(entry.parent.name)
    return found


# Before a clone is somebody -----------------------------------------------------------------------------


async def test_nothing_that_one_clone_remembers_opens_another(
    clone: CloneMaker,
    tmp_path: Path,
    launcher: ProcessLauncher,
    small_snapshot: Snapshot,
    golden_ram: RamFile,
) -> None:
    """The template's token is still in its memory, and no use: clones serve nothing but their identity."""
    if small_snapshot.secret() is not None:
        pytest.skip("missing: a snapshot of a guest agent that gives up its token (osgym image snapshot)")
    find = "grep -ao 'osgym.token=[A-Za-z0-9_-]*' /sys/firmware/dmi/tables/DMI"
    async with clone("former") as former, former.guest() as guest:
        found = await guest.execute(["sudo", "-n", "sh", "-c", find])
        token = found.output.strip().partition("=")[2]
    assert len(token) > 20
    machine = await parked("next", tmp_path, launcher, small_snapshot, golden_ram)
    try:
        await machine.load_state(small_snapshot.state)
        address = TcpAddress("127.0.0.1", await machine.host_port())
        await machine.cont()
        for known in (token, None):
            async with GuestClient(address, token=known) as guest:
                for call in (guest.health, guest.observe, guest.screenshot):
                    with pytest.raises(GuestRefused) as refused:
                        await call(timeout_s=ANSWER_S)
                    assert refused.value.status == 401
        await assign(address, None, new_identity(8, "its-own"), timeout_s=ANSWER_S)
        async with GuestClient(address, token="its-own") as guest:
            assert (await guest.health()).generation == "8"
        for known in (token, None):
            with pytest.raises(IdentityRefused):
                await assign(address, known, new_identity(9, "stolen"), timeout_s=ANSWER_S)
    finally:
        await machine.remove()


# QMP -------------------------------------------------------------------------------------------------


async def test_a_command_is_answered_or_refused_by_name(paused: Machine) -> None:
    """An error carries command, class and text."""
    assert (await paused.qmp.query("query-status"))["status"] == "prelaunch"
    with pytest.raises(QmpError) as raised:
        await paused.qmp.execute("no-such-command")
    assert (raised.value.command, raised.value.error_class) == ("no-such-command", "CommandNotFound")
    assert "not been found" in raised.value.desc
    with pytest.raises(QmpError, match="an object was expected"):
        await paused.qmp.query("query-commands")


async def test_commands_given_at_once_are_carried_out_in_order(paused: Machine) -> None:
    """As branching does, which pauses the guest for as short as it can."""
    with paused.qmp.subscribe("RESUME", "STOP") as events:
        commands = [paused.qmp.execute(name) for name in ("cont", "stop", "cont", "stop")]
        await asyncio.gather(*commands)
        names = [(await events.next(5)).name for _ in range(4)]
    assert names == ["RESUME", "STOP", "RESUME", "STOP"]


async def test_a_descriptor_arrives_with_its_own_command(paused: Machine, tmp_path: Path) -> None:
    """Also while other tasks talk on the same connection."""
    with (tmp_path / "file").open("w+b") as file:
        chatter = [paused.qmp.execute("query-status") for _ in range(20)]
        await asyncio.gather(*chatter, *(paused.qmp.send_fd(file.fileno(), f"n{i}") for i in range(5)))
        for i in range(5):
            await paused.qmp.execute("closefd", fdname=f"n{i}")
        with pytest.raises(QmpError):
            await paused.qmp.execute("closefd", fdname="n0")


async def test_a_qemu_that_stands_still_runs_into_the_deadline(paused: Machine) -> None:
    """And the connection is good again when it goes on."""
    os.kill(paused.pid, 19)
    try:
        with pytest.raises(QmpTimeout):
            await paused.qmp.execute("query-status", timeout_s=0.2)
    finally:
        os.kill(paused.pid, 18)
    assert await paused.status() == "prelaunch"


async def test_who_waits_when_qemu_dies_is_told(paused: Machine) -> None:
    """The call, the events and whoever waits for the end."""
    with paused.qmp.subscribe() as events:
        os.kill(paused.pid, 19)
        call = asyncio.create_task(paused.qmp.execute("query-status"))
        await asyncio.sleep(0.05)
        os.kill(paused.pid, 9)
        with pytest.raises(QmpClosed):
            await asyncio.wait_for(call, 5)
        with pytest.raises(QmpClosed):
            await events.next(5)
    end = await asyncio.wait_for(paused.wait_dead(), 5)
    assert end.signal == 9
    assert paused.qmp.closed
    with pytest.raises(QmpClosed):
        await paused.qmp.execute("query-status")


async def test_events_that_nobody_takes_are_bounded() -> None:
    """A guest may make as many as it likes."""
    stream = EventStream(frozenset({"A"}))
    for number in range(3 * MAX_EVENTS):
        stream.put(Event("A", {"n": number}, 0.0))
        stream.put(Event("B", {}, 0.0))
    assert stream.dropped == 2 * MAX_EVENTS
    assert (await stream.next(1)).data == {"n": 2 * MAX_EVENTS}
    with pytest.raises(TimeoutError):
        await EventStream(frozenset()).next(0.01)


async def test_nobody_listens(tmp_path: Path) -> None:
    """Connecting has a deadline too."""
    began = time.monotonic()
    with pytest.raises(QmpTimeout):
        await Qmp.connect(tmp_path / "none.sock", 0.2)
    assert time.monotonic() - began < 5


# Machines --------------------------------------------------------------------------------------------


async def test_a_qemu_that_does_not_start_says_why(tmp_path: Path, launcher: ProcessLauncher) -> None:
    """The failure carries what was started and what it said; nothing is left."""
    folder = tmp_path / "bad"
    folder.mkdir()
    launch = Launch("bad", Disk(folder / "missing.qcow2"), Ram("/dev/null", share=True))
    with pytest.raises(MachineFailed, match=r"missing\.qcow2") as raised:
        await Machine.start(launcher, Shape(ram_mib=64), launch, folder=folder)
    assert raised.value.end is not None
    assert raised.value.end.exit_code == 1
    assert raised.value.argv[0].endswith("qemu-system-x86_64")
    assert "missing.qcow2" in raised.value.said


async def test_a_cancelled_start_leaves_no_process(tmp_path: Path, launcher: ProcessLauncher) -> None:
    """Whenever it is cancelled; where the start was over before, there was nothing to cancel."""
    folder = tmp_path / "cancelled"
    cancelled = 0
    for delay_s in (0.0, 0.002, 0.005, 0.01, 0.03):
        folder.mkdir()
        empty(folder / "disk.qcow2")
        ram = template_ram(64)
        launch = Launch("cancelled", Disk(folder / "disk.qcow2"), Ram(INHERITED_RAM, share=True), paused=True)
        start = Machine.start(launcher, Shape(ram_mib=64), launch, folder=folder, fds={RAM_FD: ram})
        task = asyncio.create_task(start)
        await asyncio.sleep(delay_s)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
            cancelled += 1
        else:
            await (await task).remove()
        os.close(ram)
        assert processes_naming(folder) == []
        shutil.rmtree(folder)
    assert cancelled >= 2


async def test_a_machine_is_taken_over_by_somebody_else(paused: Machine, launcher: ProcessLauncher) -> None:
    """As the next host agent does, by PID, start time and socket."""
    await paused.close()
    process = await launcher.adopt("paused", paused.process.identity, "")
    assert process is not None
    socket = Path(paused.argv[paused.argv.index("-blockdev") + 1].split('"filename":"')[1].split('"')[0])
    again = await Machine.attach(process, socket.parent / QMP_SOCKET)
    assert await again.status() == "prelaunch"
    await again.remove()


async def test_a_state_that_does_not_fit_is_refused(
    tmp_path: Path, launcher: ProcessLauncher, small_snapshot: Snapshot, golden_ram: RamFile
) -> None:
    """Half a state, or something else: never a guest that runs with it."""
    machine = await parked("torn", tmp_path, launcher, small_snapshot, golden_ram)
    torn = tmp_path / "torn.state"
    torn.write_bytes(small_snapshot.state.read_bytes()[:-4000])
    try:
        with pytest.raises(MachineFailed):
            await machine.load_state(torn)
    finally:
        await machine.remove()


# Clones ----------------------------------------------------------------------------------------------


async def test_clones_are_alike_at_first_and_do_not_see_each_other(clone: CloneMaker) -> None:
    """The same screen; disk and memory are each one's own; most of the memory is shared."""
    async with clone("a") as a, clone("b") as b, a.guest() as at_a, b.guest() as at_b:
        assert (await at_a.health()).generation == "7"
        first, second = await at_a.observe(), await at_b.observe()
        assert first.observation.frame.hash == second.observation.frame.hash
        for guest in (at_a, at_b):
            shared_mib = 1024 - pss_mib([(a if guest is at_a else b).machine.pid])
            assert shared_mib > 800
        await at_a.upload("/home/user/only-in-a", b"a")
        await at_a.execute("sync", shell=True)
        with pytest.raises(GuestError):
            await at_b.file("/home/user/only-in-a")
        assert await at_a.file("/home/user/only-in-a") == b"a"
        names = [(await guest.execute("hostname")).output.strip() for guest in (at_a, at_b)]
        assert names == ["desktop", "desktop"]


async def test_the_guest_reaches_nothing(clone: CloneMaker) -> None:
    """Neither the host nor the world."""
    async with clone("a") as a, a.guest() as guest:
        script = (
            "import socket\n"
            "for host, port in (('10.0.2.2', 22), ('10.0.2.3', 53), ('1.1.1.1', 80)):\n"
            "    with socket.socket() as s:\n"
            "        s.settimeout(2)\n"
            "        print(s.connect_ex((host, port)) == 0)\n"
        )
        result = await guest.execute(["python3", "-c", script])
        assert result.output.split() == ["False"] * 3


@pytest.mark.parametrize(
    ("how", "event", "status"),
    [
        (MachineEnd.PANIC, "GUEST_PANICKED", "guest-panicked"),
        (MachineEnd.RESET, "SHUTDOWN", "shutdown"),
        (MachineEnd.POWER_OFF, "SHUTDOWN", "shutdown"),
    ],
    ids=["panic", "reboot", "poweroff"],
)
async def test_an_end_of_the_guest_is_reported_and_kept(
    clone: CloneMaker, how: MachineEnd, event: str, status: str
) -> None:
    """The process stays, so that whoever comes later can still ask."""
    async with clone("a") as a:
        with a.machine.qmp.subscribe(event) as events:
            await end_from_inside(a.machine, how)
            seen = await events.next(ANSWER_S)
        assert seen.name == event
        assert await a.machine.status() == status
        assert a.machine.end is None


FLOOD = """
import ctypes, os, subprocess
panel = int(subprocess.check_output(["pgrep", "-x", "tint2"]))
console = ctypes.CDLL(None).syscall(438, os.pidfd_open(panel), 2, 0)  # pidfd_getfd
for _ in range(300):
    os.write(console, b"flood " * 167 + b"\\n")
os.write(console, b"the-end\\n")
"""
"""Programs that the desktop starts with write to the console, by way of the machine's journal."""


async def test_a_flood_on_the_console_is_bounded(clone: CloneMaker) -> None:
    """The last of it is kept, in a piece of memory of fixed size."""
    async with clone("a") as a:
        await a.machine.read_console()
        async with a.guest() as guest:
            await guest.launch(["sudo", "-n", "python3", "-c", FLOOD])
        seen = b""
        end = time.monotonic() + ANSWER_S
        while b"the-end" not in seen and time.monotonic() < end:
            await asyncio.sleep(0.2)
            seen = await a.machine.read_console()
            assert len(seen) <= 65536
        assert b"the-end" in seen


async def test_the_snapshot_fits_this_host(small_snapshot: Snapshot, tmp_path: Path) -> None:
    """And one of a QEMU to come does not."""
    assert await check_host(small_snapshot.manifest, tmp_path) == []
    facts = await ask_qemu()
    later = small_snapshot.manifest.model_copy(update={"qemu_version": f"{facts.version[0] + 1}.0.0"})
    reasons = await check_host(later, tmp_path)
    assert len(reasons) == 2
    assert reasons[1] == "rebuild it here: osgym image snapshot small"


async def test_the_golden_ram_never_changes(
    clone: CloneMaker, small_snapshot: Snapshot, golden_ram: RamFile
) -> None:
    """Clones that fill most of their memory leave every page of it as the snapshot has it."""
    fill = "import os; bytearray(os.urandom(1 << 20) * 256)"
    async with clone("a") as a, clone("b") as b, a.guest() as at_a, b.guest() as at_b:
        for machine, guest in ((a.machine, at_a), (b.machine, at_b)):
            before = pss_mib([machine.pid])
            done = await guest.execute(["python3", "-c", fill], timeout_s=ANSWER_S)
            assert done.returncode == 0
            assert pss_mib([machine.pid]) - before > 128
    golden = await asyncio.to_thread(sparse_sha256, Path(f"/proc/self/fd/{golden_ram.fd}"))
    assert golden == small_snapshot.manifest.ram_sha256
