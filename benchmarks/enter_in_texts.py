"""Rewards of oracles whose texts end in a line break, in place of Enter after the text.

    python -m benchmarks.enter_in_texts                    # shipped tasks, and families at three levels
    python -m benchmarks.enter_in_texts --only calc --rounds 5
    python -m benchmarks.enter_in_texts --image 3599de     # on an image with an older guest agent

Many models submit by a line break at the end of a text. Every task whose oracle has such a place is played
both ways, in turns; the other tasks are left out. Printed are rewards by way, and every play that did not
earn 1.

Exit codes: 0 all earned 1 - 1 some did not.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.common import argument_parser, local_service, machine, save
from benchmarks.oracles import choose, family_tasks, with_enters_in_texts
from osgym_host.tasks.shipped import ShippedTask, next_actions
from osgym_sdk import AsyncClient

LEVELS = (1, 3, 5)
WAYS = ("Enter as a key", "Enter in the text")


class BothWays:
    """Plays oracles in the way that a task is marked with."""

    def __init__(self, tasks: Sequence[ShippedTask]) -> None:
        self._ways = {
            task.task["id"]: dict(zip(WAYS, (task.oracle, with_enters_in_texts(task.oracle)), strict=True))
            for task in tasks
        }

    async def act(self, obs: Any, task: dict[str, Any], step: int) -> list[dict[str, Any]]:
        return await next_actions(obs, self._ways[task["id"]][task["way"]], step)


async def play(url: str, tasks: Sequence[ShippedTask], rounds: int) -> list[dict[str, Any]]:
    """Play each task in both ways; a row for each play."""
    jobs = [{**task.task, "way": way} for _ in range(rounds) for task in tasks for way in WAYS]
    names = {task.task["id"]: task.name for task in tasks}
    rows: list[dict[str, Any]] = []
    async with AsyncClient(url) as client:
        async for result in client.run(jobs, BothWays(tasks), concurrency=2, wait_s=300):
            name, way = names[result.task["id"]], result.task["way"]
            rows.append(
                {"name": name, "way": way, "reward": result.reward, "failure": str(result.failure or "")}
            )
            print(f"\r{len(rows)} of {len(jobs)} plays", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = argument_parser(__doc__, image="full")
    parser.add_argument("--only", action="append", default=[], help="only tasks with this in their name")
    parser.add_argument("--rounds", type=int, default=2, help="times that each is played in each way (2)")
    options = parser.parse_args(argv)
    every = [*choose("full", ()), *family_tasks("full", LEVELS, certain=True)]
    tasks = [
        task
        for task in every
        if with_enters_in_texts(task.oracle) != task.oracle
        and (not options.only or any(part in task.name for part in options.only))
    ]
    with local_service(options.image, {"warm": 2, "max_replicas": 3}) as (url, _):
        rows = asyncio.run(play(url, tasks, options.rounds))
    for way in WAYS:
        rewards = [row["reward"] for row in rows if row["way"] == way]
        print(f"{way}: {rewards.count(1.0)} of {len(rewards)} earned 1, over {len(tasks)} tasks")
    wrong = [row for row in rows if row["reward"] != 1.0]
    for row in wrong:
        print(f"  {row['name']}, {row['way']}: {row['reward']} {row['failure']}")
    result = {"machine": machine(), "image": options.image, "rounds": options.rounds, "rows": rows}
    print(save("enter_in_texts", result, options.out))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
