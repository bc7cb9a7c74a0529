"""Harm of a replica that uses up the machine to a neighbour: its steps beside each load and without.

    python -m benchmarks.noisy_neighbour                       # every load, three rounds
    python -m benchmarks.noisy_neighbour --set replica_cpus=1  # with a cap on each replica's CPU time
    python -m benchmarks.noisy_neighbour --set replica_cpu_burst_s=0  # without CPU weighting
    python -m benchmarks.noisy_neighbour --only forks --rounds 5

In each round and for each load an episode of its own runs it from inside, as root there, while another
episode makes real steps. The neighbour's steps right before are the quiet ones: both series come from one
run. The first seconds beside a load are in the series, and shown apart as well: a replica that uses much is
weighed less only when its credit of CPU time is used up. Run it on a machine that does nothing else: the load
of others is not told apart.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import argument_parser, local_service, machine, quantile, save
from osgym_host.addresses import UnixAddress
from osgym_host.guest_client import GuestClient
from osgym_host.images.store import default_data_dir
from osgym_sdk import Client, Episode

QUIET_S, BESIDE_S, FIRST_S, WARM_UP_S, PAUSE_S = 5.0, 30.0, 5.0, 2.0, 0.02
LOADS: Mapping[str, str] = {
    "busy loops": "for n in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait",
    "forks": "while :; do (:) & (:) & (:) & (:) & wait; done",
    "forks of many": "for n in 1 2 3 4 5 6 7 8; do (while :; do (:); done) & done; wait",
    "network namespaces": "while :; do unshare -n true; done",
    "mount namespaces": "while :; do unshare -m true; done",
    "memory written anew": "while :; do head -c 300M /dev/zero | tail -c 1 >/dev/null; done",
    "files written": "cd /tmp; while :; do head -c 100M /dev/zero > noise; sync noise; rm noise; done",
    "signals": "trap : USR1; for n in 1 2 3 4; do (while :; do kill -USR1 $$; done) & done; wait; wait; wait",
}
"""Scripts of the loads, run by `sh` inside until the replica ends."""


@dataclass(slots=True)
class Load:
    """One load in one round: the neighbour's series in milliseconds."""

    name: str
    round: int
    quiet_ms: list[float] = field(default_factory=list)
    beside_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    """Part of `beside_ms` that came in the first seconds."""


async def begin(sock: Path, script: str) -> None:
    """Start a load inside a replica, as root there."""
    async with GuestClient(UnixAddress(sock)) as guest:
        await guest.upload("/tmp/load", script.encode(), timeout_s=20)
        run = "setsid sh /tmp/load >/dev/null 2>&1 </dev/null &"
        await guest.execute(["sudo", "-n", "sh", "-c", run], timeout_s=10)


def steps_ms(episode: Episode, seconds: float) -> list[float]:
    """Move the pointer again and again; return the time of each step."""
    taken, ends = [], time.monotonic() + seconds
    while time.monotonic() < ends:
        began = time.perf_counter()
        episode.step([{"op": "move", "x": 100 + len(taken) % 50 * 7, "y": 200}], settle="fast")
        taken.append((time.perf_counter() - began) * 1000)
        time.sleep(PAUSE_S)
    return taken


def run(url: str, sockets: Path, names: Sequence[str], rounds: int) -> list[Load]:
    found = []
    with Client(url) as client, client.episode() as neighbour:
        steps_ms(neighbour, WARM_UP_S)
        for number in range(rounds):
            for name in names:
                with client.episode() as noisy:
                    load = Load(name, number, steps_ms(neighbour, QUIET_S))
                    asyncio.run(begin(sockets / noisy.replica_id / "agent.sock", LOADS[name]))
                    load.first_ms = steps_ms(neighbour, FIRST_S)
                    load.beside_ms = load.first_ms + steps_ms(neighbour, BESIDE_S - FIRST_S)
                found.append(load)
                print(row(name, [load]), flush=True)
                time.sleep(1.0)
    return found


def row(name: str, loads: Sequence[Load]) -> str:
    """Return one line of the table: all rounds of a load."""
    quiet = [ms for load in loads for ms in load.quiet_ms]
    beside = [ms for load in loads for ms in load.beside_ms]
    first = [ms for load in loads for ms in load.first_ms]
    ratio = quantile(beside, 0.95) / quantile(quiet, 0.95)
    return (
        f"{name:26} quiet p50 {quantile(quiet, 0.5):5.1f} p95 {quantile(quiet, 0.95):5.1f} | "
        f"beside p50 {quantile(beside, 0.5):5.1f} p95 {quantile(beside, 0.95):5.1f} "
        f"max {max(beside):5.1f} ms | ratio {ratio:4.2f} | {len(beside)} steps | "
        f"first {FIRST_S:.0f} s p95 {quantile(first, 0.95):5.1f} ms"
    )


def main() -> int:
    parser = argument_parser(__doc__, image="small")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], help="only loads with this in their name")
    parser.add_argument("--set", action="append", default=[], help="NAME=VALUE: a setting of the host agent")
    options = parser.parse_args()
    names = [name for name in LOADS if not options.only or any(part in name for part in options.only)]
    if not names:
        parser.error(f"--only: unknown load; valid loads: {', '.join(LOADS)}")
    facts, instance = machine(), f"bench-{os.getpid()}"
    more = dict(item.split("=", 1) for item in options.set)
    settings: dict[str, Any] = {"instance": instance, "warm": 1, "max_replicas": 3, **more}
    with local_service(options.image, settings) as (url, _):
        loads = run(url, default_data_dir() / "run" / instance / "replicas", names, options.rounds)
    print()
    for name in names:
        print(row(name, [load for load in loads if load.name == name]))
    rows = [{slot: getattr(one, slot) for slot in Load.__slots__} for one in loads]
    place = save("noisy_neighbour", {"machine": facts, "settings": more, "loads": rows}, options.out)
    print(f"saved {place}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
