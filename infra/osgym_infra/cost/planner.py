"""From what a user asks for to a plan: candidates, cheapest mixes, reasons and sources. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from osgym_infra.catalogue.rows import Catalogue, HostRow, Price, PriceSource, ReferenceRow
from osgym_infra.cost import queueing
from osgym_infra.cost.mix import HostOffer, Mix, affordable, cheapest_mix
from osgym_infra.cost.model import Fit, HostShape, Kvm, ReplicaNeeds, Rules, cpu_capacity, fit
from osgym_infra.cost.price import CostAssumptions, HostDay, Market, host_day, replica_day, volume_usd_per_day
from osgym_infra.errors import BadInput, CannotMeet
from osgym_protocol.runtimes import RuntimeName


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is wanted. Empty tuples mean: any.

    Attributes:
        p95_s: the longest a step's CPU work may take, waiting for a core included, at the 95th percentile.
        spot_low: plan spot at the low end of its price range instead of the high one.
        allow_unknown_kvm: take types on which nobody has confirmed KVM, for the qemu runtime.
        max_hosts: how many hosts of a type are to be had (a quota), by type.
    """

    replicas: int
    replica: ReplicaNeeds
    runtime: RuntimeName = RuntimeName.LOCAL
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
    """One host type in one market, and a fleet of nothing else.

    `load` is `None` where a step needs no CPU or the host idles itself full. `usd_per_replica_day` is of the
    whole fleet of `hosts`, the last of which may be partly empty.
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

    @property
    def name(self) -> str:
        """`provider/region/type/market`: unique."""
        return f"{self.row.provider}/{self.row.region}/{self.row.type}/{self.market}"


@dataclass(frozen=True, slots=True)
class MixedFleet:
    """The cheapest fleet of one provider's region and market, of whatever types."""

    provider: str
    region: str
    market: Market
    mix: Mix
    usd_per_replica_day: float


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """All candidates, cheapest first; the cheapest mix for each region and market; notes and sources."""

    request: PlanRequest
    candidates: tuple[Candidate, ...]
    fleets: tuple[MixedFleet, ...]
    references: tuple[ReferenceRow, ...]
    notes: tuple[str, ...]
    sources: tuple[PriceSource, ...]

    @property
    def best(self) -> MixedFleet:
        """The cheapest fleet of all."""
        return self.fleets[0]


def plan_fleet(
    request: PlanRequest, catalogue: Catalogue, extra_sources: Iterable[PriceSource] = ()
) -> FleetPlan:
    """Plan.

    Args:
        catalogue: priced in USD (`Catalogue.in_usd`).
        extra_sources: what else the answer rests on, e.g. the workload profile.

    Raises:
        BadInput: a type, region, provider or market cannot be served at all, or the replica is larger than
            any host.
        CannotMeet: the budget or the latency is out of reach, with what would do.
    """
    rows = select(request, catalogue)
    notes: list[str] = []
    candidates = []
    for row, shape in rows:
        for market in Market:
            if market in row.prices and (not request.markets or market in request.markets):
                found = candidate(request, catalogue, row, shape, market)
                if found is not None:
                    candidates.append(found)
    if not candidates:
        raise _nothing_fits(request, [shape for _, shape in rows])
    candidates.sort(key=lambda c: (c.usd_per_replica_day, c.name))
    fleets = _fleets(request, catalogue, candidates)
    _check_budget(request, catalogue, candidates, fleets)
    notes += _notes(request, catalogue, candidates)
    used = [c.price.source for c in candidates] + list(extra_sources)
    return FleetPlan(
        request, tuple(candidates), fleets, catalogue.references, tuple(notes), tuple(dict.fromkeys(used))
    )


def select(request: PlanRequest, catalogue: Catalogue) -> list[tuple[HostRow, HostShape]]:
    """The rows that may be asked for at all.

    Raises:
        BadInput: names the field that leaves nothing, and what there is.
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
        raise BadInput("type", "the memory of none of these is known", "name another type")
    return sized


def _with_kvm(request: PlanRequest, rows: list[HostRow]) -> list[HostRow]:
    if not request.runtime.boots_machines:
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
                    "allow_unknown_kvm takes it" if unsure
                    else "Another type, or runtime local",
                )  # fmt: skip
    if not able:
        raise BadInput("runtime", "none of these types runs KVM", "Other types, or runtime local")
    return able


def candidate(
    request: PlanRequest, catalogue: Catalogue, row: HostRow, shape: HostShape, market: Market
) -> Candidate | None:
    """One type in one market, or `None` when it does not carry a single replica."""
    replica, rules = request.replica, request.rules
    capacity = cpu_capacity(shape, request.runtime, rules)
    limit = None
    if request.p95_s is not None:
        try:
            limit = queueing.largest_k(
                capacity, replica.idle_cores, replica.step_cpu_s, replica.think_s, request.p95_s,
                rules.max_replicas,
            )  # fmt: skip
        except CannotMeet:
            limit = 0
    found = fit(shape, replica, request.runtime, rules, limit)
    if not found.replicas:
        return None
    price = row.prices[market]
    volume_gib, volume_usd = _volume(request, catalogue, row, found.replicas)
    network = catalogue.network_of(row.provider, row.region)
    ip = network.ip_usd_per_hour if network and network.ip_usd_per_hour else 0.0
    usd_per_hour = price.low if market is Market.SPOT and request.spot_low else price.high
    day = host_day(usd_per_hour, market, request.terms, volume_usd, ip)
    hosts = math.ceil(request.replicas / found.replicas)
    if (quota := request.max_hosts.get(row.type)) is not None and hosts > quota:
        hosts = 0  # not alone; it may still be part of a mix
    usd = hosts * day.total + request.replicas * egress_usd(request, catalogue, row)
    shown = replica_day(day.total * hosts, request.replicas, egress_usd(request, catalogue, row),
                        request.terms.availability) if hosts else math.inf  # fmt: skip
    return Candidate(
        row, shape, market, price, found, step_load(request, capacity, found.replicas), day, volume_gib,
        hosts, usd if hosts else math.inf, shown,
    )  # fmt: skip


def step_load(request: PlanRequest, capacity: float, replicas: int) -> queueing.CpuLoad | None:
    """The queue at the planned K."""
    replica = request.replica
    if not replica.step_cpu_s:
        return None
    at = queueing.station(capacity, replicas, replica.idle_cores, replica.step_cpu_s)
    return queueing.load(at.servers, replicas, at.service_s, replica.think_s) if at else None


def egress_usd(request: PlanRequest, catalogue: Catalogue, row: HostRow) -> float:
    """G·p of one replica-day; 0 when the trainer is in the same region, or the price is unknown (noted)."""
    network = catalogue.network_of(row.provider, row.region)
    if not request.terms.egress_to_internet or network is None or network.egress_usd_per_gb is None:
        return 0.0
    return request.replica.egress_gb_per_day * network.egress_usd_per_gb


def _volume(request: PlanRequest, catalogue: Catalogue, row: HostRow, replicas: int) -> tuple[float, float]:
    """Size in GiB and USD per day of the network volume of a host without disks of its own."""
    if row.nvme_gb:
        return 0.0, 0.0
    gib = (request.rules.base_disk_gib + replicas * request.replica.overlay_gib) / request.rules.disk_usable
    storage = catalogue.storage_of(row.provider, row.region)
    return gib, volume_usd_per_day(gib, storage.usd_per_gib_month) if storage else 0.0


def choices(request: PlanRequest, catalogue: Catalogue, candidates: Iterable[Candidate]) -> list[HostOffer]:
    """The candidates as the search takes them."""
    return [
        HostOffer(
            c.name, c.fit.replicas, c.day.total, egress_usd(request, catalogue, c.row),
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
    request: PlanRequest, catalogue: Catalogue, candidates: list[Candidate], fleets: tuple[MixedFleet, ...]
) -> None:
    budget, best = request.budget_usd_per_day, fleets[0]
    if budget is None or best.mix.usd_per_day <= budget:
        return
    group = [
        c for c in candidates
        if (c.row.provider, c.row.region, c.market) == (best.provider, best.region, best.market)
    ]  # fmt: skip
    count = affordable(choices(request, catalogue, group), budget, request.replicas)
    raise CannotMeet(
        "budget_usd_per_day",
        f"{request.replicas} replicas cost at least {best.mix.usd_per_day:.2f} USD a day "
        f"({best.provider} {best.region}, {best.market}), not {budget:.2f}",
        f"{math.ceil(best.mix.usd_per_day * 100) / 100:.2f} USD a day would do, "
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
    return BadInput("overlay_gib", "no host's disk holds even one replica", "a smaller overlay_gib")


def _notes(request: PlanRequest, catalogue: Catalogue, candidates: list[Candidate]) -> list[str]:
    notes = []
    replica = request.replica
    if replica.egress_gb_per_day and not request.terms.egress_to_internet:
        priced = [n for n in catalogue.network if n.egress_usd_per_gb]
        if priced:
            usd = replica.egress_gb_per_day * (priced[0].egress_usd_per_gb or 0)
            notes.append(
                f"frames ({replica.egress_gb_per_day:.2f} GB per replica-day) stay in the region; to the "
                f"internet they would add about {usd:.2f} USD per replica-day ({priced[0].provider})"
            )
    regions = sorted({(c.row.provider, c.row.region) for c in candidates})
    for provider, region in regions:
        mine = [c for c in candidates if (c.row.provider, c.row.region) == (provider, region)]
        network = catalogue.network_of(provider, region)
        on_cloud = any(c.market is not Market.DEDICATED for c in mine)
        if on_cloud and request.terms.egress_to_internet and not (network and network.egress_usd_per_gb):
            notes.append(f"{provider} {region}: the price of egress is unknown and counted as 0")
        if on_cloud and request.terms.public_ip and not (network and network.ip_usd_per_hour):
            notes.append(f"{provider} {region}: the price of a public address is unknown and counted as 0")
        if any(c.volume_gib for c in mine) and catalogue.storage_of(provider, region) is None:
            notes.append(f"{provider} {region}: the price of a volume is unknown and counted as 0")
    return notes
