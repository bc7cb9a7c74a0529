"""Times of the same steps on two golden images, in turns in one run: the cost of a change in the guest.

    osgym image ls                                        # digests of the images
    python -m benchmarks.two_images 3599de 0dd817 --rounds 20

Each image has a host agent and an episode of its own, with a text editor open on a file. In each round every
action is done on both, the first image's turn comes first in every other round. `input` is the time in which
the guest carries the action out, `total` what the client waits for the answer, settling and a full PNG
included. Printed are medians, the ratio of the second image's to the first's with the 95 % interval of a
bootstrap over rounds, and for texts the time for each character.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.common import argument_parser, local_service, machine, quantile, save
from osgym_sdk import Client, Episode

Act = dict[str, Any]
LINE = "the quick brown fox jumps over the lazy dog and "
TEXTS = {
    "type 40 characters": LINE[:40],
    "type 40 characters and Enter": LINE[:40] + "\n",
    "type 200 characters": (LINE * 5)[:200],
    "type 20 lines": "".join(f"line number {number}\n" for number in range(20)),
    "type 100 Cyrillic characters": ("Съешь же ещё этих мягких булок. " * 4)[:100],
}
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Sample:
    """One action on one image, in milliseconds."""

    name: str
    image: str
    round: int
    input_ms: float
    total_ms: float


def actions(round_number: int) -> dict[str, list[Act]]:
    """Return the steps of a round; clicks wander, so that none is on the place of the one before."""
    x, y = 300 + 40 * (round_number % 10), 300
    return {
        "click": [{"op": "click", "x": x, "y": y}],
        "click and type": [{"op": "click", "x": x + 20, "y": y + 40}, {"op": "type", "text": "word"}],
        "key": [{"op": "key", "keys": ["ctrl", "Home"]}],
        "drag": [{"op": "drag", "path": [[300, 300], [700, 500]]}],
        "scroll": [{"op": "scroll", "x": 600, "y": 500, "dy": 2}],
        **{name: [{"op": "type", "text": text}] for name, text in TEXTS.items()},
        "select all and delete": [{"op": "key", "keys": ["ctrl", "a"]}, {"op": "key", "keys": ["Delete"]}],
    }


def opened(episode: Episode) -> None:
    """Open the editor on a file and wait until it is there."""
    episode.write_file("~/text.txt", "a line of text\n" * 30)
    episode.execute(["sh", "-c", "mousepad ~/text.txt >/dev/null 2>&1 &"])
    deadline = time.monotonic() + 30
    while not any("text.txt" in window.title for window in episode.windows()):
        if time.monotonic() > deadline:
            raise RuntimeError("the editor did not open")
        time.sleep(0.1)
    episode.step({"op": "key", "keys": ["super", "Up"]}, settle={"policy": "certain"})


def measure(episode: Episode, name: str, step: Sequence[Act], image: str, round_number: int) -> Sample:
    began = time.monotonic()
    obs = episode.step(list(step))
    total_ms = (time.monotonic() - began) * 1000
    assert obs.timing is not None
    return Sample(name, image, round_number, obs.timing.input_ms, total_ms)


def ratio(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """Return the ratio of the medians and its 95 % interval, by resampling pairs of rounds."""
    pairs = list(zip(first, second, strict=True))
    rng = random.Random(0)
    drawn = []
    for _ in range(RESAMPLES):
        sample = rng.choices(pairs, k=len(pairs))
        drawn.append(statistics.median(b for _, b in sample) / statistics.median(a for a, _ in sample))
    return (
        statistics.median(second) / statistics.median(first),
        quantile(drawn, 0.025),
        quantile(drawn, 0.975),
    )


def report(samples: Sequence[Sample], images: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each action: medians of both images, and their ratios."""
    rows = []
    for name in dict.fromkeys(sample.name for sample in samples):
        row: dict[str, Any] = {"name": name}
        kinds: dict[str, Callable[[Sample], float]] = {
            "input_ms": lambda sample: sample.input_ms,
            "total_ms": lambda sample: sample.total_ms,
        }
        for kind, value in kinds.items():
            both = [[value(s) for s in samples if s.name == name and s.image == image] for image in images]
            row[kind] = [round(statistics.median(series), 2) for series in both]
            row[f"{kind}_ratio"] = [round(number, 3) for number in ratio(*both)]
        if name in TEXTS:
            row["ms_per_character"] = [round(ms / len(TEXTS[name]), 3) for ms in row["input_ms"]]
        rows.append(row)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("images", nargs=2, help="two golden images: tags or beginnings of digests")
    parser.add_argument(
        "--rounds", type=int, default=20, help="times that each action is done on each image (20)"
    )
    options = parser.parse_args(argv)
    samples: list[Sample] = []
    with contextlib.ExitStack() as stack:
        episodes: dict[str, Episode] = {}
        for place, image in enumerate(options.images):
            settings = {"instance": f"two-images-{place}", "warm": 1, "max_replicas": 1}
            url, _ = stack.enter_context(local_service(image, settings))
            client = stack.enter_context(Client(url))
            episodes[image] = stack.enter_context(client.episode(max_steps=100_000))
            opened(episodes[image])
        for round_number in range(options.rounds):
            order = options.images if round_number % 2 else options.images[::-1]
            for name, step in actions(round_number).items():
                samples += [measure(episodes[image], name, step, image, round_number) for image in order]
            print(f"\rround {round_number + 1} of {options.rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    rows = report(samples, options.images)
    for row in rows:
        first, second = row["total_ms"]
        by, low, high = row["total_ms_ratio"]
        typed = "  ms/char {} → {}".format(*row["ms_per_character"]) if "ms_per_character" in row else ""
        print(
            f"{row['name']:<30} input {row['input_ms'][0]:7.1f} → {row['input_ms'][1]:7.1f} ms"
            f"   total {first:7.1f} → {second:7.1f} ms  ×{by:.2f} ({low:.2f} to {high:.2f}){typed}"
        )
    result = {"machine": machine(), "images": options.images, "rounds": options.rounds, "rows": rows}
    print(save("two_images", {**result, "samples": [asdict(sample) for sample in samples]}, options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
