"""Determinism: play tasks and flows on many replicas, and report the frames that differ, with the cause.

Each episode is a replica of its own. Of each step the frame is compared that is known to be final
(`obs.final()`), and beside it the one that the step answered with. Where frames differ, a picture of both is
saved, cropped to the difference: one for each cause and flow.

With `--think-s` the policy thinks before each step, and the frame after the thought is compared with the one
before; flows whose desktops move by themselves are played too.

    python -m benchmarks.determinism --runtime local --runtime qemu --replicas 20
    python -m benchmarks.determinism --runtime local --replicas 20 --think paused --think-s 2
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from PIL import Image

from benchmarks.common import RESULTS, argument_parser, local_service, machine, save
from benchmarks.determinism.compare import FlowReport, cause, count, differences, side_by_side
from benchmarks.determinism.flows import Flow, all_flows
from osgym_sdk import AsyncClient, AsyncEpisode, EpisodeArguments, OSGymError

FINAL_S = 5.0
REST_S = 0.5
EPISODE_S = 300.0
WAIT_S = 300.0


class Frames:
    """Frames of a run on disk, each stored once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, digest: str, data: bytes) -> None:
        path = self._folder / f"{digest}.png"
        if data and not path.exists():
            path.write_bytes(data)

    def open(self, digest: str) -> Image.Image:
        return Image.open(self._folder / f"{digest}.png")


@dataclass(frozen=True)
class Played:
    """Frames of one episode, by their hashes.

    Attributes:
        final: Frame of each step that is known to be final; the first one is that of the start.
        answered: Frame that each step answered with.
        after: Frame after each thought; empty where the policy does not think.
    """

    final: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


async def play(client: AsyncClient, flow: Flow, args: argparse.Namespace, frames: Frames) -> Played:
    """Play a flow on a fresh replica.

    Raises:
        OSGymError: The replica could not be had, or was lost.
    """
    played = Played()
    options: EpisodeArguments = {"wait_s": WAIT_S, "clock": args.clock, "think": args.think}
    async with asyncio.timeout(EPISODE_S), client.episode(flow.task, **options) as episode:
        played.answered.append(episode.observation.hash)
        played.final.append(await at_rest(episode, frames))
        for step in flow.steps:
            if args.think_s:
                await asyncio.sleep(args.think_s)
                played.after.append((await episode.observe()).hash)
            obs = await episode.step(step)
            played.answered.append(obs.hash)
            sure = await obs.final(timeout_s=FINAL_S)
            played.final.append(sure.hash)
            frames.keep(sure.hash, sure.data)
    return played


async def at_rest(episode: AsyncEpisode, frames: Frames) -> str:
    """Return the hash of the first frame, once it stays for a while: no step tells when it is final."""
    last, until = "", time.monotonic() + FINAL_S
    while True:
        obs = await episode.observe()
        frames.keep(obs.hash, obs.data)
        if obs.hash == last or time.monotonic() > until:
            return obs.hash
        last = obs.hash
        await asyncio.sleep(REST_S)


async def run_flow(
    client: AsyncClient, flow: Flow, runtime: str, args: argparse.Namespace, frames: Frames
) -> dict[str, Any]:
    """Play a flow on all replicas; return its row."""
    room = asyncio.Semaphore(args.at_once)
    failures: list[str] = []

    async def one() -> Played | None:
        async with room:
            try:
                return await play(client, flow, args, frames)
            except (OSGymError, TimeoutError) as error:
                failures.append(f"{type(error).__name__}: {error}"[:300])
                return None

    played = [got for got in await asyncio.gather(*(one() for _ in range(args.replicas))) if got]
    report = count(flow.name, runtime, [one.final for one in played])
    report.failures = failures
    show_differences(report, frames, args.pictures)
    as_answered = count(flow.name, runtime, [one.answered for one in played])
    row = {**report.row(), "identical_as_answered": round(as_answered.share, 4)}
    thoughts = [same for one in played for same in map(str.__eq__, one.final, one.after)]
    if thoughts:
        row["thoughts"], row["same_after_thought"] = len(thoughts), round(fmean(thoughts), 4)
    what = report.differences[0] if report.differences else None
    where = f", first at step {what['step']} in {what['box']}: {what['cause']}" if what else ""
    still = f", {row['same_after_thought']:6.1%} the same after a thought" if thoughts else ""
    print(f"{runtime:6} {flow.name:34} {len(played):3} replicas  {report.share:6.1%} identical{still}{where}")
    return row


def show_differences(report: FlowReport, frames: Frames, folder: Path) -> None:
    """Save a picture of each place where the frames of a step differ, and name the cause."""
    for step in report.steps:
        if len(step.hashes) == 1:
            continue
        one, other = (frames.open(digest) for digest in list(step.hashes)[:2])
        for box in differences(one, other):
            found = {
                "step": step.step,
                "box": list(box),
                "frames": len(step.hashes),
                "cause": str(cause(report.flow, step.step, box)),
            }
            if not any(known["cause"] == found["cause"] for known in report.differences):
                name = f"{report.runtime}-{report.flow.replace('/', '-')}-{step.step}-{box[0]}-{box[1]}.png"
                folder.mkdir(parents=True, exist_ok=True)
                side_by_side(one, other, box).save(folder / name)
                found["picture"] = name
            report.differences.append(found)


async def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for runtime in args.runtime:
        settings: dict[str, str | int | float] = {
            "runtime": runtime,
            "warm": args.at_once,
            "trajectory": "off",
            **dict(pair.split("=", 1) for pair in args.set),
        }
        with local_service(args.flavor, settings) as (url, _), tempfile.TemporaryDirectory() as kept:
            async with AsyncClient(url) as client:
                for flow in all_flows(args.flavor, tuple(args.only), moving=args.think_s > 0):
                    rows.append(await run_flow(client, flow, runtime, args, Frames(Path(kept))))
    return rows


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argument_parser(__doc__, flavor="small")
    parser.add_argument("--runtime", action="append", choices=["local", "qemu"], help="local, and any other")
    parser.add_argument("--replicas", type=int, default=20, help="of each flow and runtime (20)")
    parser.add_argument("--at-once", type=int, default=2, help="replicas at a time (2)")
    parser.add_argument("--clock", help="what the desktops' clock shows, as 2026-01-01T09:00")
    parser.add_argument("--frozen", action="store_true", help="and it stands still (runtime local)")
    parser.add_argument(
        "--think", choices=["live", "paused"], help="what desktops do while the policy thinks"
    )
    parser.add_argument("--think-s", type=float, default=0.0, help="seconds of each thought (0)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="setting of the host"
    )
    parser.add_argument("--pictures", type=Path, default=RESULTS / "determinism", help="where pictures go")
    args = parser.parse_args(given)
    args.runtime = args.runtime or ["local"]
    args.clock = {"start": args.clock, "frozen": args.frozen} if args.clock else None
    return args


def main() -> None:
    args = arguments()
    described = machine()
    rows = asyncio.run(run(args))
    thoughts = {"think": args.think, "think_s": args.think_s} if args.think_s else {}
    save("determinism", {"machine": described, "clock": args.clock, **thoughts, "flows": rows}, args.out)
    for runtime in args.runtime:
        shares = [row["identical"] for row in rows if row["runtime"] == runtime]
        whole = sum(share == 1.0 for share in shares)
        mean = sum(shares) / len(shares)
        print(f"{runtime}: {mean:.1%} of frames identical, {whole} of {len(shares)} flows whole")


if __name__ == "__main__":
    main()
