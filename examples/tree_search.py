"""Tree search over a real desktop: try several actions from the current state, go on from the best.

    OSGYM_RUNTIME=qemu OSGYM_IMAGE=small osgym host serve      # in another terminal: virtual machines
    python examples/tree_search.py --seeds 5

The task is to put a packing list in order, in a text editor. The policy knows a handful of actions (move a
line up, or paste it twice by mistake) and picks one by chance, as an untrained model would. The task's
evaluator says which part of the pairs of items is in order: 1 is solved.

Both arms take the same number of steps, with the same policy:

- *search* forks the desktop `--width` ways at each level, takes one step in each child, has each scored (in a
  fork of its own, since a scored episode is over), and goes on from the best; if none is better than where it
  stands, it stays there. A fork takes a fraction of a second and no step.
- *plain* has no forks: `--width` episodes of `--levels` steps each, and the best final score counts. A plain
  episode cannot be scored on the way and go on.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from osgym_sdk import AsyncClient, AsyncEpisode, Timeouts

WANTED = ("passport", "tickets", "charger", "umbrella", "novel")
GIVEN = ("tickets", "umbrella", "passport", "novel", "charger")
PATH = "/home/user/Desktop/packing.txt"
T = TypeVar("T")


def text_of(lines: Sequence[str]) -> str:
    """Return a file with these lines."""
    return "".join(f"{line}\n" for line in lines)


ORDER = f"""awk 'BEGIN {{ n = split("{" ".join(WANTED)}", item) }}
{{ place[$0] = place[$0] ? -1 : NR }}
END {{ for (i = 1; i < n; i++) for (j = i + 1; j <= n; j++) {{
  a = place[item[i]]; b = place[item[j]]; printf "%d", (a > 0 && b > 0 && a < b) }} }}' {PATH}"""
"""Command that prints 1 for each pair of items in order, 0 for each that is not, or has an item twice."""
PAIRS = len(WANTED) * (len(WANTED) - 1) // 2

TASK: dict[str, Any] = {
    "id": "packing-list",
    "instruction": f"Put the packing list that is open in this order, and save it: {', '.join(WANTED)}.",
    "config": [
        {"type": "upload_file", "parameters": {"files": [{"path": PATH, "text": text_of(GIVEN)}]}},
        {"type": "launch", "parameters": {"command": ["featherpad", PATH]}},
        {
            "type": "execute_with_verification",
            "parameters": {
                "command": ["true"],
                "verification": {"window_exists": "packing.txt"},
                "max_wait_time": 60,
                "check_interval": 0.2,
            },
        },
    ],
    "evaluator": {
        "func": "fuzzy_match",
        "result": {"type": "vm_command_line", "command": ORDER, "shell": True},
        "expected": {"type": "rule", "rules": {"expected": "1" * PAIRS}},
    },
}


@dataclass(frozen=True)
class Move:
    """One of the policy's actions: one step of the environment.

    Attributes:
        line: Number of the line, from 0, that is cut and pasted above the line before it.
        twice: It is pasted twice.
    """

    line: int
    twice: bool = False

    def actions(self) -> list[dict[str, Any]]:
        """Return the internal actions. The file is saved each time, since only that is scored."""
        pressed = [("ctrl", "Home"), *[("Down",)] * self.line, ("shift", "Down"), ("ctrl", "x"), ("Up",)]
        pressed += [("ctrl", "v")] * (2 if self.twice else 1)
        return [{"op": "key", "keys": list(chord)} for chord in (*pressed, ("ctrl", "s"))]

    def __str__(self) -> str:
        return f"line {self.line + 1} up{' twice' if self.twice else ''}"


MOVES = (
    *(Move(line) for line in range(1, len(WANTED))),
    *(Move(line, twice=True) for line in (1, 3)),
)


class Policy:
    """Draws an action by chance. Both arms use it; a model's samples would stand here."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  # chance, not secrets

    def act(self) -> Move:
        return self._random.choice(MOVES)


class Desktop(Protocol):
    """Methods of an episode that the search needs."""

    async def step(self, move: Move) -> None:
        """Take one step."""
        ...

    async def fork(self, count: int) -> Sequence[Desktop]:
        """Make children that continue from here."""
        ...

    async def score(self) -> float:
        """Return the progress of the task, 0 to 1, which ends the episode."""
        ...

    async def close(self) -> None: ...


class LiveDesktop:
    """An episode of a host."""

    def __init__(self, episode: AsyncEpisode) -> None:
        self._episode = episode

    async def step(self, move: Move) -> None:
        """Press the keys of one action."""
        await self._episode.step(move.actions(), settle="fast", observe="none")

    async def fork(self, count: int) -> list[LiveDesktop]:
        """Branch the virtual machine."""
        return [LiveDesktop(child) for child in await self._episode.fork(count, wait_s=120)]

    async def score(self) -> float:
        """Have the host evaluate the task.

        Raises:
            RuntimeError: It failed, which is no score of 0.
        """
        evaluation = await self._episode.evaluate()
        if evaluation.reward is None:
            raise RuntimeError(f"not scored: {evaluation.failure}")
        return evaluation.reward

    async def close(self) -> None:
        await self._episode.aclose()


@dataclass(frozen=True)
class Outcome:
    """Result of an arm."""

    reward: float
    steps: int
    path: tuple[Move, ...]


async def search(root: Desktop, policy: Policy, levels: int, width: int) -> Outcome:
    """Search a tree of desktops: `levels` deep, `width` children each, continuing from the best."""
    here, reward, steps = root, await probe(root), 0
    path: tuple[Move, ...] = ()
    for _ in range(levels):
        if reward >= 1:  # solved: the other steps are not needed
            break
        children = await here.fork(width)
        moves = [policy.act() for _ in children]
        await together(child.step(move) for child, move in zip(children, moves, strict=True))
        steps += width
        rewards = await together(probe(child) for child in children)
        best = max(range(width), key=rewards.__getitem__)
        better = rewards[best] > reward
        for number, child in enumerate(children):
            if not (better and number == best):
                await child.close()
        if better:
            await here.close()
            here, reward, path = children[best], rewards[best], (*path, moves[best])
    final = await here.score()
    await here.close()
    return Outcome(final, steps, path)


async def probe(desktop: Desktop) -> float:
    """Score a desktop that is to continue, by scoring a fork of it."""
    (twin,) = await desktop.fork(1)
    try:
        return await twin.score()
    finally:
        await twin.close()


async def plain(
    begin: Callable[[], Awaitable[Desktop]], policy: Policy, levels: int, episodes: int
) -> Outcome:
    """Take the same number of steps without forks: several episodes, the best one counts."""
    best = Outcome(-1.0, 0, ())
    for _ in range(episodes):
        desktop = await begin()
        path = tuple(policy.act() for _ in range(levels))
        for move in path:
            await desktop.step(move)
        reward = await desktop.score()
        await desktop.close()
        if reward > best.reward:
            best = Outcome(reward, 0, path)
    return Outcome(best.reward, levels * episodes, best.path)


async def together(work: Iterable[Awaitable[T]]) -> list[T]:
    """Await all of it at the same time."""
    return list(await asyncio.gather(*work))


Arm = Callable[[Desktop, Policy, int, int], Awaitable[Outcome]]
"""Function that searches from a desktop with forks, by levels and width."""


async def compare(
    url: str, seeds: Sequence[int], levels: int, width: int, arm: Arm = search, name: str = "search"
) -> list[tuple[int, Outcome, Outcome]]:
    """Run the plain arm and one with forks for each seed on one host."""
    rows = []
    timeouts = Timeouts(step_s=180, setup_s=300, evaluate_s=300)
    async with AsyncClient(url, timeouts=timeouts) as client:

        async def begin() -> LiveDesktop:
            episode = client.episode(TASK, wait_s=300)
            await episode.start()
            return LiveDesktop(episode)

        for seed in seeds:
            began = time.monotonic()
            without = await plain(begin, Policy(seed), levels, width)
            between = time.monotonic()
            with_forks = await arm(await begin(), Policy(seed), levels, width)
            print(
                f"seed {seed}: plain {without.reward:.2f} in {without.steps} steps and "
                f"{between - began:.0f} s; {name} {with_forks.reward:.2f} in {with_forks.steps} steps and "
                f"{time.monotonic() - between:.0f} s: {', '.join(map(str, with_forks.path))}",
                flush=True,
            )
            rows.append((seed, without, with_forks))
    return rows


def table(rows: Sequence[tuple[int, Outcome, Outcome]], name: str = "search") -> list[str]:
    """Return both arms side by side, and their means."""
    lines = [f"| seed | plain | steps | {name} | steps |", "|---|---|---|---|---|"]
    for seed, without, with_forks in rows:
        cells = [
            f"{without.reward:.2f}",
            str(without.steps),
            f"{with_forks.reward:.2f}",
            str(with_forks.steps),
        ]
        lines.append(f"| {seed} | {' | '.join(cells)} |")
    if rows:
        arms = [[row[1] for row in rows], [row[2] for row in rows]]
        means = [sum(outcome.reward for outcome in arm) / len(rows) for arm in arms]
        solved = [sum(outcome.reward >= 1 for outcome in arm) for arm in arms]
        lines.append(f"| mean | {means[0]:.2f} | | {means[1]:.2f} | |")
        lines.append(f"| solved | {solved[0]} of {len(rows)} | | {solved[1]} of {len(rows)} | |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="http://127.0.0.1:20000", help="URL of the host")
    parser.add_argument("--seeds", type=int, default=5, help="how many comparisons (5)")
    parser.add_argument("--levels", type=int, default=8, help="how deep the tree gets (8)")
    parser.add_argument("--width", type=int, default=4, help="children of each node (4)")
    args = parser.parse_args()
    rows = asyncio.run(compare(args.host, range(args.seeds), args.levels, args.width))
    print(*table(rows), sep="\n")


if __name__ == "__main__":
    main()
