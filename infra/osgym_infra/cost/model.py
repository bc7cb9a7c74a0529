"""How many replicas fit on a host, what binds, and what is left over. Pure: no input, no output.

Notation, used in all docstrings of the cost model:

| symbol | field | unit |
|---|---|---|
| R_ws | `Replica.working_set_gib`: memory a replica touches, shared pages counted in full | GiB |
| s | `Replica.shared_fraction`: part of R_ws that all replicas of an image share copy-on-write | 1 |
| o | `Replica.overhead_gib`: host memory per replica outside the replica (its process, its manager) | GiB |
| b | `Replica.idle_cores`: CPU of a replica that does nothing | cores |
| D | `Replica.step_cpu_s`: CPU per step | CPU-s |
| C | `Replica.reset_cpu_s`: CPU of a fresh replica, a task's set-up and scoring, per episode | CPU-s |
| n | `Replica.steps_per_episode` | 1 |
| Z | `Replica.think_s`: time between an answer and the next step, waiting for the screen included | s |
| m | `Rest.resting_gib`: memory that a replica at rest occupies, its compressed pages included | GiB |
| W | `Rest.wake_cpu_s`: CPU of a wake and of the reclaim before it | CPU-s |
| T | `Rest.after_s`: time after a step until the replica rests | s |
| f | `Rest.reclaimed_share`: part of the rests in which memory is reclaimed, beside being paused | 1 |
| a | `Rules.ram_usable`: part of the host's RAM that may be planned with | 1 |
| H | `Rules.reserve_gib`: RAM for the kernel, the host agent, page cache | GiB |
| M | `Rules.images`: golden images that each host serves | 1 |
| ρ | `Rules.cpu_target`: utilisation that is planned with | 1 |
| τ | `Rules.thread_efficiency`: what a hardware thread is of a core while its sibling works, too | 1 |
| ν | `Rules.nested_efficiency`: what nested virtualisation leaves of a vCPU | 1 |

With rest (docs/rest.md) a replica is awake for the part α = (T + D + f·W + C/n)/(Z + D + f·W + C/n) of the
time only. Then f·W is added to D, b counts for that part, and a replica takes P − f·(1 − α)·(P − m) in the
mean with P = R_ws·(1 − s) + o. A host reclaims as much as its memory makes necessary: `balanced` finds f.

The formulas are those of the OSGym paper's cost analysis (section on RAM-bound packing) with the shared
part and the host reserve made explicit.
"""

from __future__ import annotations

import dataclasses
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

_BISECTIONS = 30
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
    SWAP = "swap"
    DISK = "disk"
    PIDS = "pids"
    LATENCY = "latency"
    CAP = "cap"


@dataclass(frozen=True, slots=True)
class Rest:
    """What a replica needs that rests between steps. Symbols as in the module's docstring.

    `after_s` is the host's setting `rest_after_s`. When memory is short replicas rest earlier, which only
    leaves more of it.
    """

    resting_gib: float
    wake_cpu_s: float
    after_s: float = 2.0
    reclaimed_share: float = 1.0

    def __post_init__(self) -> None:
        check_positive("resting_gib", self.resting_gib)
        _not_negative("wake_cpu_s", self.wake_cpu_s)
        _not_negative("after_s", self.after_s)
        if not 0 <= self.reclaimed_share <= 1:
            raise BadInput("reclaimed_share", f"{self.reclaimed_share} is not a part", "0 ≤ f ≤ 1")


@dataclass(frozen=True, slots=True)
class ReplicaNeeds:
    """What one replica needs, at the bound that is planned with. Symbols as in the module's docstring.

    `overlay_gib` is what one episode writes to disk at most, `steps_per_episode` how often resets come.
    `frame_mb` is what one step sends to the trainer, in MB (10⁶ B). `threads` is the number of its threads; 0
    where it is unknown. `rest` is None where replicas stay awake.
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
    threads: float = 0.0
    rest: Rest | None = None

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
    def wake_cpu_s(self) -> float:
        """f·W; 0 where replicas stay awake."""
        return self.rest.reclaimed_share * self.rest.wake_cpu_s if self.rest else 0.0

    @property
    def awake_share(self) -> float:
        """α: part of the time that the replica is awake."""
        if self.rest is None or not self.cycle_s:
            return 1.0
        return min(1.0, (self.rest.after_s + self.cpu_per_step_s) / self.cycle_s)

    @property
    def mean_gib(self) -> float:
        """P − f·(1 − α)·(P − m): memory that each further replica takes in the mean, GiB."""
        if self.rest is None:
            return self.private_gib
        saved_gib = max(0.0, self.private_gib - self.rest.resting_gib)
        return self.private_gib - self.rest.reclaimed_share * (1 - self.awake_share) * saved_gib

    @property
    def background_cores(self) -> float:
        """α·b: cores that the replica uses beside its steps."""
        return self.awake_share * self.idle_cores

    @property
    def cycle_s(self) -> float:
        """Z + D + f·W + C/n: one step after the other on an unloaded host, its part of a reset included,
        seconds."""
        return self.think_s + self.cpu_per_step_s

    @property
    def cpu_per_step_s(self) -> float:
        """D + f·W + C/n: CPU of a step with its wake and its part of a reset, CPU-s."""
        return self.step_cpu_s + self.wake_cpu_s + self.reset_cpu_s / self.steps_per_episode

    @property
    def cores(self) -> float:
        """u = α·b + (D + f·W + C/n)/(Z + D + f·W + C/n): cores that one replica uses in the mean.

        The utilisation law of a closed system with one customer (Lazowska et al., Quantitative System
        Performance, 1984, chapter 3), above the idle CPU b. A replica that never thinks uses one core.
        """
        return self.background_cores + (self.cpu_per_step_s / self.cycle_s if self.cycle_s else 0.0)

    @property
    def egress_gb_per_day(self) -> float:
        """86,400 s / (Z + D + f·W + C/n) · frame_mb / 1000: frames that a replica sends, GB (10⁹ B) a day."""
        return 86400 / self.cycle_s * self.frame_mb / 1000 if self.cycle_s else 0.0

    @property
    def work(self) -> Work:
        """Demand of the replica on the cores, for the queue."""
        return Work(self.step_cpu_s + self.wake_cpu_s, self.think_s, self.reset_cpu_s, self.steps_per_episode)


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
    `swap_per_ram`: size of compressed swap by RAM, as `osgym doctor` proposes it; unused swap costs nothing;
    `base_threads`: threads of everything else, as `osgym doctor` counts them;
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
    swap_per_ram: float = 4.0
    base_threads: int = 2048
    images: int = 1

    def __post_init__(self) -> None:
        for field in ("ram_usable", "cpu_target", "nested_efficiency", "thread_efficiency", "disk_usable"):
            value = getattr(self, field)
            if not 0 < value <= 1:
                raise BadInput(field, f"{value} is not a usable part", "0 < value ≤ 1")
        for field in ("reserve_gib", "base_disk_gib", "swap_per_ram", "base_threads"):
            _not_negative(field, getattr(self, field))
        if self.images < 1:
            raise BadInput("images", f"{self.images} golden images", "1 or more")
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
    """K_ram = (a·RAM − H − M·s·R_ws) / (R_ws·(1 − s) + o), with rest over P − f·(1 − α)·(P − m).

    The paper's formula with the shared part s·R_ws, which is there once for each image, taken off first.
    """
    room = rules.ram_usable * host.ram_gib - rules.reserve_gib - rules.images * replica.shared_gib
    return max(0.0, room) / replica.mean_gib if replica.mean_gib else math.inf


def k_swap(host: HostShape, replica: ReplicaNeeds, rules: Rules) -> float:
    """K_swap = swap / (f·P) for replicas that rest: all their pages may be there, before compression."""
    swapped_gib = replica.rest.reclaimed_share * replica.private_gib if replica.rest else 0.0
    swap_gib = rules.swap_per_ram * host.ram_gib if host.swap_gib is None else host.swap_gib
    return swap_gib / swapped_gib if swapped_gib else math.inf


def k_pids(host: HostShape, replica: ReplicaNeeds, rules: Rules) -> float:
    """K_pids = (pid_max − those of the rest of the host) / threads of a replica."""
    if host.pid_max is None or not replica.threads:
        return math.inf
    return max(0.0, host.pid_max - rules.base_threads) / replica.threads


def k_cpu(host: HostShape, replica: ReplicaNeeds, runtime: str, rules: Rules) -> float:
    """Return K_cpu = ρ·vCPU·τ·ν / u with u = α·b + (D + f·W + C/n)/(Z + D + f·W + C/n)."""
    return (
        rules.cpu_target * cpu_capacity(host, runtime, rules) / replica.cores if replica.cores else math.inf
    )


def k_disk(host: HostShape, replica: ReplicaNeeds, rules: Rules) -> float:
    """Return K_disk = (a_d·disk − base) / overlay: disk for overlays over the size each may grow to, GiB."""
    if host.disk_gib is None or not replica.overlay_gib:
        return math.inf
    return max(0.0, rules.disk_usable * host.disk_gib - rules.base_disk_gib) / replica.overlay_gib


def balanced(host: HostShape, replica: ReplicaNeeds, runtime: str, rules: Rules) -> ReplicaNeeds:
    """Return a replica that rests with the f at which the host carries most.

    With f, K_ram grows and K_cpu and K_swap fall, so the best f is where they cross, or an end of 0..1. A
    replica whose policy thinks no longer than T never rests.
    """
    rest = replica.rest
    if rest is None:
        return replica
    if replica.think_s <= rest.after_s:
        return dataclasses.replace(replica, rest=None)

    def at(share: float) -> ReplicaNeeds:
        return dataclasses.replace(replica, rest=dataclasses.replace(rest, reclaimed_share=share))

    def is_short_of_ram(share: float) -> bool:
        here = at(share)
        others = (k_cpu(host, here, runtime, rules), k_swap(host, here, rules), float(rules.max_replicas))
        return k_ram(host, here, rules) < min(others)

    low, high = 0.0, 1.0
    if host.swap_gib == 0 or not is_short_of_ram(low):
        return at(low)
    for _ in range(_BISECTIONS if not is_short_of_ram(high) else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if is_short_of_ram(middle) else (low, middle)
    return at(high)


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
        Resource.SWAP: k_swap(host, replica, rules),
        Resource.DISK: k_disk(host, replica, rules),
        Resource.PIDS: k_pids(host, replica, rules),
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
