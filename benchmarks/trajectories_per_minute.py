"""How many real trajectories a host makes per minute: each task by its oracle, scored, on N replicas.

    python -m benchmarks.trajectories_per_minute --flavor small --replicas 4 --minutes 2
    python -m benchmarks.trajectories_per_minute --hosts http://a:20000,http://b:20000 --replicas 64

Without --hosts it starts a host agent of its own on loopback and ends it afterwards. A trajectory is a
reset, the set-up of its task, all steps of its oracle with the screen settled and a full PNG after each,
and its score. One that fails or earns less than 1 is counted apart. Rates are of the whole run, from the
first reset to the last score; the raw series (one row for each trajectory) is in the JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from benchmarks.common import argument_parser, local_service, machine, meminfo_mib, save, summary
from benchmarks.oracles import OraclePolicy, choose, rounds
from osgym_sdk import AsyncClient, OSGymError, Result


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__, flavor="small")
    parser.add_argument("--hosts", help="URLs of running host agents, separated by commas")
    parser.add_argument("--replicas", type=int, default=4, help="trajectories at the same time (4)")
    parser.add_argument("--minutes", type=float, default=1.0, help="start trajectories for so long (1)")
    parser.add_argument("--episodes", type=int, help="instead of --minutes: so many trajectories")
    parser.add_argument("--think-s", type=float, default=0.0, help="time of the policy before each step (0)")
    parser.add_argument("--settle", choices=["exact", "fast"], default="exact", help="settle policy (exact)")
    return parser.parse_args()


async def _tasks(options: argparse.Namespace) -> AsyncIterator[dict[str, Any]]:
    """Tasks until the time is up or the number reached."""
    tasks = rounds(choose(options.flavor, tuple(options.only)))
    if options.episodes:
        for task in itertools.islice(tasks, options.episodes):
            yield task
        return
    end = time.monotonic() + 60 * options.minutes
    for task in tasks:
        if time.monotonic() >= end:
            return
        yield task


def _row(result: Result, began: float) -> dict[str, Any]:
    trajectory = result.trajectory
    return {
        "task": result.task["id"],
        "end_s": round(time.monotonic() - began, 3),
        "duration_s": round(result.duration_s, 3),
        "reward": result.reward,
        "failure": result.failure.code if result.failure else None,
        "host": trajectory.host,
        "reset_ms": {name: round(value, 2) for name, value in trajectory.reset_ms.items()},
        "step_ms": [round(s.timing.total_ms, 2) for s in result.steps if s.timing],
        "settle_ms": [round(s.timing.settle_ms, 2) for s in result.steps if s.timing],
    }


async def _measure(url: str, options: argparse.Namespace) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    policy = OraclePolicy(choose(options.flavor, tuple(options.only)), options.think_s)
    async with AsyncClient(url) as client:
        states = {host: _state(state) for host, state in (await client.host_states()).items()}
        before_mib, least_mib = meminfo_mib()["MemAvailable"], meminfo_mib()["MemAvailable"]
        began = time.monotonic()
        async for result in client.run(
            _tasks(options),
            policy,
            concurrency=options.replicas,
            settle=options.settle,
            wait_s=120,
            progress=True,
        ):
            rows.append(_row(result, began))
            least_mib = min(least_mib, meminfo_mib()["MemAvailable"])
        elapsed_s = time.monotonic() - began
    return {"hosts": states, "elapsed_s": elapsed_s, "used_mib": before_mib - least_mib, "rows": rows}


def _state(state: object) -> dict[str, Any]:
    if isinstance(state, OSGymError):
        raise SystemExit(f"a host does not answer: {state}")
    return state.to_dict()  # type: ignore[attr-defined,no-any-return]  # HostState


def _rates(result: dict[str, Any], machine_: dict[str, Any]) -> dict[str, Any]:
    good = [r for r in result["rows"] if r["reward"] == 1.0]
    per_minute = 60 * len(good) / result["elapsed_s"]
    kept = [r["reset_ms"] for r in result["rows"] if "wait" in r["reset_ms"]]
    return {
        "trajectories": len(result["rows"]),
        "solved": len(good),
        "failures": Counter(r["failure"] for r in result["rows"] if r["failure"]),
        "unsolved": Counter(r["task"] for r in result["rows"] if r["reward"] is not None and r["reward"] < 1),
        "per_minute": round(per_minute, 2),
        "per_minute_and_core": round(per_minute / machine_["cores"], 2),
        "per_minute_and_gib": round(per_minute / (machine_["ram_mib"] / 1024), 2),
        "reset_wait_and_observe_ms": summary([k["wait"] + k["observe"] for k in kept]),
        "setup_ms": summary([k["setup"] for k in kept if "setup" in k]),
        "step_ms": summary([v for r in result["rows"] for v in r["step_ms"]]),
    }


def main() -> int:
    """Runs the benchmark; 1 when a trajectory failed or an oracle did not earn 1."""
    options = _arguments()
    described = machine()
    with contextlib.ExitStack() as stack:
        if options.hosts:
            url = options.hosts
        else:
            settings = {"warm": options.replicas, "max_replicas": 2 * options.replicas, "trajectory": "off"}
            url, _ = stack.enter_context(local_service(options.flavor, settings))
        result = asyncio.run(_measure(url, options))
    rates = _rates(result, described)
    print(f"{described['cpu']}, {described['cores']} cores, {described['ram_mib']} MiB")
    for name, value in rates.items():
        if isinstance(value, dict) and "median" in value:
            value = f"median {value['median']:.0f}, p95 {value['p95']:.0f} (n={value['n']})"
        print(f"  {name:28} {value}")
    name = f"trajectories_per_minute_{options.flavor}"
    chosen = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items() if k != "out"}
    where = save(name, {"machine": described, "options": chosen, "rates": rates, **result}, options.out)
    print(f"raw series: {where}")
    if options.hosts and "127.0.0.1" not in options.hosts:
        print("per core and GiB are of this machine; with other hosts divide by theirs")
    return 1 if rates["failures"] or rates["unsolved"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
