"""Trajectories on disk: one folder per episode with JSON lines and frames, bounded in size.

Writing happens in one thread behind a queue that is bounded in bytes: a disk that cannot keep up
costs frames (marked in the line), never time of a step. An episode that has recorded as much as one may
loses its own frames and long lines, marked too; room for ordinary growth is made by removing the oldest.
Trajectories show all that was on a screen, so they are for their owner only.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import queue
import re
import shutil
import stat
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from osgym_host.log_subject import Named, about
from osgym_protocol.codes import DropReason, ImageFormat
from osgym_protocol.records import Record

log = logging.getLogger(__name__)

MAX_QUEUED_BYTES = 64 * 1024 * 1024
MAX_EPISODES = 10_000
SHORT_LINE_BYTES = 4096
"""Length up to which a line is kept in any case; the number of steps bounds such lines."""
_KEPT_OF_A_LONG_LINE = ("kind", "step", "seq", "done", "frame_dropped")
LINES = "steps.jsonl"
_EPISODE_ID = re.compile(r"[A-Za-z0-9]{1,64}", re.ASCII)


class RecordMode(StrEnum):
    """Parts of an episode that are recorded."""

    OFF = "off"
    STEPS = "steps"
    FRAMES = "frames"


@dataclass(frozen=True, slots=True)
class RecordedExtent:
    """Extent of an episode's trajectory on disk.

    Attributes:
        started: True if the first line is written.
        last_seq: Number of the last recorded step; 0 without steps.
        evaluated: True if the line of the evaluation is written.
    """

    started: bool = False
    last_seq: int = 0
    evaluated: bool = False


@dataclass(frozen=True, slots=True)
class _Job:
    folder: Path
    line: Mapping[str, Any]
    frame: bytes | memoryview
    frame_name: str


class TrajectoryRecorder:
    """Writes trajectories below `root`, at most `max_mib` and `MAX_EPISODES`; removes the oldest first."""

    def __init__(
        self, root: Path, mode: RecordMode, max_mib: int, episode_max_mib: int | None = None
    ) -> None:
        """Make a recorder that writes nothing before `start`.

        Args:
            episode_max_mib: Most that one episode records; never more than half of `max_mib`.
        """
        self.mode = mode
        self._root = root
        self._max_bytes = max_mib * 1024 * 1024
        half = self._max_bytes // 2
        self._episode_max_bytes = (
            half if episode_max_mib is None else min(half, episode_max_mib * 1024 * 1024)
        )
        self._queued = 0
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job | threading.Event | None] = queue.SimpleQueue()
        self._sizes: dict[Path, int] = {}
        self._total = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the writer unless the mode is off; what a predecessor left others may not read any more.

        Raises:
            OSError: The folder cannot be made or read.
        """
        if self.mode is RecordMode.OFF:
            if self._root.is_dir():
                self._root.chmod(0o700)
            return
        self._root.mkdir(parents=True, exist_ok=True)
        self._root.chmod(0o700)
        for folder in sorted(self._root.iterdir(), key=lambda path: path.lstat().st_mtime):
            if folder.is_dir() and not folder.is_symlink():
                folder.chmod(0o700)
                self._sizes[folder] = sum(_mended(file) for file in folder.iterdir())
        self._total = sum(self._sizes.values())
        self._thread = threading.Thread(target=self._write_all, name="recorder", daemon=True)
        self._thread.start()

    def add(
        self,
        episode_id: str,
        line: Mapping[str, Any],
        frame: bytes | memoryview = b"",
        image_format: str = "",
    ) -> None:
        """Append a line, and its frame if frames are kept. Returns at once."""
        if self._thread is None:
            return
        name = ""
        if frame and self.mode is RecordMode.FRAMES:
            name = _frame_name(int(line.get("step", 0)), image_format or "png")
            with self._lock:
                full = self._queued + len(frame) > MAX_QUEUED_BYTES
                if not full:
                    self._queued += len(frame)
            if full:
                name = ""
                line = {**line, "frame_dropped": True, "dropped": DropReason.QUEUE.value}
        self._jobs.put(_Job(self._root / episode_id, line, frame if name else b"", name))

    def flush(self, timeout_s: float = 10.0) -> bool:
        """Wait until all added lines are on disk (blocking); return whether they are."""
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
                    line["frame_dropped"], line["dropped"] = True, DropReason.GONE.value
            yield Record(line, frame)

    def lines(self, episode_id: str, after: int, limit: int) -> list[dict[str, Any]]:
        """Return at most `limit` lines of an episode behind its first `after` (blocking).

        Raises:
            FileNotFoundError: Nothing was recorded of it, or it is gone.
        """
        return list(itertools.islice(self._lines(episode_id), after, after + limit))

    def frame(self, episode_id: str, step: int) -> tuple[bytes, ImageFormat]:
        """Return the frame that a step answered with (0: the first), as it was sent (blocking).

        Raises:
            FileNotFoundError: It was not kept, or is gone.
        """
        for image_format in (ImageFormat.PNG, ImageFormat.WEBP, ImageFormat.JPEG):
            name = _frame_name(step, image_format)
            with contextlib.suppress(OSError):
                return _read_file(self._folder(episode_id) / name), image_format
        raise FileNotFoundError(f"{episode_id}: no frame of step {step}")

    def folder(self, episode_id: str) -> Path:
        """Return where an episode's lines and frames are, all that was added so far (blocking).

        Raises:
            FileNotFoundError: Nothing was recorded of it, or it is gone.
        """
        self.flush()
        found = self._folder(episode_id)
        if not (found / LINES).is_file():
            raise FileNotFoundError(episode_id)
        return found

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
        with (self._folder(episode_id) / LINES).open(encoding="utf-8", errors="replace") as lines:
            for text in lines:
                with contextlib.suppress(ValueError):
                    yield json.loads(text)

    def _folder(self, episode_id: str) -> Path:
        if not _EPISODE_ID.fullmatch(episode_id):
            raise FileNotFoundError(episode_id[:100])
        return self._root / episode_id

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
                with about(Named(episode=job.folder.name)):
                    log.warning("trajectory %s could not be written: %s", job.folder.name, error)
            with self._lock:
                self._queued -= len(job.frame)

    def _write(self, job: _Job) -> None:
        line, frame = dict(job.line), job.frame
        if job.folder not in self._sizes:
            job.folder.mkdir(mode=0o700, exist_ok=True)
            self._sizes[job.folder] = 0
        left = self._episode_max_bytes - self._sizes[job.folder]
        if len(frame) > left:
            frame = b""
            line["frame_dropped"], line["dropped"] = True, DropReason.EPISODE.value
        if frame:
            line["frame"] = job.frame_name
        text = _text(line)
        if len(text) > max(SHORT_LINE_BYTES, left - len(frame)):
            kept = {name: line[name] for name in (*_KEPT_OF_A_LONG_LINE, "frame") if name in line}
            text = _text({**kept, "line_dropped": True, "dropped": DropReason.EPISODE.value})
        if frame:
            _write_file(job.folder / job.frame_name, os.O_TRUNC, frame)
        _write_file(job.folder / LINES, os.O_APPEND, text)
        self._sizes[job.folder] += len(text) + len(frame)
        self._total += len(text) + len(frame)
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


def _frame_name(step: int, image_format: str) -> str:
    return f"{step:06d}.{image_format}"


def _read_file(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        return file.read()


def _text(line: Mapping[str, Any]) -> bytes:
    return (json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def _write_file(path: Path, flag: int, data: bytes | memoryview) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | flag, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def _mended(file: Path) -> int:
    """Restrict a file of a trajectory to its owner; return its size."""
    found = file.lstat()
    if stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) != 0o600:
        file.chmod(0o600)
    return found.st_size
