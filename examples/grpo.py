"""GRPO on real desktops: groups of rollouts, their advantages, a small policy that gets better by reward.

    osgym host serve --image small                     # in another terminal
    pip install torch                             # the CPU build is enough
    python examples/grpo.py --seed 0 --minutes 12 --out out/grpo

The tasks are those of ``one_screen.py`` (click the blue square, wherever it is), each drawn once, so that the
reward of an update is that of places never seen before. The policy is the network of ``sft.py``, untrained,
or trained on ``--oracle`` episodes of the oracle; it clicks on the board only, where chance hits once in 23,
and learns from rewards alone. Each task is played by a group of 8; a member's advantage is its reward less
the group's mean, by the group's deviation (GRPO, arXiv:2402.03300), and the update is the clipped one,
without a KL term.

On a fleet it is the same script: ``--hosts http://10.0.0.1:20000,http://10.0.0.2:20000``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageDraw, ImageFont

sys.path.insert(0, str(Path(__file__).parents[1]))
from examples.one_screen import BOARD, make_task
from examples.sft import (
    COLUMNS,
    FIRST_TEST_SEED,
    ROWS,
    Score,
    as_input,
    collect,
    load_torch,
    make_network,
    point_of,
    samples,
    seen,
    success,
    train,
)

from osgym_sdk import Client, Decision, Group
from osgym_sdk.data import Dataset

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

GROUP = 8
SCREEN = (1920, 1080)
"""Screen whose pixels ``BOARD`` is in."""
CLIP = 0.2
"""Bound of an update's change of a probability's ratio (PPO's epsilon)."""
FIRST_TASK_SEED = 10_000
"""First seed of a run's tasks; those of the oracle are below it, those of the test at ``FIRST_TEST_SEED``."""
TASKS_PER_RUN = 50_000


def on_board() -> tuple[int, ...]:
    """Return the cells whose click is on the board, among which the policy chooses."""
    left, top, width, height = BOARD
    found = []
    for cell in range(COLUMNS * ROWS):
        click = point_of(cell, SCREEN)
        if left <= click["x"] < left + width and top <= click["y"] < top + height:
            found.append(cell)
    return tuple(found)


@dataclass(frozen=True)
class Choice:
    """Choice of the policy in a step: its input (RGB bytes), its place on the board, log-probability."""

    pixels: bytes
    place: int
    logprob: float


@dataclass(frozen=True)
class Lesson:
    """One step to learn from."""

    choice: Choice
    advantage: float


@dataclass(frozen=True)
class Update:
    """Statistics of one update.

    ``reward`` is the mean of the scored members, ``lost`` counts the others; ``mixed`` counts groups whose
    rewards differ, which are those that teach; ``same_start`` those whose members' first frames are equal bit
    by bit, ``branched`` those whose members are children of one moment.
    """

    minute: float
    reward: float
    episodes: int
    lost: int
    groups: int
    mixed: int
    same_start: int
    branched: int
    rollouts_s: float
    learn_s: float
    load_average: float


def advantages(rewards: Sequence[float]) -> list[float]:
    """Return each member's advantage within its group: 0 for all where no reward differs."""
    if not rewards:
        return []
    mean, deviation = fmean(rewards), pstdev(rewards)
    return [(reward - mean) / (deviation + 1e-4) for reward in rewards]


def batches(seed: int, count: int) -> Iterator[list[dict[str, Any]]]:
    """Yield tasks of a run, ``count`` at a time, none of them twice."""
    first = FIRST_TASK_SEED + seed * TASKS_PER_RUN
    for start in range(first, first + TASKS_PER_RUN - count + 1, count):
        yield [make_task(number) for number in range(start, start + count)]


# The whole glue between OSGym and the trainer: 9 lines, and `with Client(hosts)` in main(). ------------


def rollouts(client: Client, tasks: list[dict[str, Any]], agent: Agent, concurrency: int) -> Iterator[Group]:
    """Yield a group of episodes for each task, as they finish."""

    def policy(obs: Any, task: Any, step: int) -> Decision:
        choice = agent.choose(seen(obs.image))
        return Decision(point_of(agent.cells[choice.place], obs.screen), choice)

    yield from client.rollouts(tasks, policy, group=GROUP, max_steps=1, concurrency=concurrency)


def lessons(group: Group) -> list[Lesson]:
    """Return the lessons of a group; members that were not scored have no reward, which is not a 0."""
    scored = [result for result in group.results if result.valid_for_training and result.reward is not None]
    gained = advantages([float(result.reward or 0) for result in scored])
    return [Lesson(one.steps[0].info, gain) for one, gain in zip(scored, gained, strict=True) if gain]


# The half that needs PyTorch. -------------------------------------------------------------------------


class Agent:
    """A network that clicks on the board, and learns which clicks were better than others."""

    def __init__(self, network: Module, seed: int, learning_rate: float) -> None:
        torch = load_torch()
        self.cells = on_board()
        self._network = network
        self._cells = torch.tensor(self.cells)
        self._optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate)
        self._dice = torch.Generator().manual_seed(seed)
        self._lock = threading.Lock()

    def choose(self, pixels: bytes) -> Choice:
        """Draw a place with the network's probabilities. Thread-safe."""
        torch = load_torch()
        with self._lock, torch.no_grad():
            logprobs = self._logprobs([pixels])[0]
            place = int(torch.multinomial(logprobs.exp(), 1, generator=self._dice))
            return Choice(pixels, place, float(logprobs[place]))

    def cell(self, pixels: bytes) -> int:
        """Draw a cell: the same policy, as ``sft.success`` asks for it."""
        return self.cells[self.choose(pixels).place]

    def logprob(self, choice: Choice) -> float:
        """Return the current log-probability of a choice."""
        with load_torch().no_grad():
            return float(self._logprobs([choice.pixels])[0, choice.place])

    def learn(self, given: Sequence[Lesson], epochs: int) -> None:
        """Take ``epochs`` steps up the clipped objective over these lessons, all of them in each."""
        torch = load_torch()
        if not given:
            return
        places = torch.tensor([lesson.choice.place for lesson in given])
        before = torch.tensor([lesson.choice.logprob for lesson in given])
        gained = torch.tensor([lesson.advantage for lesson in given])
        pixels = [lesson.choice.pixels for lesson in given]
        for _ in range(epochs):
            now = self._logprobs(pixels).gather(1, places[:, None])[:, 0]
            ratio = (now - before).exp()
            loss = -torch.minimum(ratio * gained, ratio.clamp(1 - CLIP, 1 + CLIP) * gained).mean()
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()

    def _logprobs(self, pixels: Sequence[bytes]) -> Tensor:
        """Return N × places."""
        found: Tensor = self._network(as_input(pixels))[:, self._cells].log_softmax(-1)
        return found


def weak_network(client: Client, given: argparse.Namespace) -> Module:
    """Return the network that the run begins with: untrained, or trained on a few episodes of the oracle."""
    network = make_network(given.seed)
    if given.oracle:
        folder = given.out / f"oracle-{given.seed}"
        if not (folder / "dataset.json").exists():
            first = given.seed * given.oracle
            collect(client, folder, range(first, first + given.oracle), given.concurrency)
        train(network, samples(Dataset.open(folder)), given.oracle_epochs, given.seed)
    return network


def one_update(
    client: Client, tasks: list[dict[str, Any]], agent: Agent, given: argparse.Namespace, began: float
) -> Update:
    """Play a group for each task, learn from all of them."""
    at = time.monotonic()
    groups = list(rollouts(client, tasks, agent, given.concurrency))
    between = time.monotonic()
    taught = [lessons(group) for group in groups]
    agent.learn([lesson for group in taught for lesson in group], given.epochs)
    rewards = [reward for group in groups for reward in group.rewards if reward is not None]
    now = time.monotonic()
    return Update(
        minute=(now - began) / 60,
        reward=fmean(rewards) if rewards else 0.0,
        episodes=len(rewards),
        lost=GROUP * len(groups) - len(rewards),
        groups=len(groups),
        mixed=sum(bool(group) for group in taught),
        same_start=sum(group.same_start is True for group in groups),
        branched=sum(group.branched for group in groups),
        rollouts_s=between - at,
        learn_s=now - between,
        load_average=os.getloadavg()[0],
    )


def learned(client: Client, agent: Agent, given: argparse.Namespace) -> list[Update]:
    """Update until the minutes are over, or the mean reward of the last five updates is ``--until``."""
    began, updates = time.monotonic(), list[Update]()
    for tasks in batches(given.seed, given.tasks):
        update = one_update(client, tasks, agent, given, began)
        updates.append(update)
        print(
            f"{update.minute:5.1f} min, update {len(updates)}: reward {update.reward:.2f} of "
            f"{update.episodes} episodes ({update.lost} lost), {update.mixed} of {update.groups} groups "
            f"mixed, rollouts {update.rollouts_s:.1f} s, learning {update.learn_s:.1f} s",
            flush=True,
        )
        last = [one.reward for one in updates[-5:]]
        if update.minute >= given.minutes or (len(last) == 5 and fmean(last) >= given.until):
            break
    return updates


# ------------------------------------------------------------------------------------------------------


def picture(runs: Sequence[dict[str, Any]]) -> Image.Image:
    """Draw the reward of each update of each run over its minutes."""
    image = Image.new("RGB", (960, 420), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(16)
    colours = ("#1f6feb", "#f0883e", "#2da44e", "#8250df", "#8b949e")
    title = f"Mean reward of groups of {GROUP} on tasks never seen before, by minutes"
    draw.text((40, 12), title, "black", font)
    minutes = max((update["minute"] for run in runs for update in run["updates"]), default=1.0)
    for tenths in range(0, 11, 2):
        y = 370 - 30 * tenths
        draw.line((70, y, 930, y), "#d0d7de")
        draw.text((34, y - 9), f"{tenths / 10:.1f}", "black", font)
    for number, run in enumerate(runs):
        colour, rewards = colours[number % len(colours)], [update["reward"] for update in run["updates"]]
        along = [70 + 860 * update["minute"] / minutes for update in run["updates"]]
        points = [(x, 370 - 300 * reward) for x, reward in zip(along, rewards, strict=True)]
        draw.line(points, colour, 3)
        for x, y in points:
            draw.ellipse((x - 4, y - 4, x + 4, y + 4), fill=colour)
        played = sum(update["episodes"] for update in run["updates"])
        draw.text((90, 76 + 22 * number), f"seed {run['seed']}: {played} episodes", colour, font)
    draw.text((60, 380), "0", "black", font)
    draw.text((850, 380), f"{minutes:.1f} min", "black", font)
    return image


def save(given: argparse.Namespace, before: Score, updates: Sequence[Update], after: Score) -> None:
    """Write this run's numbers, and the picture of all runs that are there."""
    settings = {name: value for name, value in vars(given).items() if name not in ("hosts", "out")}
    report = {
        "benchmark": "examples/grpo.py",
        "seed": given.seed,
        "settings": settings,
        "cores": os.cpu_count(),
        "before": vars(before),
        "after": vars(after),
        "updates": [asdict(update) for update in updates],
    }
    (given.out / f"grpo-{given.seed}.json").write_text(json.dumps(report, indent=1) + "\n")
    runs = [json.loads(file.read_text()) for file in sorted(given.out.glob("grpo-*.json"))]
    picture(runs).save(given.out / "grpo.png")
    print(f"picture: {given.out / 'grpo.png'}")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line.

    Raises:
        SystemExit: An option is impossible; the message has the reason.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", help="URL of a host agent, several with commas; OSGYM_HOSTS by default")
    parser.add_argument("--seed", type=int, default=0, help="of weights, tasks and samples: 0 to 18")
    parser.add_argument("--minutes", type=float, default=30, help="end after so many minutes (30)")
    parser.add_argument("--until", type=float, default=0.95, help="end at this mean reward (0.95)")
    parser.add_argument("--oracle", type=int, default=0, help="episodes of the oracle to begin with (0)")
    parser.add_argument("--oracle-epochs", type=int, default=12, help="epochs over them (12)")
    parser.add_argument("--tasks", type=int, default=8, help="groups of an update (8)")
    parser.add_argument("--epochs", type=int, default=4, help="gradient steps of an update (4)")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--concurrency", type=int, default=4, help="desktops at a time (4)")
    parser.add_argument("--test", type=int, default=40, help="held-out tasks, before and after (40)")
    parser.add_argument("--out", type=Path, default=Path("out/grpo"))
    given = parser.parse_args(argv)
    if not 0 <= given.seed <= 18:
        parser.error("--seed is from 0 to 18: each seed has 50,000 tasks of its own")
    for name in ("tasks", "epochs", "concurrency", "minutes", "learning_rate"):
        if not getattr(given, name) > 0:
            parser.error(f"--{name.replace('_', '-')} is more than 0")
    if given.oracle < 0 or given.oracle * (given.seed + 1) > FIRST_TASK_SEED:
        parser.error(f"--oracle is from 0 to {FIRST_TASK_SEED // (given.seed + 1)} with this seed")
    return given


def main(argv: Sequence[str] | None = None) -> None:
    """Begin at chance or little above, learn from rewards, compare."""
    given = arguments(argv)
    load_torch()
    given.out.mkdir(parents=True, exist_ok=True)
    with Client(given.hosts) as client:
        agent = Agent(weak_network(client, given), given.seed, given.learning_rate)
        held_out = range(FIRST_TEST_SEED, FIRST_TEST_SEED + given.test)
        before = success(client, agent.cell, held_out, given.concurrency)
        print(f"before: {before}")
        updates = learned(client, agent, given)
        after = success(client, agent.cell, held_out, given.concurrency)
        print(f"after {sum(update.episodes for update in updates)} episodes: {after}")
    save(given, before, updates, after)


if __name__ == "__main__":
    main()
