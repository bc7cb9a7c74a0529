"""Printed and saved results of a run over stand-ins."""

from __future__ import annotations

from typing import Any

from benchmarks.chaos.synthetic.players import SyntheticOutcome
from benchmarks.chaos.synthetic.verdicts import rare, table_of_faults, table_of_reasons

LEAST = 30
"""Smallest number of trajectories of each kind in a long run."""


def report(outcome: SyntheticOutcome) -> list[str]:
    """Return the lines that a run prints at its end."""
    retired = {reason: count for reason, count in sorted(outcome.retired.items()) if count}
    lines = ["", *table_of_faults(outcome.verdicts), "", *table_of_reasons(outcome.verdicts), ""]
    lines += ["| replicas given up for | times |", "|---|---|"]
    lines += [f"| {reason} | {count} |" for reason, count in retired.items()]
    few = rare(outcome.verdicts, LEAST)
    lines += ["", f"{len(outcome.verdicts)} trajectories in {outcome.seconds:.0f} s"]
    lines += [f"fewer than {LEAST}: {len(few)} kinds"] if few else []
    lines += [f"skipped: {line}" for line in outcome.skipped]
    lines.append(f"{len(outcome.violations)} violations")
    return lines


def series(outcome: SyntheticOutcome) -> dict[str, Any]:
    """Return the raw series: kinds of trajectories, and a column for each thing known of a trajectory."""
    kinds = sorted({verdict.outcome.row for verdict in outcome.verdicts})
    number_of = {kind: number for number, kind in enumerate(kinds)}
    outcomes = [verdict.outcome for verdict in outcome.verdicts]
    chains = {v.outcome.row: [end.error_class.value for end in v.expected.ends] for v in outcome.verdicts}
    return {
        "figures": {
            "trajectories": len(outcomes),
            "episodes": sum(one.attempts for one in outcomes),
            "violations": len(outcome.violations),
            "seconds": outcome.seconds,
        },
        "kinds": [{"what": kind, "classes": chains[kind]} for kind in kinds],
        "trajectories": {
            "kind": [number_of[one.row] for one in outcomes],
            "attempts": [one.attempts for one in outcomes],
            "reward": [one.reward for one in outcomes],
            "reason": [one.reason for one in outcomes],
        },
        "retired": dict(outcome.retired),
        "skipped": outcome.skipped,
        "violations": outcome.violations,
    }
