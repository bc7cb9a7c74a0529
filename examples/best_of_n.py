"""Best of n: forks in mid-episode, compared with independent samples of equal steps.

    OSGYM_RUNTIME=qemu OSGYM_IMAGE=small osgym host serve      # in another terminal: virtual machines
    python examples/best_of_n.py --seeds 5

Task, policy and the independent samples are those of ``tree_search.py``. Both arms take ``--samples`` times
``--steps`` steps, and the best final score counts:

- *plain*: as many whole episodes, each from the beginning.
- *forks*: as many first halves, each in a fork of one beginning. Each is scored in mid-episode (in a fork of
  its own, since a scored episode is over), and as many second halves go on from the best, in forks of it.

So a good first half is used more than once, and none is spent on a bad one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from examples.tree_search import Desktop, Move, Outcome, Policy, compare, probe, table, together


async def forks(root: Desktop, policy: Policy, steps: int, samples: int) -> Outcome:
    """Take `samples` first halves, and `samples` second halves from the best of them; close all desktops."""
    firsts, first_moves = await halves(root, policy, steps // 2, samples)
    await root.close()
    scores = await together(probe(child) for child in firsts)
    middle = max(range(samples), key=scores.__getitem__)
    seconds, second_moves = await halves(firsts[middle], policy, steps - steps // 2, samples)
    rewards = await together(child.score() for child in seconds)
    await together(child.close() for child in (*firsts, *seconds))
    best = max(range(samples), key=rewards.__getitem__)
    return Outcome(rewards[best], steps * samples, (*first_moves[middle], *second_moves[best]))


async def halves(
    root: Desktop, policy: Policy, steps: int, samples: int
) -> tuple[Sequence[Desktop], list[tuple[Move, ...]]]:
    """Fork a desktop and take `steps` steps in each child; it stays open itself."""
    children = await root.fork(samples)
    sampled = [tuple(policy.act() for _ in range(steps)) for _ in children]
    await together(walk(child, moves) for child, moves in zip(children, sampled, strict=True))
    return children, sampled


async def walk(desktop: Desktop, moves: Sequence[Move]) -> None:
    for move in moves:
        await desktop.step(move)


def report(steps: int, samples: int, rows: Sequence[tuple[int, Outcome, Outcome]]) -> str:
    """Return the rewards of both arms for each seed, as JSON."""
    series = [
        {"seed": seed, "plain": plain.reward, "forks": forked.reward, "steps": [plain.steps, forked.steps]}
        for seed, plain, forked in rows
    ]
    found = {"benchmark": "examples/best_of_n.py", "steps": steps, "samples": samples, "rows": series}
    return json.dumps(found, indent=1) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="http://127.0.0.1:20000", help="URL of the host")
    parser.add_argument("--seeds", type=int, default=5, help="how many comparisons (5)")
    parser.add_argument("--steps", type=int, default=8, help="steps of an episode, 2 or more (8)")
    parser.add_argument("--samples", type=int, default=4, help="n: samples of each arm (4)")
    parser.add_argument("--out", type=Path, help="a file for the numbers, as JSON")
    given = parser.parse_args(argv)
    if given.steps < 2 or given.samples < 1:
        parser.error("--steps is 2 or more: an episode has two halves; --samples is 1 or more")
    rows = asyncio.run(compare(given.host, range(given.seeds), given.steps, given.samples, forks, "forks"))
    print(*table(rows, "forks"), sep="\n")
    if given.out:
        given.out.write_text(report(given.steps, given.samples, rows))


if __name__ == "__main__":
    main()
