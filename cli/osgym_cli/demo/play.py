"""The demo's two policies, and the files that their episodes leave."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from osgym_cli.evals.recording import step_line
from osgym_cli.evals.scripted import by_chance
from osgym_host.tasks.shipped import ShippedTask, next_actions


class PolicyName(StrEnum):
    """How an episode is played."""

    ORACLE = "oracle"
    RANDOM = "random"


@dataclass(slots=True)
class Play:
    """One episode of the demo: its task, its policy, and its progress.

    Attributes:
        first, last: Files of the first and the newest frame.
        frames_not_final: Number of frames that changed after their step was answered; None before the end.
    """

    task: ShippedTask
    policy: PolicyName
    folder: Path
    steps: list[list[dict[str, Any]]]
    state: str = "waits"
    reward: float | None = None
    failure: str = ""
    note: str = ""
    reset_ms: float | None = None
    setup_ms: float | None = None
    step_ms: list[float] = field(default_factory=list)
    frames_not_final: int | None = None
    first: Path | None = None
    last: Path | None = None


def make_plays(tasks: list[ShippedTask], out: Path, seed: int, screen: tuple[int, int]) -> list[Play]:
    """Make two plays of every task: by its oracle and by chance."""
    plays = []
    for task in tasks:
        name = task.name.replace("/", ".")
        dice = random.Random(f"{seed}:{task.name}")  # noqa: S311 - a demo's
        for policy, steps in (
            (PolicyName.ORACLE, task.oracle),
            (PolicyName.RANDOM, by_chance(dice, screen)),
        ):
            folder = out / "trajectories" / f"{name}.{policy}"
            plays.append(Play(task, policy, folder, [list(step) for step in steps]))
    return plays


class Player:
    """Policy of the run: plays the steps of each episode's `Play` and saves each frame."""

    def __init__(self, plays: list[Play], changed: Callable[[Play], object]) -> None:
        self._plays = plays
        self._changed = changed

    def tasks(self) -> list[dict[str, Any]]:
        """Return the tasks for ``client.run``, each marked with its play."""
        return [
            {**p.task.task, "osgym": {**p.task.task.get("osgym", {}), "play": i}}
            for i, p in enumerate(self._plays)
        ]

    def play_of(self, task: dict[str, Any]) -> Play:
        return self._plays[int(task["osgym"]["play"])]

    def reset(self, task: dict[str, Any]) -> Actor:
        """Return the policy of an episode that begins."""
        return Actor(self.play_of(task), self._changed)

    def act(self, obs: Any, task: Any, step: int) -> list[dict[str, Any]]:
        """Never called: `reset` gives each episode a policy of its own."""
        raise NotImplementedError


class Actor:
    """Policy of one episode; an oracle waits for the final screen before its last step, which is shown."""

    def __init__(self, play: Play, changed: Callable[[Play], object]) -> None:
        self._play = play
        self._changed = changed

    async def act(self, obs: Any, task: Any, step: int) -> list[dict[str, Any]] | None:
        """Save the frame, update the display, return the next actions."""
        play = self._play
        if play.policy is PolicyName.ORACLE and 0 < step < len(play.steps):
            is_last = step == len(play.steps) - 1
            obs = await obs.final() if is_last or play.task.oracle[step - 1].certain else obs
        await asyncio.to_thread(self._save, obs, step)
        self._changed(play)
        if step >= len(play.steps):
            return None
        if play.policy is PolicyName.ORACLE:
            return await next_actions(obs, play.task.oracle, step)
        return play.steps[step]

    def _save(self, obs: Any, step: int) -> None:
        play = self._play
        play.folder.mkdir(parents=True, exist_ok=True)
        frame = play.folder / f"{step:03d}.png"  # what is seen before step + 1
        frame.write_bytes(obs.data)
        play.first = play.first or frame
        play.last = frame
        play.state = f"step {step + 1}/{len(play.steps)}"


def record(play: Play, result: Any) -> None:
    """Keep the result of the episode, and write its steps beside its frames."""
    trajectory = result.trajectory
    play.reward = result.reward
    play.failure = str(result.failure.message) if result.failure else ""
    play.state = "done" if result.ok else "failed"
    reset = trajectory.reset_ms
    play.reset_ms = reset["wait"] + reset["observe"] if {"wait", "observe"} <= reset.keys() else None
    play.setup_ms = reset.get("setup")
    play.step_ms = [s.timing.total_ms for s in trajectory.steps if s.timing is not None]
    play.frames_not_final = result.frames_not_final
    if trajectory.evaluation is not None:
        notes = (d.get("note") for d in trajectory.evaluation.details if isinstance(d, dict))
        play.note = "; ".join(str(n) for n in notes if n)
    play.folder.mkdir(parents=True, exist_ok=True)
    if trajectory.steps and trajectory.steps[-1].data:
        play.last = play.folder / f"{len(trajectory.steps):03d}.png"
        play.last.write_bytes(trajectory.steps[-1].data)
    lines = [
        {
            "task": play.task.name,
            "policy": play.policy,
            "instruction": play.task.task.get("instruction"),
            "reward": play.reward,
            "note": play.note,
            "failure": play.failure or None,
            "termination_reason": result.termination_reason,
            "frames_not_final": result.frames_not_final,
            "replica": trajectory.replica_id,
            "generation": trajectory.generation,
            "reset_ms": dict(reset),
        },
        *(step_line(s, f"{s.step - 1:03d}.png", f"{s.step:03d}.png") for s in trajectory.steps),
    ]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (play.folder / "steps.jsonl").write_text(text)
