"""Real tasks on several replicas under one fault every few seconds, judged for what must not happen.

    make chaos SECONDS=600 SEED=7
    python -m benchmarks.chaos --seconds 60 --only agent --only display
    python -m benchmarks.chaos --seconds 7200 --every 15 --without host_killed --watch-s 60 --page   # a soak
    python -m benchmarks.chaos --runtime qemu --replicas 3 --seconds 180 --runner container
    python -m benchmarks.chaos --runtime synthetic --episodes 10000   # whose loss each failure is

A host agent of its own runs on a data folder of its own, on a small disk of its own where this is root. Every
task is played through the SDK with one retry: three of four by their oracles, one by a policy that does
nothing. Each desktop shows which task it was set up for, in blocks all over its background, and every frame
that comes back is checked for it. Faults come in an order that the seed gives, each kind as often as any
other; one without a victim is tried again for some seconds and then counted as skipped.

Violations, and the exit code is 1: a task that does not end exactly once, with a reward or a failure of a
type; a reward that is not 1 for an oracle or not 0 for doing nothing; a class of failure that does not follow
from what hit the trajectory; a frame of another desktop; something left behind; a slot that is not clean in
time; more than one in a thousand trajectories without a result though one fault at most hit them; a frozen
guest agent that is not noticed in time; an internal error in the host agent's log.

Faults named `policy: …` are what a policy itself types into a terminal, once its work is done. It gets the
honest score or a 0 of its own then, on its first attempt, and nobody else does.

With `--runtime synthetic` replicas have no desktop and break on command, in each way and at each moment of an
episode. A small model in the driver says whose loss each end must be (`policy`, `infra`, `task` or nobody's);
what the host agent, its API and the SDK say of it must be the same.

`clean slot` counts from the fault until nothing of the replica is left, or what was broken works again; where
an episode went on in spite of the fault, from its end on; of a policy's fault, from the end of the desktop.
Harm beside the guest agent needs root here for `local`, and sudo in machines.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.chaos.checks import table
from benchmarks.chaos.run import Outcome, kinds_for, run
from benchmarks.chaos.schedule import Kind
from benchmarks.chaos.synthetic import run as synthetic
from benchmarks.chaos.synthetic.run import report, series
from benchmarks.chaos.watch import slopes
from benchmarks.common import argument_parser, machine, save


def options_of(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse a command line of `python -m benchmarks.chaos`."""
    parser = argument_parser(__doc__)
    add = parser.add_argument
    add("--seconds", type=float, default=600, help="how long faults and new tasks come (600)")
    add("--seed", type=int, default=None, help="makes the order of faults and tasks (by the clock)")
    add(
        "--runtime",
        choices=["local", "qemu", "synthetic"],
        default="local",
        help="of the replicas; synthetic: stand-ins without a desktop, for --episodes (local)",
    )
    add("--episodes", type=int, default=10_000, help="synthetic: trajectories to play (10000)")
    add(
        "--runner",
        choices=["process", "container"],
        default="process",
        help="qemu: what machines run in; containers are of a dockerd of the run's own (process)",
    )
    add("--flavor", choices=["small", "full"], default="small", help="image and tasks (small)")
    add("--replicas", type=int, default=8, help="tasks at the same time (8)")
    add("--every", type=float, default=5.0, help="seconds from one fault to the next (5)")
    names = ", ".join(kind.name.lower() for kind in Kind)
    add("--only", action="append", default=[], help=f"only faults with this in their name: {names}")
    add("--without", action="append", default=[], help="no faults with this in their name")
    add("--task", action="append", default=[], help="only tasks with this in their name (all)")
    add("--clean-p95", type=float, default=5.0, help="seconds to a clean slot, p95 (5)")
    add("--noticed", type=float, default=5.0, help="seconds until a frozen agent is noticed (5)")
    add("--watch-s", type=float, default=0.0, help="look so often at what the host agent holds (0: never)")
    add("--page", action="store_true", help="with the dashboard open in a real Chromium")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the host agent")
    add("--log", type=Path, help="where the host agent's log is kept")
    options = parser.parse_args(argv)
    if options.runner == "container" and options.runtime != "qemu":
        parser.error("--runner container needs --runtime qemu")
    if not kinds_for(options):
        parser.error("--only: unknown fault")
    if options.seed is None:
        options.seed = int(time.time())
    return options


def _columns(outcome: Outcome) -> dict[str, list[object]]:
    rows = [impact.row() for impact in outcome.impacts]
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}


def _over_stand_ins(options: argparse.Namespace) -> int:
    """Run over stand-ins; return 1 when the class of a failure was wrong."""
    about = machine()
    print(f"seed {options.seed}, synthetic, {about}", flush=True)
    outcome = asyncio.run(synthetic.run(options))
    about["load_after"] = machine()["load_before"]
    print(*report(outcome), sep="\n")
    if options.out:
        told = {"machine": about, "options": {"seed": options.seed, "episodes": options.episodes}}
        print(f"raw series: {save('chaos_synthetic', told | series(outcome), options.out)}")
    return 1 if outcome.violations else 0


def main() -> int:
    options = options_of()
    if options.runtime == "synthetic":
        return _over_stand_ins(options)
    about = machine()
    print(f"seed {options.seed}, {options.runtime}, {options.replicas} replicas, {about}", flush=True)
    outcome = asyncio.run(run(options))
    about["load_after"] = machine()["load_before"]
    print("", *table(outcome.impacts), "", sep="\n")
    for name, value in outcome.figures.items():
        print(f"{name:24} {value}")
    for line in outcome.skipped:
        print(f"skipped: {line}")
    print(f"\nseed {options.seed}: {len(outcome.violations)} violations")
    for line in outcome.violations:
        print(f"  {line}")
    given = {"seed": options.seed, "seconds": options.seconds, "replicas": options.replicas}
    given |= {"every_s": options.every, "without": options.without, "page": options.page}
    given |= {"runtime": options.runtime, "runner": options.runner, "tasks": options.task}
    given |= {"settings": options.set}
    told: dict[str, Any] = {"machine": about, "options": given, "figures": outcome.figures}
    told["faults"] = _columns(outcome)
    if outcome.samples:
        told |= {"slopes": slopes(outcome.samples), "samples": [asdict(s) for s in outcome.samples]}
        for name, slope in told["slopes"].items():
            print("{:24} {median:g}, {per_hour:+g} ± {half_interval:g} an hour".format(name, **slope))
    if options.out:
        told["violations"] = outcome.violations
        print(f"raw series: {save(f'chaos_{options.runtime}', told, options.out)}")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
