"""verifiers: ``python examples/trainers/verifiers_rollouts.py tasks/ http://127.0.0.1:8000/v1 MODEL``."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import verifiers.v1 as vf

from osgym_sdk.integrations.verifiers import environment


async def rollouts(tasks: str, api: str, model: str, group: int = 2, **config: Any) -> list[Any]:
    """Play each task ``group`` times with the model of an OpenAI-compatible server; returns episodes."""
    env = environment(tasks, **config)
    context = vf.ModelContext(
        model=model, client=vf.EvalClientConfig(base_url=api, api_key_var="OPENAI_API_KEY")
    )
    async with env.serving():
        slots = [slot for task in env.taskset for slot in env.slots(task, group)]
        return list(await asyncio.gather(*(env.run_slot(slot, context) for slot in slots)))


if __name__ == "__main__":
    for episode in asyncio.run(rollouts(sys.argv[1], sys.argv[2], sys.argv[3])):
        print(episode.ok, [trace.reward for trace in episode.traces], episode.errors)
