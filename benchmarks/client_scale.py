"""One client and a thousand replicas: throughput, CPU, latency, memory, and the loss of a host.

    python -m benchmarks.client_scale                    # 1,024 replicas on 8 hosts, 100,000 steps
    python -m benchmarks.client_scale --quick            # 128 on 4, 5,000 steps

Eight real host agents, a process each, run over replicas that answer each step after 100 ms with a frame that
was recorded from a real desktop at the start (`--frames`: a folder of PNG files instead). One `osgym_sdk`
client in this process steps all of them with `step_async` and `ready(n)`; they share the machine's cores.

`throughput`: rounds without a pause, the SDK's and those of a bare client (`scale_raw`) in turns on the same
leases: what the bare one gets is what servers and machine allow. `requests`: a process for each environment,
on fewer of them. `latency`: each replica steps at fixed times, as policies that think do, at shares of what
the bare client got; what is added to the 100 ms. `memory`: resident memory over `--steps` steps in episodes
of `--episode-steps`. `kill`: fixed times at half of what the SDK got, and one host gets a SIGKILL.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from benchmarks.common import argument_parser, machine, quantile, save
from benchmarks.data_server import TASK
from benchmarks.scale_hosts import STEP_MS, Host, host_agents, record_frames
from benchmarks.scale_load import ACTION, Books, Losses, Raw, Sdk, rss_mib
from benchmarks.scale_raw import RawEpisode, requests_processes
from osgym_sdk import AsyncClient, AsyncEpisode, OSGymError, Ticket, Timeouts

LEASE_TTL_S = 900.0
RETRY_S = 2.0
"""Time after which a host counts as lost; the SDK's default waits for an agent that restarts."""
PHASES = ("throughput", "requests", "latency", "memory", "kill")


class Run:
    """Phases, on the same hosts one after the other."""

    def __init__(self, options: argparse.Namespace, hosts: list[Host]) -> None:
        self.options, self.hosts = options, hosts
        self.urls = [host.url for host in hosts]
        self.result: dict[str, Any] = {}
        self.ceiling = self.ours = 0.0
        self._tickets: list[Ticket] = []
        self._seq: dict[str, int] = {}

    def client(self) -> AsyncClient:
        return AsyncClient(self.urls, timeouts=Timeouts(retry_s=RETRY_S))

    def say(self, text: str) -> None:
        """Print the progress on a line of its own."""
        print(f"  {text}", flush=True)

    async def lease(self) -> None:
        """Lease all replicas once; the phases hand the leases on."""
        began_s = time.monotonic()
        async with self.client() as client:
            episodes = client.reset_many([None] * self.options.replicas, lease_ttl_s=LEASE_TTL_S, wait_s=300)
            async for _, outcome in client.ready():
                if isinstance(outcome, OSGymError):
                    raise outcome
            self._let_go(episodes)
        self.result["lease_s"] = round(time.monotonic() - began_s, 2)
        self.say(f"{len(episodes)} leased in {self.result['lease_s']} s")

    def _let_go(self, episodes: list[AsyncEpisode]) -> None:
        self._seq = {episode.episode_id: episode.observation.seq for episode in episodes}
        self._tickets = [episode.detach() for episode in episodes]

    @contextlib.asynccontextmanager
    async def sdk(self) -> AsyncIterator[Sdk]:
        """Yield the leases in a client of the SDK."""
        async with self.client() as client:
            episodes = [client.attach(ticket) for ticket in self._tickets]
            await asyncio.gather(*(episode.start() for episode in episodes))
            made = Sdk(client, episodes, self.options.ready)
            yield made
            await made.settle()
            self._let_go(episodes)

    @contextlib.asynccontextmanager
    async def raw(self) -> AsyncIterator[Raw]:
        episodes = [RawEpisode(t.host, t.episode_id, t.lease, self._seq[t.episode_id]) for t in self._tickets]
        made = Raw(episodes, self.options.ready)
        yield made
        await made.settle()
        self._seq = {episode.episode_id: episode.seq for episode in episodes}

    async def throughput(self) -> None:
        rows = []
        for number in range(self.options.rounds):
            for enter in (self.raw, self.sdk):
                async with enter() as load:
                    books = Books(self.hosts)
                    await load.closed(self.options.seconds, books)
                    rows.append(books.row(load.name, round=number))
                row = rows[-1]
                self.say(
                    f"{row['client']:9} {row['steps_per_s']:7.1f} steps/s, CPU ms/step: client "
                    f"{row['client_cpu_ms_per_step']:.3f}, servers {row['servers_cpu_ms_per_step']:.3f}; "
                    f"cores of others {row['cores_of_others']:.2f}"
                )
        bare, ours = ([row for row in rows if row["client"] == name] for name in (Raw.name, Sdk.name))
        self.ceiling = quantile([row["steps_per_s"] for row in bare], 0.5)
        self.ours = quantile([row["steps_per_s"] for row in ours], 0.5)
        # Of a machine that is full: what a step costs in all, without what others take meanwhile.
        costs = [
            quantile([row["client_cpu_ms_per_step"] + row["servers_cpu_ms_per_step"] for row in part], 0.5)
            for part in (bare, ours)
        ]
        self.result["throughput"] = {
            "ceiling_steps_per_s": self.ceiling,
            "share": round(self.ours / self.ceiling, 4),
            "share_by_cpu": round(costs[0] / costs[1], 4),
            "client_cpu_ms_per_step": quantile([row["client_cpu_ms_per_step"] for row in ours], 0.5),
            "rows": rows,
        }
        self.say(f"share of the ceiling {self.result['throughput']['share']:.3f}")

    async def requests(self) -> None:
        """A process for each environment, on replicas that are given back for it."""
        count = min(self.options.processes, self.options.replicas)
        async with self.client() as client:
            given, self._tickets = self._tickets[:count], self._tickets[count:]
            episodes = [client.attach(ticket) for ticket in given]
            await asyncio.gather(*(episode.start() for episode in episodes))
            await asyncio.gather(*(episode.aclose() for episode in episodes))
        urls = [ticket.host for ticket in given]
        rows = [
            await asyncio.to_thread(requests_processes, urls, TASK, count, self.options.seconds, kept)
            for kept in (False, True)
        ]
        for row in rows:
            self.say(f"requests, connections {row['connections']}: {row['cpu_ms_per_step']:.2f} CPU ms/step")
        await self._refill(count)
        self.result["requests"] = {"rows": rows}

    async def _refill(self, count: int) -> None:
        async with self.client() as client:
            episodes = client.reset_many([None] * count, lease_ttl_s=LEASE_TTL_S, wait_s=300)
            async for _, outcome in client.ready():
                if isinstance(outcome, OSGymError):
                    raise outcome
            self._seq |= {episode.episode_id: episode.observation.seq for episode in episodes}
            self._tickets += [episode.detach() for episode in episodes]

    async def latency(self) -> None:
        """Steps at fixed times, at shares of the ceiling."""
        rows = []
        for share in self.options.loads:
            every_s = self.options.replicas / (share * self.ceiling)
            for enter in (self.raw, self.sdk):
                async with enter() as load:
                    warm = Books(self.hosts)
                    await load.paced(every_s, every_s, warm)
                async with enter() as load:
                    books = Books(self.hosts)
                    await load.paced(max(self.options.seconds, 2 * every_s), every_s, books)
                    rows.append(books.row(load.name, share=share, every_s=round(every_s, 3)))
                row = rows[-1]
                self.say(
                    f"{row['client']:9} at {share:.2f} of the ceiling: {row['steps_per_s']:.0f} steps/s, "
                    f"added p50 {row['added_ms_p50']:.1f} ms, p99 {row['added_ms_p99']:.1f} ms"
                )
        self.result["latency"] = {"rows": rows}

    async def memory(self) -> None:
        """Many episodes one after the other in each replica, and the process's memory meanwhile."""
        options, rng = self.options, random.Random(1)
        samples: list[list[float]] = []
        steps = errors = finished = 0
        left: dict[AsyncEpisode, int] = {}
        closing: set[asyncio.Task[None]] = set()
        async with self.client() as client:
            books = Books(self.hosts)
            episodes = [client.attach(ticket) for ticket in self._tickets]
            await asyncio.gather(*(episode.start() for episode in episodes))
            for episode in episodes:
                left[episode] = rng.randint(1, options.episode_steps)
                client.step_async(episode, ACTION)
            while steps < options.steps:
                async for episode, outcome in client.ready(options.ready):
                    if isinstance(outcome, OSGymError):
                        errors += 1
                        print(f"  {outcome}", file=sys.stderr)
                        left[episode] = 0
                    elif episode in left:
                        steps += 1
                        left[episode] -= 1
                    else:
                        left[episode] = options.episode_steps  # it has just begun
                    if left[episode] > 0:
                        client.step_async(episode, ACTION)
                        continue
                    del left[episode]
                    finished += 1
                    task = asyncio.create_task(episode.aclose())
                    closing.add(task)
                    task.add_done_callback(closing.discard)
                    client.reset_many([None], lease_ttl_s=LEASE_TTL_S, wait_s=300)
                if steps // options.sample_steps >= len(samples):
                    samples.append([steps, round(time.monotonic() - books.began_s, 1), rss_mib()])
                    if len(samples) % 10 == 0:
                        self.say(f"{steps} steps, {samples[-1][2]:.1f} MiB")
            books.steps = steps
            async for episode, outcome in client.ready():
                if not isinstance(outcome, OSGymError):
                    left.setdefault(episode, 0)
            await asyncio.gather(*closing, *(episode.aclose() for episode in left))
        self._tickets = []
        fifth = max(1, len(samples) // 5)
        early, late = samples[fifth : 2 * fifth], samples[-fifth:]
        middle = [quantile([row[2] for row in part], 0.5) for part in (early, late)]
        self.result["memory"] = {
            "steps": steps,
            "episodes": finished,
            "errors": errors,
            "rss_mib_second_fifth": round(middle[0], 1),
            "rss_mib_last_fifth": round(middle[1], 1),
            "steps_per_s": round(steps / samples[-1][1], 1),
            "steps_seconds_rss_mib": samples,
        }
        self.say(f"resident: {middle[0]:.1f} MiB in the second fifth, {middle[1]:.1f} MiB in the last")

    async def kill(self) -> None:
        """Kill one host while all step at fixed times, at half of the SDK's rate without a pause."""
        every_s = self.options.replicas / (0.5 * self.ours)
        before_s, after_s = max(15.0, 2 * every_s), max(20.0, 2 * every_s)
        victim, losses = self.hosts[-1], Losses()
        of_victim = sum(ticket.host == victim.url for ticket in self._tickets)
        async with self.client() as client:
            episodes = [client.attach(ticket) for ticket in self._tickets]
            await asyncio.gather(*(episode.start() for episode in episodes))
            load = Sdk(client, episodes, self.options.ready)
            books = Books(self.hosts)
            paced = asyncio.create_task(load.paced(before_s + after_s, every_s, books, losses))
            await asyncio.sleep(before_s)
            losses.killed_s = time.monotonic()
            victim.process.kill()
            await paced
            rest = [episode for episode in episodes if episode.lost is None]
            rates = _rates(books, before_s, every_s)
            await asyncio.gather(*(episode.aclose() for episode in rest))
        self._tickets = []
        self.result["kill"] = {
            "retry_s": RETRY_S,
            "every_s": round(every_s, 3),
            "killed_at_s": round(before_s, 2),
            "episodes_there": of_victim,
            "lost": len(losses.found_s),
            "kinds": losses.kinds,
            "left": len(rest),
            "steps_per_s_before": rates[0],
            "steps_per_s_after": rates[1],
            "share_after": round(rates[1] / rates[0], 4),
            "last_loss_s": max(losses.found_s, default=None),
            "loss_s": losses.found_s,
            "each_second": books.row(Sdk.name)["each_second"],
        }
        self.say(
            f"killed: {len(losses.found_s)} of {of_victim} lost, the last after "
            f"{max(losses.found_s, default=0):.1f} s; rate after {self.result['kill']['share_after']:.3f}"
        )


def _rates(books: Books, killed_s: float, every_s: float) -> tuple[float, float]:
    """Return steps per second before a kill (without the first round) and from 5 s after it."""
    seconds = [books.per_second.get(second, 0) for second in range(int(time.monotonic() - books.began_s))]
    before = seconds[min(int(every_s) + 1, int(killed_s) - 5) : int(killed_s)]
    after = seconds[int(killed_s) + 6 : -1]
    return round(sum(before) / len(before), 1), round(sum(after) / max(1, len(after)), 1)


async def measure(run: Run, phases: list[str]) -> None:
    await run.lease()
    for phase in phases:
        print(f"{phase} ...", flush=True)
        if not run._tickets:
            await run.lease()
        await getattr(run, phase)()


def arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("--replicas", type=int, help="of all hosts together (1024; --quick: 128)")
    parser.add_argument("--hosts", type=int, help="host agents (8; --quick: 4)")
    parser.add_argument("--steps", type=int, help="of the memory phase (100000; --quick: 5000)")
    parser.add_argument("--seconds", type=float, help="of each round (20; --quick: 5)")
    parser.add_argument("--rounds", type=int, help="of each client, in turns (3; --quick: 1)")
    parser.add_argument("--processes", type=int, help="environments with requests (32; --quick: 8)")
    parser.add_argument("--ready", type=int, default=64, help="outcomes that are waited for at a time (64)")
    parser.add_argument("--episode-steps", type=int, default=50, help="of the memory phase (50)")
    parser.add_argument("--frames", type=Path, help="folder of PNG frames (recorded anew)")
    parser.add_argument("--quick", action="store_true", help="small and short, to see that it works")
    parser.add_argument(
        "--loads", type=lambda text: [float(part) for part in text.split(",")], default=[0.25, 0.5, 0.75],
        help="shares of the ceiling at which latency is measured (0.25,0.5,0.75)",
    )  # fmt: skip
    parser.add_argument(
        "--phases",
        type=lambda text: text.split(","),
        default=list(PHASES),
        help=f"some of {','.join(PHASES)}",
    )
    options = parser.parse_args()
    full = {"replicas": 1024, "hosts": 8, "steps": 100_000, "seconds": 20.0, "rounds": 3, "processes": 32}
    quick = {"replicas": 128, "hosts": 4, "steps": 5_000, "seconds": 5.0, "rounds": 1, "processes": 8}
    for name, value in (quick if options.quick else full).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.replicas % options.hosts or options.hosts < 2:
        parser.error(
            "--replicas must be a multiple of --hosts, and --hosts 2 or more, since one host is killed"
        )
    if unknown := set(options.phases) - set(PHASES):
        parser.error(f"--phases: {sorted(unknown)[0]!r} is not one of {', '.join(PHASES)}")
    if "throughput" not in options.phases:
        parser.error("--phases: throughput must be included, since the others run at shares of its result")
    options.sample_steps = max(100, options.steps // 100)
    options.ready = min(options.ready, options.replicas)
    return options


def main() -> int:
    options = arguments()
    described = machine()
    print(f"{described['cpu']}, {described['cores']} cores: {options.replicas} on {options.hosts} hosts")
    with tempfile.TemporaryDirectory(prefix="osgym-frames-") as folder:
        frames = options.frames or Path(folder)
        if options.frames is None:
            record_frames(frames)
        sizes = [path.stat().st_size for path in sorted(frames.glob("*.png"))]
        print(f"{len(sizes)} frames, {sum(sizes) / max(1, len(sizes)) / 1000:.0f} kB on average", flush=True)
        with host_agents(options.hosts, options.replicas // options.hosts, frames) as hosts:
            run = Run(options, hosts)
            asyncio.run(measure(run, options.phases))
    chosen = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items() if k != "out"}
    result = {"machine": described, "options": chosen, "step_ms": STEP_MS, "frame_bytes": sizes, **run.result}
    print(f"raw series: {save('client_scale', result, options.out)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
