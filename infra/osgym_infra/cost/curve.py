"""USD per replica-day against K, the replicas on one host: from the paper's parameters, and from a plan's.
Pure.

Both curves ask the same: what does the machine cost that is just large enough for K replicas, if machines
of one shape cost in proportion to their size? CPU sizes it on the left: a replica wants several cores for a
moment, and few replicas cannot share them. RAM sizes it on the right: it grows with every replica, and then
a further one costs the same as the last. The crossing is where the one hands over to the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from osgym_infra.cost import queueing
from osgym_infra.cost.compare import shown
from osgym_infra.cost.model import Resource, cpu_capacity
from osgym_infra.cost.planner import Candidate, PlanRequest

SLOWDOWN_P95 = 1.25
"""Cores are added until the 95th percentile of a step is at most so many times that of a lone replica."""
LARGEST = 512


@dataclass(frozen=True, slots=True)
class PaperFigures:
    """What the paper reports: a server with its price, how many replicas share it, and what one alone
    costs."""

    cores: float = 88
    ram_gb: float = 768
    usd_per_day: float = 29.44
    replicas: int = 128
    lone_usd: float = 2.10
    least_usd: float = 0.2
    most_usd: float = 0.3


PAPER = PaperFigures()
"""arXiv 2511.11672 (OSGym), cost analysis: 128 replicas on 88 cores and 768 GB for 29.44 USD a day, 2.10
USD a day for a replica alone, 0.2 to 0.3 USD per replica-day; 128 alone would cost about 300 USD a day,
together about 30."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """K, and USD per replica-day of the machine that K replicas need for their CPU, and for their RAM.

    `type_usd` is what they pay on the whole host; `None` where it does not carry as many.
    """

    replicas: int
    cpu_usd: float
    ram_usd: float
    type_usd: float | None

    @property
    def usd(self) -> float:
        """Price of the machine that is large enough for both."""
        return max(self.cpu_usd, self.ram_usd)


@dataclass(frozen=True, slots=True)
class CostCurve:
    """One curve with what to write beside it.

    `crossing` is the K from which on RAM sizes the machine, if it does in the end. `known` are published
    points as K and USD per replica-day. `most` is what the whole host carries, `why` what binds it.
    """

    title: str
    subtitle: str
    points: tuple[CurvePoint, ...]
    crossing: int | None
    most: int
    most_usd: float
    why: str
    known: tuple[tuple[int, float], ...] = ()


def of_paper(paper: PaperFigures = PAPER, largest: int = LARGEST) -> CostCurve:
    """The paper's figures as a curve: it goes through both of the points that they give.

    RAM per replica follows from the server that 128 fill. The cores of a lone replica follow from what it
    costs at the server's price per core (6.3). That K need √K times as many, because their peaks are
    independent, is
    assumed: the paper gives the ends, not what lies between.
    """
    lone_cores = paper.lone_usd / paper.usd_per_day * paper.cores
    gb = paper.ram_gb / paper.replicas
    points = []
    for k in range(1, largest + 1):
        cpu = lone_cores * math.sqrt(k) / paper.cores * paper.usd_per_day / k
        ram = gb / paper.ram_gb * paper.usd_per_day
        points.append(CurvePoint(k, cpu, ram, paper.usd_per_day / k if k <= paper.replicas else None))
    return CostCurve(
        "The OSGym paper's parameters",
        f"{paper.cores:g} cores and {paper.ram_gb:g} GB for {paper.usd_per_day:.2f} USD a day; "
        f"{gb:g} GB and {lone_cores:.1f}·√K cores for K replicas",
        tuple(points), _crossing(points), paper.replicas, paper.usd_per_day / paper.replicas,
        "RAM is used up", ((1, paper.lone_usd), (paper.replicas, paper.usd_per_day / paper.replicas)),
    )  # fmt: skip


def of_candidate(request: PlanRequest, candidate: Candidate, largest: int = LARGEST) -> CostCurve:
    """Return the same curve for a host type of a plan, from its price, without frames."""
    replica, rules = request.replica, request.rules
    capacity = cpu_capacity(candidate.shape, request.runtime, rules)
    usd = candidate.day.total / request.terms.availability
    points = []
    cores = 1
    for k in range(1, largest + 1):
        cores = needed_cores(request, k, cores)
        gib = rules.reserve_gib + rules.images * replica.shared_gib + k * replica.private_gib
        ram = gib / rules.ram_usable / candidate.shape.ram_gib
        whole = usd / k if k <= candidate.fit.replicas else None
        points.append(CurvePoint(k, cores / capacity * usd / k, ram * usd / k, whole))
    return CostCurve(
        f"{candidate.row.provider} {candidate.row.type}, {shown(candidate.market)}, {candidate.row.region}",
        f"{candidate.shape.vcpu:g} vCPU ({capacity:.1f} cores) and {candidate.shape.ram_gib:g} GiB for "
        f"{candidate.day.total:.2f} USD a day; {replica.private_gib:.2f} GiB each and "
        f"{replica.shared_gib:.2f} shared, {replica.cores:.3f} cores each",
        tuple(points), _crossing(points), candidate.fit.replicas, usd / candidate.fit.replicas,
        _why(candidate.fit.binding),
    )  # fmt: skip


def needed_cores(request: PlanRequest, replicas: int, at_least: int = 1) -> int:
    """Return the fewest cores on which K replicas stay below the target utilisation and the p95."""
    replica = request.replica
    cores = max(at_least, math.ceil(replicas * replica.cores / request.rules.cpu_target - 1e-9))
    if not replica.step_cpu_s:
        return max(1, cores)
    alone = replica.step_cpu_s * math.log(20)
    wanted = request.p95_s if request.p95_s is not None else SLOWDOWN_P95 * alone
    while not queueing.meets(
        cores, replicas, replica.background_cores, replica.work, max(wanted, alone * 1.001)
    ):
        cores += 1
    return cores


def sized_by(points: Sequence[CurvePoint]) -> list[tuple[Resource, int, int]]:
    """Return the resource that sizes the machine, as runs of K: resource, first K, last K."""
    runs: list[tuple[Resource, int, int]] = []
    for point in points:
        what = Resource.RAM if point.ram_usd >= point.cpu_usd else Resource.CPU
        if runs and runs[-1][0] is what:
            runs[-1] = (what, runs[-1][1], point.replicas)
        else:
            runs.append((what, point.replicas, point.replicas))
    return runs


def _crossing(points: Sequence[CurvePoint]) -> int | None:
    """Return the first K from which on RAM always sizes the machine."""
    what, first, _ = sized_by(points)[-1]
    return first if what is Resource.RAM else None


def _why(binding: Resource) -> str:
    match binding:
        case Resource.CAP:
            return "more would be lost with one host"
        case Resource.LATENCY:
            return "more would be slower than wished"
        case _:
            return f"{binding.upper()} is used up"
