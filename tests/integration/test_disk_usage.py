"""What a replica has on disk is counted, also where no folder shows it, and its bound is kept in seconds."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.runtime_probe import build_python_image, run_inside
from tests.support.waiting import until

from osgym_host.core.admission import Budget
from osgym_host.core.disk_pressure import DiskRoom
from osgym_host.core.plan import PoolSpec
from osgym_host.core.reasons import Reason
from osgym_host.guest_client import GuestClient
from osgym_host.replicas.events import EventLog
from osgym_host.replicas.journal import ReplicaJournal
from osgym_host.replicas.manager import Deadlines, ReplicaManager
from osgym_host.replicas.pool import Pool
from osgym_host.replicas.replica_set import ReplicaSet
from osgym_host.replicas.saved_desktops import SavedDesktops
from osgym_host.replicas.usage_monitor import UsageOptions
from osgym_host.replicas.warming import Warming
from osgym_host.runtimes.base import ImageLike, ReplicaSpec
from osgym_host.runtimes.local.runtime import LocalRuntime

SIZE_MIB = 24
WRITE = f"""
import array, ctypes, mmap, os, socket, threading, time

def write(path="/scratch/hidden"):
    file = open(path, "w+b", buffering=0)
    for _ in range({SIZE_MIB}):
        file.write(os.urandom(1 << 20))
    return file
"""
HIDINGS = {
    "open": """
import builtins
builtins.kept = write()
os.unlink("/scratch/hidden")
""",
    "fallocated": """
import builtins
builtins.kept = open("/scratch/hidden", "wb")
os.posix_fallocate(builtins.kept.fileno(), 0, 24 << 20)
os.unlink("/scratch/hidden")
""",
    "never had a name": """
import builtins
fd = os.open("/scratch", os.O_TMPFILE | os.O_RDWR)
builtins.kept = fd
for _ in range(24):
    os.write(fd, os.urandom(1 << 20))
""",
    "mapped": """
import builtins
file = write()
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
assert libc.mmap(None, ctypes.c_size_t(24 << 20), 1, 1, file.fileno(), ctypes.c_long(0)) != 2**64 - 1
file.close()
os.unlink("/scratch/hidden")
""",
    "held by a thread's own table": """
done = threading.Event()
def thread():
    assert ctypes.CDLL(None).unshare(0x400) == 0  # CLONE_FILES
    kept = write()
    os.unlink("/scratch/hidden")
    done.set()
    time.sleep(1000)
threading.Thread(target=thread, daemon=True).start()
assert done.wait(20)
""",
    "mounted": """
file = write()
open("/scratch/place", "w").close()
libc = ctypes.CDLL(None, use_errno=True)
assert libc.mount(b"/scratch/hidden", b"/scratch/place", None, 4096, None) == 0, ctypes.get_errno()
file.close()
os.unlink("/scratch/hidden")
""",
}
IN_FLIGHT = """
import builtins
file = write()
builtins.pair = socket.socketpair()
socket.send_fds(builtins.pair[0], [b"x"], [file.fileno()])
file.close()
os.unlink("/scratch/hidden")
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> ImageLike:
    return build_python_image(tmp_path_factory.mktemp("image") / "rootfs")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[LocalRuntime]:
    runtime = LocalRuntime(tmp_path, "disk")
    await runtime.start()
    yield runtime
    await runtime.stop()


@pytest.mark.parametrize("hiding", HIDINGS)
async def test_a_file_without_a_name_is_counted(runtime: LocalRuntime, image: ImageLike, hiding: str) -> None:
    """Held by a descriptor, a mapping, a thread or a mount: its blocks are the replica's."""
    replica = await runtime.create(ReplicaSpec("r1", 1, image))
    before = await runtime.usage(replica)
    await run_inside(replica, WRITE + HIDINGS[hiding])
    after = await runtime.usage(replica)
    assert before.overlay_mib is not None and after.overlay_mib is not None
    assert SIZE_MIB <= after.overlay_mib - before.overlay_mib < SIZE_MIB + 2


async def test_what_only_a_message_holds_is_suspected(runtime: LocalRuntime, image: ImageLike) -> None:
    """No table of the kernel's shows the file: the descriptor in flight and the bytes written do."""
    replica = await runtime.create(ReplicaSpec("r1", 1, image))
    before = await runtime.usage(replica)
    await run_inside(replica, WRITE + IN_FLIGHT)
    after = await runtime.usage(replica)
    assert (before.fds_in_flight, after.fds_in_flight) == (0, 1)
    assert after.written_mib is not None
    assert after.written_mib - (before.written_mib or 0.0) >= SIZE_MIB


async def test_files_count_however_little_is_in_them(runtime: LocalRuntime, image: ImageLike) -> None:
    """A file system has a number of inodes only: empty files with a name and without use them up."""
    replica = await runtime.create(ReplicaSpec("r1", 1, image))
    before = await runtime.usage(replica)
    await run_inside(
        replica,
        """
        import builtins, os
        builtins.kept = []
        os.mkdir("/scratch/many")
        for number in range(400):
            open(f"/scratch/many/{number}", "w").close()
        for number in range(200):
            builtins.kept.append(open(f"/scratch/many/{number}"))
            os.unlink(f"/scratch/many/{number}")
        """,
    )
    after = await runtime.usage(replica)
    assert before.overlay_mib is not None and after.overlay_mib is not None
    assert 400 * 4096 <= (after.overlay_mib - before.overlay_mib) * (1 << 20) < 800 * 4096


async def test_memory_is_not_counted_as_disk(runtime: LocalRuntime, image: ImageLike) -> None:
    """What lies in tmpfs or a memfd is charged to the memory cap already."""
    replica = await runtime.create(ReplicaSpec("r1", 1, image))
    before = await runtime.usage(replica)
    await run_inside(
        replica,
        """
        import builtins, os
        builtins.kept = [os.memfd_create("x"), os.open("/tmp/x", os.O_CREAT | os.O_RDWR)]
        for fd in builtins.kept:
            os.write(fd, bytes(8 << 20))
        os.unlink("/tmp/x")
        """,
    )
    after = await runtime.usage(replica)
    assert before.overlay_mib is not None and after.overlay_mib is not None
    assert after.overlay_mib - before.overlay_mib < 1


@dataclass
class Host:
    """A pool of real replicas, the free disk that it is told of, and who lost which."""

    pool: Pool
    taken_mib: float
    lost: dict[str, tuple[Reason, str]]

    async def lease(self, name: str) -> ReplicaManager:
        return await self.pool.acquire(name, lambda *why: self.lost.setdefault(name, why), 20)


@pytest.fixture
async def host(
    runtime: LocalRuntime, image: ImageLike, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Host]:
    """Every replica may write 16 MiB; 1000 of 2000 MiB are kept free."""

    async def ready(self: GuestClient, *, timeout_s: float) -> None:
        """The probe image has no desktop."""

    monkeypatch.setattr(GuestClient, "ready", ready)
    journal = ReplicaJournal(tmp_path / "journal.jsonl")
    journal.open()
    pool = Pool(
        replicas=ReplicaSet(
            saved := SavedDesktops(runtime),
            journal,
            Deadlines(),
            lambda name, generation, _: ReplicaSpec(name, generation, image),
            {image.digest: Warming(saved)},
        ),
        events=EventLog(),
        spec=PoolSpec(0, 2),
        budget=Budget(4, 0, 64, 0.0, 0, 1),
        probe=lambda: (10_000.0, 4, DiskRoom(_free_mib(tmp_path) - host.taken_mib)),
        usage_options=UsageOptions(disk_cap_mib=16, disk_reserve_mib=1000),
    )
    host = Host(pool, 0.0, {})
    pool.start()
    yield host
    assert await pool.close(10)
    journal.close()


def _free_mib(path: Path) -> float:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize / (1 << 20)


async def test_a_hidden_file_over_the_bound_ends_its_replica_in_seconds(host: Host) -> None:
    """Also right after it was measured; its neighbour stays."""
    greedy, neighbour = await host.lease("greedy"), await host.lease("neighbour")
    await until(lambda: None not in (neighbour.measured_at, greedy.measured_at))
    assert greedy.clone is not None
    await run_inside(greedy.clone, WRITE + HIDINGS["open"])
    await until(lambda: "greedy" in host.lost, 6)
    assert host.lost["greedy"][0] is Reason.DISK
    assert "neighbour" not in host.lost


async def test_who_hides_a_file_in_flight_ends_when_the_disk_is_scarce(host: Host) -> None:
    """Not the neighbour that honestly has more on disk."""
    hides, honest = await host.lease("hides"), await host.lease("honest")
    await until(lambda: None not in (hides.measured_at, honest.measured_at))
    assert hides.clone is not None and honest.clone is not None
    await run_inside(honest.clone, "import os; open('/scratch/own', 'wb').write(os.urandom(12 << 20))")
    # Allocated, not written, so that not even the bytes written tell of it.
    await run_inside(
        hides.clone,
        WRITE + IN_FLIGHT.replace("write()", "open('/scratch/hidden', 'w+b')"),
    )
    host.taken_mib = 80.0 + max(0.0, host.pool.admission.disk_room().free_mib - 1000.0)
    await until(lambda: "hides" in host.lost, 8)
    assert host.lost["hides"][0] is Reason.DISK
    assert "honest" not in host.lost
