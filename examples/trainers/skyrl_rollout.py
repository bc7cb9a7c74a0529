"""A rollout in SkyRL Gym's text environment: ``python examples/trainers/skyrl_rollout.py tasks/``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import skyrl_gym

from osgym_sdk.integrations.skyrl import rows


def play(row: dict[str, Any], answer: Callable[[list[Any]], str], **config: Any) -> dict[str, Any]:
    """Play a row of the data set; ``answer`` is the model: from the conversation to what it says."""
    env = skyrl_gym.make(
        "osgym", env_config=config, extras={"extra_info": row["extra_info"], "max_turns": 10}
    )
    try:
        conversation, _ = env.init(row["prompt"])
        done = False
        while not done:
            step = env.step(answer(conversation))
            conversation, done = [*conversation, *step["observations"]], step["done"]
        return dict(step)
    finally:
        env.close()


if __name__ == "__main__":
    print(play(rows(sys.argv[1])[0], lambda conversation: "finish()"))
