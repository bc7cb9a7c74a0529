"""A new image and agent rolled through a fleet with load on: are episodes lost, and how long does it take?

    PATH=$PATH:/path/to/pulumi python -m benchmarks.fleet_roll --bad --cut        # 200 hosts, agents on 24
    python -m benchmarks.fleet_roll --hosts 20 --agents 6 --episodes 8            # a look

The real engine and provider, real sshds (`fleet_hosts`), real host agents over fake replicas on the first
`--agents` hosts (`fleet_agents`), and one real SDK client that is never made anew. Episodes of random length
run all the time; each that ends otherwise than by itself is counted with its error. The runs: `up`; `up`
with a new image and agent; with `--bad`, `up` with an update that breaks hosts, which has to stop at the
first, and `up` with that put right; with `--cut`, `up` with a deadline of 0, to see what becomes of episodes
that are cut off. As root, with `pulumi` on PATH.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import random
import re
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import fleet_agents, fleet_hosts
from benchmarks.common import argument_parser, machine, save
from benchmarks.fleet_agents import AGENT_PORT
from benchmarks.fleet_hosts import Host
from benchmarks.fleet_up import ON, Project, configuration, measured
from osgym_sdk import AsyncClient, AsyncEpisode, EpisodeLost, NoCapacity, OSGymError

STEPS = (5, 40)
"""Range of an episode's random number of steps."""
THINK_S = 0.5
WAIT_S = 300.0
END_S = 120.0
LOST_SHOWN = 40


@dataclass
class Load:
    """Episodes that run all the time, in a thread of its own, for the time of the block.

    Attributes:
        series: Numbers once a second: running episodes, completed ones, those that saw a notice.
    """

    fleet_file: Path
    episodes: int
    completed: int = 0
    noticed: int = 0
    refused: int = 0  # starts that found no free replica in time: nothing had begun
    running: int = 0
    steps: int = 0
    hosts: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: list[dict[str, str]] = field(default_factory=list)
    slowest_start_s: float = 0.0
    slowest_step_s: float = 0.0
    series: list[dict[str, float]] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Load:
        self._began = time.monotonic()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_S + END_S)

    def counts(self) -> dict[str, Any]:
        return {
            "completed": self.completed, "noticed": self.noticed, "refused": self.refused,
            "steps": self.steps,
            "failed": len(self.failures), "hosts_used": len(self.hosts),
        }  # fmt: skip

    async def _run(self) -> None:
        rng = random.Random(16)
        async with AsyncClient.from_fleet(self.fleet_file) as client, asyncio.TaskGroup() as group:
            group.create_task(self._note())
            for _ in range(self.episodes):
                group.create_task(self._play(client, rng))

    async def _note(self) -> None:
        while not self._stop.is_set():
            now = round(time.monotonic() - self._began, 1)
            self.series.append({"t_s": now, "running": self.running, **self.counts()})
            await asyncio.sleep(1)

    async def _play(self, client: AsyncClient, rng: random.Random) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            episode = client.episode(wait_s=WAIT_S)
            where = ""
            try:
                await episode.start()
                where = episode.host
                self.slowest_start_s = max(self.slowest_start_s, time.monotonic() - began)
                self.hosts[where] += 1
                self.running += 1
                try:
                    await self._steps(episode, rng.randint(*STEPS))
                finally:
                    self.running -= 1
                self.noticed += episode.notice is not None
                await episode.aclose()
                self.completed += 1
            except NoCapacity:
                self.refused += 1
            except OSGymError as error:
                kind = (
                    f"{type(error).__name__}:{error.cause}" if isinstance(error, EpisodeLost) else error.code
                )
                self.failures.append({"kind": str(kind), "host": where, "message": str(error)[:300]})

    async def _steps(self, episode: AsyncEpisode, count: int) -> None:
        for _ in range(count):
            began = time.monotonic()
            await episode.step([{"op": "wait", "duration_ms": 1}])
            self.slowest_step_s = max(self.slowest_step_s, time.monotonic() - began)
            self.steps += 1
            await asyncio.sleep(THINK_S)


class Roll:
    def __init__(self, folder: Path, made: list[Host], login: Path, options: argparse.Namespace) -> None:
        self.folder, self.made, self.options = folder, made, options
        self.project = Project(folder / "project", options.work_s)
        (folder / "project/bootstrap.sh").write_text(fleet_agents.bootstrap(options.work_s))
        self.with_agent = made[: options.agents]
        given = configuration(folder, made, login, options.upload_mib)
        self.given = {
            **given, "hosts": given["hosts"][: len(made)], "replicas": len(made) * options.replicas,
            "max_replicas_per_host": options.replicas, "max_unavailable": options.max_unavailable,
            "drain_timeout_s": 600, "image_name": "small",
        }  # fmt: skip
        self.project.configure(self.given)
        for host in made[options.agents :]:
            host.without_agent()

    def new_image(self) -> None:
        for name in ("agent", "image"):
            (self.folder / f"{name}.tar").unlink()
        fresh = configuration(self.folder, self.made, self.folder / "login", self.options.upload_mib)
        digests = ("image_sha256", "image_digest", "agent_sha256")
        self.given |= {name: fresh[name] for name in digests}
        self.project.configure(self.given)

    def set(self, **values: object) -> None:
        self.given |= values
        self.project.configure(self.given)

    def up(self, name: str, load: Load | None = None) -> dict[str, Any]:
        """Run one `pulumi up`; return the load's events meanwhile, and how long hosts were away."""
        before = load.counts() if load is not None else {}
        failures = len(load.failures) if load is not None else 0
        if load is not None:
            load.slowest_start_s = load.slowest_step_s = 0.0
        began = time.time()
        result = measured(self.project, name, "up", ON)
        result["restarts_s"] = [round(s, 2) for host in self.with_agent for s in away_s(host, began)]
        if load is not None:
            time.sleep(5)
            met = load.failures[failures:]
            result["load"] = {
                **{key: value - before[key] for key, value in load.counts().items() if key != "hosts_used"},
                "slowest_start_s": round(load.slowest_start_s, 2),
                "slowest_step_s": round(load.slowest_step_s, 2),
                "lost": dict(collections.Counter(one["kind"] for one in met)),
                "examples": met[:LOST_SHOWN],
            }
            print(json.dumps(result["load"], indent=1), flush=True)
        return result

    def fleet_file(self) -> Path:
        """Return fleet.json of the hosts that have an agent, and the token beside it."""
        state = json.loads(self.project.run("stack", "export", "--show-secrets").stdout)
        secret = next(r for r in state["deployment"]["resources"] if "FleetSecrets" in r["type"])["outputs"]
        token = secret["token"]
        (self.folder / "token").touch(0o600)
        (self.folder / "token").write_text(
            json.loads(token["plaintext"]) if isinstance(token, dict) else token
        )
        urls = [f"https://{host.address}:{AGENT_PORT}" for host in self.with_agent]
        hosts = [
            {"id": url, "zone": "", "url": url, "server_name": "", "capacity": self.options.replicas,
             "market": "dedicated"}
            for url in urls
        ]  # fmt: skip
        data = {
            "schema_version": 1,
            "hosts": hosts,
            "ca": secret["caCertificate"],
            "token_secret": "file:token",
        }
        (self.folder / "fleet.json").write_text(json.dumps(data))
        return self.folder / "fleet.json"

    def digests(self) -> dict[str, int]:
        """Return the images that the agents serve, with the number of agents of each."""

        async def ask() -> dict[str, Any]:
            async with AsyncClient.from_fleet(self.folder / "fleet.json") as client:
                return dict(await client.host_states(timeout_s=60))

        states = asyncio.run(ask()).values()
        found = ["no answer" if isinstance(s, OSGymError) else s.image.digest[:12] for s in states]
        return dict(collections.Counter(found))

    def rss_mib(self) -> list[float]:
        found = []
        for host in self.with_agent:
            if match := re.search(r"^VmRSS:\s+(\d+)", host.agent_status(), re.MULTILINE):
                found.append(round(int(match[1]) / 1024, 1))
        return found


def away_s(host: Host, since: float) -> list[float]:
    """Return how long its agent was away, each time since then: from its end to a ready desktop."""
    stopped, serves = (
        [float(line) for line in host.read(f"opt/osgym/.{name}").split()] for name in ("stopped", "serves")
    )
    return [
        min(s for s in serves if s > end) - end
        for end in stopped
        if end >= since and max(serves, default=0.0) > end
    ]


def life(folder: Path, made: list[Host], login: Path, options: argparse.Namespace) -> dict[str, Any]:
    roll = Roll(folder, made, login, options)
    runs = [roll.up("up")]
    fleet_file = roll.fleet_file()
    memory = roll.rss_mib()
    print(f"agents: {len(memory)}, {sum(memory):.0f} MiB in all", flush=True)
    with Load(fleet_file, options.episodes) as load:
        time.sleep(10)
        roll.new_image()
        runs.append({**roll.up("roll: new image and agent", load), "images": roll.digests()})
        if options.bad:
            for host in roll.with_agent:
                host.breaks("health", True)
            roll.new_image()
            runs.append({**roll.up("roll: an update that breaks hosts", load), "images": roll.digests()})
            for host in roll.with_agent:
                host.breaks("health", False)
            runs.append({**roll.up("roll: put right", load), "images": roll.digests()})
        if options.cut:
            roll.set(drain_timeout_s=0)
            roll.new_image()
            runs.append({**roll.up("roll: without time for episodes", load), "images": roll.digests()})
    last = {"hosts_used": dict(load.hosts), "series": load.series, "unfinished": load.running}
    runs.append(measured(roll.project, "destroy", "destroy", ON))
    return {"runs": runs, "agents_rss_mib": memory, "load": last}


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument(
        "--agents", type=int, default=24, help="Hosts with a real host agent; two cores bear about 24."
    )
    parser.add_argument("--replicas", type=int, default=2, help="On each host.")
    parser.add_argument("--episodes", type=int, default=12, help="That run at a time.")
    parser.add_argument("--max-unavailable", default="5%")
    parser.add_argument("--work-s", type=float, default=2.0, help="How long a host would work by itself.")
    parser.add_argument("--upload-mib", type=float, default=1.0, help="Sent to each host, both archives.")
    parser.add_argument("--bad", action="store_true", help="Also an update that breaks hosts.")
    parser.add_argument("--cut", action="store_true", help="Also one that gives episodes no time.")
    options = parser.parse_args()
    options.agents = min(options.agents, options.hosts)
    if lacking := fleet_hosts.missing():
        print(f"fleet_roll: missing: {lacking}", file=sys.stderr)
        return 2
    about = machine()
    folder = Path(tempfile.mkdtemp(prefix="osgym-roll-"))
    try:
        (folder / "hosts").mkdir()
        with fleet_hosts.hosts(folder / "hosts", options.hosts) as (made, login):
            shutil.copy(login, folder / "login")
            found = life(folder, made, folder / "login", options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    given = {name: value for name, value in vars(options).items() if name != "out"}
    what = " ".join((fleet_agents.__doc__ or "").split("\n\n", 1)[1].split())
    path = save(
        "fleet_roll", {"machine": about, "given": given, "what_a_host_is": what, **found}, options.out
    )
    print(f"saved: {path}")
    lost = sum(
        sum(run["load"]["lost"].values()) for run in found["runs"] if "load" in run and "cut" not in run
    )
    print(f"episodes that did not end by themselves: {lost}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
