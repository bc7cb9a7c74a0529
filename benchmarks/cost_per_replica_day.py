"""Cost of a measured profile by the catalogue: USD per replica-day and per thousand trajectories.

    python -m benchmarks.cost_per_replica_day
    python -m benchmarks.cost_per_replica_day --replicas 1024 --profile office.json --runtime qemu

For each provider and market it plans three times: with the costly ends of all measured intervals and of spot
price ranges, with the means, and with the cheap ends. The first is the figure; the others are its interval.
Nothing is measured here: profiles come from `osgym fleet fit`, prices from the catalogue with their dates.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.common import argument_parser, machine, save
from osgym_infra.catalogue.ages import age_lines
from osgym_infra.catalogue.load import load
from osgym_infra.catalogue.rows import Catalogue
from osgym_infra.catalogue.shapes import Market
from osgym_infra.cost.compare import MixedFleet
from osgym_infra.cost.model import LOCAL, QEMU, Rules
from osgym_infra.cost.planner import FleetPlan, PlanRequest, plan_fleet
from osgym_infra.cost.price import CostAssumptions, FramesTo, per_thousand_trajectories
from osgym_infra.errors import CannotMeet
from osgym_infra.workloads import profile as profiles
from osgym_infra.workloads.profile import Bound, Parameter, Profile

GOAL_USD = 0.10
"""Goal: USD per replica-day at 1,024 replicas on at least one spot or dedicated choice."""


def plan(options: argparse.Namespace, measured: Profile, catalogue: Catalogue, bound: Bound) -> FleetPlan:
    """Return a plan over everything, at one end of the intervals."""
    replica = measured.replica(bound)
    if options.think_s is not None:
        replica = replace(replica, think_s=options.think_s)
    request = PlanRequest(
        replicas=options.replicas,
        replica=replica,
        runtime=options.runtime or measured.runtime,
        rules=Rules(max_replicas=options.max_replicas_per_host),
        terms=CostAssumptions(private=options.egress == "zone", frames_to=FramesTo(options.egress)),
        spot_low=bound is Bound.OPTIMISTIC,
        allow_unknown_kvm=options.allow_unknown_kvm,
    )
    return plan_fleet(request, catalogue, [measured.source()])


def trajectory_s(options: argparse.Namespace, measured: Profile, bound: Bound) -> float:
    """Return the seconds of one replica per trajectory, at the planned pace."""
    if options.think_s is None and Parameter.TRAJECTORY_S in measured.parameters:
        # The longer, the fewer a day.
        return measured.value(Parameter.TRAJECTORY_S, bound)
    steps = measured.parameters[Parameter.STEPS_PER_EPISODE].at(bound, less_is_worse=False)
    return steps * replace(measured.replica(bound), think_s=options.think_s or 0.0).cycle_s


def row(
    fleet: MixedFleet, answers: dict[Bound, FleetPlan], options: argparse.Namespace, measured: Profile
) -> dict[str, Any]:
    """Return a row of the table: the costly figure, its interval, hosts, and the bound on each type."""

    def same(found: FleetPlan) -> MixedFleet:
        key = (fleet.provider, fleet.region, fleet.market)
        return next(f for f in found.fleets if (f.provider, f.region, f.market) == key)

    usd = {bound: same(found).usd_per_replica_day for bound, found in answers.items()}
    candidates = {one.name: one for one in answers[Bound.PESSIMISTIC].candidates}
    used = [candidates[name] for name in fleet.mix.hosts]
    return {
        "provider": fleet.provider,
        "region": fleet.region,
        "market": fleet.market.value,
        "hosts": {one.row.type: fleet.mix.hosts[one.name] for one in used},
        "kvm": sorted({one.row.kvm.value for one in used}),
        "replicas_per_host": {one.row.type: one.fit.replicas for one in used},
        "binding": {one.row.type: one.fit.binding.value for one in used},
        "stranded": {one.row.type: {k.value: v for k, v in one.fit.stranded.items()} for one in used},
        "step_slowdown": {one.row.type: one.load.slowdown if one.load else None for one in used},
        "usd_per_day": fleet.mix.usd_per_day,
        "usd_per_replica_day": {bound.value: value for bound, value in usd.items()},
        "usd_per_thousand_trajectories": {
            bound.value: per_thousand_trajectories(value, trajectory_s(options, measured, bound))
            for bound, value in usd.items()
        },
    }


def show(rows: list[dict[str, Any]], references: list[dict[str, Any]], options: argparse.Namespace) -> None:
    print(f"{'':34}{'USD per replica-day':^32}{'USD per 1,000 trajectories':^30}")
    columns = f"{'planned':>9}{'mean':>9}{'best':>9}      {'planned':>8}{'mean':>8}{'best':>8}"
    print(f"{'provider, market':34}{columns}  hosts")
    for one in rows:
        each, thousand = one["usd_per_replica_day"], one["usd_per_thousand_trajectories"]
        hosts = " + ".join(
            f"{count} × {name} (K {one['replicas_per_host'][name]}, {one['binding'][name]})"
            for name, count in one["hosts"].items()
        )
        name = f"{one['provider']} {one['region']}, {one['market'].replace('_', '-')}"
        print(
            f"{name:34}"
            + "".join(f"{each[bound.value]:9.4f}" for bound in Bound)
            + "      "
            + "".join(f"{thousand[bound.value]:8.4f}" for bound in Bound)
            + f"  {hosts}"
        )
    for one in references:
        print(f"{'for comparison':34}{one['usd_per_replica_day']:9.4f}  {one['name']}")


def arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("--replicas", type=int, default=1024, help="replicas at the same time (1024)")
    parser.add_argument("--profile", default="", help="a profile (that of the runtime)")
    parser.add_argument("--runtime", choices=[LOCAL, QEMU], help="default: that of the profile")
    parser.add_argument("--think-s", type=float, help="another pace of the policy than the measured one")
    parser.add_argument("--egress", choices=[to.value for to in FramesTo], default="zone")
    parser.add_argument("--max-replicas-per-host", type=int, default=Rules().max_replicas)
    parser.add_argument("--allow-unknown-kvm", action="store_true")
    parser.add_argument("--catalogue", type=Path, help="your own rows")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    measured = profiles.chosen(options.profile, options.runtime or LOCAL)
    catalogue, left_out = load(options.catalogue).in_usd({})
    try:
        answers = {bound: plan(options, measured, catalogue, bound) for bound in Bound}
    except CannotMeet as error:
        print(error)
        return 1
    worst = answers[Bound.PESSIMISTIC]
    rows = [row(fleet, answers, options, measured) for fleet in worst.fleets]
    references = [
        {"name": r.name, "usd_per_replica_day": r.usd_per_replica_day, "note": r.note}
        for r in worst.references
    ]
    today = datetime.now(UTC).date()
    as_of, _ = age_lines(worst.sources, today)
    print(f"{options.replicas} replicas of {measured.workload} ({worst.request.runtime}), measured "
          f"{measured.measured_on} on {measured.machine}\n")  # fmt: skip
    show(rows, references, options)
    notes = [*measured.remarks(worst.request.runtime), *left_out, *worst.notes]
    print("\n" + "\n".join([*notes, *as_of]))
    flexible = [r for r in rows if r["market"] != Market.ON_DEMAND.value]
    best = min((r["usd_per_replica_day"]["pessimistic"] for r in flexible), default=float("inf"))
    print(f"\ngoal {GOAL_USD:.2f} USD per replica-day on spot or dedicated: {best:.4f}")
    result = {
        "machine": machine(),
        "replicas": options.replicas,
        "profile": measured.workload,
        "runtime": worst.request.runtime,
        "parameters": {p.value: [m.value, m.low, m.high] for p, m in measured.parameters.items()},
        "rows": rows,
        "references": references,
        "notes": notes,
        "as_of": as_of,
    }
    print(f"saved {save('cost_per_replica_day', result, options.out)}")
    return 0 if best <= GOAL_USD else 1


if __name__ == "__main__":
    raise SystemExit(main())
