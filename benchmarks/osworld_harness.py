"""OSWorld's own DesktopEnv on these desktops: its times, and both scores of the same final states.

Each task is run through `desktop-env`'s DesktopEnv with `osgym_osworld` (their set-up, screenshots, getters
and metrics) and as episodes of the SDK (ours), in two final states each: nothing was done but moving the
pointer (an infeasible task was given up, which is right), and what osworld_oracles.toml brings about. Of all
task files those are taken that `osgym task check` says run here, without the internet.

    python -m benchmarks.osworld_harness --tasks OSWorld/evaluation_examples/examples --count 20 --at-once 8

Needs OSWorld's package and what it imports in this environment: tests/trainers/osworld.txt.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import logging
import os
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import argument_parser, leak_rows, local_service, machine, save, summary
from osgym_host.evals.jobs import find_task_files
from osgym_host.images.store import ImageStore, default_data_dir
from osgym_host.tasks.needs import Verdict, needs_of, programs_of
from osgym_sdk import Client, OSGymError

STEPS = 10
WAIT_S = 600.0
SETTLED_S = 20.0
INFEASIBLE = "infeasible"
ORACLES = Path(__file__).with_name("osworld_oracles.toml")


@dataclass
class Played:
    """One task.

    Attributes:
        start_s: until a desktop was leased and its ports were there: their Docker provider boots a machine.
        reset_s: of their `reset`, the start apart: set-up and the first screenshot.
        reset_again_s: of a second one, with a fresh clone in it.
        step_ms: of their `step` with a pause of 0: the action, then a screenshot.
        right: what doing nothing earns, or giving up where the task is infeasible.
        theirs, ours: rewards for that.
        theirs_oracle, ours_oracle: rewards of the oracle's state, which earns 1; None without one.
        error: why there is none.
    """

    task: str
    domain: str
    right: float
    start_s: float | None = None
    reset_s: float | None = None
    reset_again_s: float | None = None
    step_ms: list[float] = field(default_factory=list)
    evaluate_s: float | None = None
    theirs: float | None = None
    ours: float | None = None
    theirs_oracle: float | None = None
    ours_oracle: float | None = None
    error: str = ""


@contextlib.contextmanager
def timed(into: list[float]) -> Iterator[None]:
    """Append the seconds that the block takes."""
    began = time.monotonic()
    try:
        yield
    finally:
        into.append(round(time.monotonic() - began, 4))


def runnable(folder: Path, image: str, count: int) -> list[dict[str, Any]]:
    """Return the first tasks of the folder that run here and fetch nothing, evenly over its domains."""
    has_program = programs_of(ImageStore(default_data_dir()).resolve(image).rootfs)
    domains: dict[str, list[dict[str, Any]]] = {}
    for path in find_task_files([str(folder)]):
        task = json.loads(path.read_bytes())
        if needs_of(task, has_program, default_data_dir() / "cache" / "downloads").verdict is Verdict.RUNS:
            domains.setdefault(path.parent.name, []).append({**task, "domain": path.parent.name})
    found: list[dict[str, Any]] = []
    while any(domains.values()) and len(found) < count:
        for tasks in domains.values():
            if tasks and len(found) < count:
                found.append(tasks.pop(0))
    return found


def play_theirs(task: dict[str, Any], oracle: str | None, folder: Path, played: Played) -> None:
    """Run a task through DesktopEnv."""
    from desktop_env.desktop_env import DesktopEnv

    times: list[float] = []
    with timed(times):  # it leases its desktop as it is made
        env = DesktopEnv(provider_name="docker", action_space="pyautogui", cache_dir=str(folder))
    try:
        with timed(times):
            env.reset(task_config=copy.deepcopy(task))
        steps: list[float] = []
        for number in range(STEPS):
            with timed(steps):
                env.step(f"import pyautogui; pyautogui.moveTo({700 + number}, 500)", pause=0)
        played.step_ms = [round(1000 * each_s, 1) for each_s in steps]
        env.step(_last_word(task), pause=0)
        with timed(times):
            played.theirs = float(env.evaluate())
        env.is_environment_used = True  # also where set-up did nothing
        with timed(times):
            env.reset(task_config=copy.deepcopy(task))
        played.start_s, played.reset_s, played.evaluate_s, played.reset_again_s = times
        if oracle is not None:
            env.step(oracle, pause=0)
            env.step("DONE", pause=0)
            played.theirs_oracle = float(env.evaluate())
    finally:
        env.close()


def play_ours(client: Client, task: dict[str, Any], oracle: str | None, played: Played) -> None:
    """Run it as episodes of the SDK, scored by the host."""
    with client.episode(task, wait_s=WAIT_S) as episode:
        episode.step(_last_word(task))
        played.ours = episode.evaluate().reward
    if oracle is None:
        return
    with client.episode(task, wait_s=WAIT_S) as episode:
        done = episode.execute(["python3", "-c", oracle], timeout_s=60)
        if done.returncode != 0:
            raise OSGymError(f"the oracle ended with {done.returncode}: {done.output[-200:]!r}")
        episode.step("DONE")
        played.ours_oracle = episode.evaluate().reward


def _last_word(task: dict[str, Any]) -> str:
    return "FAIL" if task["evaluator"]["func"] == INFEASIBLE else "DONE"


def play(client: Client, task: dict[str, Any], oracle: str | None, folder: Path) -> Played:
    """Run one task both ways; what goes wrong is told."""
    played = Played(task["id"], task["domain"], float(_last_word(task) == "FAIL"))
    try:
        play_theirs(task, oracle, folder / task["id"], played)
        play_ours(client, task, oracle, played)
    except Exception as error:  # noqa: BLE001  # theirs raises any
        played.error = f"{type(error).__name__}: {error}"[:300]
    scores = f"nothing {played.theirs} {played.ours}, oracle {played.theirs_oracle} {played.ours_oracle}"
    print(f"{played.domain:20} {played.task[:8]}  theirs and ours: {scores}  {played.error}", flush=True)
    return played


def resources(client: Client) -> dict[str, float]:
    """Return what could leak: leases of the host, descriptors and threads of this process."""
    states = client.host_states().values()
    return {
        "leases": sum(state.capacity.leased for state in states if not isinstance(state, OSGymError)),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }


def report(results: Sequence[Played]) -> dict[str, Any]:
    """Return the distribution of each time, and how the scores agree."""
    whole = [played for played in results if not played.error]
    columns = {
        name: summary([getattr(played, name) for played in whole])
        for name in ("start_s", "reset_s", "reset_again_s", "evaluate_s")
    }
    return {
        "tasks": len(results),
        "whole": len(whole),
        "nothing_right": sum(played.theirs == played.right for played in whole),
        "oracles": sum(played.theirs_oracle is not None for played in whole),
        "oracles_right": sum(played.theirs_oracle == 1 for played in whole),
        "same_scores": sum(
            (played.theirs, played.theirs_oracle) == (played.ours, played.ours_oracle) for played in whole
        ),
        "step_ms": summary([each for played in whole for each in played.step_ms]),
        **columns,
    }


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argument_parser(__doc__, image="full")
    parser.add_argument("--tasks", type=Path, required=True, help="folder with OSWorld's task files")
    parser.add_argument("--count", type=int, default=20, help="tasks (20)")
    parser.add_argument("--at-once", type=int, default=8, help="environments at a time (8)")
    return parser.parse_args()


def main() -> None:
    """Run it, print a table, save the series."""
    args = arguments()
    logging.disable(logging.WARNING)  # theirs tell every request
    import osgym_osworld

    described = machine()
    tasks = runnable(args.tasks, args.image, args.count)
    oracles = tomllib.loads(ORACLES.read_text())
    settings: dict[str, str | int | float] = {"warm": args.at_once, "trajectory": "off"}
    with (
        local_service(args.image, settings) as (url, _),
        tempfile.TemporaryDirectory() as folder,
        Client(url) as client,
    ):
        osgym_osworld.install(url, wait_s=WAIT_S)
        before = resources(client)
        began = time.monotonic()
        with ThreadPoolExecutor(args.at_once) as pool:
            results = list(
                pool.map(lambda task: play(client, task, oracles.get(task["id"]), Path(folder)), tasks)
            )
        wall_s = time.monotonic() - began
        leaks = leak_rows([before, settled(client, before)], {"leases": 0, "descriptors": 16, "threads": 24})
    result = report(results)
    for name, row in result.items():
        print(f"{name:14} {row}")
    for leak in leaks:
        print(leak)
    series = [asdict(played) for played in results]
    save(
        "osworld_harness",
        {"machine": described, "at_once": args.at_once, "wall_s": round(wall_s, 1), **result, "leaks": leaks,
         "series": series},
        args.out,
    )  # fmt: skip


def settled(client: Client, before: dict[str, float]) -> dict[str, float]:
    """Return what there is at the end, once leases are back."""
    until = time.monotonic() + SETTLED_S
    while time.monotonic() < until and resources(client)["leases"] > before["leases"]:
        time.sleep(0.5)
    return resources(client)


if __name__ == "__main__":
    main()
