"""Cost of a replica-day by host type, for replicas that stay awake and for replicas that rest.

    python -m benchmarks.cost_with_rest                       # a policy that thinks 20 s before each step
    python -m benchmarks.cost_with_rest --think-s 60 --caps 512,4096

For each type of the catalogue it fills one host, at the costly end of all intervals and prices, and takes
the cheapest region and market. `--caps` are numbers of replicas that may be lost with one host. Nothing is
measured here: profiles come from `osgym fleet fit`, prices from the catalogue with their dates.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from benchmarks.common import argument_parser, machine, save
from osgym_infra.catalogue.load import load
from osgym_infra.catalogue.rows import Catalogue
from osgym_infra.cost.model import Rules
from osgym_infra.cost.planner import Candidate, PlanRequest, frames_usd, plan_fleet
from osgym_infra.cost.price import CostAssumptions, FramesTo, replica_day
from osgym_infra.workloads import profile as profiles
from osgym_infra.workloads.profile import Profile

GOALS_USD = {"awake or at rest": 0.015, "at rest": 0.01}
"""Goals: USD per replica-day with a policy that thinks 20 s, and the same if replicas rest meanwhile."""


def candidates(
    measured: Profile, catalogue: Catalogue, think_s: float, cap: int, rest: bool
) -> tuple[dict[tuple[str, str], Candidate], dict[tuple[str, str], float]]:
    """Return the cheapest full host of each provider's type, and USD per replica-day on it."""
    needs = replace(measured.replica(), think_s=think_s, rest=measured.rest() if rest else None)
    request = PlanRequest(
        replicas=1,
        replica=needs,
        rules=Rules(max_replicas=cap),
        terms=CostAssumptions(private=True, frames_to=FramesTo.ZONE),
    )
    best: dict[tuple[str, str], Candidate] = {}
    usd: dict[tuple[str, str], float] = {}
    for one in plan_fleet(request, catalogue, [measured.source()]).candidates:
        frames = frames_usd(request, catalogue, one.row, one.market)
        each = replica_day(one.day.total, one.fit.replicas, frames, request.terms.availability)
        key = (one.row.provider, one.row.type)
        if each < usd.get(key, float("inf")):
            best[key], usd[key] = one, each
    return best, usd


def described(one: Candidate, usd: float) -> dict[str, Any]:
    """Return what a full host of a type carries and costs."""
    return {
        "region": one.row.region,
        "market": one.market.value,
        "replicas": one.fit.replicas,
        "binding": one.fit.binding.value,
        "usd_per_replica_day": usd,
        "step_cpu_p95_ms": one.load.p95_s * 1000 if one.load else None,
    }


def compared(measured: Profile, catalogue: Catalogue, think_s: float, cap: int) -> list[dict[str, Any]]:
    """Return a row for each type, the cheapest at rest first."""
    awake, awake_usd = candidates(measured, catalogue, think_s, cap, rest=False)
    rested, rested_usd = candidates(measured, catalogue, think_s, cap, rest=True)
    rows = [
        {
            "provider": key[0],
            "type": key[1],
            "vcpu": one.row.vcpu,
            "ram_gib": one.row.ram_gib,
            "max_replicas_per_host": cap,
            "awake": described(awake[key], awake_usd[key]) if key in awake else None,
            "rest": described(one, rested_usd[key]),
        }
        for key, one in rested.items()
    ]
    return sorted(rows, key=lambda row: row["rest"]["usd_per_replica_day"])


def show(rows: list[dict[str, Any]], top: int) -> None:
    for row in rows[:top]:
        cells = [
            f"{part['usd_per_replica_day']:.4f} USD ({part['replicas']:5,d}, {part['binding']:4})"
            if (part := row[kind]) else "-"
            for kind in ("awake", "rest")
        ]  # fmt: skip
        name = f"{row['provider']} {row['type']}, {row['rest']['market'].replace('_', '-')}"
        print(f"  {name:36} awake {cells[0]}   at rest {cells[1]}")


def arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("--profile", default=profiles.DEFAULT, help=f"a profile ({profiles.DEFAULT})")
    parser.add_argument("--think-s", type=float, default=20.0, help="the policy's time before a step (20)")
    parser.add_argument(
        "--caps", default="512,1024,1536", help="replicas that a host may have (512,1024,1536)"
    )
    return parser.parse_args()


def main() -> int:
    options = arguments()
    measured = profiles.load(options.profile)
    catalogue, _ = load(None).in_usd({})
    rows: list[dict[str, Any]] = []
    for cap in map(int, options.caps.split(",")):
        found = compared(measured, catalogue, options.think_s, cap)
        print(f"at most {cap:,} on a host, think {options.think_s:g} s")
        show(found, 6)
        rows += found
    best = {
        kind: min(
            (row for row in rows if row[kind]), key=lambda row: row[kind]["usd_per_replica_day"]
        ) for kind in ("awake", "rest")
    }  # fmt: skip
    for kind, row in best.items():
        part = row[kind]
        print(
            f"cheapest {kind}: {part['usd_per_replica_day']:.4f} USD per replica-day on {row['type']}, "
            f"{part['replicas']:,} replicas, limited by {part['binding']}"
        )
    for name, goal in GOALS_USD.items():
        kinds = ("rest",) if name == "at rest" else ("awake", "rest")
        usd = min(best[kind][kind]["usd_per_replica_day"] for kind in kinds)
        print(f"goal {goal} USD {name}: {'reached' if usd <= goal else 'not reached'} ({usd:.4f})")
    rest = measured.rest()
    result = {
        "machine": machine(),
        "profile": measured.workload,
        "think_s": options.think_s,
        "resting_mib": rest.resting_gib * 1024,
        "wake_cpu_s": rest.wake_cpu_s,
        "goals_usd": GOALS_USD,
        "best": best,
        "rows": rows,
    }
    print(f"saved {save('cost_with_rest', result, options.out)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
