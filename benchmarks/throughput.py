"""Throughput: trajectories per minute over real tasks, by replicas, think time and templates, until it falls.

    python -m benchmarks.throughput --flavor full --replicas 1,2,4,8,16 --think-s 0,1,5,20
    python -m benchmarks.throughput --set runtime=qemu --flavor small --templates off,on
    python -m benchmarks.throughput --hosts http://a:20000,http://b:20000 --replicas 64

A trajectory is a reset, the set-up of its task, all steps of its oracle with the screen settled and a full
PNG after each, and its score; only those that earn 1 count. Tasks have 10 to 25 steps (families of tasks, one
of each level that is as long), or are the short ones that are shipped (`--tasks shipped`). For each think
time and number of replicas a service of its own runs, and the arms (`--templates`) take turns. After
`--ramp-s` the books are opened, and what ends in the next `--seconds` counts, with the CPU time of host agent
and replicas meanwhile: `per_core_minute` is trajectories per minute of CPU time that was used, which other
work on the machine does not change much; `per_minute_and_core` is by the clock and by all cores, which it
does. With a think time the window is longer by what two trajectories think. The next number of replicas is
tried until throughput falls by 5 %.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import argument_parser, local_service, machine, save, summary
from benchmarks.load_curve import Window
from benchmarks.oracles import OraclePolicy, choose, choose_long, rounds
from osgym_host.tasks.shipped import ShippedTask
from osgym_sdk import AsyncClient, Result

FALLS = 0.95
"""Share of the best throughput below which a number of replicas is the last one."""


def _numbers(kind: type[int] | type[float]) -> Any:
    return lambda text: [kind(part) for part in text.split(",")]


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__, flavor="full")
    parser.add_argument("--hosts", help="URLs of running host agents, separated by commas; no CPU then")
    parser.add_argument(
        "--replicas", type=_numbers(int), default=[1, 2, 4, 8, 16, 32, 64],
        help="how many trajectories at the same time, in this order (1,2,4,…,64)",
    )  # fmt: skip
    parser.add_argument(
        "--think-s", type=_numbers(float), default=[0.0, 1.0, 5.0, 20.0],
        help="the policy's time before each step, s (0,1,5,20)",
    )  # fmt: skip
    parser.add_argument(
        "--templates", type=lambda text: text.split(","), default=["off"],
        help="off, on or off,on: the host's task_templates (off)",
    )  # fmt: skip
    parser.add_argument("--tasks", choices=["long", "shipped"], default="long", help="which tasks (long)")
    parser.add_argument("--certain", action="store_true", help="wait for the final screen before each step")
    parser.add_argument("--seconds", type=float, default=60.0, help="the window without thinking (60)")
    parser.add_argument("--ramp-s", type=float, default=15.0, help="what is left out at the beginning (15)")
    parser.add_argument("--rounds", type=int, default=1, help="how often all of it is done (1)")
    parser.add_argument("--settle", choices=["exact", "fast"], default="exact", help="settle policy (exact)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a host setting")
    options = parser.parse_args()
    if wrong := set(options.templates) - {"off", "on"}:
        parser.error(f"--templates accepts off and on, not {', '.join(wrong)}")
    return options


@dataclass(slots=True)
class Books:
    """Events of a window. `began` and `ended` are on the monotonic clock."""

    began: float = 0.0
    ended: float = 0.0
    cpu_s: float = 0.0
    client_cpu_s: float = 0.0
    pss_mib: float = 0.0
    results: list[tuple[float, Result]] = field(default_factory=list)
    templates: Counter[str] = field(default_factory=Counter)


class Policy(OraclePolicy):
    """Oracle that also records whether an episode came from a template."""

    books: Books

    async def act(self, obs: Any, task: dict[str, Any], step: int) -> list[dict[str, Any]]:
        if step == 0 and (said := obs.episode.template):
            self.books.templates[said] += 1
        return await super().act(obs, task, step)


async def _watch(books: Books, pid: int | None, ramp_s: float, seconds: float) -> None:
    await asyncio.sleep(ramp_s)
    window = Window(pid, None) if pid is not None else None
    books.began, own = time.monotonic(), time.process_time()
    if window is None:
        await asyncio.sleep(seconds)
    else:
        await window.watch(seconds, memory=True)
        window.sample()
        row = window.row(0, "")
        books.cpu_s, books.pss_mib = row["cpu_s"], row["pss_mib"]
    books.ended, books.client_cpu_s = time.monotonic(), time.process_time() - own


async def _run(url: str, pid: int | None, count: int, tasks: list[ShippedTask], cell: Cell) -> Books:
    books = Books()
    policy = Policy(tasks, cell.think_s)
    policy.books = books
    watching = asyncio.create_task(_watch(books, pid, cell.ramp_s, cell.seconds))
    todo = itertools.takewhile(lambda _: not watching.done(), rounds(tasks))
    async with AsyncClient(url) as client:
        async for result in client.run(
            todo, policy, concurrency=count, settle=cell.settle, wait_s=300, progress=False
        ):
            books.results.append((time.monotonic(), result))
    await watching
    return books


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement: its duration and its policy."""

    think_s: float
    settle: str
    ramp_s: float
    seconds: float

    @staticmethod
    def of(think_s: float, tasks: list[ShippedTask], *, settle: str, ramp_s: float, seconds: float) -> Cell:
        """Return a cell whose ramp and window include the think time of mean trajectories."""
        thinks_s = think_s * statistics.fmean(len(task.oracle) for task in tasks)
        return Cell(think_s, settle, ramp_s + thinks_s, seconds + 2 * thinks_s)


def row_of(books: Books, count: int, cores: int) -> dict[str, Any]:
    """Return the figures of a window, and the raw series of the trajectories that ended in it."""
    seconds = books.ended - books.began
    within = [result for at, result in books.results if books.began <= at <= books.ended]
    good = [result for result in within if result.reward == 1.0]
    per_minute = 60 * len(good) / seconds
    steps = [step for result in within for step in result.steps if step.timing]
    row: dict[str, Any] = {
        "replicas": count,
        "seconds": round(seconds, 3),
        "episodes": len(within),
        "solved": len(good),
        "failures": dict(Counter(r.failure.code for r in within if r.failure)),
        "unsolved": dict(Counter(r.task["id"] for r in within if r.reward is not None and r.reward < 1)),
        "steps": len(steps),
        "per_minute": round(per_minute, 3),
        "per_minute_and_core": round(per_minute / cores, 3),
        "templates": dict(books.templates),
        "client_cpu_s": round(books.client_cpu_s, 3),
        "trajectory_s": [round(r.duration_s, 3) for r in good],
        "steps_per_episode": [len(r.steps) for r in good],
        "setup_ms": [round(r.trajectory.reset_ms.get("setup", 0.0), 1) for r in good],
        "reset_ms": [round(r.trajectory.reset_ms.get("total", 0.0), 1) for r in good],
        "step_ms": [round(step.timing.total_ms, 2) for step in steps if step.timing],
        "settle_ms": [round(step.timing.settle_ms, 2) for step in steps if step.timing],
    }
    if books.cpu_s:
        row |= {
            "cpu_s": books.cpu_s,
            "pss_mib": books.pss_mib,
            "per_core_minute": round(60 * len(good) / books.cpu_s, 3),
            "per_minute_and_gib": round(per_minute / (books.pss_mib / 1024), 3),
        }
    return row


@contextlib.contextmanager
def _host(options: argparse.Namespace, count: int, templates: str) -> Iterator[tuple[str, int | None]]:
    if options.hosts:
        yield options.hosts, None
        return
    settings: dict[str, str | int | float] = {
        "warm": min(count, 4), "max_replicas": count + 2, "cpu_per_replica": 0, "trajectory": "off",
        "task_templates": templates, **dict(item.split("=", 1) for item in options.set),
    }  # fmt: skip
    with local_service(options.flavor, settings, timeout_s=180) as served:
        yield served


def _shown(row: dict[str, Any]) -> str:
    used = f"{row['per_core_minute']:.1f} a core-minute used, " if "per_core_minute" in row else ""
    median = summary(row["step_ms"])["median"]
    return (
        f"  think {row['think_s']:g} s, templates {row['templates_setting']}, {row['replicas']} replicas: "
        f"{row['per_minute']:.1f} a minute, {used}{row['solved']} of {row['episodes']} earned 1, "
        f"step median {median:.0f} ms"
    )


def _ladder(
    options: argparse.Namespace, think_s: float, tasks: list[ShippedTask], cores: int
) -> Iterator[dict[str, Any]]:
    """Yield all counts of replicas of one think time; an arm ends where its throughput falls."""
    best = dict.fromkeys(options.templates, 0.0)
    times = {"ramp_s": options.ramp_s, "seconds": options.seconds}
    cell = Cell.of(think_s, tasks, settle=options.settle, **times)
    for place, count in enumerate(options.replicas):
        arms = list(best)
        for arm in arms if place % 2 == 0 else arms[::-1]:
            with _host(options, count, arm) as (url, pid):
                books = asyncio.run(_run(url, pid, count, tasks, cell))
            row = {"think_s": think_s, "templates_setting": arm, **row_of(books, count, cores)}
            print(_shown(row), flush=True)
            yield row
            if row["per_minute"] < FALLS * best[arm]:
                del best[arm]
            else:
                best[arm] = max(best[arm], row["per_minute"])
        if not best:
            return


def main() -> int:
    options = _arguments()
    only = tuple(options.only)
    long = options.tasks == "long"
    tasks = choose_long(options.flavor, only, options.certain) if long else choose(options.flavor, only)
    # In an order of no meaning, always the same: a window that ends before all were played has a fair part.
    random.Random(1).shuffle(tasks)
    described = machine()
    lengths = [len(task.oracle) for task in tasks]
    print(
        f"{described['cpu']}, {described['cores']} cores, load {described['load_before']:.1f}; "
        f"{len(tasks)} tasks of {min(lengths)} to {max(lengths)} steps"
    )
    extra = dict(item.split("=", 1) for item in options.set)
    runtime = extra.get("runtime", "local")
    series = []
    for number in range(options.rounds):
        for think_s in options.think_s:
            series += [
                {"round": number, **row} for row in _ladder(options, think_s, tasks, described["cores"])
            ]
    chosen = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items() if k != "out"}
    result = {
        "machine": described,
        "runtime": runtime,
        "image": options.flavor,
        "options": chosen,
        "tasks": [{"task": task.name, "steps": len(task.oracle)} for task in tasks],
        "series": series,
    }
    print(f"raw series: {save(f'throughput_{runtime}_{options.flavor}', result, options.out)}")
    return 1 if any(row["failures"] or row["unsolved"] for row in series) else 0


if __name__ == "__main__":
    raise SystemExit(main())
