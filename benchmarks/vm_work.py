"""Fifty real steps of a desktop: an application is written in, scrolled, clicked, and the file is saved."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.vm_sessions import session_of
from osgym_sdk import AsyncClient, AsyncEpisode, OSGymError

STEPS = 50
SAVE_AT = (20, 40)
TTL_S = 600.0
_SENTENCE = "The quick brown fox jumps over the lazy dog 0123456789. "


@dataclass(frozen=True)
class Worked:
    """Results of one desktop.

    Attributes:
        error: Reason for an early end; empty when there was none.
    """

    episode: AsyncEpisode
    steps_ms: list[float]
    error: str


def step_of(number: int, place: tuple[int, int], path: str) -> list[dict[str, Any]]:
    """Return the actions of a step, the same for every desktop of a series."""
    x, y = place
    if number in SAVE_AT:
        return [{"op": "key", "keys": ["ctrl", "s"]}]
    if number - 1 in SAVE_AT:
        typed = {"op": "type", "text": f"{path}.{number}"}
        return [{"op": "key", "keys": ["ctrl", "a"]}, typed, {"op": "key", "keys": ["enter"]}]
    match number % 10:
        case 3 | 7:
            return [{"op": "key", "keys": ["enter"]}]
        case 4:
            return [{"op": "click", "x": x + 7 * number % 200, "y": y}]
        case 5:
            return [{"op": "scroll", "x": x, "y": y, "dy": 3 if number % 20 == 5 else -3}]
        case 6:
            return [{"op": "click", "x": x, "y": y, "button": "right"}]
        case 8:
            return [{"op": "key", "keys": ["escape"]}]
        case _:
            return [{"op": "type", "text": _SENTENCE}]


async def work(client: AsyncClient, image: str, snapshot: str, steps: int = STEPS) -> Worked:
    """Lease a desktop and work in it; the episode stays open."""
    session = session_of(image, snapshot)
    episode = client.episode(session.begin_with(), wait_s=TTL_S, lease_ttl_s=TTL_S)
    times: list[float] = []
    error = ""
    try:
        await episode.start()
        await session.begin(episode, "begun. ")
        for number in range(steps):
            began = time.monotonic()
            await episode.step(step_of(number, session.place, session.path))
            times.append((time.monotonic() - began) * 1000)
    except OSGymError as problem:
        error = str(problem)[:300]
    return Worked(episode, times, error)


async def work_in_all(
    client: AsyncClient, image: str, snapshot: str, count: int, at_once: int
) -> list[Worked]:
    """Do the same work in several desktops that stay open, a few at a time."""
    gate = asyncio.Semaphore(at_once)

    async def one(number: int) -> Worked:
        async with gate:
            done = await work(client, image, snapshot)
            print(
                f"  desktop {number}: {len(done.steps_ms)} steps in {sum(done.steps_ms) / 1000:.0f} s"
                f" {done.error}",
                flush=True,
            )
            return done

    return list(await asyncio.gather(*(one(number) for number in range(count))))
