"""Cost of a step by its parts, compared with the OSWorld way.

    python -m benchmarks.step_path                       # starts a service of its own
    python -m benchmarks.step_path --host http://127.0.0.1:20000 --run-dir /var/lib/osgym/run/default

In each application one episode does the same actions three times on the same replica: under `fast`, under
`exact`, and the OSWorld way (pyautogui in a new interpreter through `/execute`, a pause of 2 s, GET
`/screenshot`), in an order that changes from application to application. Every frame of ours is a full
1920x1080 PNG sent through client and host; OSWorld's calls go straight to the replica's guest agent, which is
a little kind to them. `overhead` is all that is not waiting for the screen.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import httpx

from benchmarks.common import local_service, machine, quantile, save
from benchmarks.settle.live import task_for, wait_steady
from benchmarks.settle.scenarios import Action, Application, application, chosen
from osgym_host.images.store import default_data_dir
from osgym_sdk import Client, Episode, OSGymError, Timing

PAUSE_S = 2.0
"""`sleep_after_execution` of OSWorld's own runs (DesktopEnv.step, pause=2)."""
PREFIX = "import pyautogui; import time; pyautogui.FAILSAFE = False; "
"""Source that OSWorld's PythonController puts before every action."""
WAYS = ("fast", "exact", "osworld")
PARTS = tuple(f.name for f in dataclasses.fields(Timing) if f.name != "total_ms")
KEYS = {"return": "enter", "page_down": "pagedown", "page_up": "pageup", "slash": "/", "minus": "-"}
KEYS |= {"plus": "+", "asterisk": "*", "equal": "="}


@dataclass(frozen=True, slots=True)
class Sample:
    """One action under one way. `parts` are milliseconds whose sum is `total_ms`."""

    app: str
    index: int
    label: str
    way: str
    total_ms: float
    parts: dict[str, float]
    image_bytes: int


def pyautogui_source(send: dict[str, Any]) -> str:
    """Return the action as OSWorld's agents write it.

    Raises:
        ValueError: There is no such operation.
    """
    at = f"{send['x']}, {send['y']}" if "x" in send else ""
    match send["op"]:
        case "click":
            button, count = send.get("button", "left"), send.get("count", 1)
            return f"pyautogui.click({at}, button={button!r}, clicks={count})"
        case "move":
            return f"pyautogui.moveTo({at})"
        case "scroll":
            return f"pyautogui.moveTo({at}); pyautogui.scroll({-send['dy']})"
        case "drag":
            (x0, y0), (x1, y1) = send["path"][0], send["path"][-1]
            return f"pyautogui.moveTo({x0}, {y0}); pyautogui.dragTo({x1}, {y1}, button='left')"
        case "type":
            return f"pyautogui.typewrite({send['text']!r})"
        case "key":
            keys = [KEYS.get(key.lower(), key.lower()) for key in send["keys"]]
            return f"pyautogui.hotkey({', '.join(map(repr, keys))})"
    raise ValueError(f"no pyautogui for {send['op']}")


def ours(episode: Episode, app: str, index: int, action: Action, policy: str) -> Sample:
    obs = episode.step(action.send, settle=policy)
    timing = obs.timing
    assert timing is not None
    if len(obs.data) < 10_000:
        raise RuntimeError("no full frame was sent")
    parts = {name: round(getattr(timing, name), 3) for name in PARTS}
    return Sample(app, index, action.label, policy, round(timing.total_ms, 3), parts, len(obs.data))


def osworld(guest: httpx.Client, app: str, index: int, action: Action, pause_s: float) -> Sample:
    """Do one step as OSWorld's DesktopEnv does it.

    Raises:
        RuntimeError: The action failed in the replica.
    """
    command = ["python", "-c", PREFIX + pyautogui_source(action.send)]
    started = time.perf_counter()
    answer = guest.post("/execute", json={"command": command, "shell": False}).raise_for_status().json()
    executed = time.perf_counter()
    if answer["returncode"] != 0:
        raise RuntimeError(f"pyautogui failed: {answer['error'][-500:]}")
    time.sleep(pause_s)
    paused = time.perf_counter()
    image = guest.get("/screenshot").raise_for_status().content
    ended = time.perf_counter()
    parts = {
        "execute_ms": round((executed - started) * 1000, 3),
        "pause_ms": round((paused - executed) * 1000, 3),
        "screenshot_ms": round((ended - paused) * 1000, 3),
    }
    return Sample(app, index, action.label, "osworld", round((ended - started) * 1000, 3), parts, len(image))


def run_application(
    client: Client, app: Application, run_dir: Path, order: tuple[str, ...], options: argparse.Namespace
) -> Iterator[Sample]:
    """Yield samples of all ways in one application, on one replica."""
    with client.episode(task_for(app), max_steps=100_000, reuse_frames=False, wait_s=120) as episode:
        wait_steady(episode)
        actions = list(app.actions(Random(options.seed)))[: options.actions]
        transport = httpx.HTTPTransport(uds=str(run_dir / "replicas" / episode.replica_id / "agent.sock"))
        with httpx.Client(transport=transport, base_url="http://replica", timeout=130) as guest:
            ways: dict[str, Callable[[int, Action], Sample]] = {
                "fast": lambda i, action: ours(episode, app.name, i, action, "fast"),
                "exact": lambda i, action: ours(episode, app.name, i, action, "exact"),
                "osworld": lambda i, action: osworld(guest, app.name, i, action, options.pause_s),
            }
            for way in order:
                for index, action in enumerate(actions):
                    yield ways[way](index, action)


def report(samples: list[Sample]) -> dict[str, Any]:
    """Print and return the figures of each way, and the ratios."""
    result: dict[str, Any] = {}
    for way in WAYS:
        mine = [s for s in samples if s.way == way]
        if not mine:
            continue
        totals = [s.total_ms for s in mine]
        medians = {name: statistics.median(s.parts[name] for s in mine) for name in mine[0].parts}
        row = {
            "n": len(mine),
            "mean_ms": statistics.fmean(totals),
            "p50_ms": statistics.median(totals),
            "p95_ms": quantile(totals, 0.95),
            "medians": medians,
            "image_kb": statistics.fmean(s.image_bytes for s in mine) / 1000,
        }
        if way != "osworld":
            overheads = [s.total_ms - s.parts["settle_ms"] for s in mine]
            row["overhead_p50_ms"] = statistics.median(overheads)
            row["overhead_p95_ms"] = quantile(overheads, 0.95)
        result[way] = row
        split = "  ".join(f"{name.removesuffix('_ms')} {value:.2f}" for name, value in medians.items())
        print(
            f"{way:8} n={row['n']:<4} mean {row['mean_ms']:8.1f} ms  p50 {row['p50_ms']:8.1f}  "
            f"p95 {row['p95_ms']:8.1f}  {row['image_kb']:.0f} KB\n         medians: {split}"
        )
        if "overhead_p50_ms" in row:
            print(
                f"         all that is not settle: p50 {row['overhead_p50_ms']:.2f} ms, "
                f"p95 {row['overhead_p95_ms']:.2f} ms"
            )
    for way in ("fast", "exact"):
        if way in result and "osworld" in result:
            result[way]["times_faster"] = result["osworld"]["mean_ms"] / result[way]["mean_ms"]
            print(f"{way:8} {result[way]['times_faster']:.1f} times faster than the OSWorld way (means)")
    return result


@contextlib.contextmanager
def service(options: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """Yield the host to measure, and the folder of its replicas' sockets."""
    if options.host:
        yield options.host, options.run_dir
        return
    with local_service(options.image, {"warm": 1, "max_replicas": 2}) as (url, _):
        yield url, default_data_dir() / "run" / f"bench-{os.getpid()}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--host", help="a running service on this machine; default: start one")
    parser.add_argument("--run-dir", type=Path, default=default_data_dir() / "run" / "default")
    parser.add_argument("--image", default="full")
    parser.add_argument("--apps", default=",".join(app.name for app in chosen("all", own_image=False)))
    parser.add_argument("--actions", type=int, default=12, help="how many actions in each application")
    parser.add_argument("--pause-s", type=float, default=PAUSE_S)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="step_path")
    return parser.parse_args()


def main() -> int:
    options = parse()
    samples: list[Sample] = []
    failures: list[dict[str, str]] = []
    orders = list(permutations(WAYS))
    with service(options) as (url, run_dir), Client(url) as client:
        for number, name in enumerate(options.apps.split(",")):
            order = orders[number % len(orders)]
            try:
                found = list(run_application(client, application(name), run_dir, order, options))
            except (OSGymError, TimeoutError, RuntimeError, httpx.HTTPError) as error:
                failures.append({"app": name, "error": repr(error)})
                print(f"{name}: not measured: {error!r}", file=sys.stderr, flush=True)
                continue
            samples += found
            means = {w: statistics.fmean(s.total_ms for s in found if s.way == w) for w in WAYS}
            shown = ", ".join(f"{way} {ms:.1f} ms" for way, ms in means.items())
            print(f"{name}: {shown}", file=sys.stderr, flush=True)
    if not samples:
        return 1
    result = report(samples)
    save(
        options.out,
        {
            "machine": machine(),
            "options": {k: str(v) for k, v in vars(options).items()},
            "result": result,
            "failures": failures,
            "samples": [dataclasses.asdict(sample) for sample in samples],
        },
    )
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
