"""Trajectories on disk: one folder per episode, JSON lines beside frames, bounded in all.

Writing happens in one thread behind a queue that is bounded in bytes: a disk that cannot keep up
costs frames (marked in the line), never time of a step.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from osgym_protocol.records import Record

log = logging.getLogger(__name__)

MAX_QUEUED_BYTES = 64 * 1024 * 1024
MAX_EPISODES = 10_000
LINES = "steps.jsonl"
_EPISODE_ID = re.compile(r"[A-Za-z0-9]{1,64}", re.ASCII)


class RecordMode(StrEnum):
    """What is kept of an episode."""

    OFF = "off"
    STEPS = "steps"
    FRAMES = "frames"


@dataclass(frozen=True, slots=True)
class RecordedExtent:
    """How far the trajectory of an episode was written.

    Attributes:
        started: Its first line is there.
        last_seq: The number of the last recorded step, 0 for none.
        evaluated: The line of its evaluation is there.
    """

    started: bool = False
    last_seq: int = 0
    evaluated: bool = False


@dataclass(frozen=True, slots=True)
class _Job:
    folder: Path
    line: Mapping[str, Any]
    frame: bytes
    frame_name: str


class TrajectoryRecorder:
    """Writes trajectories below `root`; at most `max_mib` and `MAX_EPISODES`, the oldest go first."""

    def __init__(self, root: Path, mode: RecordMode, max_mib: int) -> None:
        """Nothing is written before `start`."""
        self.mode = mode
        self._root = root
        self._max_bytes = max_mib * 1024 * 1024
        self._queued = 0
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job | threading.Event | None] = queue.SimpleQueue()
        self._sizes: dict[Path, int] = {}
        self._total = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the writer unless the mode is off.

        Raises:
            OSError: The folder cannot be made or read.
        """
        if self.mode is RecordMode.OFF:
            return
        self._root.mkdir(parents=True, exist_ok=True)
        for folder in sorted(self._root.iterdir(), key=lambda path: path.stat().st_mtime):
            if folder.is_dir():
                self._sizes[folder] = sum(f.stat().st_size for f in folder.iterdir())
        self._total = sum(self._sizes.values())
        self._thread = threading.Thread(target=self._write_all, name="recorder", daemon=True)
        self._thread.start()

    def add(
        self, episode_id: str, line: Mapping[str, Any], frame: bytes = b"", image_format: str = ""
    ) -> None:
        """Append a line, and its frame when frames are kept. Returns at once."""
        if self._thread is None:
            return
        name = ""
        if frame and self.mode is RecordMode.FRAMES:
            name = f"{int(line.get('step', 0)):06d}.{image_format or 'png'}"
            with self._lock:
                full = self._queued + len(frame) > MAX_QUEUED_BYTES
                if not full:
                    self._queued += len(frame)
            if full:
                name = ""
                line = {**line, "frame_dropped": True}
        self._jobs.put(_Job(self._root / episode_id, line, frame if name else b"", name))

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until all that was added before is on disk (blocking); return whether it is."""
        if self._thread is None:
            return True
        mark = threading.Event()
        self._jobs.put(mark)
        return mark.wait(timeout_s)

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what is queued and end the thread (blocking). Idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            thread.join(timeout_s)

    def read(self, episode_id: str) -> Iterator[Record]:
        """Yield the lines of an episode with their frames (blocking).

        A line that a full disk cut short is left out; a frame that is gone is marked as dropped.

        Raises:
            FileNotFoundError: Nothing was recorded of it, or it is gone.
        """
        folder = self._root / episode_id
        for line in self._lines(episode_id):
            frame = b""
            if isinstance(line.get("frame"), str):
                try:
                    frame = (folder / line["frame"]).read_bytes()
                except OSError:
                    line["frame_dropped"] = True
            yield Record(line, frame)

    def extent(self, episode_id: str) -> RecordedExtent:
        """Return how far an episode was recorded (blocking)."""
        try:
            lines = list(self._lines(episode_id))
        except OSError:
            return RecordedExtent()
        kinds = {line.get("kind") for line in lines}
        steps = [line.get("seq") for line in lines if line.get("kind") == "step"]
        last_seq = max((seq for seq in steps if isinstance(seq, int)), default=0)
        return RecordedExtent("start" in kinds, last_seq, "evaluation" in kinds)

    def _lines(self, episode_id: str) -> Iterator[dict[str, Any]]:
        if not _EPISODE_ID.fullmatch(episode_id):
            raise FileNotFoundError(episode_id[:100])
        with (self._root / episode_id / LINES).open(encoding="utf-8", errors="replace") as lines:
            for text in lines:
                with contextlib.suppress(ValueError):
                    yield json.loads(text)

    def _write_all(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            if isinstance(job, threading.Event):
                job.set()
                continue
            try:
                self._write(job)
            except (OSError, ValueError) as error:  # the disk, or what cannot be encoded
                log.warning("trajectory %s: not written: %s", job.folder.name, error)
            with self._lock:
                self._queued -= len(job.frame)

    def _write(self, job: _Job) -> None:
        line = dict(job.line)
        if job.folder not in self._sizes:
            job.folder.mkdir(exist_ok=True)
            self._sizes[job.folder] = 0
        if job.frame:
            (job.folder / job.frame_name).write_bytes(job.frame)
            line["frame"] = job.frame_name
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"
        with (job.folder / LINES).open("a", encoding="utf-8") as lines:
            lines.write(text)
        self._sizes[job.folder] += len(text) + len(job.frame)
        self._total += len(text) + len(job.frame)
        self._prune(job.folder)

    def _prune(self, current: Path) -> None:
        """Remove the oldest episodes until the bounds are kept."""
        while (self._total > self._max_bytes or len(self._sizes) > MAX_EPISODES) and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            size = self._sizes.pop(oldest)
            if oldest == current:
                self._sizes[oldest] = size
                continue
            self._total -= size
            shutil.rmtree(oldest, ignore_errors=True)
