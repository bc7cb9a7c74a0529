"""Cost per replica-day against K, the replicas on one host, as in the paper's Figure 3.

Two things are drawn. The host type as it is, whose price K replicas share until one of its resources is
used up. And a host cut exactly for K replicas at the unit prices that the host type implies, as its CPU and
its RAM part: few replicas cannot share cores, so CPU costs more on the left; with many its part shrinks to
the mean load, and from the crossing on RAM costs more, if a replica's memory weighs more than its mean load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from osgym_infra.config.providers import Provider
from osgym_infra.cost import queueing
from osgym_infra.cost.model import Fit, Resource, cpu_capacity
from osgym_infra.cost.planner import Candidate, PlanRequest
from osgym_infra.cost.price import replica_day
from osgym_infra.errors import BadInput

DEFAULT_GIB_PER_VCPU = 10.0
"""What a vCPU costs in GiB of RAM at providers that are in catalogues only."""
SLOWDOWN_P95 = 1.25
"""Cores are added until the 95th percentile of a step is at most so many times that of a lone replica."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """K, and USD per replica-day: of a host cut for K (its CPU and RAM part), and of the type shared by K."""

    replicas: int
    cpu_usd: float
    ram_usd: float
    type_usd: float


@dataclass(frozen=True, slots=True)
class Curve:
    """The picture's data. `crossing` is the first K at which RAM costs more than CPU, if there is one."""

    label: str
    points: tuple[CurvePoint, ...]
    crossing: int | None
    fit: Fit


def curve(request: PlanRequest, candidate: Candidate, egress_usd: float, points: int = 80) -> Curve:
    """Compute the points, from one replica to what the host carries. Pure."""
    capacity = cpu_capacity(candidate.shape, request.runtime, request.rules)
    nu = capacity / candidate.shape.vcpu
    known = candidate.row.provider in set(Provider)
    ratio = Provider(candidate.row.provider).facts.gib_per_vcpu if known else DEFAULT_GIB_PER_VCPU
    usd_per_gib = candidate.day.total / (candidate.shape.ram_gib + ratio * candidate.shape.vcpu)
    end = max(2, candidate.fit.replicas)
    counts = sorted({max(1, round(end ** (i / points))) for i in range(points + 1)})
    found = []
    cores = 1
    for k in counts:
        cores = needed_cores(request, k, cores)
        cpu = usd_per_gib * ratio * cores / nu / k / request.terms.availability
        replica, rules = request.replica, request.rules
        gib = (rules.reserve_gib + replica.shared_gib + k * replica.private_gib) / rules.ram_usable
        ram = usd_per_gib * gib / k / request.terms.availability
        each = replica_day(candidate.day.total, k, egress_usd, request.terms.availability)
        found.append(CurvePoint(k, cpu, ram, each))
    crossing = next((p.replicas for p in found if p.ram_usd >= p.cpu_usd), None)
    label = f"{candidate.row.provider} {candidate.row.type}, {candidate.market.replace('_', '-')}"
    return Curve(label, tuple(found), crossing, candidate.fit)


def needed_cores(request: PlanRequest, replicas: int, at_least: int = 1) -> int:
    """The fewest cores on which K replicas stay below the target utilisation and the p95. Pure."""
    replica = request.replica
    cores = max(at_least, math.ceil(replicas * replica.cores / request.rules.cpu_target - 1e-9))
    if not replica.step_cpu_s:
        return max(1, cores)
    alone = replica.step_cpu_s * math.log(20)
    wanted = request.p95_s if request.p95_s is not None else SLOWDOWN_P95 * alone
    while not queueing.meets(
        cores, replicas, replica.idle_cores, replica.step_cpu_s, replica.think_s, max(wanted, alone * 1.001)
    ):
        cores += 1
    return cores


def draw(data: Curve, path: Path, subtitle: str) -> None:
    """Write the picture; the format follows the file's suffix.

    Raises:
        BadInput: matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BadInput("--plot", "matplotlib is not installed", "pip install 'osgym-infra[plot]'") from error
    figure = Figure(figsize=(9, 5.4), dpi=130, layout="constrained")
    axes = figure.subplots()
    ks = [p.replicas for p in data.points]
    cpu, ram = [p.cpu_usd for p in data.points], [p.ram_usd for p in data.points]
    both = [a + b for a, b in zip(cpu, ram, strict=True)]
    axes.plot(ks, [p.type_usd for p in data.points], color="#222222", lw=2, label=data.label)
    axes.plot(ks, both, color="#7a5195", lw=2, label="a host cut for K")
    axes.plot(ks, cpu, color="#d9702b", lw=1.5, ls="--", label="its CPU part")
    axes.plot(ks, ram, color="#3c6fb5", lw=1.5, ls="--", label="its RAM part")
    axes.set_xscale("log")
    axes.set_yscale("log")
    end = max(ks[-1], 2)
    low = min(*cpu, *ram, data.points[-1].type_usd) * 0.5
    axes.set_xlim(1, end * 1.05)
    axes.set_ylim(low, max(data.points[0].type_usd, both[0]) * 2)
    edge = data.crossing if data.crossing is not None else end * 1.05
    for left, right, colour, name in (
        (1, edge, "#fdf0e3", "CPU costs more"),
        (edge, end * 1.05, "#e8eefa", "RAM costs more"),
    ):
        if right > left * 1.3:
            axes.axvspan(left, right, color=colour, zorder=0)
            axes.text(math.sqrt(left * right), low * 1.15, name, ha="center", va="bottom", color="#555555")
    last = data.points[-1]
    axes.plot([last.replicas], [last.type_usd], "o", color="#222222")
    axes.annotate(
        f"K = {last.replicas}: {last.type_usd:.3f} USD\n{_why(data.fit.binding)}",
        (last.replicas, last.type_usd), xytext=(-8, 40), textcoords="offset points", ha="right",
        arrowprops={"arrowstyle": "-", "color": "#222222"},
    )  # fmt: skip
    axes.set_xlabel("K, replicas on one host")
    axes.set_ylabel("USD per replica-day")
    figure.suptitle("Cost per replica-day against replicas per host", fontsize=13)
    axes.set_title(subtitle, fontsize=9)
    axes.legend(loc="upper right", frameon=False)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise BadInput("--plot", f"{path} cannot be written: {error}", "a path that ends in .png") from error


def _why(binding: Resource) -> str:
    match binding:
        case Resource.CAP:
            return "more would be lost with one host (--max-replicas-per-host)"
        case Resource.LATENCY:
            return "more would be slower than wished (--p95-ms)"
        case _:
            return f"{binding.upper()} is used up"
