"""Planning of a fleet: candidates, cheapest mixes, reasons and sources. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from osgym_infra.catalogue.rows import Catalogue, HostRow, Price, PriceSource, ReferenceRow
from osgym_infra.catalogue.shapes import HostShape, Kvm, Market
from osgym_infra.cost import compare, queueing
from osgym_infra.cost.compare import MixedFleet, shown
from osgym_infra.cost.mix import HostOffer, affordable, cheapest_mix
from osgym_infra.cost.model import (
    LOCAL,
    Fit,
    ReplicaNeeds,
    Rules,
    balanced,
    boots_machines,
    cpu_capacity,
    fit,
)
from osgym_infra.cost.price import DAYS_PER_MONTH, CostAssumptions, HostDay, host_day, replica_day
from osgym_infra.errors import BadInput, CannotMeet


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Request for a plan. Empty tuples mean: any.

    Attributes:
        p95_s: The longest a step's CPU work may take, sharing of cores included, at the 95th percentile.
        spot_low: Plan spot at the low end of its price range instead of the high one.
        allow_unknown_kvm: Take types on which nobody has confirmed KVM, for the qemu runtime.
        emulated: Replicas are machines that no KVM runs: any host carries them, at the CPU of a profile that
            was measured so.
    """

    replicas: int
    replica: ReplicaNeeds
    runtime: str = LOCAL
    rules: Rules = field(default_factory=Rules)
    terms: CostAssumptions = field(default_factory=CostAssumptions)
    p95_s: float | None = None
    budget_usd_per_day: float | None = None
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    markets: tuple[Market, ...] = ()
    types: tuple[str, ...] = ()
    spot_low: bool = False
    allow_unknown_kvm: bool = False
    emulated: bool = False
    max_hosts: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise BadInput("replicas", f"{self.replicas} replicas", "1 or more")
        if self.budget_usd_per_day is not None and self.budget_usd_per_day <= 0:
            raise BadInput("budget_usd_per_day", f"{self.budget_usd_per_day} USD", "above 0")
        if self.p95_s is not None and self.p95_s <= 0:
            raise BadInput("p95_ms", f"{self.p95_s * 1000} ms", "above 0")


@dataclass(frozen=True, slots=True)
class Candidate:
    """Host type in one market, and a fleet of nothing else.

    `load` is `None` where a step needs no CPU or the host idles itself full. `usd_per_replica_day` is of the
    whole fleet of `hosts`, the last of which may be partly empty. `reclaimed_share` is the part of rests in
    which memory is reclaimed.
    """

    row: HostRow
    shape: HostShape
    market: Market
    price: Price
    fit: Fit
    load: queueing.CpuLoad | None
    day: HostDay
    volume_gib: float
    hosts: int
    usd_per_day: float
    usd_per_replica_day: float
    reclaimed_share: float = 0.0

    @property
    def name(self) -> str:
        """Unique name: `provider/region/type/market`."""
        return f"{self.row.provider}/{self.row.region}/{self.row.type}/{self.market}"


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """All candidates, cheapest first; the cheapest mix for each region and market; notes and sources.

    `compared` are the cheapest mixes of all markets where the best fleet is, those that were not asked for
    included. `warnings` say what costs more than it need.
    """

    request: PlanRequest
    candidates: tuple[Candidate, ...]
    fleets: tuple[MixedFleet, ...]
    references: tuple[ReferenceRow, ...]
    notes: tuple[str, ...]
    sources: tuple[PriceSource, ...]
    compared: tuple[MixedFleet, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def best(self) -> MixedFleet:
        """Cheapest fleet of all."""
        return self.fleets[0]


def plan_fleet(
    request: PlanRequest, catalogue: Catalogue, extra_sources: Iterable[PriceSource] = ()
) -> FleetPlan:
    """Plan.

    Args:
        catalogue: Priced in USD (`Catalogue.in_usd`).

    Raises:
        BadInput: A type, region, provider or market cannot be served at all, or the replica is larger than
            any host.
        CannotMeet: The budget or the latency is out of reach, with what would do.
    """
    rows = select(request, catalogue)
    every = []
    for row, shape in rows:
        for market in Market:
            if market in row.prices:
                found = candidate(request, catalogue, row, shape, market)
                if found is not None:
                    every.append(found)
    candidates = [c for c in every if not request.markets or c.market in request.markets]
    if not candidates:
        raise _nothing_fits(request, [shape for _, shape in rows])
    candidates.sort(key=lambda c: (c.usd_per_replica_day, c.name))
    fleets = _fleets(request, catalogue, candidates)
    compared = compare.same_place(fleets[0], _fleets(request, catalogue, every))
    _check_budget(request, catalogue, candidates, fleets, compared)
    used = [c.price.source for c in candidates] + list(extra_sources)
    return FleetPlan(
        request, tuple(candidates), fleets, catalogue.references,
        tuple(_notes(request, catalogue, [row for row, _ in rows], candidates, fleets[0])),
        tuple(dict.fromkeys(used)), compared, tuple(compare.dearer_than_need_be(fleets[0], compared)),
    )  # fmt: skip


def select(request: PlanRequest, catalogue: Catalogue) -> list[tuple[HostRow, HostShape]]:
    """Return the rows that the request admits.

    Raises:
        BadInput: Names the field that leaves nothing, and what there is.
    """
    rows = list(catalogue.hosts)
    for name, wanted in (
        ("provider", request.providers),
        ("region", request.regions),
        ("type", request.types),
    ):
        there = sorted({getattr(row, name) for row in rows})
        for one in wanted:
            if one not in there:
                raise BadInput(name, f"the catalogue has no prices for {one!r}", f"It has {', '.join(there)}")
        if wanted:
            rows = [row for row in rows if getattr(row, name) in wanted]
    if request.markets and not any(m in row.prices for row in rows for m in request.markets):
        there = sorted({m.value for row in rows for m in row.prices})
        raise BadInput(
            "market",
            f"no price is known for {', '.join(request.markets)} there",
            f"Known: {', '.join(there)}",
        )
    rows = _with_kvm(request, rows)
    sized = [(row, shape) for row in rows if (shape := row.shape()) is not None]
    if not sized:
        raise BadInput("type", "the memory of these types is unknown", "Name another type")
    return sized


def _with_kvm(request: PlanRequest, rows: list[HostRow]) -> list[HostRow]:
    if not boots_machines(request.runtime) or request.emulated:
        return rows
    good = {Kvm.METAL, Kvm.NESTED} | ({Kvm.UNKNOWN} if request.allow_unknown_kvm else set())
    able = [row for row in rows if row.kvm in good]
    if request.types:
        for row in rows:
            if row not in able:
                unsure = row.kvm is Kvm.UNKNOWN
                raise BadInput(
                    "type",
                    f"{row.type} "
                    + ("may not run KVM (unconfirmed)" if unsure else "does not run KVM")
                    + f", which the {request.runtime} runtime needs",
                    "allow_unknown_kvm includes it" if unsure
                    else "Another type, or runtime local",
                )  # fmt: skip
    if not able:
        raise BadInput("runtime", "none of these types runs KVM", "Other types, or runtime local")
    return able


def candidate(
    request: PlanRequest, catalogue: Catalogue, row: HostRow, shape: HostShape, market: Market
) -> Candidate | None:
    """Return one type in one market, or `None` when it carries no replica."""
    rules = request.rules
    replica = balanced(shape, request.replica, request.runtime, rules)
    capacity = cpu_capacity(shape, request.runtime, rules)
    limit = None
    if request.p95_s is not None:
        try:
            limit = queueing.largest_k(
                capacity, replica.background_cores, replica.work, request.p95_s, rules.max_replicas
            )
        except CannotMeet:
            limit = 0
    found = fit(shape, replica, request.runtime, rules, limit)
    if not found.replicas:
        return None
    price = row.prices[market]
    volume_gib, volume_usd = _volume(request, catalogue, row, found.replicas)
    ip = catalogue.network_figure(row.provider, row.region, "ip_usd_per_hour").usd
    usd_per_hour = price.low if market is Market.SPOT and request.spot_low else price.high
    day = host_day(usd_per_hour, market, request.terms, volume_usd, ip)
    hosts = math.ceil(request.replicas / found.replicas)
    if (quota := request.max_hosts.get(row.type)) is not None and hosts > quota:
        hosts = 0  # not alone; it may still be part of a mix
    frames = frames_usd(request, catalogue, row, market)
    usd = hosts * day.total + request.replicas * frames
    each = replica_day(day.total * hosts, request.replicas, frames, request.terms.availability)
    return Candidate(
        row, shape, market, price, found, step_load(replica, capacity, found.replicas), day, volume_gib,
        hosts, usd if hosts else math.inf, each if hosts else math.inf,
        replica.rest.reclaimed_share if replica.rest else 0.0,
    )  # fmt: skip


def step_load(replica: ReplicaNeeds, capacity: float, replicas: int) -> queueing.CpuLoad | None:
    """Return the queue at the planned K."""
    if not replica.step_cpu_s:
        return None
    at = queueing.station(capacity, replicas, replica.background_cores, replica.work)
    return queueing.load(at.servers, replicas, at.work) if at else None


def frames_usd(request: PlanRequest, catalogue: Catalogue, row: HostRow, market: Market) -> float:
    """Return G·p of one replica-day; 0 on dedicated machines, whose price includes their traffic."""
    if market is Market.DEDICATED:
        return 0.0
    per_gb = compare.frames_usd_per_gb(catalogue, row.provider, row.region, request.terms)
    return request.replica.egress_gb_per_day * per_gb


def _volume(request: PlanRequest, catalogue: Catalogue, row: HostRow, replicas: int) -> tuple[float, float]:
    """Return size in GiB and USD per day of the network volume of a host without disks of its own."""
    if row.nvme_gb:
        return 0.0, 0.0
    gib = (request.rules.base_disk_gib + replicas * request.replica.overlay_gib) / request.rules.disk_usable
    return gib, gib * catalogue.storage_figure(row.provider, row.region).usd / DAYS_PER_MONTH


def choices(request: PlanRequest, catalogue: Catalogue, candidates: Iterable[Candidate]) -> list[HostOffer]:
    """Return the candidates in the form of the search."""
    return [
        HostOffer(
            c.name, c.fit.replicas, c.day.total, frames_usd(request, catalogue, c.row, c.market),
            request.max_hosts.get(c.row.type),
        )
        for c in candidates
    ]  # fmt: skip


def _fleets(
    request: PlanRequest, catalogue: Catalogue, candidates: list[Candidate]
) -> tuple[MixedFleet, ...]:
    groups: dict[tuple[str, str, Market], list[Candidate]] = {}
    for one in candidates:
        groups.setdefault((one.row.provider, one.row.region, one.market), []).append(one)
    fleets, failed = [], None
    for (provider, region, market), members in groups.items():
        try:
            mix = cheapest_mix(choices(request, catalogue, members), request.replicas)
        except CannotMeet as error:
            failed = error
            continue
        each = mix.usd_per_day / request.replicas / request.terms.availability
        fleets.append(MixedFleet(provider, region, market, mix, each))
    if not fleets:
        assert failed is not None
        raise failed
    return tuple(sorted(fleets, key=lambda f: (f.usd_per_replica_day, f.provider, f.region, f.market)))


def _check_budget(
    request: PlanRequest, catalogue: Catalogue, candidates: list[Candidate], fleets: tuple[MixedFleet, ...],
    compared: tuple[MixedFleet, ...],
) -> None:  # fmt: skip
    budget, best = request.budget_usd_per_day, fleets[0]
    if budget is None or best.mix.usd_per_day <= budget:
        return
    group = [
        c for c in candidates
        if (c.row.provider, c.row.region, c.market) == (best.provider, best.region, best.market)
    ]  # fmt: skip
    count = affordable(choices(request, catalogue, group), budget, request.replicas)
    other = compared[0]
    cheaper = (
        f"{shown(other.market)} there costs {other.mix.usd_per_day:,.2f}, "
        if other.mix.usd_per_day < best.mix.usd_per_day
        else ""
    )
    raise CannotMeet(
        "budget_usd_per_day",
        f"{request.replicas} replicas cost at least {best.mix.usd_per_day:.2f} USD a day "
        f"({best.provider} {best.region}, {shown(best.market)}), not {budget:.2f}",
        f"{cheaper}{math.ceil(best.mix.usd_per_day * 100) / 100:.2f} USD a day would do, "
        f"or {count} replicas for this budget",
        {"usd_per_day": best.mix.usd_per_day, "affordable_replicas": count},
    )


def _nothing_fits(request: PlanRequest, shapes: list[HostShape]) -> Exception:
    replica, rules = request.replica, request.rules
    largest = max(shapes, key=lambda shape: shape.ram_gib)
    room = rules.ram_usable * largest.ram_gib - rules.reserve_gib
    need = replica.working_set_gib + replica.overhead_gib
    if need > room:
        return BadInput(
            "replica_ram_gib",
            f"a replica of {need:.1f} GiB is larger than any host",
            f"At most {room:.1f} GiB fits ({largest.name}, {largest.ram_gib:.0f} GiB)",
        )
    most = max(shapes, key=lambda shape: shape.vcpu)
    cores = rules.cpu_target * cpu_capacity(most, request.runtime, rules)
    if replica.cores > cores:
        return BadInput(
            "step_cpu_s",
            f"a replica that uses {replica.cores:.2f} cores is more than any host gives",
            f"At most {cores:.2f} cores fit ({most.name})",
        )
    if request.p95_s is not None:
        least = math.log(20) * replica.step_cpu_s
        return CannotMeet(
            "p95_ms",
            f"{request.p95_s * 1000:.0f} ms is less than one replica alone needs",
            f"{math.ceil(least * 1000)} ms or more would do",
            {"least_ms": least * 1000},
        )
    return BadInput("overlay_gib", "no host's disk can hold a single replica", "Set a smaller overlay_gib")


def _notes(
    request: PlanRequest, catalogue: Catalogue, rows: list[HostRow], candidates: list[Candidate],
    best: MixedFleet,
) -> list[str]:  # fmt: skip
    clouds = [c for c in candidates if c.market is not Market.DEDICATED]
    places = dict.fromkeys((c.row.provider, c.row.region) for c in clouds)
    return [
        *compare.on_frames(request.replica, best, catalogue, request.terms),
        *compare.on_threads((c.row for c in candidates), request.rules.thread_efficiency),
        *compare.on_interruptions(best, request.terms),
        *compare.borrowed(places, catalogue, request.terms, any(c.volume_gib for c in clouds)),
        *compare.without_a_price(rows, catalogue),
    ]
