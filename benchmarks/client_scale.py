"""One client and a thousand replicas: throughput, CPU, latency, memory, and the loss of a host.

    python -m benchmarks.client_scale                    # 1,024 replicas on 8 hosts, 100,000 steps
    python -m benchmarks.client_scale --quick            # 128 on 4, 5,000 steps

Eight real host agents, a process each, run over replicas that answer each step after 100 ms with a frame that
was recorded from a real desktop at the start (`--frames`: a folder of PNG files instead). One `osgym_sdk`
client in this process steps all of them with `step_async` and `ready(n)`; they share the machine's cores.

`throughput`: rounds without a pause, the SDK's and those of a bare client (`scale_raw`) in turns on the same
leases: what the bare one gets is what servers and machine allow. `requests`: a process for each environment, on
fewer of them. `latency`: each replica steps at fixed times, as policies that think do, at shares of what
the bare client got; what is added to the 100 ms. `memory`: resident memory over `--steps` steps in episodes
of `--episode-steps`. `kill`: the same fixed times at half of that, and one host gets a SIGKILL.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import LISTENING, ROOT, argument_parser, local_service, machine, quantile, save
from benchmarks.data_server import TASK
from benchmarks.load_curve import TICK_S
from benchmarks.scale_raw import RawClient, RawEpisode, requests_processes
from osgym_sdk import AsyncClient, AsyncEpisode, Client, OSGymError, Ticket, Timeouts

STEP_MS = 100.0
LEASE_TTL_S = 900.0
TICK_OF_PACE_S = 0.01
RETRY_S = 3.0
"""A host that does not answer is lost after so long; the SDK's own default waits for an agent that restarts."""
ACTION = {"op": "click", "x": 100, "y": 200}
PHASES = ("throughput", "requests", "latency", "memory", "kill")


@dataclass(slots=True)
class Host:
    """A host agent of this run."""

    process: subprocess.Popen[bytes]
    url: str = ""

    def cpu_s(self) -> float:
        """CPU time so far; of one that was killed, nothing more."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) * TICK_S


@contextlib.contextmanager
def host_agents(count: int, replicas: int, frames: Path) -> Iterator[list[Host]]:
    """Run so many host agents with so many replicas each, all of them ready."""
    with tempfile.TemporaryDirectory(prefix="osgym-scale-") as folder:
        settings = {
            "ports": 0, "image": "small", "warm": replicas, "max_replicas": replicas, "max_starting": 32,
            "ram_reserve_mib": 0, "replica_ram_mib": 64, "disk_reserve_mib": 0, "cpu_per_replica": 0,
            "trajectory": "off", "osgym_max_steps": 1_000_000,
        }  # fmt: skip
        env = {**os.environ, "SCALE_FRAMES": str(frames), "SCALE_STEP_MS": str(STEP_MS)}
        hosts = []
        try:
            for number in range(count):
                own = {**settings, "data_dir": f"{folder}/{number}", "instance": f"scale-{number}"}
                argv = [sys.executable, "-m", "benchmarks.scale_agent", "serve"]
                for name, value in own.items():
                    argv += ["--set", f"{name}={value}"]
                with Path(folder, f"{number}.log").open("wb") as log:
                    hosts.append(Host(subprocess.Popen(argv, stdout=log, stderr=log, cwd=ROOT, env=env)))
            for number, host in enumerate(hosts):
                host.url = _listens(host, Path(folder, f"{number}.log"))
            yield hosts
        finally:
            for host in hosts:
                host.process.send_signal(signal.SIGINT)
            for host in hosts:
                try:
                    host.process.wait(60)
                except subprocess.TimeoutExpired:
                    host.process.kill()
                    host.process.wait()


def _listens(host: Host, log: Path) -> str:
    end_s = time.monotonic() + 120
    while time.monotonic() < end_s and host.process.poll() is None:
        if found := LISTENING.search(log.read_text(errors="replace")):
            return found.group(1)
        time.sleep(0.05)
    raise SystemExit(f"a host agent did not come up:\n{log.read_text(errors='replace')[-2000:]}")


def record_frames(folder: Path) -> None:
    """Keep some frames of a real desktop of the small image, as its host answers them."""
    doings: list[Any] = [
        [{"op": "click", "x": 640, "y": 500, "button": "right"}],
        [{"op": "key", "keys": ["escape"]}],
        [{"op": "key", "keys": ["alt", "f2"]}],
        [{"op": "type", "text": "xfce4-terminal"}],
        [{"op": "key", "keys": ["enter"]}],
        {"op": "wait", "duration_ms": 3000},
        [{"op": "type", "text": "ls -l /usr/bin | head -n 40", "press_enter": True}],
        [{"op": "type", "text": "cat /etc/passwd", "press_enter": True}],
    ]
    with (
        local_service("small", {"max_replicas": 1, "warm": 1, "trajectory": "off"}) as (url, _),
        Client(url) as client,
        client.episode(wait_s=60) as episode,
    ):
        shown = [episode.observation, *(episode.step(doing) for doing in doings)]
        kept = dict.fromkeys(obs.data for obs in shown if obs.data)
        for number, data in enumerate(kept):
            (folder / f"{number:02d}.png").write_bytes(data)


@dataclass(slots=True)
class Books:
    """What was used between `open` and `row`, and what steps took."""

    hosts: list[Host]
    began_s: float = field(default_factory=time.monotonic)
    own_s: float = field(default_factory=time.process_time)
    servers_s: float = 0.0
    machine_s: float = 0.0
    steps: int = 0
    errors: int = 0
    step_ms: list[float] = field(default_factory=list)
    per_second: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.servers_s = sum(host.cpu_s() for host in self.hosts)
        self.machine_s = busy_s()

    def step(self, sent_s: float) -> None:
        """Note a step that was answered."""
        now_s = time.monotonic()
        self.steps += 1
        self.step_ms.append((now_s - sent_s) * 1000)
        second = int(now_s - self.began_s)
        self.per_second[second] = self.per_second.get(second, 0) + 1

    def row(self, client: str, **more: Any) -> dict[str, Any]:
        """Return what there is to say. CPU of `others` is what ran on the machine beside the benchmark."""
        seconds = time.monotonic() - self.began_s
        own_s = time.process_time() - self.own_s
        servers_s = sum(host.cpu_s() for host in self.hosts) - self.servers_s
        others_s = max(0.0, busy_s() - self.machine_s - own_s - servers_s)
        added = [taken - STEP_MS for taken in self.step_ms]
        return {
            "client": client,
            **more,
            "seconds": round(seconds, 2),
            "steps": self.steps,
            "errors": self.errors,
            "steps_per_s": round(self.steps / seconds, 1),
            "client_cpu_ms_per_step": round(1000 * own_s / max(1, self.steps), 4),
            "servers_cpu_ms_per_step": round(1000 * servers_s / max(1, self.steps), 4),
            "cores_of_client": round(own_s / seconds, 3),
            "cores_of_servers": round(servers_s / seconds, 3),
            "cores_of_others": round(others_s / seconds, 3),
            "added_ms_p50": round(quantile(added, 0.5), 2),
            "added_ms_p99": round(quantile(added, 0.99), 2),
            "each_second": [self.per_second.get(second, 0) for second in range(int(seconds))],
        }


def busy_s() -> float:
    """CPU time that all of the machine has used so far, in seconds, without waiting."""
    user, nice, system, _, _, irq, softirq = (
        int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) * TICK_S


class Sdk:
    """The client of the SDK, by `step_async` and `ready`."""

    name = "osgym_sdk"

    def __init__(self, client: AsyncClient, episodes: list[AsyncEpisode], ready: int) -> None:
        self._client, self._episodes, self._batch = client, episodes, ready
        self._sent_s: dict[AsyncEpisode, float] = {}

    def _send(self, episode: AsyncEpisode) -> None:
        self._sent_s[episode] = time.monotonic()
        self._client.step_async(episode, ACTION)

    def _take(self, episode: AsyncEpisode, outcome: Any, books: Books) -> None:
        if isinstance(outcome, OSGymError):
            books.errors += 1
        else:
            books.step(self._sent_s[episode])

    async def closed(self, seconds: float, books: Books) -> None:
        """Step each again as soon as a batch with it is ready."""
        end_s = time.monotonic() + seconds
        for episode in self._episodes:
            self._send(episode)
        while time.monotonic() < end_s:
            got = [item async for item in self._client.ready(self._batch)]
            for episode, outcome in got:
                self._take(episode, outcome, books)
                self._send(episode)

    async def settle(self) -> None:
        """Take what is still under way."""
        async for _ in self._client.ready():
            pass

    async def paced(self, seconds: float, every_s: float, books: Books, losses: Losses | None = None) -> None:
        """Step each every so often, at times of its own; late ones at once."""
        pace = Pace([*self._episodes], every_s)
        end_s = time.monotonic() + seconds

        async def send() -> None:
            while time.monotonic() < end_s:
                for episode in pace.due():
                    self._send(episode)
                await asyncio.sleep(TICK_OF_PACE_S)

        sending = asyncio.create_task(send())
        while not sending.done():
            async for episode, outcome in self._client.ready():
                if isinstance(outcome, OSGymError) and losses is not None:
                    losses.add(outcome)
                    continue
                self._take(episode, outcome, books)
                if time.monotonic() < end_s:
                    pace.again(episode)
            await asyncio.sleep(TICK_OF_PACE_S)
        await sending


class Raw:
    """The bare client."""

    name = "bare"

    def __init__(self, episodes: list[RawEpisode], ready: int) -> None:
        self._episodes, self._batch = episodes, ready
        self._done: asyncio.Queue[RawEpisode] = asyncio.Queue()
        self._client = RawClient(self._done.put_nowait)
        self._open = 0

    async def closed(self, seconds: float, books: Books) -> None:
        """As the SDK's."""
        end_s = time.monotonic() + seconds
        await self._client.step(self._episodes)
        self._open = len(self._episodes)
        while time.monotonic() < end_s:
            got = [await self._done.get() for _ in range(self._batch)]
            for episode in got:
                books.step(episode.sent_s)
            await self._client.step(got)

    async def settle(self) -> None:
        """Take what is still under way."""
        for _ in range(self._open):
            await self._done.get()
        self._open = 0
        self._client.close()

    async def paced(self, seconds: float, every_s: float, books: Books) -> None:
        """As the SDK's."""
        pace = Pace(self._episodes, every_s)
        end_s = time.monotonic() + seconds

        async def send() -> None:
            while time.monotonic() < end_s:
                due = pace.due()
                self._open += len(due)
                await self._client.step(due)
                await asyncio.sleep(TICK_OF_PACE_S)

        sending = asyncio.create_task(send())
        while not sending.done() or self._open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_OF_PACE_S):
                    while True:
                        episode = await self._done.get()
                        self._open -= 1
                        books.step(episode.sent_s)
                        pace.again(episode)
        await sending


class Pace:
    """Says which are due: each every `every_s` seconds, spread evenly."""

    def __init__(self, members: list[Any], every_s: float) -> None:
        self._every_s, now_s = every_s, time.monotonic()
        self._due = {member: now_s + every_s * n / len(members) for n, member in enumerate(members)}
        self._waiting = dict(self._due)

    def due(self) -> list[Any]:
        """Return those whose time has come; none of them comes again before `again`."""
        now_s = time.monotonic()
        found = [member for member, due_s in self._waiting.items() if due_s <= now_s]
        for member in found:
            del self._waiting[member]
        return found

    def again(self, member: Any) -> None:
        """Let it be due at its next time, now where that is over."""
        self._due[member] += self._every_s
        self._waiting[member] = self._due[member]


@dataclass(slots=True)
class Losses:
    """What became of the episodes of a host that was killed."""

    killed_s: float = 0.0
    found_s: list[float] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)

    def add(self, error: OSGymError) -> None:
        """Note an error, and how long after the kill it came."""
        self.found_s.append(round(time.monotonic() - self.killed_s, 3))
        kind = f"{type(error).__name__} ({error.details.get('cause', error.code)})"
        self.kinds[kind] = self.kinds.get(kind, 0) + 1


class Run:
    """The phases, on the same hosts one after the other."""

    def __init__(self, options: argparse.Namespace, hosts: list[Host]) -> None:
        self.options, self.hosts = options, hosts
        self.urls = [host.url for host in hosts]
        self.result: dict[str, Any] = {}
        self.ceiling = 0.0
        self._tickets: list[Ticket] = []
        self._seq: dict[str, int] = {}

    def client(self) -> AsyncClient:
        return AsyncClient(self.urls, timeouts=Timeouts(retry_s=RETRY_S))

    def say(self, text: str) -> None:
        """Say how far it is, on a line of its own."""
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
        """The leases in a client of the SDK."""
        async with self.client() as client:
            episodes = [client.attach(ticket) for ticket in self._tickets]
            await asyncio.gather(*(episode.start() for episode in episodes))
            made = Sdk(client, episodes, self.options.ready)
            yield made
            await made.settle()
            self._let_go(episodes)

    @contextlib.asynccontextmanager
    async def raw(self) -> AsyncIterator[Raw]:
        """The leases in the bare client."""
        episodes = [RawEpisode(t.host, t.episode_id, t.lease, self._seq[t.episode_id]) for t in self._tickets]
        made = Raw(episodes, self.options.ready)
        yield made
        await made.settle()
        self._seq = {episode.episode_id: episode.seq for episode in episodes}

    async def throughput(self) -> None:
        """Rounds without a pause, in turns."""
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
        # Of a machine that is full: what a step costs in all, without what others take meanwhile.
        costs = [
            quantile([row["client_cpu_ms_per_step"] + row["servers_cpu_ms_per_step"] for row in part], 0.5)
            for part in (bare, ours)
        ]
        self.result["throughput"] = {
            "ceiling_steps_per_s": self.ceiling,
            "share": round(quantile([row["steps_per_s"] for row in ours], 0.5) / self.ceiling, 4),
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
            await asyncio.gather(*(episode.close() for episode in episodes))
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
        """Fixed times, at shares of the ceiling."""
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
                    f"{row['client']:9} at {share:.2f} of the ceiling: {row['steps_per_s']:.0f} steps/s, added "
                    f"p50 {row['added_ms_p50']:.1f} ms, p99 {row['added_ms_p99']:.1f} ms"
                )
        self.result["latency"] = {"rows": rows}

    async def memory(self) -> None:
        """Many episodes one after the other in each replica; what the process holds meanwhile."""
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
                    task = asyncio.create_task(episode.close())
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
            await asyncio.gather(*closing, *(episode.close() for episode in left))
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
        """One host dies while all step at fixed times, at half of the ceiling."""
        every_s = self.options.replicas / (0.5 * self.ceiling)
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
            await asyncio.gather(*(episode.close() for episode in rest))
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
            f"{max(losses.found_s, default=0):.1f} s; throughput after {self.result['kill']['share_after']:.3f}"
        )


def _rates(books: Books, killed_s: float, every_s: float) -> tuple[float, float]:
    """Return steps per second before a kill (without the first round) and from 5 s after it."""
    seconds = [books.per_second.get(second, 0) for second in range(int(time.monotonic() - books.began_s))]
    before = seconds[min(int(every_s) + 1, int(killed_s) - 5) : int(killed_s)]
    after = seconds[int(killed_s) + 6 : -1]
    return round(sum(before) / len(before), 1), round(sum(after) / max(1, len(after)), 1)


def rss_mib() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


async def measure(run: Run, phases: list[str]) -> None:
    """Run the phases that are asked for."""
    await run.lease()
    for phase in phases:
        print(f"{phase} ...", flush=True)
        if not run._tickets:
            await run.lease()
        await getattr(run, phase)()


def arguments() -> argparse.Namespace:
    """The command line."""
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
        "--phases", type=lambda text: text.split(","), default=list(PHASES), help=f"some of {','.join(PHASES)}"
    )
    options = parser.parse_args()
    full = {"replicas": 1024, "hosts": 8, "steps": 100_000, "seconds": 20.0, "rounds": 3, "processes": 32}
    quick = {"replicas": 128, "hosts": 4, "steps": 5_000, "seconds": 5.0, "rounds": 1, "processes": 8}
    for name, value in (quick if options.quick else full).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.replicas % options.hosts or options.hosts < 2:
        parser.error("--replicas is a multiple of --hosts, and --hosts 2 or more: one is killed")
    if unknown := set(options.phases) - set(PHASES):
        parser.error(f"--phases: {sorted(unknown)[0]!r} is none of {', '.join(PHASES)}")
    if "throughput" not in options.phases:
        parser.error("--phases: throughput comes first: the others are at shares of what it finds")
    options.sample_steps = max(100, options.steps // 100)
    options.ready = min(options.ready, options.replicas)
    return options


def main() -> int:
    """Run the benchmark."""
    options = arguments()
    described = machine()
    print(f"{described['cpu']}, {described['cores']} cores; {options.replicas} replicas on {options.hosts} hosts")
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
