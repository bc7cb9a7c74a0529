"""What must survive a killed host agent: each episode's state on disk, and which episodes were lost.

One folder per live episode: `episode.json`, written once when a client gets it; `progress.jsonl`, one
line per step, written before the guest hears of the step (no fsync: a killed process loses nothing that
it has written); `evaluation.json` once it is scored; `files/`, private to its evaluation. Episodes that
were taken from their clients stand in `lost.jsonl`, so that those who come back are told what happened.
All of it is 0600.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osgym_host.episodes.moment import BadMoment, Moment, Progress
from osgym_sdk.wire import EvaluationAnswer, ParentInfo, WireFormatError

log = logging.getLogger(__name__)

VERSION = 1
MAX_PROGRESS_BYTES = 1024 * 1024
"""A longer `progress.jsonl` begins anew with its last line."""
MAX_LOST = 1000
LOST_S = 86_400.0
"""How long a lost episode is remembered."""
_EPISODE, _PROGRESS, _SCORE = "episode.json", "progress.jsonl", "evaluation.json"
_FILES, _LOST = "files", "lost.jsonl"


@dataclass(frozen=True, slots=True)
class RequestMark:
    """Which request an episode answers: a repetition must find it, also after a restart.

    Attributes:
        meaning: Digest of what a repetition must not change.
        index, count: Which of the children of a fork it is; 0 of 1 for a create.
        pause_ms: Of the fork.
    """

    request_id: str
    meaning: str
    index: int = 0
    count: int = 1
    pause_ms: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Entry:
    """One episode as it was given to its client."""

    episode_id: str
    lease: str
    replica_id: str
    generation: int
    began_at: float
    moment: Moment
    request: RequestMark | None = None
    parent: ParentInfo | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {
            "version": VERSION,
            "episode_id": self.episode_id,
            "lease": self.lease,
            "replica_id": self.replica_id,
            "generation": self.generation,
            "began_at": self.began_at,
            "moment": self.moment.to_dict(),
            "request": self.request.to_dict() if self.request is not None else None,
            "parent": self.parent.to_dict() if self.parent is not None else None,
        }

    @classmethod
    def from_dict(cls, data: Any) -> Entry:
        """Reads the JSON object.

        Raises:
            BadMoment: It is none, or of another version.
        """
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise BadMoment("not an episode of this version")
        try:
            request, parent = data["request"], data["parent"]
            return cls(
                episode_id=str(data["episode_id"]),
                lease=str(data["lease"]),
                replica_id=str(data["replica_id"]),
                generation=int(data["generation"]),
                began_at=float(data["began_at"]),
                moment=Moment.from_dict(data["moment"]),
                request=RequestMark(**request) if request is not None else None,
                parent=ParentInfo.from_dict(parent) if parent is not None else None,
            )
        except (KeyError, TypeError, ValueError, WireFormatError) as error:
            raise BadMoment(f"not an episode: {error}") from error


@dataclass(frozen=True, slots=True)
class Left:
    """An episode that a killed host agent left.

    Attributes:
        progress: How far it was.
        touched_at: The last sign of life of its lease, seconds since 1970.
    """

    entry: Entry
    progress: Progress
    touched_at: float
    evaluation: EvaluationAnswer | None = None


@dataclass(frozen=True, slots=True)
class LostEpisode:
    """What is remembered of an episode that was taken from its client."""

    episode_id: str
    lease: str
    replica_id: str
    generation: int
    task_id: str | None
    step: int
    last_seq: int
    reason: str
    at: float

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {name: getattr(self, name) for name in self.__slots__}


class EpisodeJournal:
    """The folder of this instance's episodes. Calls are short and block; one event loop uses it."""

    def __init__(self, root: Path) -> None:
        """Nothing is read or written before `open`."""
        self._root = root
        self._steps = False

    def open(self, *, survives: bool) -> tuple[list[Left], list[LostEpisode]]:
        """Takes the folder over; returns what a predecessor left in it.

        Args:
            survives: Replicas outlive the host agent, so the steps are worth noting.

        Raises:
            OSError: The folder cannot be written.
        """
        self._steps = survives
        self._root.mkdir(parents=True, exist_ok=True)
        self._root.chmod(0o700)
        left = []
        for folder in sorted(path for path in self._root.iterdir() if path.is_dir()):
            try:
                left.append(_read(folder))
            except FileNotFoundError:  # no client ever had it
                shutil.rmtree(folder, ignore_errors=True)
            except (OSError, ValueError, BadMoment) as error:
                log.warning("episode %s of a former host agent cannot be read: %s", folder.name, error)
                shutil.rmtree(folder, ignore_errors=True)
        return left, self._read_lost()

    def make_files(self, episode_id: str) -> Path:
        """Makes the private folder for an episode's evaluation.

        Raises:
            OSError: It cannot be made.
        """
        folder = self._root / episode_id / _FILES
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        return folder

    def began(self, entry: Entry) -> None:
        """Notes that a client gets this episode. What cannot be written will not survive, no more."""
        folder = self._root / entry.episode_id
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            _write_whole(folder / _EPISODE, json.dumps(entry.to_dict()).encode())
        except OSError as error:
            log.warning("episode %s would not survive a restart: %s", entry.episode_id, error)

    def progress(self, episode_id: str, progress: Progress) -> None:
        """Notes a step that is about to be sent, or a step that was taken back."""
        if not self._steps:
            return
        path = self._root / episode_id / _PROGRESS
        line = json.dumps(progress.to_dict(), separators=(",", ":")).encode() + b"\n"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                if os.fstat(fd).st_size > MAX_PROGRESS_BYTES:
                    _write_whole(path, line)
                else:
                    os.write(fd, line)
            finally:
                os.close(fd)
        except OSError as error:
            log.warning("step %d of episode %s was not noted: %s", progress.seq, episode_id, error)

    def evaluated(self, episode_id: str, answer: EvaluationAnswer) -> None:
        """Notes how an episode was scored."""
        if not self._steps:
            return
        try:
            _write_whole(self._root / episode_id / _SCORE, json.dumps(answer.to_dict()).encode())
        except OSError as error:
            log.warning("the score of episode %s was not noted: %s", episode_id, error)

    def touch(self, episode_id: str) -> None:
        """Notes a sign of life of the lease."""
        if self._steps:
            with contextlib.suppress(OSError):
                os.utime(self._root / episode_id / _EPISODE)

    def ended(self, episode_id: str) -> None:
        """Removes all of an episode. Idempotent."""
        shutil.rmtree(self._root / episode_id, ignore_errors=True)

    def lost(self, episodes: Iterable[LostEpisode]) -> None:
        """Remembers episodes that were taken from their clients."""
        text = "".join(json.dumps(episode.to_dict()) + "\n" for episode in episodes)
        if not text:
            return
        try:
            fd = os.open(self._root / _LOST, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w") as file:
                file.write(text)
        except OSError as error:
            log.warning("lost episodes are not remembered: %s", error)

    def clear(self) -> None:
        """Removes all episodes, but not the memory of the lost ones."""
        with contextlib.suppress(OSError):
            for folder in self._root.iterdir():
                if folder.is_dir():
                    shutil.rmtree(folder, ignore_errors=True)

    def _read_lost(self) -> list[LostEpisode]:
        """Reads the lost episodes and rewrites the file without old ones."""
        path = self._root / _LOST
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        found: list[LostEpisode] = []
        for line in lines[-MAX_LOST:]:
            try:
                episode = LostEpisode(**json.loads(line))
                if episode.at > time.time() - LOST_S:
                    found.append(episode)
            except (ValueError, TypeError):
                continue
        _write_whole(path, "".join(json.dumps(e.to_dict()) + "\n" for e in found).encode())
        return found


def _read(folder: Path) -> Left:
    path = folder / _EPISODE
    entry = Entry.from_dict(json.loads(path.read_bytes()))
    if entry.episode_id != folder.name:
        raise BadMoment("it is not the episode of its folder")
    touched_at = path.stat().st_mtime
    progress = entry.moment.progress
    with contextlib.suppress(FileNotFoundError):
        touched_at = max(touched_at, (folder / _PROGRESS).stat().st_mtime)
        lines = (folder / _PROGRESS).read_bytes().split(b"\n")
        for line in reversed(lines[:-1]):  # what follows the last newline was cut short
            progress = Progress.from_dict(json.loads(line))
            break
    evaluation = None
    with contextlib.suppress(FileNotFoundError):
        evaluation = EvaluationAnswer.from_dict(json.loads((folder / _SCORE).read_bytes()))
    return Left(entry, progress, touched_at, evaluation)


def _write_whole(path: Path, data: bytes) -> None:
    """Writes a file that is there as a whole or not at all, readable by its owner only."""
    fresh = path.with_suffix(".new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    fresh.replace(path)
