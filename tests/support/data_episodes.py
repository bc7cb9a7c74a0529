"""Episodes without a desktop, told to a recorder as a client tells them; for tests of data sets."""

from __future__ import annotations

import functools
import io
import random
from collections.abc import Mapping
from typing import Any

from PIL import Image

from osgym_protocol.codes import ErrorClass, ImageFormat, SettlePolicy, SettleReason
from osgym_protocol.host_api import (
    CreateAnswer,
    HostCapacity,
    HostImage,
    HostLoad,
    HostState,
    StepAnswer,
)
from osgym_protocol.observation import (
    ActionResult,
    FrameInfo,
    PreviousFrame,
    SettleInfo,
)
from osgym_protocol.observation import (
    Observation as Meta,
)
from osgym_sdk import EpisodeOutcome, Failure, Recorder, Trajectory
from osgym_sdk._models.observation import Observation, Timing

HOST = HostState(
    "h",
    "1",
    "local",
    HostImage("sha256:abc", "small"),
    (64, 48),
    HostCapacity(4, 4, 0),
    HostLoad(2, 0.0, 1.0, 1.0),
)


@functools.lru_cache(maxsize=4096)
def png(number: int, size: tuple[int, int] = (64, 48)) -> bytes:
    """A picture that is this number's."""
    out = io.BytesIO()
    dice = random.Random(number)
    Image.new("RGB", size, (dice.randrange(256), number % 256, number // 256 % 256)).save(out, "PNG")
    return out.getvalue()


def observation(seq: int, data: bytes, size: tuple[int, int] = (64, 48), step: int = 0) -> Observation:
    """What a step shows: a frame that was not the last of the step before."""
    meta = Meta(
        FrameInfo(f"h{seq}", ImageFormat.PNG, *size, size),
        seq,
        results=(ActionResult(True, "click"),),
        settle=SettleInfo(SettlePolicy.EXACT, SettleReason.QUIET, 3.0, 1.0),
        previous=PreviousFrame(seq - 1, False, 40.0) if seq > 1 else None,
    )
    actions = ({"op": "click", "x": seq, "y": 2},) if seq else ()
    answer = StepAnswer(meta, step=step or seq, actions=actions)
    return Observation(answer, data, Timing(10.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 1.0, 1.0))


def play(
    recorder: Recorder,
    task: Mapping[str, Any],
    steps: int,
    *,
    first_frame: int = 0,
    reward: float | None = 1.0,
    end: bool = True,
    infos: Any = None,
    failure: Failure | None = None,
    image: bytes | None = None,
) -> Trajectory:
    """Record an episode; its frames are the pictures from ``first_frame`` on, or all this image."""
    trajectory = Trajectory(str(task.get("id")))
    recording = recorder.record(task)
    first = observation(0, image or png(first_frame))
    created = CreateAnswer("e1", "lease", "r1", 7, (64, 48), first.meta)
    trajectory.begin("http://host", created, 12.0)
    trajectory.add_first(first, False)
    recording.begin(trajectory, first, HOST)
    for seq in range(1, steps + 1):
        obs = observation(seq, image or png(first_frame + seq))
        record = trajectory.add((f"click({seq},2)",), obs, False)
        record.info = None if infos is None else infos[seq - 1]
        recording.step(record, obs)
    if end:
        reason = "done" if failure is None else "replica_lost"
        outcome = EpisodeOutcome(reward, failure, reason, failure is None, index=3, attempt=1, duration_s=2.0)
        recording.end(trajectory, outcome)
    return trajectory


LOST = Failure("episode_lost", "the replica died", ErrorClass.INFRA, {"cause": "crash"})
