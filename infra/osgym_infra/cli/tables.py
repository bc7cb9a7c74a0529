"""Answers of the planner: tables for people, JSON for programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from osgym_infra.cost.compare import MixedFleet, shown
from osgym_infra.cost.model import ReplicaNeeds, Resource
from osgym_infra.cost.planner import Candidate, FleetPlan
from osgym_infra.workloads.profile import Bound, Parameter, Profile

WIDTH = 150


def columns(*names: str, no_wrap: bool = False) -> Table:
    """Return an empty table; a name that begins with `>` aligns its column to the right."""
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name.lstrip(">"), justify="right" if name[0] == ">" else "left", no_wrap=no_wrap)
    return table


def show(
    found: FleetPlan, measured: Profile, lines: Sequence[str], warnings: Sequence[str], top: int
) -> None:
    request, replica = found.request, found.request.replica
    console = Console(width=max(WIDTH, Console().width), highlight=False)
    click.echo(
        f"{request.replicas} replicas, runtime {request.runtime}: {_replica_line(replica)}\n"
        f"workload {measured.workload}, measured {measured.measured_on} on {measured.machine}\n"
    )
    table = columns(
        "PROVIDER", "TYPE", "MARKET", ">USD/h", ">K", ">HOSTS", "BINDS", "IDLE", ">STEP p95 ms",
        ">RESET p95 ms", ">USD/day", ">USD/REPLICA-DAY", no_wrap=True,
    )  # fmt: skip
    for one in _best_of_each(found.candidates, top):
        table.add_row(
            one.row.provider, one.row.type, one.market.replace("_", "-"), _price(one), str(one.fit.replicas),
            str(one.hosts) if one.hosts else "-", one.fit.binding, _stranded(one),
            f"{one.load.p95_s * 1000:.0f}" if one.load else "-",
            f"{one.load.reset_p95_s * 1000:.0f}" if one.load and one.load.reset_p95_s else "-",
            _usd(one.usd_per_day, 0), _usd(one.usd_per_replica_day, 3),
        )  # fmt: skip
    console.print(table)
    for reference in found.references:
        click.echo(f"{_usd(reference.usd_per_replica_day, 3):>9}  {reference.name} (for comparison)")
    click.echo("\ncheapest mix")
    for fleet in found.fleets:
        click.echo(f"  {_fleet_line(fleet)}")
    click.echo(f"\nmarkets in {found.best.provider} {found.best.region}")
    for fleet in found.compared:
        click.echo(f"  {_fleet_line(fleet)}")
    click.echo(f"\n{_sentence(found)}")
    for note in found.notes:
        click.echo(f"note: {note}")
    click.echo("prices and profile\n" + "\n".join(f"  {line}" for line in lines))
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def to_dict(
    found: FleetPlan, measured: Profile, lines: Sequence[str], warnings: Sequence[str]
) -> dict[str, Any]:
    """Return the answer for programs: figures are not rounded, unknown ones are `null`."""
    request = found.request
    return {
        "replicas": request.replicas,
        "runtime": request.runtime,
        "workload": {"id": measured.workload, "measured_on": measured.measured_on.isoformat()},
        "replica": {
            name: getattr(request.replica, name)
            for name in (
                "working_set_gib",
                "shared_fraction",
                "overhead_gib",
                "private_gib",
                "idle_cores",
                "step_cpu_s",
                "reset_cpu_s",
                "steps_per_episode",
                "think_s",
                "cores",
                "overlay_gib",
                "frame_mb",
                "egress_gb_per_day",
            )
        },
        "rest": asdict(request.replica.rest) if request.replica.rest else None,
        "best": _fleet_dict(found.best),
        "fleets": [_fleet_dict(fleet) for fleet in found.fleets],
        "markets": [_fleet_dict(fleet) for fleet in found.compared],
        "candidates": [_candidate_dict(one) for one in found.candidates],
        "references": [
            {"name": r.name, "usd_per_replica_day": r.usd_per_replica_day, "note": r.note}
            for r in found.references
        ],
        "notes": list(found.notes),
        "sources": [
            {"title": s.title, "as_of": s.as_of.isoformat() if s.as_of else None, "url": s.url}
            for s in found.sources
        ],
        "as_of": list(lines),
        "warnings": list(warnings),
    }


def profile_table(measured: Profile) -> Table:
    """Return a table of a profile's parameters with their intervals."""
    table = columns("PARAMETER", ">VALUE", ">95 % FROM", ">TO", ">n", ">PLANNED", "HOW")
    for parameter in Parameter:
        if row := measured.parameters.get(parameter):
            planned = f"{measured.value(parameter, Bound.PESSIMISTIC):.4g}"
            if parameter is Parameter.SHARED_FRACTION:
                planned = f"{measured.replica().shared_fraction:.4g}"
            table.add_row(
                parameter.value, f"{row.value:.4g}", f"{row.low:.4g}", f"{row.high:.4g}", str(row.n),
                planned, row.how,
            )  # fmt: skip
    return table


def _replica_line(replica: ReplicaNeeds) -> str:
    if replica.rest is not None:
        rest = replica.rest
        return (
            f"{_replica_line(replace(replica, rest=None))}; at rest {rest.resting_gib * 1024:.0f} MiB, and "
            f"{rest.wake_cpu_s:.2f} CPU-s more per step after a reclaim"
        )
    return (
        f"{replica.private_gib * 1024:.0f} MiB each, {replica.shared_gib * 1024:.0f} MiB shared; "
        f"{replica.step_cpu_s:.3f} CPU-s per step every {replica.cycle_s:.1f} s, {replica.reset_cpu_s:.2f} "
        f"per reset every {replica.steps_per_episode:.1f} steps, {replica.cores:.3f} cores"
    )


def _best_of_each(candidates: Iterable[Candidate], top: int) -> list[Candidate]:
    shown: dict[tuple[str, str], int] = {}
    rows = []
    for one in candidates:
        group = (one.row.provider, one.market)
        shown[group] = shown.get(group, 0) + 1
        if shown[group] <= top:
            rows.append(one)
    return rows


def _price(one: Candidate) -> str:
    low, high = one.price.low, one.price.high
    return f"{high:.2f}" if low == high else f"{low:.2f}–{high:.2f}"


def _stranded(one: Candidate) -> str:
    parts = [
        f"{name} {left:.0%}"
        for name, left in one.fit.stranded.items()
        if name in (Resource.CPU, Resource.RAM) and left >= 0.005
    ]
    return ", ".join(parts) or "-"


def _usd(value: float, digits: int) -> str:
    return "-" if math.isinf(value) else f"{value:,.{digits}f}"


def _fleet_line(fleet: MixedFleet) -> str:
    return (
        f"{fleet.provider} {fleet.region}, {shown(fleet.market)}: {fleet.hosts} for "
        f"{fleet.mix.usd_per_day:,.2f} USD a day, {fleet.usd_per_replica_day:.4f} per replica-day"
    )


def _sentence(found: FleetPlan) -> str:
    best, request = found.best, found.request
    budget = f" (budget {request.budget_usd_per_day:,.2f})" if request.budget_usd_per_day is not None else ""
    return (
        f"Cheapest: {best.usd_per_replica_day:.4f} USD per replica-day, {best.mix.usd_per_day:,.2f} USD a day"
        f"{budget} for {request.replicas} replicas, with {best.provider} {best.region}, "
        f"{shown(best.market)}."
    )


def _fleet_dict(fleet: MixedFleet) -> dict[str, Any]:
    return {
        "provider": fleet.provider,
        "region": fleet.region,
        "market": fleet.market.value,
        "hosts": {name.split("/")[2]: count for name, count in fleet.mix.hosts.items()},
        "placed": {name.split("/")[2]: count for name, count in fleet.mix.placed.items()},
        "capacity": fleet.mix.capacity,
        "usd_per_day": fleet.mix.usd_per_day,
        "usd_per_replica_day": fleet.usd_per_replica_day,
    }


def _candidate_dict(one: Candidate) -> dict[str, Any]:
    return {
        "provider": one.row.provider,
        "region": one.row.region,
        "type": one.row.type,
        "market": one.market.value,
        "kvm": one.row.kvm.value,
        "vcpu": one.row.vcpu,
        "ram_gib": one.row.ram_gib,
        "usd_per_hour": {"low": one.price.low, "high": one.price.high},
        "price_as_of": one.price.source.as_of.isoformat() if one.price.source.as_of else None,
        "replicas_per_host": one.fit.replicas,
        "binding": one.fit.binding.value,
        "limits": {name.value: value for name, value in one.fit.limits.items()},
        "stranded": {name.value: value for name, value in one.fit.stranded.items()},
        "step_p95_ms": one.load.p95_s * 1000 if one.load else None,
        "reset_p95_ms": one.load.reset_p95_s * 1000 if one.load and one.load.reset_p95_s else None,
        "step_slowdown": one.load.slowdown if one.load else None,
        "reclaimed_share": one.reclaimed_share,
        "hosts": one.hosts or None,
        "usd_per_day": None if math.isinf(one.usd_per_day) else one.usd_per_day,
        "usd_per_replica_day": None if math.isinf(one.usd_per_replica_day) else one.usd_per_replica_day,
    }
