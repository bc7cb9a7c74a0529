"""Cost of faults for a trainer: throughput, lost trajectories and lost groups, over the rate of faults.

    python -m benchmarks.fault_rates --every 0,60,30,15,7.5 --seconds 150 --rounds 2

Each rate is a run of `benchmarks.chaos` with faults of single replicas only: guest agent, X server or the
whole replica killed or frozen, in an order by the seed; 0 is no fault. Rates take turns. Every trajectory has
one retry, which is what the SDK does with `retries=1`: one that needed it would have been lost without. A
group of 8 or 16 rollouts, as GRPO takes them, is lost when one of its members is; its share is counted over
all runs of so many trajectories that ended one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from benchmarks.chaos.__main__ import options_of
from benchmarks.chaos.run import Outcome, run
from benchmarks.common import argument_parser, machine, save

KINDS = ("agent_", "display_", "replica_")
"""Parts of names of `chaos.schedule.Kind` that hit one replica from outside."""
GROUPS = (8, 16)


def lost_groups(lost: Sequence[bool], size: int) -> float | None:
    """Share of runs of `size` in a row in which one or more was lost; None for fewer than `size`.

    >>> lost_groups([False, True, False, False], 2)
    0.6666666666666666
    """
    windows = [any(lost[at : at + size]) for at in range(len(lost) - size + 1)]
    return sum(windows) / len(windows) if windows else None


def row_of(every_s: float, seconds: float, replicas: int, outcome: Outcome) -> dict[str, Any]:
    tries = outcome.attempts
    faults = len(outcome.impacts)
    row: dict[str, Any] = {
        "every_s": every_s,
        "faults": faults,
        "faults_per_replica_hour": round(faults / (replicas * seconds / 3600), 2),
        "trajectories": len(tries),
        "per_minute": round(sum(n > 0 for n in tries) * 60 / seconds, 2),
        "lost": sum(n == 0 for n in tries),
        "lost_without_retry": sum(n != 1 for n in tries),
    }
    for size in GROUPS:
        for name, lost in (("", [n == 0 for n in tries]), ("_without_retry", [n != 1 for n in tries])):
            share = lost_groups(lost, size)
            row[f"groups_of_{size}_lost{name}"] = None if share is None else round(share, 3)
    return {**row, "attempts": tries, "violations": outcome.violations}


def one(every_s: float, seed: int, seconds: float, replicas: int) -> dict[str, Any]:
    argv = ["--seconds", f"{seconds}", "--seed", f"{seed}", "--replicas", f"{replicas}"]
    argv += ["--every", f"{every_s or 2 * seconds}", *(part for kind in KINDS for part in ("--only", kind))]
    return row_of(every_s, seconds, replicas, asyncio.run(run(options_of(argv))))


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("--every", default="0,60,30,15,7.5", help="seconds from fault to fault; 0: none")
    parser.add_argument("--seconds", type=float, default=150, help="of a run (150)")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each rate (2)")
    parser.add_argument("--replicas", type=int, default=8, help="trajectories at the same time (8)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round (1)")
    options = parser.parse_args()
    about, rows = machine(), []
    for number in range(options.rounds):
        for every_s in map(float, options.every.split(",")):
            rows.append(one(every_s, options.seed + number, options.seconds, options.replicas))
            shown = {k: v for k, v in rows[-1].items() if k not in ("attempts", "violations")}
            print(f"\n{shown}", *rows[-1]["violations"], sep="\n  ", flush=True)
    about["load_after"] = machine()["load_before"]
    told = {"seconds": options.seconds, "replicas": options.replicas, "seed": options.seed}
    print(
        f"raw series: {save('fault_rates', {'machine': about, 'options': told, 'rows': rows}, options.out)}"
    )
    return 1 if any(row["violations"] for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
