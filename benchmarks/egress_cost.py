"""Cost of a replica's link to the host: time to make it, memory of the kernel and the agent, steps.

Replicas with and without one are made in turn, from a small probe image, so that a drift of the machine meets
both. Steps are those of a golden image's desktops, by one host agent with each policy. Root, nft, and a host
that forwards (sysctl net.ipv4.ip_forward=1).

python -m benchmarks.egress_cost --pairs 20 --replicas 16 --steps 100 --image small
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import argument_parser, local_service, machine, save, summary
from osgym_host.runtimes.base import Egress, ReplicaSpec
from osgym_host.runtimes.local.network import ReplicaNetwork
from osgym_host.runtimes.local.probe_image import ProbeImage, build_probe_image
from osgym_host.runtimes.local.runtime import LocalRuntime
from osgym_sdk import Client

POLICIES = (Egress.NONE, Egress.OPEN)
_SESSION = "#!/bin/sh\nexec /bin/sleep 3600\n"
_KERNEL = ("Slab", "Percpu", "KernelStack", "PageTables")


def kernel_kib() -> int:
    """Return the kernel's own memory by `/proc/meminfo`."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return sum(int(lines[name].split()[0]) for name in _KERNEL if name in lines)


def own_kib() -> int:
    """Return the resident memory of this process, which is the agent here."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmRSS"].split()[0])


async def make(runtime: LocalRuntime, image: ProbeImage, name: str, egress: Egress) -> tuple[Any, float]:
    """Make a replica; return it and the milliseconds until `create` was done."""
    began = time.monotonic()
    replica = await runtime.create(ReplicaSpec(name, 1, image, egress=egress))
    return replica, (time.monotonic() - began) * 1000


async def cost_of_links(folder: Path, pairs: int, replicas: int) -> dict[str, Any]:
    """Make and destroy replicas; return raw series by policy."""
    image = build_probe_image(folder / "image", _SESSION, programs=[Path("/bin/sh"), Path("/bin/sleep")])
    links = ReplicaNetwork(f"osgym-bench-{os.getpid()}", needed=Egress.OPEN)
    runtime = LocalRuntime(folder, "bench", links)
    await runtime.start()
    found: dict[str, Any] = {
        f"{what}_{egress}": []
        for what in ("create_ms", "destroy_ms", "kernel_kib_per_replica", "agent_kib_per_replica")
        for egress in POLICIES
    }
    try:
        for number in range(pairs + 1):
            for egress in POLICIES:
                replica, took_ms = await make(runtime, image, f"{egress}{number}", egress)
                began = time.monotonic()
                await runtime.destroy(replica)
                if number:  # the first ones load what is not loaded yet
                    found[f"create_ms_{egress}"].append(took_ms)
                    found[f"destroy_ms_{egress}"].append((time.monotonic() - began) * 1000)
        for turn in range(3):
            for egress in POLICIES:
                before = kernel_kib(), own_kib()
                made = [
                    (await make(runtime, image, f"{egress}{turn}-{n}", egress))[0] for n in range(replicas)
                ]
                after = kernel_kib(), own_kib()
                for replica in made:
                    await runtime.destroy(replica)
                found[f"kernel_kib_per_replica_{egress}"].append((after[0] - before[0]) / replicas)
                found[f"agent_kib_per_replica_{egress}"].append((after[1] - before[1]) / replicas)
    finally:
        await runtime.stop()
    return found


def steps(image: str, egress: Egress, count: int) -> list[float]:
    """Return milliseconds of steps that move the mouse, one after the other."""
    series = []
    settings = {"warm": 1, "egress": egress.value}
    with local_service(image, settings) as (url, _), Client(url) as client, client.episode() as episode:
        for number in range(count + 5):
            began = time.monotonic()
            episode.step([{"op": "move", "x": 100 + number, "y": 200}])
            if number >= 5:
                series.append((time.monotonic() - began) * 1000)
    return series


def main() -> None:
    parser = argument_parser(__doc__, image="small")
    parser.add_argument(
        "--pairs", type=int, default=20, help="replicas made one by one, with each policy (20)"
    )
    parser.add_argument("--replicas", type=int, default=16, help="replicas at once, for their memory (16)")
    parser.add_argument("--steps", type=int, default=100, help="steps with each policy (100)")
    args = parser.parse_args()
    load_before = os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="egress-cost-") as folder:
        series = asyncio.run(cost_of_links(Path(folder), args.pairs, args.replicas))
    for egress in POLICIES:
        series[f"step_ms_{egress}"] = steps(args.image, egress, args.steps)
    print(machine())
    for name, values in series.items():
        print(name, summary(values))
    settings = {"pairs": args.pairs, "replicas": args.replicas, "steps": args.steps, "image": args.image}
    result = {"machine": machine(), "load_before": load_before, "settings": settings, **series}
    print(f"saved {save('egress_cost', result, args.out)}")


if __name__ == "__main__":
    main()
