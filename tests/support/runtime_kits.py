"""How the contract suite handles each kind of runtime: making it, running code inside, finding traces."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from osgym_host.guest_client import GuestClient, GuestError, GuestRefused
from osgym_host.runtimes.base import ExitInfo, ExitReason, ImageLike, Replica, ReplicaSpec, Runtime, Screen
from osgym_host.runtimes.cgroups import instance_group_name
from osgym_host.runtimes.local.probe_image import ProbeImage
from osgym_host.runtimes.local.runtime import LocalRuntime
from osgym_qemu.cloning.parked_pool import ParkedPoolOptions
from osgym_qemu.cloning.replica import QemuReplica
from osgym_qemu.golden.snapshot import golden_snapshot
from osgym_qemu.network.user import UserNetwork
from osgym_qemu.runner.process import ProcessLauncher
from osgym_qemu.runtime import QemuOptions, QemuRuntime
from osgym_qemu.snapshots import Snapshot
from tests.support.machine_ends import MachineEnd, end_from_inside
from tests.support.runtime_probe import run_inside as run_in_probe

DEADLINE_S = 30.0


@dataclass(frozen=True)
class Ending:
    """A way in which what runs inside ends the replica, and what is then said of it.

    Attributes:
        code: Python that says last words and, where programs of the replica can end it, ends it.
        machine: How the machine ends afterwards, where it is one.
    """

    code: str
    reason: ExitReason
    exit_code: int | None
    machine: MachineEnd | None = None


class Kit(Protocol):
    """What the suite needs to know of one kind of runtime.

    Attributes:
        image: Runs what a test sends, as root.
        screen: A size that its desktop can have.
        own_kernel: Its processes are not processes of the host, and its caps are those of one process.
        small_ram_mib: A memory cap that a fresh replica lives under and a greedy one does not.
        moments_s: After which times a create is cancelled, so that every part of it is hit.
        cycles: Clones in a row in the search for leaks.
        endings: Ways to end from within.
    """

    image: ImageLike
    screen: Screen
    own_kernel: bool
    small_ram_mib: int
    moments_s: Sequence[float]
    cycles: int
    endings: Sequence[Ending]

    def make(self, data_dir: Path) -> Runtime:
        """Make a runtime that is not started; two on the same directory are rivals."""

    def traces(self, data_dir: Path) -> list[str]:
        """Name everything of any replica below `data_dir` that can be found on the host."""

    def fingerprint(self) -> str:
        """Tell whether anything of the image changed."""

    def broken_image(self, folder: Path) -> ImageLike:
        """An image that no replica can start from."""

    async def knows(self, replica: Replica) -> dict[str, str]:
        """What the replica knows of itself: generation, token, screen."""

    async def run_inside(self, replica: Replica, code: str, **values: object) -> Any:
        """Run Python inside a replica as its root and return what it assigns to `result`."""

    async def end(self, replica: Replica, ending: Ending) -> None:
        """End a replica from inside."""


@dataclass
class LocalKit:
    """The namespace runtime with an image of this machine's own Python."""

    image: ProbeImage
    screen: Screen = field(default_factory=lambda: Screen(800, 600))
    own_kernel: bool = False
    small_ram_mib: int = 64
    moments_s: Sequence[float] = (0.0, 0.002, 0.005, 0.01, 0.02)
    cycles: int = 15
    endings: Sequence[Ending] = tuple(
        Ending(f"import os; os.write(1, b'last words\\n'); os._exit({code})", reason, code)
        for code, reason in (
            (0, ExitReason.SESSION_ENDED),
            (5, ExitReason.SESSION_ENDED),
            (3, ExitReason.DISPLAY_LOST),
        )
    )

    def make(self, data_dir: Path) -> Runtime:
        return LocalRuntime(data_dir, "contract")

    def traces(self, data_dir: Path) -> list[str]:
        folder = data_dir / "run" / "contract"
        found = [str(path) for path in (folder / "replicas").glob("*")]
        found += [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]
        return found + _groups(folder)

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for path in sorted(self.image.rootfs.rglob("*")):
            stat = path.lstat()
            digest.update(f"{path} {stat.st_mode} {stat.st_uid} {stat.st_gid} {stat.st_mtime_ns}".encode())
            if path.is_file() and not path.is_symlink():
                digest.update(path.read_bytes())
        return digest.hexdigest()

    def broken_image(self, folder: Path) -> ImageLike:
        (folder / "empty").mkdir()
        return replace(self.image, digest="none", rootfs=folder / "empty")

    async def knows(self, replica: Replica) -> dict[str, str]:
        told = await self.run_inside(replica, "import os; result = dict(os.environ)")
        assert told["OSGYM_REPLICA_ID"] == replica.replica_id
        names = {"generation": "OSGYM_GENERATION", "token": "OSGYM_TOKEN", "screen": "OSGYM_SCREEN"}
        return {name: told.get(variable, "") for name, variable in names.items()}

    async def run_inside(self, replica: Replica, code: str, **values: object) -> Any:
        return await run_in_probe(replica, code, **values)  # type: ignore[arg-type]  # a name is no timeout

    async def end(self, replica: Replica, ending: Ending) -> None:
        with contextlib.suppress(GuestError):
            await self.run_inside(replica, ending.code)


_WRAPPER = """\
import json, os, traceback
os.makedirs("/scratch", exist_ok=True)
scope = {}
try:
    exec(CODE, scope)
    told = {"result": scope.get("result")}
except Exception:
    told = {"error": traceback.format_exc()}
with open("/tmp/.told", "w") as file:
    json.dump(told, file)
"""


_LAST_WORDS = """
import ctypes, os, subprocess
panel = int(subprocess.check_output(["pgrep", "-x", "tint2"]))
console = ctypes.CDLL(None).syscall(438, os.pidfd_open(panel), 2, 0)  # pidfd_getfd
os.write(console, b"last words\\n")
result = None
"""
"""Programs that the desktop starts with write to the machine's console."""


@dataclass
class QemuKit:
    """Virtual machines cloned from the small golden snapshot, run by emulation or not."""

    image: Snapshot
    parked: int = 1
    own_kernel: bool = True
    small_ram_mib: int = 160
    moments_s: Sequence[float] = (0.0, 0.03, 0.08, 0.12, 0.18)
    cycles: int = 5
    endings: Sequence[Ending] = (
        Ending(_LAST_WORDS, ExitReason.GUEST_SHUTDOWN, None, MachineEnd.POWER_OFF),
        Ending(_LAST_WORDS, ExitReason.GUEST_REBOOTED, None, MachineEnd.RESET),
    )

    @property
    def screen(self) -> Screen:
        return Screen(*self.image.manifest.screen)

    def make(self, data_dir: Path, options: QemuOptions | None = None) -> QemuRuntime:
        folder = data_dir / "run" / "contract"
        return QemuRuntime(
            data_dir,
            "contract",
            lambda tree: ProcessLauncher(folder, tree=tree),
            UserNetwork(folder, forwards=False),
            options or QemuOptions(parked=ParkedPoolOptions(target=self.parked)),
            self.image,
        )

    def traces(self, data_dir: Path) -> list[str]:
        folder = data_dir / "run" / "contract"
        found = [*(folder / "vms").glob("v*"), *(Path(group) for group in _groups(folder))]
        if not (folder / "records").is_dir():
            return [str(path) for path in found]
        # While it runs there are parked machines, and some on the way to be: a folder comes first.
        replicas = {name for name, phase in _machines(folder).items() if phase in ("resuming", "running")}
        return [str(path) for path in found if path.name in replicas] + sorted(replicas)

    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for path in sorted(self.image.folder.iterdir()):
            stat = path.stat()
            digest.update(f"{path} {stat.st_mode} {stat.st_uid} {stat.st_size} {stat.st_mtime_ns}".encode())
            if stat.st_size < 64 << 20:
                digest.update(path.read_bytes())
        return digest.hexdigest()

    def broken_image(self, folder: Path) -> ImageLike:
        state = folder / "broken.state"
        state.write_bytes(self.image.state.read_bytes()[:5000])
        return replace(golden_snapshot(self.image), digest="none", state=state)

    async def end(self, replica: Replica, ending: Ending) -> None:
        assert isinstance(replica, QemuReplica) and ending.machine is not None
        await self.run_inside(replica, ending.code)
        async with asyncio.timeout(DEADLINE_S):
            while True:
                if "last words" in await replica.read_console():
                    break
                await asyncio.sleep(0.05)
        await end_from_inside(replica.vm.machine, ending.machine)

    async def knows(self, replica: Replica) -> dict[str, str]:
        async with GuestClient(replica.guest, token="wrong") as stranger:
            try:
                await stranger.health()
            except GuestRefused as refused:
                assert refused.status == 401
        async with GuestClient(replica.guest, token=replica.guest_token) as guest:
            health = await guest.health()
            width, height = await guest.screen_size()
        return {
            "generation": str(health.generation),
            "token": replica.guest_token or "",
            "screen": f"{width}x{height}",
        }

    async def run_inside(self, replica: Replica, code: str, **values: object) -> Any:
        header = "".join(f"{name} = {value!r}\n" for name, value in values.items())
        source = f"CODE = {header + textwrap.dedent(code)!r}\n{_WRAPPER}"
        async with GuestClient(replica.guest, token=replica.guest_token) as guest:
            # What it starts holds no pipe of ours, so that the call ends when the code does.
            command = ["sudo", "-n", "sh", "-c", 'python3 -I -c "$0" >/dev/null 2>&1; cat /tmp/.told', source]
            ended = await guest.execute(command, timeout_s=40)
        told = json.loads(ended.output)
        if "error" in told:
            raise AssertionError(f"inside the replica: {told['error']}")
        return told["result"]


def contract_spec(kit: Kit) -> ReplicaSpec:
    """A spec that every runtime can carry out with the kit's image."""
    return ReplicaSpec("r1", 7, kit.image, screen=kit.screen)


def _groups(folder: Path) -> list[str]:
    """Control groups of the replicas of the instance with this run folder, and of no other."""
    found = Path("/sys/fs/cgroup").glob(f"**/{instance_group_name(folder)}/*")
    return [str(path) for path in found if path.is_dir()]


def _machines(folder: Path) -> dict[str, str]:
    """Name to phase of the machines of an instance, as they are written down."""
    found = {}
    for path in (folder / "records").glob("v*.json"):
        try:
            found[path.stem] = json.loads(path.read_text())["phase"]
        except (OSError, ValueError):
            continue
    return found


def threads_of(pid: int) -> int:
    """How many threads a process has."""
    return len(os.listdir(f"/proc/{pid}/task"))


def exists(pid: int) -> bool:
    """Whether there is such a process on the host."""
    return Path(f"/proc/{pid}").exists()


async def settled(condition: Callable[[], bool]) -> bool:
    """Whether it becomes true before the deadline: work in the background ends."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110  # polls any condition
                await asyncio.sleep(0.02)
    return condition()


async def dead(replica: Replica) -> ExitInfo:
    """Wait for the end of a replica, and return what is said of it."""
    return await asyncio.wait_for(replica.wait_dead(), DEADLINE_S)


def gone(pid: int, timeout_s: float = DEADLINE_S) -> bool:
    """Wait until a process is gone (or only waits to be buried by a parent that is not us)."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


@contextlib.asynccontextmanager
async def running_local(data_dir: Path, instance: str = "local") -> AsyncIterator[LocalRuntime]:
    """A started local runtime; at the end no replica's folder is left."""
    runtime = LocalRuntime(data_dir, instance)
    await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.stop()
    assert not list((data_dir / "run" / instance / "replicas").iterdir())
