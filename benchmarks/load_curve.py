"""Cost of replicas at work: CPU per step and while idle, memory, latency, at several counts.

    python -m benchmarks.load_curve --flavor full --replicas 1,2,4,8 --think-s 2 --seconds 45
    python -m benchmarks.load_curve --set runtime=qemu --out /tmp/load_curve_qemu.json
    python -m benchmarks.load_curve --replicas 10 --think-s 8 --windows busy --compare-rest 2 \
        --out benchmarks/results/load_curve_rest.json

For each count a service of its own runs that many replicas and no more. First all of them have a task set
up and nobody acts (an idle window), then episodes begin, are scored and end without a step (a reset
window), then the tasks are solved by their oracles, with a pause for thinking before each step (a busy
window). `--windows` takes some of them only. CPU time is that of the host agent and everything below it, so
that other work on the machine does not count; memory is the PSS of what belongs to replicas, and with
--host-memory also what MemAvailable lost, which counts the kernel's part but wants a quiet machine.
--compare-rest runs everything in turns with replicas that stay awake and with replicas that rest before each
step: what the second kind uses more is the CPU time of wakes and reclaims.
`osgym fleet fit` makes a workload profile of the file.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.common import argument_parser, local_service, machine, meminfo_mib, save, summary
from benchmarks.oracles import OraclePolicy, choose, rounds
from osgym_host.runtimes.processes import pss_mib
from osgym_host.runtimes.swap import read_swap
from osgym_sdk import AsyncClient, AsyncEpisode

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
SAMPLE_S = 3.0
LOOK_S = 0.25
RESTS: dict[str, dict[str, str | int | float]] = {
    "pause": {"rest": "pause", "rest_after_s": 1},
    "reclaim": {"rest": "reclaim", "rest_after_s": 1, "reclaim_after_s": 1},
}
"""Settings with which each replica rests before its next step, however much memory is free."""
ZYGOTE = b"osgym_host.runtimes.local.zygote"


@dataclass(frozen=True, slots=True)
class Process:
    """A row of /proc. `spent` is its own CPU time, `reaped` that of its reaped children, in s."""

    parent: int
    started: int
    spent: float
    reaped: float


def processes(root: int) -> dict[int, Process]:
    found: dict[int, Process] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            own, others = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
            found[int(entry.name)] = Process(int(fields[1]), int(fields[19]), own * TICK_S, others * TICK_S)
            children[int(fields[1])].append(int(entry.name))
    below, todo = [], [root]
    while todo:
        below.append(todo.pop())
        todo += children[below[-1]]
    return {pid: found[pid] for pid in below if pid in found}


def threads(pid: int) -> int:
    """Return the number of threads of a process; 0 if it has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def zygotes(pids: Iterable[int]) -> set[str]:
    """Return PID namespaces of the processes that start replicas, which may have one of their own."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            if ZYGOTE in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.add(os.readlink(f"/proc/{pid}/ns/pid"))
    return found


def of_replica(pid: int, outside: Collection[str]) -> bool:
    """Return whether a process belongs to a replica: in none of those PID namespaces, or QEMU."""
    try:
        if os.readlink(f"/proc/{pid}/ns/pid") not in outside:
            return True
        return os.readlink(f"/proc/{pid}/exe").rpartition("/")[2].startswith("qemu")
    except OSError:
        return False


class Accounts:
    """CPU time of a host agent and its replicas, dead ones included.

    What ran in a PID namespace that was killed is in nobody's count of reaped children, so each replica's
    total is looked at often and its last value kept. What its parent reaps of it is left out instead.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._outside = {os.readlink("/proc/self/ns/pid")}
        self._parents: set[int] = set()
        self._kept: dict[tuple[int, int], float] = {}
        self.total_s = 0.0
        self.replicas: list[int] = []

    def look(self) -> float:
        """Update the accounts; return all CPU time so far, in seconds."""
        rows = processes(self._root)
        self._outside |= zygotes(pid for pid, row in rows.items() if row.parent == self._root)
        inside = {pid for pid in rows if of_replica(pid, self._outside)}
        tops = {pid for pid in inside if rows[pid].parent not in inside}
        self._parents |= {rows[pid].parent for pid in tops}
        totals = dict.fromkeys(tops, 0.0)
        outside = 0.0
        for pid, row in rows.items():
            top = pid
            while top in inside and top not in tops:
                top = rows[top].parent
            if top in tops:
                totals[top] += row.spent + row.reaped
            else:
                outside += row.spent + (0.0 if pid in self._parents else row.reaped)
        for top, total in totals.items():
            key = (top, rows[top].started)
            self._kept[key] = max(total, self._kept.get(key, 0.0))
        self.replicas = sorted(inside)
        self.total_s = max(self.total_s, outside + sum(self._kept.values()))
        return self.total_s


class Window:
    """Measures a host agent from `open` until `row`."""

    def __init__(self, pid: int, before_mib: float | None) -> None:
        self._accounts, self._before_mib = Accounts(pid), before_mib
        self._pss: list[float] = []
        self._host: list[float] = []
        self._threads: list[int] = []
        self._cpu, self._began = self._accounts.look(), time.monotonic()

    def sample(self) -> None:
        """Record the memory now."""
        self._accounts.look()
        self._pss.append(pss_mib(self._accounts.replicas))
        self._host.append(meminfo_mib()["MemAvailable"])
        self._threads.append(sum(map(threads, self._accounts.replicas)))

    async def watch(self, seconds: float, memory: bool) -> None:
        """Update the accounts for a while, and sample the memory."""
        end, next_sample = time.monotonic() + seconds, time.monotonic() + SAMPLE_S
        while (now := time.monotonic()) < end:
            await asyncio.sleep(LOOK_S)
            self._accounts.look()
            if memory and now >= next_sample:
                self.sample()
                next_sample = now + SAMPLE_S

    def row(self, replicas: int, kind: str) -> dict[str, Any]:
        row: dict[str, Any] = {
            "replicas": replicas,
            "window": kind,
            "seconds": round(time.monotonic() - self._began, 3),
            "cpu_s": round(self._accounts.look() - self._cpu, 3),
            "pss_mib": round(statistics.fmean(self._pss), 2),
            "pss_samples": [round(value, 1) for value in self._pss],
            "threads": round(statistics.fmean(self._threads), 1),
        }
        if self._before_mib is not None:
            row["host_mib"] = round(self._before_mib - statistics.fmean(self._host), 1)
        return row


class Policy(OraclePolicy):
    """Oracle that also records the sizes of its frames."""

    frame_bytes: list[int]

    async def act(self, obs: Any, task: dict[str, Any], step: int) -> list[dict[str, Any]]:
        self.frame_bytes.append(len(obs.data or b""))
        return await super().act(obs, task, step)


def replica_figures(url: str) -> dict[str, list[float]]:
    """Return what each replica has written to disk so far, and the memory that it occupied at rest."""
    rows = httpx.get(f"{url}/v1/replicas", timeout=30).raise_for_status().json()
    names = ("overlay_mib", "resting_mib")
    return {name: [row[name] for row in rows if row[name] is not None] for name in names}


async def idle(client: AsyncClient, pid: int, replicas: int, options: argparse.Namespace) -> dict[str, Any]:
    """Measure replicas that have a task set up, and nobody acts."""
    tasks = list(itertools.islice(rounds(choose(options.flavor, tuple(options.only))), replicas))
    episodes: list[AsyncEpisode] = [client.episode(task, wait_s=180) for task in tasks]
    before = options.before_mib
    await asyncio.gather(*(episode.start() for episode in episodes))
    await asyncio.sleep(options.calm_s)  # what applications still do after they have drawn
    window = Window(pid, before)
    await window.watch(options.idle_s, memory=False)
    window.sample()
    row = window.row(replicas, "idle")
    await asyncio.gather(*(episode.aclose() for episode in episodes))
    return row


async def resets(client: AsyncClient, pid: int, replicas: int, options: argparse.Namespace) -> dict[str, Any]:
    """Measure episodes without a step: a fresh replica, a task's set-up and its scoring."""
    began = time.monotonic()
    tasks = itertools.takewhile(
        lambda _: time.monotonic() - began < options.reset_s,
        rounds(choose(options.flavor, tuple(options.only))),
    )
    window = Window(pid, None)
    looking = asyncio.create_task(window.watch(3600, memory=False))
    episodes = 0

    async def one_after_the_other() -> None:
        nonlocal episodes
        for task in tasks:
            episode = client.episode(task, wait_s=180)
            await episode.start()
            await episode.evaluate()
            await episode.aclose()
            episodes += 1

    try:
        await asyncio.gather(*(one_after_the_other() for _ in range(replicas)))
    finally:
        looking.cancel()
    window.sample()
    row = window.row(replicas, "reset")
    del row["pss_mib"], row["pss_samples"], row["threads"]  # of replicas that are being reset
    return row | {"steps": 0, "episodes": episodes}


async def busy(
    client: AsyncClient, url: str, pid: int, replicas: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Measure tasks that are solved one after the other in every replica."""
    library = choose(options.flavor, tuple(options.only))
    policy = Policy(library, options.think_s)
    policy.frame_bytes = []
    began = time.monotonic()
    tasks = itertools.takewhile(lambda _: time.monotonic() - began < options.seconds, rounds(library))
    window = Window(pid, options.before_mib)
    step_ms: list[float] = []
    figures: dict[str, list[float]] = {}
    lengths: list[int] = []
    durations: list[float] = []
    failures = 0

    async def look() -> None:
        await window.watch(options.seconds, memory=True)
        figures.update(await asyncio.to_thread(replica_figures, url))
        await window.watch(3600, memory=False)  # from now on replicas become idle one by one

    looking = asyncio.create_task(look())
    try:
        async for result in client.run(
            tasks, policy, concurrency=replicas, settle="exact", wait_s=180, progress=False
        ):
            lengths.append(len(result.steps))
            failures += result.failure is not None
            durations.append(round(result.duration_s, 3))
            step_ms += [round(step.timing.total_ms, 2) for step in result.steps if step.timing]
    finally:
        looking.cancel()
    row = window.row(replicas, "busy")
    return row | {
        "steps": sum(lengths),
        "episodes": len(lengths),
        "failures": failures,
        "step_ms": step_ms,
        "steps_per_episode": lengths,
        "trajectory_s": durations,
        "frame_bytes": policy.frame_bytes,
        **figures,
    }


async def measure(url: str, pid: int, replicas: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the windows of one count, and how much the replicas had written."""
    rows = []
    async with AsyncClient(url) as client:
        if "idle" in options.windows:
            rows.append(await idle(client, pid, replicas, options))
        if "reset" in options.windows:
            rows.append(await resets(client, pid, replicas, options))
        if "busy" in options.windows:
            rows.append(await busy(client, url, pid, replicas, options))
    for row in rows:
        print(
            f"  {replicas:3d} {row['window']:5}  {row['seconds']:6.1f} s  {row['cpu_s']:7.2f} CPU-s"
            + (f"  PSS {row['pss_mib']:7.0f} MiB" if "pss_mib" in row else f"  {row['episodes']} episodes")
            + (
                f"  {row['steps']} steps, {row['failures']} failed; median "
                f"{summary(row['step_ms'])['median']:.0f} ms"
                if row.get("steps")
                else ""
            ),
            flush=True,
        )
    return rows


def arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__, flavor="full")
    parser.add_argument("--replicas", default="1,2,4,8", help="counts, separated by commas (1,2,4,8)")
    parser.add_argument("--think-s", type=float, default=2.0, help="the policy's time before a step (2)")
    parser.add_argument("--seconds", type=float, default=45.0, help="new tasks begin for so long (45)")
    parser.add_argument("--idle-s", type=float, default=15.0, help="length of an idle window (15)")
    parser.add_argument("--reset-s", type=float, default=30.0, help="length of a reset window (30)")
    parser.add_argument(
        "--windows", type=lambda text: text.split(","), default=["idle", "reset", "busy"],
        help="idle, reset, busy: which ones, separated by commas (all)",
    )  # fmt: skip
    parser.add_argument("--calm-s", type=float, default=5.0, help="pause between set-up and idle window (5)")
    parser.add_argument("--host-memory", action="store_true", help="record what MemAvailable lost, too")
    parser.add_argument(
        "--compare-rest", type=int, default=0, metavar="ROUNDS",
        help="so many rounds of a service without rest and one with it",
    )  # fmt: skip
    parser.add_argument(
        "--rest-kind", choices=RESTS, default="reclaim", help="what it does; reclaim needs swap"
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a host setting")
    options = parser.parse_args()
    if options.compare_rest and options.rest_kind == "reclaim" and not read_swap().total_mib:
        parser.error("this host has no swap: without it replicas are only paused (--rest-kind pause)")
    return options


def main() -> int:
    options = arguments()
    counts = [int(part) for part in options.replicas.split(",")]
    extra = dict(item.split("=", 1) for item in options.set)
    described = machine()
    print(
        f"{described['cpu']}, {described['cores']} cores; {options.flavor} tasks, think {options.think_s} s"
    )
    rows: list[dict[str, Any]] = []
    rests: list[dict[str, str | int | float]] = [
        {"rest": "off"},
        RESTS[options.rest_kind],
    ] * options.compare_rest or [{}]
    for count, rest in itertools.product(counts, rests):
        options.before_mib = meminfo_mib()["MemAvailable"] if options.host_memory else None
        settings: dict[str, str | int | float] = {
            "max_replicas": count, "warm": count, "cpu_per_replica": 0, "trajectory": "off", **rest, **extra,
        }  # fmt: skip
        with local_service(options.flavor, settings) as (url, pid):
            found = asyncio.run(measure(url, pid, count, options))
        rows += [row | {"rest": rest["rest"]} for row in found] if rest else found
    chosen = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items() if k != "out"}
    result = {
        "machine": described,
        "runtime": extra.get("runtime", "local"),
        "image": options.flavor,
        "options": chosen,
        "think_s": options.think_s,
        "series": rows,
    }
    print(f"raw series: {save('load_curve', result, options.out)}")
    return 1 if any(row.get("failures") for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
