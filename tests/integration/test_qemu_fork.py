"""Branching real desktops: unsaved work goes on in every child, and checkpoints outlive everything."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.support import ROOT
from tests.support.waiting import until

from osgym_host.guest_client import GuestClient
from osgym_host.runtimes.base import BranchPoint, PointFailed, PointNotFound, Replica, ReplicaSpec, Screen
from osgym_qemu.branching.paused_state import MemoryReader
from osgym_qemu.branching.ram_delta import RamDeltaError
from osgym_qemu.cloning.managed_vm import VmOptions
from osgym_qemu.cloning.parked_pool import ParkedPoolOptions
from osgym_qemu.network.user import UserNetwork
from osgym_qemu.runner.process import ProcessLauncher
from osgym_qemu.runtime import QemuOptions, QemuRuntime
from osgym_qemu.snapshots import Snapshot, SnapshotStore

INSTANCE = f"fork-{os.getpid()}"
TEXT = "never saved"


def make_runtime(data_dir: Path, snapshot: Snapshot, parked: int, *, native: bool = True) -> QemuRuntime:
    """A runtime of the instance in this folder, with the library for QEMU or without."""
    folder = data_dir / "run" / INSTANCE
    return QemuRuntime(
        data_dir,
        INSTANCE,
        lambda tree: ProcessLauncher(folder, tree=tree),
        UserNetwork(folder, forwards=False),
        QemuOptions(
            vms=VmOptions(native=data_dir / "native" if native else None),
            parked=ParkedPoolOptions(target=parked),
            identity_timeout_s=60,
        ),
        snapshot,
    )


class Lab:
    """A started runtime, and desktops on it."""

    def __init__(self, runtime: QemuRuntime, snapshot: Snapshot, stack: AsyncExitStack) -> None:
        self.runtime = runtime
        self.snapshot = snapshot
        self._stack = stack
        self._generation = 0

    async def desktop(self, name: str, origin: BranchPoint | None = None) -> Desktop:
        """A clone, or a child of a point."""
        self._generation = max(self._generation, origin.generation if origin else 0) + 1
        spec = ReplicaSpec(
            name,
            self._generation,
            self.snapshot,
            screen=Screen(*self.snapshot.manifest.screen),
            origin=origin,
        )
        replica = await self.runtime.create(spec)
        guest = await self._stack.enter_async_context(GuestClient(replica.guest, token=replica.guest_token))
        return Desktop(replica, guest)


class Desktop:
    """A replica and what a test does to it."""

    def __init__(self, replica: Replica, guest: GuestClient) -> None:
        self.replica = replica
        self.guest = guest

    async def run(self, command: str) -> str:
        """Run a shell command as the desktop's user."""
        done = await self.guest.execute(command, shell=True, timeout_s=60)
        return done.output

    async def open_editor(self) -> None:
        """Open an editor with an empty document."""
        await self.run("setsid mousepad >/dev/null 2>&1 </dev/null &")
        async with asyncio.timeout(60):
            while not await self.run("xdotool search --onlyvisible --class mousepad || true"):  # noqa: ASYNC110 - what is polled sets no event
                await asyncio.sleep(0.2)

    async def act(self, *actions: dict[str, object]) -> None:
        """Carry out input actions, and wait until the screen is quiet."""
        done = await self.guest.step(
            (await self.guest.health()).last_seq + 1,
            list(actions),
            observe={"format": "none"},
            timeout_s=60,
        )
        assert all(result.ok for result in done.observation.results), done.observation.results

    async def type(self, text: str) -> None:
        """Type into what has the focus."""
        await self.act({"op": "type", "text": text})

    async def text(self) -> str:
        """All text in the editor, by the clipboard."""
        await self.act({"op": "key", "keys": ["ctrl", "a"]}, {"op": "key", "keys": ["ctrl", "c"]})
        found = await self.run("timeout 10 xclip -o -selection clipboard")
        await self.act({"op": "key", "keys": ["ctrl", "End"]})
        return found


@pytest.fixture
def data_dir(small_snapshot: Snapshot) -> Iterator[Path]:
    """An empty data folder that has the golden snapshot."""
    folder = Path(tempfile.mkdtemp(prefix="osgym-fork-"))
    folder.chmod(0o755)
    (folder / "snapshots").symlink_to(small_snapshot.folder.parent)
    yield folder
    shutil.rmtree(folder)


@asynccontextmanager
async def laboratory(data_dir: Path, parked: int = 1, *, native: bool = True) -> AsyncIterator[Lab]:
    """A runtime that is stopped at the end and leaves nothing."""
    snapshot = SnapshotStore(data_dir).resolve("small@desktop")
    runtime = make_runtime(data_dir, snapshot, parked, native=native)
    await runtime.start()
    try:
        async with AsyncExitStack() as stack:
            yield Lab(runtime, snapshot, stack)
    finally:
        await runtime.stop()
    left = {path.name for path in (data_dir / "run" / INSTANCE).iterdir()}
    assert left <= {"agent.lock"}, left


def shares_pages(pid: int) -> bool:
    """Whether a machine maps the pages of a branch point."""
    return "osgym-delta" in Path(f"/proc/{pid}/maps").read_text()


def points_of(data_dir: Path) -> list[Path]:
    """Files of temporary points."""
    return list((data_dir / "run" / INSTANCE / "points").rglob("*"))


@pytest.mark.parametrize("native", [True, False], ids=["native", "copy"])
async def test_children_go_on_where_the_parent_was(
    data_dir: Path, native: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four children have the text that nobody saved, go their own ways, and have children of their own."""
    async with laboratory(data_dir, parked=4, native=native) as lab:
        parent = await lab.desktop("parent")
        await parent.open_editor()
        await parent.type(TEXT)
        await parent.run("echo parent > ~/whose; sync")
        point = await lab.runtime.branch(parent.replica)
        assert point.ram_mib > 1
        assert point.image_digest == lab.snapshot.digest
        loop = asyncio.get_running_loop()
        started = loop.time()
        children = await asyncio.gather(*(lab.desktop(f"child{n}", point) for n in range(4)))
        ready_s = loop.time() - started
        for child in children:
            assert shares_pages(child.replica.pid) is (native and shutil.which("cc") is not None)
        pss_mib = (await lab.runtime.usage(children[0].replica)).pss_mib
        await lab.runtime.release_point(point)
        await lab.runtime.release_point(point)
        assert points_of(data_dir) == []
        with pytest.raises((PointNotFound, PointFailed)):
            await lab.desktop("late", point)

        for number, child in enumerate(children):
            await child.run(f"echo child{number} > ~/whose; sync")
            await child.type(f" {number}")
        for number, child in enumerate(children):
            assert await child.text() == f"{TEXT} {number}"
            assert await child.run("cat ~/whose") == f"child{number}\n"
        assert await parent.text() == TEXT
        assert await parent.run("cat ~/whose") == "parent\n"
        # The name that shows in prompts is the same; what tells machines apart is not.
        assert {await each.run("hostname") for each in (parent, *children)} == {"desktop\n"}
        machine_ids = [await each.run("cat /etc/machine-id") for each in (parent, *children)]
        assert len(set(machine_ids)) == 5

        pauses = [point.pause_ms]
        youngest = children[0]
        for other in children[1:]:
            await lab.runtime.destroy(other.replica)
        await lab.runtime.destroy(parent.replica)
        for depth in (2, 3) if native else (2,):
            deeper = await lab.runtime.branch(youngest.replica)
            pauses.append(deeper.pause_ms)
            child = await lab.desktop(f"depth{depth}", deeper)
            await lab.runtime.release_point(deeper)
            await lab.runtime.destroy(youngest.replica)
            # What is not in memory any more is read through all layers of the disk.
            await child.run("sync; echo 3 | sudo -n tee /proc/sys/vm/drop_caches")
            assert await child.run("cat ~/whose") == "child0\n"
            await child.type(f" depth{depth}")
            youngest = child
        assert await youngest.text() == f"{TEXT} 0 depth2" + (" depth3" if native else "")
    with capsys.disabled():
        each = " ".join(f"{pause:.1f}" for pause in pauses)
        way = "shared" if native else "copied"
        print(f"\n  pauses {each} ms; {point.ram_mib:.0f} MiB {way}, {pss_mib:.0f} MiB PSS of a child;")
        print(f"  four children ready in {ready_s:.2f} s")


async def test_a_parent_survives_a_branch_that_fails(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails while it stands still: it runs on, nothing is left, and the next branch works."""
    async with laboratory(data_dir, native=False) as lab:
        parent = await lab.desktop("parent")

        def fail(_reader: MemoryReader) -> None:
            raise RamDeltaError("on purpose")

        with monkeypatch.context() as patch:
            patch.setattr(MemoryReader, "copy", fail)
            with pytest.raises(PointFailed, match="on purpose"):
                await lab.runtime.branch(parent.replica)
        assert points_of(data_dir) == []
        assert await parent.run("echo on") == "on\n"

        # Given up while it is being copied: it is taken all the same, and let go of.
        copying = asyncio.Event()
        loop, copy = asyncio.get_running_loop(), MemoryReader.copy

        def say_and_copy(reader: MemoryReader) -> None:
            loop.call_soon_threadsafe(copying.set)
            time.sleep(0.2)
            copy(reader)

        with monkeypatch.context() as patch:
            patch.setattr(MemoryReader, "copy", say_and_copy)
            taking = asyncio.create_task(lab.runtime.branch(parent.replica))
            await asyncio.wait_for(copying.wait(), 20)
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
        await until(lambda: not points_of(data_dir), 20)
        assert await parent.run("echo on") == "on\n"

        # More often than there may be layers: they are joined on the way.
        await parent.run("echo layers > ~/whose; sync")
        for _ in range(10):
            point = await lab.runtime.branch(parent.replica)
            await lab.runtime.release_point(point)
        child = await lab.desktop("child", await lab.runtime.branch(parent.replica))
        await child.run("sync; echo 3 | sudo -n tee /proc/sys/vm/drop_caches")
        assert await child.run("cat ~/whose") == "layers\n"
        assert child.replica.exit_info is None


DOOMED = """
import asyncio, sys
from pathlib import Path
from tests.integration import test_qemu_fork as fork
fork.INSTANCE = sys.argv[2]
async def main():
    async with fork.laboratory(Path(sys.argv[1])) as lab:
        parent = await lab.desktop("parent")
        await parent.open_editor()
        await parent.type(fork.TEXT)
        await parent.run("echo kept > ~/whose; sync")
        kept = await lab.runtime.branch(parent.replica, keep=True)
        await parent.type(" later")
        await lab.runtime.branch(parent.replica)
        print(kept.point_id, f"{kept.pause_ms:.1f} ms", parent.replica.pid, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


async def test_checkpoints_outlive_everything(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Taken, then machine and host agent killed; restored here and, carried there, elsewhere."""
    argv = [sys.executable, "-c", DOOMED, str(data_dir), INSTANCE]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) as doomed:  # noqa: ASYNC220 - the only task
        assert doomed.stdout is not None
        line = await asyncio.to_thread(doomed.stdout.readline)
        point_id, pause, _unit, pid = line.split()
        os.kill(int(pid), signal.SIGKILL)
        doomed.kill()
    assert points_of(data_dir) != []

    snapshot = SnapshotStore(data_dir).resolve("small@desktop")
    runtime = make_runtime(data_dir, snapshot, 2)
    report = await runtime.start()
    try:
        for record in report.adoptable:
            await runtime.reap(record)
        assert points_of(data_dir) == []
        (point,) = report.points
        assert (point.point_id, point.kept) == (point_id, True)
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            lab = Lab(runtime, snapshot, stack)
            started = loop.time()
            restored = await lab.desktop("restored", point)
            restored_s = loop.time() - started
            assert await restored.text() == TEXT
            assert await restored.run("cat ~/whose") == "kept\n"
            exported = tmp_path / "point.tar"
            await runtime.export_point(point, exported)
            # A checkpoint of a child of a checkpoint is as much on its own.
            await restored.type(" again")
            again = await runtime.branch(restored.replica, keep=True)
            await runtime.release_point(point)
            await runtime.destroy(restored.replica)
            assert await (await lab.desktop("again", again)).text() == f"{TEXT} again"
            await runtime.release_point(again)
    finally:
        await runtime.stop()
    assert list((data_dir / "checkpoints").iterdir()) == []

    elsewhere = data_dir / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "snapshots").symlink_to(snapshot.folder.parent)
    async with laboratory(elsewhere) as lab:
        arrived = await lab.runtime.import_point(exported)
        assert arrived.point_id != point_id
        there = await lab.desktop("there", arrived)
        assert await there.text() == TEXT
        assert await there.run("cat ~/whose") == "kept\n"
    with capsys.disabled():
        size = exported.stat().st_size / (1 << 20)
        print(f"\n  pause {pause} ms; restored in {restored_s:.2f} s; exported {size:.1f} MiB")
