"""Leaks of a thousand episodes on four replicas.

    python -m benchmarks.soak --episodes 1000 --replicas 4

Processes, mounts, namespaces, cgroups, descriptors, memory and disk of the host agent are counted after a
warm-up, at every hundredth episode and at the end, each time with no episode open. It is a leak when the last
counts are above the first by more than the slack that the table shows; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import time
from pathlib import Path
from typing import Any

from benchmarks.common import argument_parser, leak_rows, local_service, machine, save
from benchmarks.oracles import OraclePolicy, choose, rounds
from osgym_host.images.store import default_data_dir
from osgym_sdk import AsyncClient, HostState

SLACK = {
    "processes": 0,
    "mounts": 0,
    "namespaces": 0,
    "cgroups": 0,
    "replica_folders": 0,
    "agent_fds": 4,
    "agent_threads": 4,
    "agent_rss_mib": 48,
    "agent_tree_pss_mib": 96,
    "disk_mib": 16,
}
"""Growth that is not counted as a leak: none for resources that are counted in pieces."""
WARM_UP = 40
QUIET_S = 60.0


def _descendants(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += [int(c) for c in (task / "children").read_text().split()]
    return [pid, *(d for child in children for d in _descendants(child))]


def _field_mib(path: Path, name: str) -> float:
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _disk_mib(folders: list[Path]) -> float:
    total = 0
    for folder in folders:
        for top, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(OSError):
                    total += (Path(top) / name).lstat().st_blocks * 512
    return total / (1 << 20)


def count(pid: int, instance: str) -> dict[str, float]:
    data = default_data_dir()
    run, state = data / "run" / instance, data / "state" / instance
    pids = _descendants(pid)
    mounts = [line for line in _lines(Path("/proc/self/mountinfo")) if str(run) in line]
    groups = [
        1 for top, names, _ in os.walk("/sys/fs/cgroup") for n in names if f"osgym-{instance}" in n + top
    ]
    return {
        "processes": len(pids),
        "mounts": len(mounts),
        "namespaces": len({_link(Path(f"/proc/{p}/ns/mnt")) for p in pids}),
        "cgroups": len(groups),
        "replica_folders": len(list((run / "replicas").glob("*"))),
        "agent_fds": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "agent_threads": len(list(Path(f"/proc/{pid}/task").iterdir())),
        "agent_rss_mib": round(_field_mib(Path(f"/proc/{pid}/status"), "VmRSS"), 1),
        "agent_tree_pss_mib": round(sum(_field_mib(Path(f"/proc/{p}/smaps_rollup"), "Pss") for p in pids), 1),
        "disk_mib": round(_disk_mib([run, state]), 2),
    }


def _link(path: Path) -> str:
    with contextlib.suppress(OSError):
        return str(path.readlink())
    return ""


def _lines(path: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return path.read_text().splitlines()
    return []


async def _at_rest(client: AsyncClient, warm: int, instance: str) -> None:
    """Wait until no episode is open and exactly the warm replicas exist."""
    folder = default_data_dir() / "run" / instance / "replicas"
    async with asyncio.timeout(QUIET_S):
        while True:
            (state,) = (await client.host_states()).values()
            if isinstance(state, HostState):
                now = state.capacity
                if (now.ready, now.leased, now.starting) == (warm, 0, 0) and len(_names(folder)) == warm:
                    return
            await asyncio.sleep(0.2)


def _names(folder: Path) -> list[str]:
    return os.listdir(folder)


async def _soak(url: str, pid: int, instance: str, options: argparse.Namespace) -> dict[str, Any]:
    tasks = choose(options.flavor, tuple(options.only))
    policy = OraclePolicy(tasks)
    source = rounds(tasks)
    series: list[dict[str, Any]] = []
    rewards: list[float | None] = []
    failures: list[str] = []
    done = 0
    async with AsyncClient(url) as client:
        began = time.monotonic()
        for size in _portions(options.episodes):
            batch = client.run(
                itertools.islice(source, size), policy, concurrency=options.replicas, wait_s=120
            )
            async for result in batch:
                rewards.append(result.reward)
                if result.failure:
                    failures.append(f"{result.task['id']}: {result.failure.code} {result.failure.message}")
            done += size
            await _at_rest(client, options.replicas, instance)
            row = {"episodes": done, "s": round(time.monotonic() - began, 1), **count(pid, instance)}
            series.append(row)
            print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    solved = sum(r == 1.0 for r in rewards)
    return {"series": series, "solved": solved, "episodes": len(rewards), "failures": failures}


def _portions(episodes: int) -> list[int]:
    first = min(WARM_UP, episodes)
    rest = episodes - first
    return [first, *([100] * (rest // 100)), *([rest % 100] if rest % 100 else [])]


def main() -> int:
    parser = argument_parser(__doc__, flavor="small")
    parser.add_argument("--episodes", type=int, default=1000, help="after and with a warm-up of 40 (1000)")
    parser.add_argument("--replicas", type=int, default=4, help="at the same time (4)")
    options = parser.parse_args()
    described, instance = machine(), f"soak-{os.getpid()}"
    settings = {
        "instance": instance,
        "warm": options.replicas,
        "max_replicas": 2 * options.replicas,
        "trajectory": "off",
    }
    with local_service(options.flavor, settings) as (url, pid):
        result = asyncio.run(_soak(url, pid, instance, options))
    rows = leak_rows(result["series"], SLACK)
    left = [str(p) for p in (default_data_dir() / "run" / instance / "replicas").glob("*")]
    print(f"\n{'':20}{'before':>10}{'after':>10}{'slack':>8}")
    for row in rows:
        mark = "  LEAK" if row["leak"] else ""
        print(f"{row['what']:20}{row['before']:>10}{row['after']:>10}{row['slack']:>8}{mark}")
    print(f"{result['solved']} of {result['episodes']} episodes earned 1; {len(result['failures'])} failures")
    for failure in result["failures"][:10]:
        print(f"  {failure}")
    chosen = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items() if k != "out"}
    where = save(
        "soak", {"machine": described, "options": chosen, "table": rows, "left": left, **result}, options.out
    )
    print(f"raw series: {where}")
    return 1 if left or result["failures"] or any(row["leak"] for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
