"""Cost of recording for the event loop, and the delay until a step is in the folder.

Episodes without desktops step at the rate of real ones, their frames as large as real ones; a timer on the
same loop says how late it is woken up, with and without a DatasetWriter.

    python -m benchmarks.dataset_writer --episodes 32 --seconds 30
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import machine, save
from osgym_sdk import EpisodeOutcome, Trajectory
from osgym_sdk._models.observation import Observation, Timing
from osgym_sdk.data import Dataset, DatasetWriter
from osgym_sdk.wire import FrameInfo, ImageFormat, StepAnswer
from osgym_sdk.wire import Observation as Meta

SCREEN = (1920, 1080)
TICK_S = 0.002


def shown(seq: int, data: bytes) -> Observation:
    meta = Meta(FrameInfo(f"h{seq}", ImageFormat.PNG, *SCREEN, SCREEN), seq)
    answer = StepAnswer(meta, step=seq, actions=({"op": "click", "x": 1, "y": 2},))
    return Observation(answer, data, Timing(*([1.0] * 9)))


async def episode(
    writer: DatasetWriter | None, number: int, frame_bytes: int, step_s: float, end_s: float
) -> int:
    """Play one step after the other until the time is up; return their number."""
    count = 0
    while time.monotonic() < end_s:
        task = {"id": f"t{number}"}
        trajectory = Trajectory(task["id"])
        recording = None if writer is None else writer.record(task)
        base = os.urandom(frame_bytes)
        first = shown(0, base)
        if recording is not None:
            recording.begin(trajectory, first, None)
        for seq in range(1, 21):
            await asyncio.sleep(step_s)
            if recording is not None:
                await recording.room()
            obs = shown(seq, seq.to_bytes(2, "big") + base[2:])
            record = trajectory.add(("click(1,2)",), obs, False)
            record.info = {"text": "x" * 500, "logprobs": [-0.5] * 200}
            if recording is not None:
                recording.step(record, obs)
            count += 1
        if recording is not None:
            recording.end(trajectory, EpisodeOutcome(1.0, None, "done", True))
    return count


async def lateness(end_s: float) -> list[float]:
    """Return how late a timer of `TICK_S` was, each time, in ms."""
    late = []
    while time.monotonic() < end_s:
        began = time.perf_counter()
        await asyncio.sleep(TICK_S)
        late.append((time.perf_counter() - began - TICK_S) * 1000)
    return late


async def arm(writer: DatasetWriter | None, given: argparse.Namespace) -> dict[str, Any]:
    """Run for the time that was given."""
    end_s = time.monotonic() + given.seconds
    cpu_s = time.process_time()
    works = [
        episode(writer, number, given.frame_kb * 1000, given.step_ms / 1000, end_s)
        for number in range(given.episodes)
    ]
    late, *steps = await asyncio.gather(lateness(end_s), *works)
    cpu_s = time.process_time() - cpu_s
    waited_ms = 0.0
    if writer is not None:
        began = time.perf_counter()
        await writer.flush()
        waited_ms = (time.perf_counter() - began) * 1000
    cuts = statistics.quantiles(late, n=1000)
    return {
        "recorded": writer is not None,
        "steps": sum(steps),
        "steps_per_s": round(sum(steps) / given.seconds, 1),
        "cpu_ms_per_step": round(cpu_s * 1000 / max(1, sum(steps)), 3),
        "late_p50_ms": round(cuts[499], 2),
        "late_p99_ms": round(cuts[989], 2),
        "late_p999_ms": round(cuts[998], 2),
        "late_max_ms": round(max(late), 2),
        "flush_ms": round(waited_ms, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--episodes", type=int, default=32, help="at a time")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each arm")
    parser.add_argument("--step-ms", type=float, default=300.0)
    parser.add_argument("--frame-kb", type=int, default=500)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="osgym-dataset-") as folder:
        rows = [asyncio.run(arm(None, given))]
        with DatasetWriter(folder) as writer:
            rows.append(asyncio.run(arm(writer, given)))
        assert len(Dataset.open(folder)) == rows[1]["steps"]
    for row in rows:
        print(row)
    if given.out is not None:
        settings = {name: value for name, value in vars(given).items() if name != "out"}
        save("dataset_writer", {"machine": machine(), "settings": settings, "rows": rows}, given.out)


if __name__ == "__main__":
    main()
