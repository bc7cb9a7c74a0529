"""Ten thousand replicas by discrete events: what a fleet does that no machine here can hold.

    python -m benchmarks.fleet_simulation                    # checked against the measured eight hosts first
    python -m benchmarks.fleet_simulation --replicas 10000 --clients 1,2,4,8 --out out/fleet.json

Parameters are measured: what a step costs a client and a host agent (results/client_scale.json), what it
costs the desktop's host, how long policies think (results/cost_per_replica_day.json), and how long a step
takes where nothing else runs (results/step_path.json). Each replica thinks, its client's one thread sends,
a core of its host works for the desktop, the screen is waited for, the client's thread reads the answer.
Cores are taken in the order of arrival. A host that is killed takes its replicas with it.

First the same model is run as the machine was on which eight agents and one client of 1,024 replicas shared
two cores, and held against what was measured there. Where that does not agree, what it says of ten thousand
is worth no more.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import simpy

from benchmarks.common import RESULTS, machine, quantile, save

READS = 0.75
"""Share of a client's CPU of a step that comes after the answer: reading it (README, one client's loop)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of a simulated fleet. Times are seconds, CPU is core-seconds.

    Attributes:
        cores: Number of cores of each host; with `clients_on_hosts` all agents and clients share them.
        waits_s: Waits of steps besides CPU, from which the simulation draws.
        speed: Speed of a core, where others take a part of it.
        killed_at_s: Time at which one host ends; None: none.
    """

    replicas: int
    hosts: int
    cores: int
    clients: int
    client_cpu_s: float
    host_cpu_s: float
    think_s: float
    waits_s: Sequence[float]
    seconds: float
    clients_on_hosts: bool = False
    speed: float = 1.0
    killed_at_s: float | None = None
    seed: int = 1


@dataclass(slots=True)
class Outcome:
    """Results of a simulation.

    Attributes:
        added_ms: Time of each step beyond its own wait and CPU: queues.
    """

    steps: int = 0
    added_ms: list[float] = field(default_factory=list)
    ends_s: list[float] = field(default_factory=list)
    client_busy_s: float = 0.0
    host_busy_s: float = 0.0


class Fleet:
    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.outcome = Outcome()
        self._dice = random.Random(shape.seed)
        self._env = simpy.Environment()
        self._clients = [simpy.Resource(self._env) for _ in range(shape.clients)]
        shared = simpy.Resource(self._env, shape.cores) if shape.clients_on_hosts else None
        self._hosts = [shared or simpy.Resource(self._env, shape.cores) for _ in range(shape.hosts)]
        self._dead: set[int] = set()

    def run(self) -> Outcome:
        for number in range(self.shape.replicas):
            self._env.process(self._replica(number))
        if self.shape.killed_at_s is not None:
            self._env.process(self._kill(self.shape.killed_at_s))
        self._env.run(until=self.shape.seconds)
        return self.outcome

    def _kill(self, at_s: float) -> Generator[simpy.Event, Any, None]:
        yield self._env.timeout(at_s)
        self._dead.add(0)

    def _replica(self, number: int) -> Generator[simpy.Event, Any, None]:
        shape, env, dice = self.shape, self._env, self._dice
        host, client = number % shape.hosts, self._clients[number % shape.clients]
        yield env.timeout(dice.random() * (shape.think_s + 1e-3))
        while host not in self._dead:
            begun = env.now
            wait_s = dice.choice(shape.waits_s)
            send_s, read_s = shape.client_cpu_s * (1 - READS), shape.client_cpu_s * READS
            yield from self._client(client, host, send_s)
            yield from self._work(self._hosts[host], shape.host_cpu_s)
            yield env.timeout(wait_s)
            if host in self._dead:
                return
            yield from self._client(client, host, read_s)
            self.outcome.client_busy_s += shape.client_cpu_s
            self.outcome.host_busy_s += shape.host_cpu_s
            self._done(env.now - begun - wait_s - (shape.client_cpu_s + shape.host_cpu_s) / shape.speed)
            if shape.think_s:
                yield env.timeout(dice.expovariate(1 / shape.think_s))

    def _client(self, client: simpy.Resource, host: int, cpu_s: float) -> Generator[simpy.Event, Any, None]:
        """Use the client's one thread, and where it shares the machine a core of it."""
        with client.request() as turn:
            yield turn
            if self.shape.clients_on_hosts:
                yield from self._work(self._hosts[host], cpu_s)
            else:
                yield self._env.timeout(cpu_s / self.shape.speed)

    def _work(self, cores: simpy.Resource, cpu_s: float) -> Generator[simpy.Event, Any, None]:
        with cores.request() as turn:
            yield turn
            yield self._env.timeout(cpu_s / self.shape.speed)

    def _done(self, added_s: float) -> None:
        self.outcome.steps += 1
        self.outcome.added_ms.append(added_s * 1000)
        self.outcome.ends_s.append(self._env.now)


def as_measured(row: dict[str, Any], seconds: float) -> Shape:
    """Return the model of one row of `client_scale`: everything on what others left of two cores."""
    return Shape(
        replicas=1024,
        hosts=8,
        cores=2,
        clients=1,
        client_cpu_s=row["client_cpu_ms_per_step"] / 1000,
        host_cpu_s=row["servers_cpu_ms_per_step"] / 1000,
        think_s=0.0,
        waits_s=(0.1,),
        seconds=seconds,
        clients_on_hosts=True,
        speed=1 - row["cores_of_others"] / 2,
    )


def checked(seconds: float, clients: Sequence[str] = ("bare", "osgym_sdk")) -> list[dict[str, Any]]:
    """Return each measured row of throughput of these clients beside the model's."""
    rows = [row for row in _kept("client_scale")["throughput"]["rows"] if row["client"] in clients]
    found = []
    for row in rows:
        outcome = Fleet(as_measured(row, seconds)).run()
        told = outcome.steps / seconds
        found.append(
            {
                "client": row["client"],
                "round": row["round"],
                "steps_per_s_measured": row["steps_per_s"],
                "steps_per_s_simulated": told,
                "simulated_to_measured": told / row["steps_per_s"],
                "added_ms_p50_measured": row["added_ms_p50"],
                "added_ms_p50_simulated": statistics.median(outcome.added_ms),
            }
        )
    return found


def _kept(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def fleet_of(replicas: int, clients: int, options: argparse.Namespace) -> Shape:
    """Return real desktops on the hosts of the cheapest plan, with measured costs."""
    told = _kept("cost_per_replica_day")["parameters"]
    samples = [s for s in _kept("step_path")["samples"] if s["way"] == "exact"]
    sdk = [r for r in _kept("client_scale")["throughput"]["rows"] if r["client"] == "osgym_sdk"]
    hosts = -(-replicas // options.replicas_per_host)
    agent_cpu_s = statistics.median(r["servers_cpu_ms_per_step"] for r in sdk) / 1000
    return Shape(
        replicas=replicas,
        hosts=hosts,
        cores=options.cores,
        clients=clients,
        client_cpu_s=statistics.median(r["client_cpu_ms_per_step"] for r in sdk) / 1000,
        host_cpu_s=told["step_cpu_s"][0] + agent_cpu_s,
        think_s=told["think_s"][0] if options.think_s is None else options.think_s,
        waits_s=[s["total_ms"] / 1000 for s in samples],
        seconds=options.seconds,
        killed_at_s=options.seconds / 2,
        seed=options.seed,
    )


def fleet_row(shape: Shape) -> dict[str, Any]:
    began = time.monotonic()
    outcome = Fleet(shape).run()
    assert shape.killed_at_s is not None
    warm_s = shape.killed_at_s / 3
    before = sum(warm_s <= end < shape.killed_at_s for end in outcome.ends_s) / (shape.killed_at_s - warm_s)
    late_s = shape.killed_at_s + warm_s
    after = sum(end >= late_s for end in outcome.ends_s) / (shape.seconds - late_s)
    added = [ms for ms, end in zip(outcome.added_ms, outcome.ends_s, strict=True) if end >= warm_s]
    return {
        "replicas": shape.replicas,
        "hosts": shape.hosts,
        "clients": shape.clients,
        "steps_per_s": before,
        "steps_per_s_after_one_host_died": after,
        "added_ms_p50": statistics.median(added),
        "added_ms_p95": quantile(added, 0.95),
        "added_ms_p99": quantile(added, 0.99),
        "client_busy": outcome.client_busy_s / shape.seconds / shape.clients,
        "host_busy": outcome.host_busy_s / shape.seconds / shape.hosts / shape.cores,
        "simulated_in_s": round(time.monotonic() - began, 1),
    }


def _line(row: dict[str, Any]) -> str:
    left = row["steps_per_s_after_one_host_died"] / row["steps_per_s"]
    return (
        f"{row['replicas']} replicas, {row['hosts']} hosts, {row['clients']} clients: "
        f"{row['steps_per_s']:.0f} steps/s, added p50 {row['added_ms_p50']:.0f} "
        f"p95 {row['added_ms_p95']:.0f} p99 {row['added_ms_p99']:.0f} ms; "
        f"clients busy {row['client_busy']:.0%}, hosts {row['host_busy']:.0%}; one host less: {left:.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replicas", type=int, default=10_000)
    parser.add_argument("--clients", default="1,2,4,8", help="trainer processes, each with one client")
    parser.add_argument("--replicas-per-host", type=int, default=453, help="the plan's for 88 vCPU")
    parser.add_argument("--cores", type=int, default=88, help="of a host")
    parser.add_argument("--think-s", type=float, help="mean time a policy thinks (measured by default)")
    parser.add_argument("--seconds", type=float, default=60.0, help="simulated; a host dies halfway")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="where everything goes as JSON")
    options = parser.parse_args()
    rows = checked(min(options.seconds, 15.0))
    for row in rows:
        print(
            f"{row['client']:9} measured {row['steps_per_s_measured']:7.0f} steps/s, simulated "
            f"{row['steps_per_s_simulated']:7.0f} ({row['simulated_to_measured']:.2f}); added p50 "
            f"{row['added_ms_p50_measured']:.0f} and {row['added_ms_p50_simulated']:.0f} ms"
        )
    fleets = []
    for clients in (int(part) for part in options.clients.split(",")):
        shape = fleet_of(options.replicas, clients, options)
        fleets.append({**fleet_row(shape), "think_s": shape.think_s})
        row = fleets[-1]
        print(_line(row))
    given = {k: v for k, v in asdict(fleet_of(options.replicas, 1, options)).items() if k != "waits_s"}
    save(
        "fleet_simulation",
        {"machine": machine(), "given": given, "checked": rows, "fleets": fleets},
        options.out,
    )


if __name__ == "__main__":
    main()
