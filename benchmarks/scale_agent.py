"""Host agent over replicas that answer each step with a recorded frame after a fixed time.

The agent is the real one (`osgym host serve`: API, pool, leases, batches); a replica is a guest on a unix
socket of the agent's own process that speaks the guest protocol.
`python -m benchmarks.scale_agent serve …` is that agent; `SCALE_FRAMES` is the folder with the frames,
`SCALE_STEP_MS` what a step takes.
"""

from __future__ import annotations

import asyncio
import io
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from tests.support.fake_guest import Guest, GuestServer
from tests.support.fake_runtime import FakeImage, FakeReplica, FakeRuntime

from osgym_host.app import HostAgent
from osgym_host.cli import serve
from osgym_host.cli.main import main
from osgym_host.runtimes import base
from osgym_host.runtimes.kind import ImageRef
from osgym_host.settings import Settings
from osgym_protocol.records import encode_record

_RECORDS = "application/x-osgym-records"


@dataclass(frozen=True, slots=True)
class Frame:
    """One recorded frame: a PNG file as it was answered."""

    name: str
    data: bytes
    width: int
    height: int


def load_frames(folder: Path) -> list[Frame]:
    """Return the PNG files of a folder, by name.

    Raises:
        SystemExit: there is none.
    """
    frames = []
    for path in sorted(folder.glob("*.png")):
        data = path.read_bytes()
        frames.append(Frame(path.stem, data, *Image.open(io.BytesIO(data)).size))
    if not frames:
        raise SystemExit(f"no *.png in {folder}: record frames, or leave --frames out")
    return frames


class RecordedGuest(Guest):
    """Answers step n with frame n, as often as one likes, and keeps nothing of what it was told."""

    def __init__(self, replica_id: str, generation: int, frames: list[Frame], step_s: float) -> None:
        super().__init__(replica_id, generation)
        self._frames = frames
        self._step_s = step_s

    async def answer(self, path: str, body: bytes) -> tuple[str, bytes]:
        if path in ("/v1/observe", "/v1/final"):  # frames of other sizes than the fake guest's
            meta = self.frame(self.last_seq, None)
            return _RECORDS, encode_record(meta, self._shown().data)
        return await super().answer(path, body)

    async def _act(self, seq: int, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        began_s = time.monotonic()
        await asyncio.sleep(self._step_s)
        self.current = None
        self.last_seq = seq
        meta = self.frame(seq, request.get("observe"))
        meta["results"] = [{"ok": True, "op": action["op"]} for action in request["actions"]]
        meta["settle"] = {"policy": "exact", "reason": "quiet", "wait_ms": 1.0, "last_change_ms": None}
        meta["timing_ms"] = {"total": (time.monotonic() - began_s) * 1000}
        self.stored = meta, b"" if meta["frame"]["unchanged"] else self._shown().data
        return self.stored

    def frame(self, seq: int, observe: Any) -> dict[str, Any]:
        meta, shown = super().frame(seq, None), self._shown()
        size = {"width": shown.width, "height": shown.height, "screen": [shown.width, shown.height]}
        unchanged = (observe or {}).get("unless_hash") == shown.name
        meta["frame"] |= {**size, "hash": shown.name, "unchanged": unchanged}
        return meta

    def _shown(self) -> Frame:
        return self._frames[self.last_seq % len(self._frames)]


class RecordedReplica(FakeReplica):
    """One replica with such a guest."""

    def __init__(self, spec: base.ReplicaSpec, folder: Path, frames: list[Frame], step_s: float) -> None:
        super().__init__(spec, folder)
        self.agent = RecordedGuest(spec.replica_id, spec.generation, frames, step_s)
        self._server = GuestServer(self.agent)


class RecordedRuntime(FakeRuntime):
    """Makes such replicas."""

    def __init__(self, folder: Path, frames: list[Frame], step_s: float) -> None:
        super().__init__(folder, branching=False)
        self._recorded, self._step_s = frames, step_s

    async def create(self, spec: base.ReplicaSpec) -> base.Replica:
        replica = RecordedReplica(spec, self.folder / spec.replica_id, self._recorded, self._step_s)
        self.alive[spec.replica_id] = replica
        try:
            await replica.start()
        except BaseException:
            await self.destroy(replica)
            raise
        return replica


def _agent(settings: Settings, image: ImageRef, **more: Any) -> HostAgent:
    frames = load_frames(Path(os.environ["SCALE_FRAMES"]))
    runtime = RecordedRuntime(
        settings.data_dir / "r", frames, float(os.environ.get("SCALE_STEP_MS", "100")) / 1000
    )
    return HostAgent(settings, image, runtime, **more)


if __name__ == "__main__":
    serve.find_images = lambda settings: [ImageRef(FakeImage(), "small")]
    serve.HostAgent = _agent
    main()
