"""`osgym fleet plan --this-machine`: how many replicas fit on the machine that it runs on.

The facts of the machine come from the host agent's own code, which must be installed. How many replicas
follow from them is the cost model's to say.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from osgym_infra.catalogue.shapes import HostShape
from osgym_infra.cli.tables import WIDTH, columns
from osgym_infra.cost.model import LOCAL, ReplicaNeeds, Resource, Rest, Rules, balanced, cpu_capacity, fit
from osgym_infra.cost.planner import step_load
from osgym_infra.cost.price import replica_day
from osgym_infra.errors import OsgymInfraError
from osgym_infra.workloads import profile as profiles
from osgym_infra.workloads.profile import MIB_PER_GIB, Bound, Profile

IDLE = "desktop-idle"
"""Profile of desktops that nobody steps."""
THINK_S = (60.0, 20.0, 5.0)
"""Think times of the table besides the profile's own."""
_NEVER_S = 86400.0
"""Think time of a desktop that nobody steps."""
MOST_REPLICAS = 4096
"""Upper bound of the host's setting `max_replicas`."""
LIMITS = {
    Resource.CPU: "CPU",
    Resource.RAM: "RAM",
    Resource.SWAP: "swap",
    Resource.DISK: "disk",
    Resource.PIDS: "pids",
    Resource.CAP: "max_replicas",
    Resource.LATENCY: "latency",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts of this machine, and defaults of the host agent's settings that bound what fits.

    Attributes:
        awake: Number of replicas for which the host agent keeps memory free when replicas rest.
        woken_mib: Memory that it counts for each of them.
    """

    cores: int
    threads_per_core: int
    ram_mib: float
    available_mib: float
    swap_mib: float
    swap_is_compressed: bool
    disk_free_mib: float
    pid_max: int
    images: tuple[str, ...]
    ram_reserve_mib: float
    disk_reserve_mib: float
    awake: int
    woken_mib: float

    def shape(self, swap_gib: float | None) -> HostShape:
        """Return this machine as a host of the cost model, with the memory that is available now."""
        return HostShape(
            "this machine",
            vcpu=self.cores,
            ram_gib=self.available_mib / MIB_PER_GIB,
            disk_gib=self.disk_free_mib / MIB_PER_GIB,
            threads_per_core=self.threads_per_core,
            swap_gib=swap_gib,
            pid_max=self.pid_max,
        )

    def rules(self, base: Rules, rest: bool) -> Rules:
        """Return bounds as the host agent's admission has them: of what is available, less the reserves."""
        headroom_mib = self.awake * self.woken_mib if rest else 0.0
        return replace(
            base,
            ram_usable=1.0,
            reserve_gib=(self.ram_reserve_mib + headroom_mib) / MIB_PER_GIB,
            disk_usable=1.0,
            base_disk_gib=self.disk_reserve_mib / MIB_PER_GIB,
            max_replicas=MOST_REPLICAS,
        )


def read_machine() -> Machine:
    """Read the facts of this machine.

    Raises:
        OsgymInfraError: The host agent is not installed, or the kernel does not say.
    """
    try:
        from osgym_host.core.rest import AWAKE_PER_CORE, EXPECTED_WORKING_SET_MIB
        from osgym_host.doctor.machine import existing_folder
        from osgym_host.images.store import ImageStore, default_data_dir
        from osgym_host.runtimes.swap import read_swap
        from osgym_host.settings.model import Settings
    except ImportError as error:
        raise OsgymInfraError(
            f"--this-machine needs the host agent ({error}): pip install osgym-host"
        ) from error
    try:
        rows = (line.split() for line in Path("/proc/meminfo").read_text("utf-8").splitlines())
        memory = {row[0].rstrip(":"): int(row[1]) / 1024 for row in rows if len(row) == 3}
        swap = read_swap()
        cores = len(os.sched_getaffinity(0))
        return Machine(
            cores=cores,
            threads_per_core=2 if _flag(Path("/sys/devices/system/cpu/smt/active")) else 1,
            ram_mib=memory["MemTotal"],
            available_mib=memory["MemAvailable"],
            swap_mib=swap.total_mib,
            swap_is_compressed=swap.compressed,
            disk_free_mib=shutil.disk_usage(existing_folder(default_data_dir())).free / 2**20,
            pid_max=int(Path("/proc/sys/kernel/pid_max").read_text("utf-8")),
            images=tuple(ImageStore(default_data_dir()).tagged()),
            ram_reserve_mib=Settings.model_fields["ram_reserve_mib"].default,
            disk_reserve_mib=Settings.model_fields["disk_reserve_mib"].default,
            awake=AWAKE_PER_CORE * cores,
            woken_mib=EXPECTED_WORKING_SET_MIB,
        )
    except (OSError, KeyError, ValueError) as error:
        raise OsgymInfraError(f"this machine's resources cannot be read: {error}") from error


def _flag(path: Path) -> bool:
    return path.exists() and path.read_text("utf-8").strip() == "1"


def rows(
    machine: Machine, measured: Profile, needs: ReplicaNeeds, bound: Bound, base: Rules,
    think_s: float | None, usd_per_hour: float | None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Return what fits, for desktops that nobody steps and for policies that think so long before a step."""
    idle = profiles.load(IDLE)
    unused = replace(idle.replica(bound), think_s=_NEVER_S)
    found = [_row(machine, None, unused, idle.rest(bound), base, usd_per_hour)]
    paces = (think_s,) if think_s is not None else (*THINK_S, needs.think_s)
    for pace in paces:
        working = replace(needs, think_s=pace)
        found.append(_row(machine, pace, working, measured.rest(bound), base, usd_per_hour))
    return found


def _row(
    machine: Machine, think_s: float | None, needs: ReplicaNeeds, rest: Rest, base: Rules,
    usd_per_hour: float | None,
) -> dict[str, Any]:  # fmt: skip
    resting = replace(needs, rest=rest)
    swap_gib = machine.swap_mib / MIB_PER_GIB if machine.swap_is_compressed else None
    return {
        "think_s": think_s,
        "awake": _carried(machine.shape(0.0), needs, machine.rules(base, rest=False), usd_per_hour),
        "paused": _carried(machine.shape(0.0), resting, machine.rules(base, rest=False), usd_per_hour),
        "reclaimed": _carried(machine.shape(swap_gib), resting, machine.rules(base, rest=True), usd_per_hour),
    }


def _carried(
    host: HostShape, needs: ReplicaNeeds, rules: Rules, usd_per_hour: float | None
) -> dict[str, Any]:
    """Return how many replicas a host carries, what limits them, and how fast they step."""
    replica = balanced(host, needs, LOCAL, rules)
    found = fit(host, replica, LOCAL, rules)
    load = step_load(replica, cpu_capacity(host, LOCAL, rules), found.replicas) if found.replicas else None
    return {
        "replicas": found.replicas,
        "limit": found.binding.value,
        "limits": {name.value: value for name, value in found.limits.items()},
        "reclaimed_share": replica.rest.reclaimed_share if replica.rest else 0.0,
        "steps_per_s": load.steps_per_s if load else 0.0,
        "step_cpu_p95_ms": load.p95_s * 1000 if load else None,
        "usd_per_replica_day": replica_day(24 * usd_per_hour, found.replicas, 0.0, 1.0)
        if usd_per_hour is not None and found.replicas
        else None,
    }


def remarks(machine: Machine, image: str, measured: Profile) -> list[str]:
    """Return what the user should know beside the table."""
    idle = profiles.load(IDLE)
    found = [
        f"working desktops are those of the profile {measured.workload} ({', '.join(measured.sources)}), the "
        f"others of {idle.workload} ({', '.join(idle.sources)}); both were measured with the image "
        f"{measured.image}",
    ]
    if image != measured.image:
        found.append(f"no figures are known of the image {image}")
    if image not in machine.images:
        found.append(f"the image {image} is not here: osgym image build --flavor {image}")
    if not machine.swap_is_compressed:
        found.append("there is no compressed swap, so the last column is out of reach: osgym doctor says how")
    if machine.ram_mib - machine.available_mib > machine.ram_mib / 4:
        used_gib = (machine.ram_mib - machine.available_mib) / MIB_PER_GIB
        found.append(
            f"{used_gib:.1f} GiB of RAM are in use now, and not counted; replicas that run may be part"
        )
    return found


def to_dict(
    machine: Machine, image: str, measured: Profile, found: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the answer for programs."""
    return {
        "machine": asdict(machine),
        "image": image,
        "workload": {"id": measured.workload, "measured_on": measured.measured_on.isoformat()},
        "rows": list(found),
        "command": command(machine, image, found),
        "notes": remarks(machine, image, measured),
    }


def command(machine: Machine, image: str, found: Sequence[Mapping[str, Any]]) -> str:
    """Return the command that starts a host agent for as many as the second row allows here.

    Memory is then moved to swap only where it is short, as the model has it, however long policies think.
    """
    chosen = found[1]["reclaimed" if machine.swap_is_compressed else "paused"]
    rest = "reclaim_after_s=3600" if machine.swap_is_compressed else "rest=pause"
    return (
        f"osgym host serve --set image={image} --set max_replicas={max(1, chosen['replicas'])} "
        f"--set cpu_per_replica=0 --set {rest}"
    )


def show(machine: Machine, image: str, measured: Profile, found: Sequence[Mapping[str, Any]]) -> None:
    """Print the answer for people."""
    kind = "compressed swap" if machine.swap_is_compressed else "swap"
    swap = f"{machine.swap_mib / MIB_PER_GIB:.0f} GiB of {kind}" if machine.swap_mib else "no swap"
    click.echo(
        f"this machine: {machine.cores} cores, {machine.available_mib / MIB_PER_GIB:.1f} of "
        f"{machine.ram_mib / MIB_PER_GIB:.1f} GiB of RAM available, {swap}, "
        f"{machine.disk_free_mib / MIB_PER_GIB:.0f} GiB of disk free\n"
        f"golden images: {', '.join(machine.images) or 'none'}\n\n"
        f"How many desktops of the image {image} fit, and the limit that they reach first:\n"
    )
    priced = found[0]["awake"]["usd_per_replica_day"] is not None
    table = columns("A POLICY THAT", ">AWAKE", ">PAUSED", ">IN COMPRESSED SWAP", ">STEPS/S", ">STEP p95",
                    *([">USD/REPLICA-DAY"] if priced else []), no_wrap=True)  # fmt: skip
    for row in found:
        last = row["reclaimed"]
        p95_ms = last["step_cpu_p95_ms"]
        cells = [
            "does not step" if row["think_s"] is None else f"thinks {row['think_s']:.3g} s",
            *(_cell(row[kind]) for kind in ("awake", "paused", "reclaimed")),
            f"{last['steps_per_s']:.1f}" if last["steps_per_s"] else "-",
            "-" if p95_ms is None else f"{p95_ms:.0f} ms",
            *([_usd(last["usd_per_replica_day"])] if priced else []),
        ]
        table.add_row(*cells)
    Console(width=max(WIDTH, Console().width), highlight=False).print(table)
    click.echo(
        "\nThe columns after that are of desktops in compressed swap; a step is its CPU work, with the wake, "
        "the reclaim\nand the wait for a core."
    )
    click.echo(f"For the second row: {command(machine, image, found)}\n")
    for note in remarks(machine, image, measured):
        click.echo(f"note: {note}")


def _cell(carried: Mapping[str, Any]) -> str:
    return f"{carried['replicas']:,} ({LIMITS[Resource(carried['limit'])]})"


def _usd(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
