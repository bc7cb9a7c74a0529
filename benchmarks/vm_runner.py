"""Cost of a container and of a tap: the same clone started each way, in turns.

python -m benchmarks.vm_runner --image small --repeat 10      (root; a Docker daemon, `osgym image runner`)

`ready` is from asking for a replica to its acknowledged identity, on demand (nothing parked) and from a
parked process. `remove` is until nothing of it is left. Memory is PSS ten seconds after the first look: of
QEMU, of what else is in its container, and of the daemon's helper process beside it.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import save, summary
from benchmarks.vm_common import described, options
from osgym_host.images.store import default_data_dir
from osgym_host.runtimes.base import ReplicaSpec, Screen
from osgym_host.runtimes.processes import pss_mib
from osgym_qemu.cloning.parked_pool import ParkedPoolOptions
from osgym_qemu.cloning.replica import QemuReplica
from osgym_qemu.machine.launcher import Launcher
from osgym_qemu.network.base import Network
from osgym_qemu.network.tap import TapNetwork
from osgym_qemu.network.user import UserNetwork
from osgym_qemu.runner.container import ContainerLauncher
from osgym_qemu.runner.process import ProcessLauncher
from osgym_qemu.runtime import QemuOptions, QemuRuntime
from osgym_qemu.snapshots import Snapshot, SnapshotStore

WAYS = (("process", "user"), ("process", "tap"), ("container", "user"), ("container", "tap"))
SETTLE_S = 10.0


def _runtime(way: tuple[str, str], snapshot: Snapshot, folder: Path, parked: int) -> QemuRuntime:
    runner, network = way
    instance = f"bench-{runner}-{network}-{parked}"
    mark = f"osgym-{instance}-{os.getpid()}"
    run = folder / "run" / instance

    def launcher(tree: Any) -> Launcher:
        return ContainerLauncher(mark) if runner == "container" else ProcessLauncher(run, tree=tree)

    connected: Network = (
        TapNetwork(mark) if network == "tap" else UserNetwork(run, forwards=runner == "container")
    )
    options = QemuOptions(parked=ParkedPoolOptions(target=parked))
    return QemuRuntime(folder, instance, launcher, connected, options, snapshot)


def _shim(pid: int) -> int | None:
    """Return the daemon's helper that is the parent of a container's first process."""
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return parent if "containerd-shim" in Path(f"/proc/{parent}/cmdline").read_text() else None


async def _one(runtime: QemuRuntime, spec: ReplicaSpec, parked: bool) -> dict[str, float]:
    begun = time.monotonic()
    replica = await runtime.create(spec)
    assert isinstance(replica, QemuReplica)
    found = {"parked_s" if parked else "on_demand_s": time.monotonic() - begun}
    if parked:
        await asyncio.sleep(SETTLE_S)
        group = replica.vm.group
        others = (group.pids() if group is not None else set()) - {replica.pid}
        shim = _shim(replica.pid)
        found |= {"qemu_mib": pss_mib([replica.pid]), "beside_mib": pss_mib(others)}
        found["shim_mib"] = pss_mib([shim]) if shim is not None else 0.0
    begun = time.monotonic()
    await runtime.destroy(replica)
    return found | {"remove_s": time.monotonic() - begun}


async def _measure(snapshot: Snapshot, repeat: int) -> dict[str, dict[str, list[float]]]:
    series: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    screen = Screen(*snapshot.manifest.screen)
    # Away from /tmp, which may be memory: overlays are on disk in real use.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=default_data_dir()) as name:
        folder = Path(name)
        folder.chmod(0o711)  # noqa: ASYNC240  # nothing else runs
        for turn in range(repeat):
            for way in WAYS:
                for parked in (0, 1):
                    runtime = _runtime(way, snapshot, folder, parked)
                    await runtime.start()
                    try:
                        if parked:
                            await _until_parked(folder / "run" / f"bench-{way[0]}-{way[1]}-{parked}")
                        spec = ReplicaSpec(f"r{turn}", turn + 1, snapshot, screen)
                        for key, value in (await _one(runtime, spec, bool(parked))).items():
                            series["-".join(way)][key].append(value)
                    finally:
                        await runtime.stop()
    return series


async def _until_parked(run: Path) -> None:
    """Wait until a process is parked, and a moment more for the machine to be quiet."""
    async with asyncio.timeout(60):
        while not any('"parked"' in path.read_text() for path in (run / "records").glob("v*.json")):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await asyncio.sleep(2)


def main(argv: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--repeat", type=int, default=10)
    args = parser.parse_args(argv)
    snapshot = SnapshotStore(default_data_dir()).resolve(f"{args.image}@{args.snapshot}")
    series = asyncio.run(_measure(snapshot, 2 if args.quick else args.repeat))
    for way, kinds in series.items():
        for kind, values in kinds.items():
            print(f"{way:16} {kind:12} {summary(values)}")
    save("vm_runner", {**described(args), "series": series}, args.out)


if __name__ == "__main__":
    main()
