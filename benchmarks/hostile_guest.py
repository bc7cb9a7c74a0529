"""Harm of a hostile guest to a neighbour: its steps under each shape of answers, against quiet ones.

    python -m benchmarks.hostile_guest                     # all shapes, two rounds
    python -m benchmarks.hostile_guest --only chunks --rounds 1

In each round and for each shape an episode of its own is taken over from inside (root in the replica takes
the guest agent's socket), and steps are asked of it for some seconds while another episode makes real steps.
Its steps right before are the quiet ones: both series come from one run. A probe asks for `/v1/health`
meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from benchmarks import hostile_answers
from benchmarks.common import argument_parser, local_service, machine, quantile, save
from benchmarks.harness import agent_at, run_beside
from osgym_host.addresses import UnixAddress
from osgym_host.guest_client import GuestClient, GuestError
from osgym_host.images.store import default_data_dir
from osgym_protocol.host_api import LEASE_HEADER
from osgym_protocol.records import decode_record
from osgym_sdk import Client, Episode

SOURCE = Path(hostile_answers.__file__).read_bytes()
WINDOW_S = 2.5
PAUSE_S = 0.02
ATTACK_S = 2.0
TAKE_OVER_S = 10.0


@dataclass(slots=True)
class Attack:
    """One shape in one round: the end of the attacker, and the neighbour's series in milliseconds."""

    shape: str
    round: int
    status: int = 0
    code: str = ""
    attempts: int = 0
    quiet_ms: list[float] = field(default_factory=list)
    under_ms: list[float] = field(default_factory=list)
    health_ms: list[float] = field(default_factory=list)
    resident_mib: float = 0.0


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


async def take_over(sock: Path, source: bytes, shape: str) -> None:
    """Put a hostile agent in place of a replica's own, and wait until it answers.

    Raises:
        TimeoutError: It does not.
    """
    async with GuestClient(UnixAddress(sock)) as guest:
        await guest.upload("/tmp/hostile.py", source, timeout_s=20)
        await guest.upload("/tmp/shape", shape.encode(), timeout_s=20)
    # No program of the desktop can reach the agent, but the host agent must not depend on that.
    run = "setsid python3 /tmp/hostile.py /tmp/shape take-over >/tmp/hostile.log 2>&1 </dev/null &"
    await asyncio.to_thread(run_beside, agent_at(sock), ["sh", "-c", run])
    async with asyncio.timeout(TAKE_OVER_S):
        while True:
            with contextlib.suppress(GuestError):
                async with GuestClient(UnixAddress(sock)) as guest:
                    if (await guest.health(timeout_s=1)).version == hostile_answers.HEALTH["version"]:
                        return
            await asyncio.sleep(0.1)


def _call(url: str, method: str, path: str, body: Any = None, timeout_s: float = 60.0) -> tuple[int, bytes]:
    """Send one request; return the beginning of a large answer, and drop the rest."""
    address = urlsplit(url)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=timeout_s)
    with contextlib.closing(connection):
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        begin = answer.read(4096)
        rest = bytearray(1 << 20)
        while answer.readinto(rest):
            pass
        return answer.status, begin


def _steps(episode: Episode, seconds: float) -> list[float]:
    taken, ends, number = [], time.monotonic() + seconds, 0
    while time.monotonic() < ends:
        began = time.perf_counter()
        action = {"op": "move", "x": 100 + number % 50 * 7, "y": 200 + number % 30 * 5}
        episode.step([action], settle="fast")
        taken.append((time.perf_counter() - began) * 1000)
        number += 1
        time.sleep(PAUSE_S)
    return taken


@contextlib.contextmanager
def _episode(url: str) -> Iterator[dict[str, Any]]:
    """Create an episode past the SDK; yield the answer."""
    with httpx.Client(base_url=url, timeout=60) as client:
        body = {"request_id": uuid.uuid4().hex, "wait_s": 60, "lease_ttl_s": 120}
        made = decode_record(client.post("/v1/episodes", json=body).raise_for_status().content).meta
        try:
            yield made
        finally:
            client.delete(f"/v1/episodes/{made['episode_id']}", headers={LEASE_HEADER: made["lease"]})


def attack(url: str, pid: int, sockets: Path, neighbour: Episode, shape: str, number: int) -> Attack:
    done = Attack(shape, number)
    with _episode(url) as victim:
        asyncio.run(take_over(sockets / victim["replica_id"] / "agent.sock", SOURCE, shape))
        path = f"/v1/episodes/{victim['episode_id']}/step"
        done.quiet_ms = _steps(neighbour, WINDOW_S)
        stop = threading.Event()

        def strike() -> None:
            ends = time.monotonic() + ATTACK_S
            while time.monotonic() < ends and not stop.is_set():
                body = {
                    "lease": victim["lease"],
                    "seq": done.attempts + 1,
                    "actions": [{"op": "screenshot"}],
                    "settle": {"policy": "fast", "max_ms": 500},
                }
                done.status, answer = _call(url, "POST", path, body)
                done.attempts += 1
                if done.status != 200:
                    done.code = json.loads(answer).get("code", "") if answer[:1] == b"{" else ""
                    return

        def probe() -> None:
            while not stop.is_set():
                began = time.perf_counter()
                _call(url, "GET", "/v1/health")
                done.health_ms.append((time.perf_counter() - began) * 1000)
                time.sleep(0.01)

        threads = [threading.Thread(target=work, daemon=True) for work in (strike, probe)]
        for thread in threads:
            thread.start()
        done.under_ms = _steps(neighbour, WINDOW_S)
        stop.set()
        for thread in threads:
            thread.join(60)
    done.resident_mib = resident_mib(pid)
    return done


def run(url: str, pid: int, sockets: Path, shapes: Sequence[str], rounds: int) -> dict[str, Any]:
    """Run all attacks.

    Returns:
        The attacks with their series, and the agent's memory before the first and after the last.
    """
    found = []
    with Client(url) as client, client.episode() as neighbour:
        _steps(neighbour, 2.0)
        before = resident_mib(pid)
        for number in range(rounds):
            for shape in shapes:
                found.append(attack(url, pid, sockets, neighbour, shape, number))
                print(_row(shape, [found[-1]]), flush=True)
        time.sleep(2.0)
        after = resident_mib(pid)
    return {"attacks": found, "resident_before_mib": before, "resident_after_mib": after}


def _row(shape: str, attacks: Sequence[Attack]) -> str:
    quiet = [ms for attack in attacks for ms in attack.quiet_ms]
    under = [ms for attack in attacks for ms in attack.under_ms]
    health = [ms for attack in attacks for ms in attack.health_ms]
    ratio = quantile(under, 0.95) / quantile(quiet, 0.95)
    return (
        f"{shape:22} {attacks[-1].status} {attacks[-1].code or 'taken':14} "
        f"quiet p50 {quantile(quiet, 0.5):5.1f} p95 {quantile(quiet, 0.95):5.1f} | "
        f"under p50 {quantile(under, 0.5):5.1f} p95 {quantile(under, 0.95):5.1f} max {max(under):5.1f} | "
        f"ratio {ratio:4.2f} | health p95 {quantile(health, 0.95):5.1f} max {max(health):5.1f} ms | "
        f"{attacks[-1].resident_mib:.0f} MiB"
    )


def main() -> int:
    parser = argument_parser(__doc__, image="small")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", action="append", default=[], help="only shapes with this in their name")
    options = parser.parse_args()
    shapes = [
        shape
        for shape in hostile_answers.STEP_SHAPES
        if not options.only or any(part in shape for part in options.only)
    ]
    facts = machine()
    instance = f"bench-{os.getpid()}"
    settings = {"instance": instance, "warm": 2, "max_replicas": 4, "trajectory": "frames"}
    with local_service(options.image, settings) as (url, pid):
        result = run(url, pid, default_data_dir() / "run" / instance / "replicas", shapes, options.rounds)
    attacks: list[Attack] = result["attacks"]
    print()
    for shape in shapes:
        print(_row(shape, [attack for attack in attacks if attack.shape == shape]))
    print(f"memory {result['resident_before_mib']:.0f} -> {result['resident_after_mib']:.0f} MiB")
    rows = [{name: getattr(one, name) for name in Attack.__slots__} for one in attacks]
    place = save("hostile_guest", {"machine": facts, **result, "attacks": rows}, options.out)
    print(f"saved {place}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
