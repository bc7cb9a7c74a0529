"""First frames of a group: the number of equal ones, and the cost of a set-up until that frame.

    python -m benchmarks.first_frames --rounds 5

Eight episodes at the same time, as a group of GRPO has them, each on a fresh replica, for each of some
set-ups that open windows. First frames are compared pixel by pixel with the commonest of their group: of one
that differs, `outside` is the number of such pixels outside the panel, and `panel` of those in it. The panel
shows the minute, so no group begins in the last seconds of one. Beside that, how long steps take that open
nothing.
"""

from __future__ import annotations

import collections
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.common import argument_parser, local_service, machine, save, summary
from benchmarks.settle.live import PANEL_HEIGHT_PX
from osgym_sdk import Client

GROUP = 8
LATEST_S = 40
"""Second of a minute before which groups begin."""
STEPS = 10


def _open(command: str, title: str) -> list[dict[str, Any]]:
    """Steps that start a program and wait for its window, as set-ups with several windows do."""
    seen = {"window_exists": title}
    wait = {"command": ["true"], "verification": seen, "max_wait_time": 30, "check_interval": 0.1}
    return [
        {"type": "launch", "parameters": {"command": command.split()}},
        {"type": "execute_with_verification", "parameters": wait},
    ]


SETUPS = {
    "mousepad": _open("mousepad", "Mousepad")[:1],
    "xterm": _open("xterm", "")[:1],
    "mousepad, then files": _open("mousepad", "Mousepad") + _open("pcmanfm /usr", "usr"),
    "xterm, then mousepad": _open("xterm -title numbers -e cat", "numbers") + _open("mousepad", "Mousepad"),
}


def task(setup: str) -> dict[str, Any]:
    """A task with nothing but a set-up."""
    return {
        "id": "first-frames",
        "instruction": "Look.",
        "config": SETUPS[setup],
        "evaluator": {"func": "infeasible"},
        "osgym": {"flavor": "small"},
    }


def group(client: Client, setup: str) -> list[dict[str, Any]]:
    """Begin a group; return the differences of each member's first frame from the most frequent one."""
    while time.localtime().tm_sec >= LATEST_S:
        time.sleep(1)

    def begun(_: int) -> tuple[np.ndarray[Any, Any], dict[str, float], list[float]]:
        with client.episode(task(setup)) as episode:
            image = np.asarray(episode.observation.image.convert("RGB"))
            settle = [episode.step([]).timing.settle_ms for _ in range(STEPS)]
            return image, dict(episode.trajectory.reset_ms), settle

    with ThreadPoolExecutor(GROUP) as pool:
        found = list(pool.map(begun, range(GROUP)))
    [(commonest, _)] = collections.Counter(image.tobytes() for image, _, _ in found).most_common(1)
    rows = []
    for image, timing, settle in found:
        differs = (image != np.frombuffer(commonest, image.dtype).reshape(image.shape)).any(axis=2)
        rows.append({
            "setup": setup,
            "outside": int(differs[:-PANEL_HEIGHT_PX].sum()),
            "panel": int(differs[-PANEL_HEIGHT_PX:].sum()),
            "setup_ms": timing["setup"],
            "create_ms": timing["total"],
            "step_settle_ms": settle,
        })  # fmt: skip
    return rows


def measure(image: str, rounds: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    settings = {"warm": GROUP, "max_replicas": GROUP, "instance": f"first{os.getpid()}"}
    with local_service(image, settings) as (url, _), Client(url) as client:
        for number in range(rounds):
            for setup in SETUPS:
                rows += [{**row, "round": number} for row in group(client, setup)]
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """Print the numbers of equal beginnings, and medians."""
    for setup in SETUPS:
        mine = [row for row in rows if row["setup"] == setup]
        alike = sum(not row["outside"] and not row["panel"] for row in mine)
        panel = sum(not row["outside"] and bool(row["panel"]) for row in mine)
        setup_ms = summary([row["setup_ms"] for row in mine])["median"]
        steps = summary([ms for row in mine for ms in row["step_settle_ms"]])["median"]
        print(f"{setup:22} alike {alike} of {len(mine)}; panel only {panel}; "
              f"set-up {setup_ms:.0f} ms; a step without a change {steps:.1f} ms")  # fmt: skip


def main() -> None:
    parser = argument_parser(__doc__, image="small")
    parser.add_argument("--rounds", type=int, default=5, help="groups of each set-up (5)")
    args = parser.parse_args()
    about = machine()
    rows = measure(args.image, args.rounds)
    about["load_after"] = machine()["load_before"]
    show(rows)
    print(f"saved {save('first_frames', {'machine': about, 'rows': rows}, args.out)}")


if __name__ == "__main__":
    main()
