"""How many replicas fit on a host, what binds, and what is left over. Pure: no input, no output.

Notation, used in all docstrings of the cost model:

| symbol | field | unit |
|---|---|---|
| R_ws | `Replica.working_set_gib`: memory a replica touches, shared pages counted in full | GiB |
| s | `Replica.shared_fraction`: part of R_ws that all replicas of a host share copy-on-write | 1 |
| o | `Replica.overhead_gib`: host memory per replica outside the replica (its process, its manager) | GiB |
| b | `Replica.idle_cores`: CPU of a replica that does nothing | cores |
| D | `Replica.step_cpu_s`: CPU per step | CPU-s |
| C | `Replica.reset_cpu_s`: CPU of a fresh replica, a task's set-up and scoring, per episode | CPU-s |
| n | `Replica.steps_per_episode` | 1 |
| Z | `Replica.think_s`: time between an answer and the next step, waiting for the screen included | s |
| a | `Rules.ram_usable`: part of the host's RAM that may be planned with | 1 |
| H | `Rules.reserve_gib`: RAM for the kernel, the host agent, page cache | GiB |
| ρ | `Rules.cpu_target`: utilisation that is planned with | 1 |
| τ | `Rules.thread_efficiency`: what a hardware thread is of a core while its sibling works, too | 1 |
| ν | `Rules.nested_efficiency`: what nested virtualisation leaves of a vCPU | 1 |

The formulas are those of the OSGym paper's cost analysis (section on RAM-bound packing) with the shared
part and the host reserve made explicit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from osgym_infra.catalogue.shapes import HostShape, Kvm, check_positive
from osgym_infra.cost.queueing import Work
from osgym_infra.errors import BadInput

LOCAL = "local"
"""The host agent's default runtime."""
QEMU = "qemu"
RUNTIME_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
"""Form of the names of runtimes. The host agent checks a name against those installed there."""

_AMOUNTS = (
    "overhead_gib", "idle_cores", "step_cpu_s", "think_s", "overlay_gib", "reset_cpu_s", "frame_mb",
)  # fmt: skip


def boots_machines(runtime: str) -> bool:
    """Whether replicas are virtual machines: these need KVM, and disks and snapshots beside the image.

    A runtime of an extension is planned as one without them.
    """
    return runtime == QEMU


class Resource(StrEnum):
    """Resource that can bind the number of replicas on a host."""

    CPU = "cpu"
    RAM = "ram"
    DISK = "disk"
    LATENCY = "latency"
    CAP = "cap"


@dataclass(frozen=True, slots=True)
class ReplicaNeeds:
    """What one replica needs, at the bound that is planned with. Symbols as in the module's docstring.

    `overlay_gib` is what one episode writes to disk at most, `steps_per_episode` how often resets come.
    `frame_mb` is what one step sends to the trainer, in MB (10⁶ B).
    """

    working_set_gib: float
    shared_fraction: float = 0.0
    overhead_gib: float = 0.0
    idle_cores: float = 0.0
    step_cpu_s: float = 0.0
    think_s: float = 0.0
    overlay_gib: float = 0.0
    steps_per_episode: float = 15.0
    frame_mb: float = 0.0
    reset_cpu_s: float = 0.0

    def __post_init__(self) -> None:
        check_positive("working_set_gib", self.working_set_gib)
        check_positive("steps_per_episode", self.steps_per_episode)
        if not 0 <= self.shared_fraction < 1:
            raise BadInput("shared_fraction", f"{self.shared_fraction} is not a part", "0 ≤ s < 1")
        for field in _AMOUNTS:
            _not_negative(field, getattr(self, field))

    @property
    def private_gib(self) -> float:
        """R_ws·(1 − s) + o: memory that each further replica takes from the host, GiB."""
        return self.working_set_gib * (1 - self.shared_fraction) + self.overhead_gib

    @property
    def shared_gib(self) -> float:
        """s·R_ws: memory that all replicas of a host share, taken once, GiB."""
        return self.working_set_gib * self.shared_fraction

    @property
    def cycle_s(self) -> float:
        """Z + D + C/n: one step after the other on an unloaded host, its part of a reset included,
        seconds."""
        return self.think_s + self.cpu_per_step_s

    @property
    def cpu_per_step_s(self) -> float:
        """D + C/n: CPU of a step with its part of a reset, CPU-s."""
        return self.step_cpu_s + self.reset_cpu_s / self.steps_per_episode

    @property
    def cores(self) -> float:
        """u = b + (D + C/n)/(Z + D + C/n): cores that one replica uses in the mean.

        The utilisation law of a closed system with one customer (Lazowska et al., Quantitative System
        Performance, 1984, chapter 3), above the idle CPU b. A replica that never thinks uses one core.
        """
        return self.idle_cores + (self.cpu_per_step_s / self.cycle_s if self.cycle_s else 0.0)

    @property
    def egress_gb_per_day(self) -> float:
        """86,400 s / (Z + D + C/n) · frame_mb / 1000: frames that one replica sends, GB (10⁹ B) a day."""
        return 86400 / self.cycle_s * self.frame_mb / 1000 if self.cycle_s else 0.0

    @property
    def work(self) -> Work:
        """Demand of the replica on the cores, for the queue."""
        return Work(self.step_cpu_s, self.think_s, self.reset_cpu_s, self.steps_per_episode)


@dataclass(frozen=True, slots=True)
class Rules:
    """Bounds on how densely a host is packed.

    Sources of the defaults: `ram_usable` and `cpu_target` leave room for what a mean does not show;
    `reserve_gib` is a host's kernel, agent and page cache, generously; `nested_efficiency` from Google's
    "at least 10 % for CPU-bound work" (Compute Engine documentation, nested virtualization overview);
    `thread_efficiency`, assumed: two threads of a core that both work do 1.2 times the work of one, so each
    is 0.6 of a core. Intel measured 1.16 to 1.28 for servers (Marr et al., Hyper-Threading Technology
    Architecture and Microarchitecture, Intel Technology Journal 6(1), 2002); the profiles' CPU times are
    taken for those of threads that had their core for themselves, as no machine with two threads to a core
    was at hand;
    `max_replicas` because an unlucky host takes all its episodes with it, and because 226 desktops of the
    namespace runtime and 450 virtual machines are the most that were ever run on one host here.
    """

    ram_usable: float = 0.95
    reserve_gib: float = 4.0
    cpu_target: float = 0.7
    nested_efficiency: float = 0.9
    thread_efficiency: float = 0.6
    disk_usable: float = 0.9
    base_disk_gib: float = 30.0
    max_replicas: int = 512

    def __post_init__(self) -> None:
        for field in ("ram_usable", "cpu_target", "nested_efficiency", "thread_efficiency", "disk_usable"):
            value = getattr(self, field)
            if not 0 < value <= 1:
                raise BadInput(field, f"{value} is not a usable part", "0 < value ≤ 1")
        for field in ("reserve_gib", "base_disk_gib"):
            _not_negative(field, getattr(self, field))
        if self.max_replicas < 1:
            raise BadInput("max_replicas", f"{self.max_replicas} replicas per host", "1 or more")


@dataclass(frozen=True, slots=True)
class Fit:
    """Number of replicas on a host, and the resource that binds it.

    `replicas` is 0 when not even one fits. `limits` holds K of each resource that limits at all, not
    rounded; `binding` is the smallest of them. `stranded` is, for each limited resource but the caps, the
    part of its planned capacity that nobody can use because something else binds (0..1).
    """

    replicas: int
    binding: Resource
    limits: Mapping[Resource, float]
    stranded: Mapping[Resource, float]


def cpu_capacity(host: HostShape, runtime: str, rules: Rules) -> float:
    """vCPU·τ·ν: cores that replicas can really use; τ is 1 where each vCPU is a core, ν unless a VM runs in
    a VM."""
    nested = boots_machines(runtime) and host.kvm is not Kvm.METAL
    threads = rules.thread_efficiency if host.threads_per_core > 1 else 1.0
    return host.vcpu * threads * (rules.nested_efficiency if nested else 1.0)


def k_ram(host: HostShape, replica: ReplicaNeeds, rules: Rules) -> float:
    """K_ram = (a·RAM − H − s·R_ws) / (R_ws·(1 − s) + o).

    The paper's formula with the shared part s·R_ws, which is there once, taken off first.
    """
    room = rules.ram_usable * host.ram_gib - rules.reserve_gib - replica.shared_gib
    return max(0.0, room) / replica.private_gib if replica.private_gib else math.inf


def k_cpu(host: HostShape, replica: ReplicaNeeds, runtime: str, rules: Rules) -> float:
    """Return K_cpu = ρ·vCPU·τ·ν / u with u = b + (D + C/n)/(Z + D + C/n)."""
    return (
        rules.cpu_target * cpu_capacity(host, runtime, rules) / replica.cores if replica.cores else math.inf
    )


def k_disk(host: HostShape, replica: ReplicaNeeds, rules: Rules) -> float:
    """Return K_disk = (a_d·disk − base) / overlay: disk for overlays over the size each may grow to, GiB."""
    if host.disk_gib is None or not replica.overlay_gib:
        return math.inf
    return max(0.0, rules.disk_usable * host.disk_gib - rules.base_disk_gib) / replica.overlay_gib


def fit(
    host: HostShape, replica: ReplicaNeeds, runtime: str, rules: Rules, latency_limit: int | None = None
) -> Fit:
    """K = floor(min of all K), capped by the blast radius and, where given, by a latency limit.

    Args:
        latency_limit: The largest K that still meets a p95 (`queueing.largest_k`); `None` for no such wish.
    """
    limits = {
        Resource.CPU: k_cpu(host, replica, runtime, rules),
        Resource.RAM: k_ram(host, replica, rules),
        Resource.DISK: k_disk(host, replica, rules),
        Resource.CAP: float(rules.max_replicas),
    }
    if latency_limit is not None:
        limits[Resource.LATENCY] = float(latency_limit)
    limits = {name: value for name, value in limits.items() if not math.isinf(value)}
    binding = min(limits, key=lambda name: limits[name])
    # A replica that fits exactly must not be lost to the last bit of a division.
    replicas = math.floor(limits[binding] * (1 + 1e-12) + 1e-9)
    stranded: dict[Resource, float] = {
        name: 1 - min(1.0, replicas / value) if value else 0.0
        for name, value in limits.items()
        if name not in (Resource.CAP, Resource.LATENCY)
    }
    return Fit(replicas, binding, limits, stranded)


def _not_negative(field: str, value: float) -> None:
    if not (value >= 0 and math.isfinite(value)):
        raise BadInput(field, f"{value} is not an amount", "0 or more")
