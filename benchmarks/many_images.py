"""Resets of three golden images on one host agent, against three agents with an image each.

    python -m benchmarks.many_images --images small,full,osworld --rounds 3

Both have 24 replicas at most, 18 of them warm: one agent shares them among its images by demand, three agents
have 8 and 6 each. In each round each of the two is started, fills, and gets the same bursts of episodes;
another begins each time. A burst is of four episodes at once, each of an image drawn by chance; in the first
half six in ten are of the first image and one of the last, in the second half the other way round. A reset is
the time from the request for an episode to its first frame, by clients that know which agent has the image.
Replicas do not rest (`rest=off`), so that swap on this machine has no part in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from benchmarks.common import argument_parser, local_service, machine, quantile, save
from osgym_sdk import AsyncClient, HostState

WARM, MOST = 18, 24
BURST = 4
EVERY_S, HELD_S = 4.0, 1.0
WEIGHTS = (6, 3, 1)
FILL_S = 180.0
WAYS = ("one agent", "three agents")


@contextlib.contextmanager
def agents(way: str, images: Sequence[str]) -> Iterator[dict[str, str]]:
    """Run one agent for all images, or one for each; yield the URL by image."""
    with contextlib.ExitStack() as stack:
        if way == "one agent":
            others = ",".join(images[1:])
            settings = {"images": others, "warm": WARM, "max_replicas": MOST, "rest": "off"}
            url, _ = stack.enter_context(local_service(images[0], settings))
            yield dict.fromkeys(images, url)
            return
        urls = {}
        for image in images:
            parts = {"warm": WARM // len(images), "max_replicas": MOST // len(images), "rest": "off"}
            instance = {"instance": f"bench-images-{image}"}
            urls[image], _ = stack.enter_context(local_service(image, {**parts, **instance}))
        yield urls


def bursts(images: Sequence[str], count: int, seed: int) -> list[list[str]]:
    """Return the images of each burst; demand turns over in the middle."""
    rng = Random(seed)
    halves = [WEIGHTS] * (count // 2) + [WEIGHTS[::-1]] * (count - count // 2)
    return [rng.choices(images, weights, k=BURST) for weights in halves]


async def reset(client: AsyncClient, image: str) -> float:
    """Open and hold an episode; return the time to its first frame in milliseconds."""
    began = time.monotonic()
    async with client.episode(image=image, wait_s=120) as episode:
        assert episode.observation.png
        took_ms = (time.monotonic() - began) * 1000
        await asyncio.sleep(HELD_S)
    return took_ms


async def play(urls: Mapping[str, str], plan: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Play bursts at fixed times and return a row for each reset."""
    rows: list[dict[str, Any]] = []
    async with contextlib.AsyncExitStack() as stack:
        clients = {url: await stack.enter_async_context(AsyncClient(url)) for url in set(urls.values())}
        for client in clients.values():
            await fill(client, len(clients))
        began = time.monotonic()

        async def one(number: int, image: str) -> None:
            at_s = time.monotonic() - began
            row = {"burst": number, "at_s": round(at_s, 3), "image": image}
            rows.append({**row, "reset_ms": round(await reset(clients[urls[image]], image), 2)})

        async with asyncio.TaskGroup() as group:
            for number, images in enumerate(plan):
                await asyncio.sleep(max(0.0, began + number * EVERY_S - time.monotonic()))
                for image in images:
                    group.create_task(one(number, image))
    return rows


async def fill(client: AsyncClient, agents: int) -> None:
    """Wait until an agent has its share of the warm replicas.

    Raises:
        TimeoutError: It has not within `FILL_S`.
    """
    async with asyncio.timeout(FILL_S):
        while True:
            (state,) = (await client.host_states()).values()
            if isinstance(state, HostState) and state.capacity.ready >= WARM // agents:
                return
            await asyncio.sleep(0.2)


def show(rows: Sequence[Mapping[str, Any]], images: Sequence[str]) -> None:
    """Print p50 and p95 by image and way."""
    for image in (*images, "all"):
        for way in WAYS:
            found = [r["reset_ms"] for r in rows if r["way"] == way and image in (r["image"], "all")]
            figures = " ".join(f"p{100 * q:.0f} {quantile(found, q):8.1f}" for q in (0.5, 0.95, 1))
            print(f"{image:>10} {way:>13} n {len(found):4} {figures} ms")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--images", default="small,full,osworld", help="three images (small,full,osworld)")
    parser.add_argument("--rounds", type=int, default=3, help="how many (3)")
    parser.add_argument("--bursts", type=int, default=16, help="bursts of a round (16)")
    args = parser.parse_args()
    images, rows, about = args.images.split(","), [], machine()
    for number in range(args.rounds):
        plan = bursts(images, args.bursts, number)
        for way in WAYS if number % 2 == 0 else WAYS[::-1]:
            with agents(way, images) as urls:
                found = asyncio.run(play(urls, plan))
            rows += [{"round": number, "way": way, **row} for row in found]
            path = save("many_images", {"machine": about, "images": images, "rows": rows}, args.out)
        show(rows, images)
    print(f"saved {path}")


if __name__ == "__main__":
    main()
