"""Supervised fine-tuning from desktops: an oracle's trajectories, a data set, a small policy, its success.

    osgym host serve --image small                     # in another terminal
    pip install torch                             # the CPU build is enough
    python examples/sft.py --train 150 --test 40 --out out/sft

The tasks are those of ``one_screen.py``: click the blue square, wherever it is. The oracle's episodes go to
a data set as they run; the policy sees the whole screen, an eighth as wide and as high, and says where to
click. It is scored on places that it was not trained on, before and after, on real desktops, by the tasks'
own check. Without ``--train`` the data set that is there is used.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageDraw, ImageFont

sys.path.insert(0, str(Path(__file__).parents[1]))
from examples.one_screen import make_task, oracle

from osgym_sdk import Client, ConfigError, Decision
from osgym_sdk.data import Dataset, DatasetWriter

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

SHOWN = (240, 135)
"""Width and height of the policy's image of a screen of 1920×1080."""
CELL = 4
"""Pixels of that image in one place to click."""
COLUMNS, ROWS = SHOWN[0] // CELL, math.ceil(SHOWN[1] / CELL)
FIRST_TEST_SEED = 1_000_000


@dataclass(frozen=True)
class Sample:
    """Image as RGB bytes, and the cell that the oracle clicked."""

    pixels: bytes
    cell: int


@dataclass(frozen=True)
class Score:
    """Number of held-out tasks that were solved, without those lost to the infrastructure."""

    solved: int
    scored: int
    lost: int

    @property
    def rate(self) -> float:
        return self.solved / self.scored if self.scored else math.nan

    def interval(self) -> tuple[float, float]:
        """Return Wilson's interval of 95 %."""
        n, z = self.scored, 1.96
        if not n:
            return (0.0, 1.0)
        middle, spread = (
            self.rate + z * z / (2 * n),
            z * math.sqrt(self.rate * (1 - self.rate) / n + z * z / (4 * n * n)),
        )
        return ((middle - spread) / (1 + z * z / n), (middle + spread) / (1 + z * z / n))

    def __str__(self) -> str:
        low, high = self.interval()
        return f"{self.solved} of {self.scored} ({low:.0%} to {high:.0%}; {self.lost} lost)"


def seen(image: Image.Image) -> bytes:
    """Return a screen as the policy sees it."""
    return image.resize(SHOWN, Image.Resampling.BOX).tobytes()


def cell_of(x: int, y: int, screen: tuple[int, int]) -> int:
    column = min(COLUMNS - 1, x * SHOWN[0] // screen[0] // CELL)
    return min(ROWS - 1, y * SHOWN[1] // screen[1] // CELL) * COLUMNS + column


def point_of(cell: int, screen: tuple[int, int]) -> dict[str, Any]:
    """Return the click into the middle of a cell."""
    row, column = divmod(cell, COLUMNS)
    x = int((column + 0.5) * CELL * screen[0] / SHOWN[0])
    y = min(screen[1] - 1, int((row + 0.5) * CELL * screen[1] / SHOWN[1]))
    return {"op": "click", "x": x, "y": y}


def collect(client: Client, folder: Path, seeds: Iterable[int], concurrency: int) -> None:
    """Record the oracle's episodes."""

    def policy(obs: Any, task: Any, step: int) -> Decision:
        return Decision(oracle(task), {"text": "The blue square is there."})

    with DatasetWriter(folder) as writer:
        tasks = [make_task(seed) for seed in seeds]
        for done, result in enumerate(
            client.run(tasks, policy, max_steps=1, concurrency=concurrency, record=writer), 1
        ):
            print(f"\r{done} of {len(tasks)} episodes, reward {result.reward}", end="", file=sys.stderr)
    print(file=sys.stderr)


def samples(dataset: Dataset) -> list[Sample]:
    """Return the training samples: the first step of each episode that was solved."""
    found = []
    for episode in dataset.filter(min_reward=1.0).episodes():
        step = episode.steps[0]
        image, action = step.image_before, step.actions[0]
        if image is not None and action["op"] == "click":
            found.append(Sample(seen(image), cell_of(action["x"], action["y"], image.size)))
    return found


def success(client: Client, choose: Callable[[bytes], int], seeds: Iterable[int], concurrency: int) -> Score:
    """Return how many tasks a policy solves on real desktops."""

    def policy(obs: Any, task: Any, step: int) -> dict[str, Any]:
        return point_of(choose(seen(obs.image)), obs.screen)

    results = list(
        client.run([make_task(seed) for seed in seeds], policy, max_steps=1, concurrency=concurrency)
    )
    rewards = [result.reward for result in results if result.reward is not None]
    return Score(sum(reward >= 1.0 for reward in rewards), len(rewards), len(results) - len(rewards))


# The half that needs PyTorch. -----------------------------------------------------------------------


def load_torch() -> Any:
    """Return PyTorch, or exit with a remedy."""
    try:
        import torch
    except ImportError:
        sys.exit("training needs PyTorch, which is not here: pip install torch (the CPU build is enough)")
    return torch


def make_network(seed: int) -> Module:
    """Return an untrained network: from the pixels to a value for each cell."""
    torch = load_torch()
    torch.manual_seed(seed)
    nn = torch.nn
    network: Module = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2, padding=2), nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2, padding=2), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 1, 1), nn.Flatten(),
    )  # fmt: skip
    return network


def as_input(pixels: Sequence[bytes]) -> Tensor:
    """Return screens as a tensor of N × 3 × 135 × 240, from 0 to 1."""
    torch = load_torch()
    flat = torch.frombuffer(bytearray(b"".join(pixels)), dtype=torch.uint8)
    found: Tensor = flat.view(-1, SHOWN[1], SHOWN[0], 3).permute(0, 3, 1, 2).float() / 255
    return found


def train(network: Module, given: Sequence[Sample], epochs: int, seed: int) -> list[float]:
    """Train on the oracle's choices; return the mean loss of each epoch."""
    torch = load_torch()
    order = torch.Generator().manual_seed(seed)
    inputs = as_input([sample.pixels for sample in given])
    cells = torch.tensor([sample.cell for sample in given])
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for chosen in torch.randperm(len(given), generator=order).split(16):
            loss = torch.nn.functional.cross_entropy(network(inputs[chosen]), cells[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(chosen)
        losses.append(total / len(given))
    return losses


def chooser(network: Module, seed: int) -> Callable[[bytes], int]:
    """Return the policy of a network: a cell drawn with the network's probabilities."""
    torch = load_torch()
    dice = torch.Generator().manual_seed(seed)

    def choose(pixels: bytes) -> int:
        with torch.no_grad():
            odds = network(as_input([pixels])).softmax(-1)[0]
            return int(torch.multinomial(odds, 1, generator=dice))

    return choose


# ----------------------------------------------------------------------------------------------------


def picture(losses: Sequence[float], before: Score, after: Score, count: int) -> Image.Image:
    """Draw success before and after with its interval, and the loss of each epoch."""
    image = Image.new("RGB", (960, 420), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(16)
    draw.text((40, 16), f"Held-out tasks solved, after {count} episodes of the oracle", "black", font)
    for left, name, score, colour in ((90, "before", before, "#8b949e"), (250, "after", after, "#1f6feb")):
        height = 280 * (0 if math.isnan(score.rate) else score.rate)
        draw.rectangle((left, 350 - height, left + 90, 350), fill=colour)
        low, high = (350 - 280 * bound for bound in score.interval())
        draw.line((left + 45, low, left + 45, high), "black", 2)
        draw.text((left + 4, 356), f"{name}: {score.solved}/{score.scored}", "black", font)
    draw.line((70, 350, 400, 350), "black", 2)
    draw.text((520, 16), f"Loss (cross entropy), epoch 1 to {len(losses)}", "black", font)
    top = max(losses)
    points = [
        (520 + 400 * at / max(1, len(losses) - 1), 350 - 280 * loss / top) for at, loss in enumerate(losses)
    ]
    draw.line(points, "#1f6feb", 3)
    draw.line((520, 350, 920, 350), "black", 2)
    draw.text((470, 62), f"{top:.1f}", "black", font)
    draw.text((490, 342), "0", "black", font)
    return image


def main(argv: Sequence[str] | None = None) -> None:
    """Collect, train, compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", help="URL of a host agent, several with commas; OSGYM_HOSTS by default")
    parser.add_argument("--train", type=int, default=0, help="episodes of the oracle to add to the data set")
    parser.add_argument("--test", type=int, default=40, help="held-out tasks, before and after")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--concurrency", type=int, default=2, help="desktops at a time")
    parser.add_argument("--out", type=Path, default=Path("out/sft"))
    given = parser.parse_args(argv)
    load_torch()
    folder = given.out / "dataset"
    with Client(given.host) as client:
        if given.train:
            first = Dataset.open(folder).episode_count if (folder / "dataset.json").exists() else 0
            collect(client, folder, range(first, first + given.train), given.concurrency)
        learned = samples(Dataset.open(folder))
        if not learned:
            raise ConfigError(f"{folder} has no solved episode; collect some with --train")
        network = make_network(given.seed)
        held_out = range(FIRST_TEST_SEED, FIRST_TEST_SEED + given.test)
        before = success(client, chooser(network, given.seed), held_out, given.concurrency)
        print(f"before: {before}")
        losses = train(network, learned, given.epochs, given.seed)
        after = success(client, chooser(network, given.seed), held_out, given.concurrency)
        print(f"after {len(learned)} episodes: {after}")
    picture(losses, before, after, len(learned)).save(given.out / "sft.png")
    load_torch().save(network.state_dict(), given.out / "policy.pt")
    report = {
        "seed": given.seed,
        "episodes": len(learned),
        "before": vars(before),
        "after": vars(after),
        "losses": losses,
    }
    (given.out / "sft.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"picture: {given.out / 'sft.png'}")


if __name__ == "__main__":
    main()
