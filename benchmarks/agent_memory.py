"""Growth of a host agent's memory over more episodes than it remembers.

    python -m benchmarks.agent_memory                    # 15,000 episodes of one step each

A real host agent (`osgym host serve`) runs over replicas that answer at once and are none, so that an episode
takes milliseconds. For clients that repeat a create it remembers the last 4,096 (`requests.KEEP`): until
there were so many it grows. Its resident memory, descriptors and threads are noted every `--every` episodes.
The exit code is 1 when it holds more descriptors at the end, or grows by more than `--most-mib` in a thousand
episodes in the second half of what follows.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks.chaos.leaks import rss_mib
from benchmarks.common import argument_parser, machine, per_hour, save
from benchmarks.scale_hosts import host_agents
from benchmarks.scale_load import ACTION
from osgym_host.episodes.requests import KEEP
from osgym_sdk import AsyncClient

FRAME = (640, 480)


@dataclass(frozen=True, slots=True)
class Sample:
    """Resources that the host agent's process holds after so many episodes."""

    episodes: int
    rss_mib: float
    descriptors: int
    threads: int


def look(pid: int, episodes: int) -> Sample:
    return Sample(
        episodes,
        round(rss_mib(pid), 2),
        len(os.listdir(f"/proc/{pid}/fd")),
        len(os.listdir(f"/proc/{pid}/task")),
    )


def per_thousand(samples: list[Sample]) -> dict[str, float]:
    """Return the growth of resident memory in a thousand episodes, with half of its 95 % interval.

    >>> per_thousand([Sample(n * 1000, 90 + n / 2, 20, 4) for n in range(4)]) {'mib': 0.5, 'half_interval':
    0.0, 'samples': 4}
    """
    slope, half = per_hour([one.episodes * 3.6 for one in samples], [one.rss_mib for one in samples])
    return {"mib": slope, "half_interval": half, "samples": len(samples)}


async def _series(url: str, pid: int, options: argparse.Namespace) -> list[Sample]:
    samples: list[Sample] = []
    begun = 0

    async def worker(client: AsyncClient) -> None:
        nonlocal begun
        while begun < options.episodes:
            begun += 1
            number = begun
            async with client.episode(wait_s=120) as episode:
                await episode.step([ACTION])
            if number % options.every == 0:
                samples.append(look(pid, number))
                print("  ".join(f"{name} {value}" for name, value in asdict(samples[-1]).items()), flush=True)

    async with AsyncClient(url) as client:
        samples.append(look(pid, 0))
        async with asyncio.TaskGroup() as group:
            for _ in range(options.replicas):
                group.create_task(worker(client))
    return samples


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("--episodes", type=int, default=15_000, help="in all (15000)")
    parser.add_argument("--every", type=int, default=500, help="episodes between two looks (500)")
    parser.add_argument("--replicas", type=int, default=8, help="at the same time (8)")
    parser.add_argument("--most-mib", type=float, default=0.5, help="growth in a thousand episodes (0.5)")
    options = parser.parse_args()
    if options.episodes < 2 * KEEP:
        parser.error(f"--episodes: at least {2 * KEEP}, so that the end of the growth can be seen")
    described = machine()
    with tempfile.TemporaryDirectory(prefix="osgym-memory-") as folder:
        Image.effect_noise(FRAME, 20).save(Path(folder, "0.png"))
        with host_agents(1, options.replicas, Path(folder)) as (host,):
            samples = asyncio.run(_series(host.url, host.process.pid, options))
    filling = [one for one in samples if options.every <= one.episodes <= KEEP]
    full = [one for one in samples if one.episodes > KEEP + options.every]
    result: dict[str, Any] = {
        "remembers": KEEP,
        "filling": per_thousand(filling),
        "full": per_thousand(full),
        "second_half": per_thousand(full[len(full) // 2 :]),
        "samples": [asdict(one) for one in samples],
    }
    for name in ("filling", "full", "second_half"):
        row = result[name]
        print(f"{name:12} {row['mib']:+.3f} ± {row['half_interval']:.3f} MiB in a thousand episodes")
    chosen = {name: value for name, value in vars(options).items() if name != "out"}
    where = save("agent_memory", {"machine": described, "options": chosen, **result}, options.out)
    print(f"raw series: {where}")
    held = samples[-1].descriptors > full[0].descriptors + options.replicas
    return 1 if held or result["second_half"]["mib"] > options.most_mib else 0


if __name__ == "__main__":
    sys.exit(main())
