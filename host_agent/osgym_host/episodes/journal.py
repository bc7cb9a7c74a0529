"""Journal of episodes: the state of each on disk, and lost ones, both kept past a killed host agent.

One folder per live episode: `episode.json`, written once when a client gets it; `progress.jsonl`, one
line per step, written before the step is sent to the guest (no fsync: a killed process loses nothing that
it has written); `scoring` once its check begins, `evaluation.json` once it is scored; `files/`, private to
its evaluation. Episodes that
were taken from their clients stand in `lost.jsonl`, so that a client that comes back gets the reason.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from osgym_host.core.reasons import Reason
from osgym_host.episodes.episode import HostEpisode
from osgym_host.episodes.episode_lease import EpisodeLease
from osgym_host.episodes.episode_state import EpisodeProgress, SavedEpisode
from osgym_host.episodes.episode_steps import EpisodeSteps
from osgym_host.episodes.errors import EpisodeOver
from osgym_host.episodes.replica_lease import ReplicaLease
from osgym_host.whole_file import write_whole
from osgym_protocol.bounds import Bounds
from osgym_protocol.codec import OMIT, Message, WireFormatError
from osgym_protocol.host_api import EvaluationAnswer, ParentInfo, SetupWarning
from osgym_protocol.limits import MAX_SEQ

log = logging.getLogger(__name__)

VERSION = 1
MAX_PROGRESS_BYTES = 1024 * 1024
"""Size above which `progress.jsonl` restarts with its last line."""
_Number = Annotated[int, Bounds(ge=0, le=MAX_SEQ)]
MAX_LOST = 1000
MAX_LOST_BYTES = 8 * 1024 * 1024
"""Size above which `lost.jsonl` is rewritten with its last `MAX_LOST` lines."""
LOST_S = 86_400.0
"""Time for which a lost episode is kept."""
FULL_BELOW_BYTES = 8 << 20
"""Free disk space below which replicas and the host agent fail to write."""
_EPISODE, _PROGRESS, _SCORE = "episode.json", "progress.jsonl", "evaluation.json"
_SCORING, _FILES, _LOST = "scoring", "files", "lost.jsonl"


@dataclass(frozen=True, slots=True)
class RequestMark(Message):
    """Request that an episode answers, by which a repetition finds it after a restart.

    Attributes:
        meaning: Digest of what a repetition must not change.
        index, count: Which of the children of a fork it is; 0 of 1 for a create.
        pause_ms: Pause of the fork's parent.
    """

    request_id: str
    meaning: str
    index: int = 0
    count: int = 1
    pause_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class LostEpisode(Message):
    """Episode that was taken from its client; `at` is in Unix time."""

    episode_id: str
    lease: str
    replica_id: str
    generation: int
    task_id: str | None
    step: _Number
    last_seq: _Number
    reason: str
    at: float
    by_policy: bool = False
    evaluation: EvaluationAnswer | None = field(default=None, metadata=OMIT)

    @classmethod
    def of(cls, episode: HostEpisode, reason: Reason) -> LostEpisode:
        """Return the record of an episode that ends for `reason`."""
        return cls(
            episode_id=episode.episode_id,
            lease=episode.lease.token,
            replica_id=episode.replica.replica_id,
            generation=episode.replica.generation,
            task_id=episode.task_id,
            step=episode.steps.progress.step,
            last_seq=episode.steps.progress.seq,
            reason=reason.value,
            at=time.time(),
            by_policy=episode.over is not None and episode.over.by_policy,
            evaluation=episode.evaluation,
        )

    def episode(self) -> HostEpisode:
        """Return the ended episode, which answers its client with the reason."""
        try:
            reason = Reason(self.reason)
        except ValueError:  # of another version
            reason = Reason.HOST_RESTARTED
        return HostEpisode(
            episode_id=self.episode_id,
            lease=EpisodeLease(self.lease, 0.0),
            replica=ReplicaLease(self.replica_id, self.generation),
            terms=SavedEpisode(None, (0, 0), 0.0, None, None, None),
            steps=EpisodeSteps(progress=EpisodeProgress(self.last_seq, self.step)),
            task_id=self.task_id,
            over=EpisodeOver(reason, episode_id=self.episode_id, policy_acted=self.by_policy),
            scored=self.evaluation is not None,
            evaluation=self.evaluation,
        )


@dataclass(frozen=True, slots=True)
class JournalEntry(Message):
    """Episode as it was given to its client."""

    episode_id: str
    lease: str
    replica_id: str
    generation: int
    began_at: float
    saved: SavedEpisode = field(metadata={"key": "moment"})
    request: RequestMark | None = None
    parent: ParentInfo | None = None
    setup_warnings: tuple[SetupWarning, ...] = ()
    version: Annotated[int, Bounds(ge=VERSION, le=VERSION)] = VERSION

    @classmethod
    def of(cls, episode: HostEpisode, mark: RequestMark | None) -> JournalEntry:
        """Return the entry of an episode that answers the request `mark`."""
        return cls(
            episode_id=episode.episode_id,
            lease=episode.lease.token,
            replica_id=episode.replica.replica_id,
            generation=episode.replica.generation,
            began_at=episode.began_at,
            saved=episode.saved(),
            request=mark,
            parent=episode.parent,
            setup_warnings=episode.setup_warnings,
        )


@dataclass(frozen=True, slots=True)
class UnfinishedEpisode:
    """Episode that a killed host agent left.

    Attributes:
        touched_at: Unix time of the last sign of life of the lease.
        scored: True if the check had begun.
    """

    entry: JournalEntry
    progress: EpisodeProgress
    touched_at: float
    scored: bool = False
    evaluation: EvaluationAnswer | None = None

    def lost(self) -> LostEpisode:
        """Return the record of an episode that cannot continue."""
        entry = self.entry
        task_id = entry.saved.task.get("id") if entry.saved.task is not None else None
        return LostEpisode(
            episode_id=entry.episode_id,
            lease=entry.lease,
            replica_id=entry.replica_id,
            generation=entry.generation,
            task_id=task_id if isinstance(task_id, str) else None,
            step=self.progress.step,
            last_seq=self.progress.seq,
            reason=Reason.HOST_RESTARTED.value,
            at=time.time(),
            evaluation=self.evaluation,
        )


class EpisodeJournal:
    """Folder of this instance's episodes. Calls are short and block; for one event loop."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._steps = False

    def open(self, *, survives: bool) -> tuple[list[UnfinishedEpisode], list[LostEpisode]]:
        """Take over the folder and return the episodes that a previous host agent left.

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
            except (OSError, ValueError, RecursionError) as error:
                log.warning("episode %s of a previous host agent cannot be read: %s", folder.name, error)
                shutil.rmtree(folder, ignore_errors=True)
        return left, self._read_lost()

    def make_files(self, episode_id: str) -> Path:
        """Make the private folder for an episode's evaluation.

        Raises:
            OSError: It cannot be made.
        """
        folder = self._root / episode_id / _FILES
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        return folder

    def disk_is_full(self) -> bool:
        """Return whether the disk of the data folder and the replicas has almost no space left."""
        try:
            now = os.statvfs(self._root)
        except OSError:
            return False
        return now.f_bavail * now.f_frsize < FULL_BELOW_BYTES

    def began(self, entry: JournalEntry) -> None:
        """Write an episode that a client gets. Without the file the episode does not survive a restart."""
        folder = self._root / entry.episode_id
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            write_whole(folder / _EPISODE, json.dumps(entry.to_dict()).encode())
        except OSError as error:
            log.warning(
                "episode %s cannot survive a restart of the host agent, since its record "
                "could not be written: %s",
                entry.episode_id,
                error,
            )

    def progress(self, episode_id: str, progress: EpisodeProgress) -> None:
        """Write a step that is about to be sent, or was taken back."""
        if not self._steps:
            return
        path = self._root / episode_id / _PROGRESS
        line = json.dumps(progress.to_dict(), separators=(",", ":")).encode() + b"\n"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                if os.fstat(fd).st_size > MAX_PROGRESS_BYTES:
                    write_whole(path, line)
                else:
                    os.write(fd, line)
            finally:
                os.close(fd)
        except OSError as error:
            log.warning(
                "step %d of episode %s could not be written to its record: %s",
                progress.seq,
                episode_id,
                error,
            )

    def scoring(self, episode_id: str) -> None:
        """Write that the check of an episode begins, so that no step follows."""
        if not self._steps:
            return
        try:
            (self._root / episode_id / _SCORING).touch(0o600)
        except OSError as error:
            log.warning(
                "the start of the scoring of episode %s could not be written to its record: %s",
                episode_id,
                error,
            )

    def evaluated(self, episode_id: str, answer: EvaluationAnswer) -> None:
        if not self._steps:
            return
        try:
            write_whole(self._root / episode_id / _SCORE, json.dumps(answer.to_dict()).encode())
        except OSError as error:
            log.warning("the score of episode %s could not be written to its record: %s", episode_id, error)

    def touch(self, episode_id: str) -> None:
        """Write a sign of life of the lease."""
        if self._steps:
            with contextlib.suppress(OSError):
                os.utime(self._root / episode_id / _EPISODE)

    def ended(self, episode_id: str) -> None:
        """Remove the files of an episode. Idempotent."""
        shutil.rmtree(self._root / episode_id, ignore_errors=True)

    def lost(self, episodes: Iterable[LostEpisode]) -> None:
        """Write episodes that were taken from their clients."""
        text = "".join(json.dumps(episode.to_dict()) + "\n" for episode in episodes)
        if not text:
            return
        try:
            fd = os.open(self._root / _LOST, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w") as file:
                file.write(text)
            if (self._root / _LOST).stat().st_size > MAX_LOST_BYTES:
                self._read_lost()
        except OSError as error:
            log.warning("the list of lost episodes could not be written: %s", error)

    def clear(self) -> None:
        """Remove all episodes but not the lost ones."""
        with contextlib.suppress(OSError):
            for folder in self._root.iterdir():
                if folder.is_dir():
                    shutil.rmtree(folder, ignore_errors=True)

    def _read_lost(self) -> list[LostEpisode]:
        """Read the lost episodes and rewrite the file without old ones."""
        path = self._root / _LOST
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        found: list[LostEpisode] = []
        for line in lines[-MAX_LOST:]:
            try:
                episode = LostEpisode.from_dict(json.loads(line))
                if episode.at > time.time() - LOST_S:
                    found.append(episode)
            except (ValueError, RecursionError):
                continue
        write_whole(path, "".join(json.dumps(e.to_dict()) + "\n" for e in found).encode())
        return found


def _read(folder: Path) -> UnfinishedEpisode:
    path = folder / _EPISODE
    entry = JournalEntry.from_dict(json.loads(path.read_bytes()))
    if entry.episode_id != folder.name:
        raise WireFormatError("the record names another episode than its folder")
    touched_at = path.stat().st_mtime
    progress = entry.saved.progress
    with contextlib.suppress(FileNotFoundError):
        touched_at = max(touched_at, (folder / _PROGRESS).stat().st_mtime)
        lines = (folder / _PROGRESS).read_bytes().split(b"\n")
        for line in reversed(lines[:-1]):  # what follows the last newline was cut short
            progress = EpisodeProgress.from_dict(json.loads(line))
            break
    evaluation = None
    with contextlib.suppress(FileNotFoundError):
        evaluation = EvaluationAnswer.from_dict(json.loads((folder / _SCORE).read_bytes()))
    scored = evaluation is not None or (folder / _SCORING).exists()
    return UnfinishedEpisode(entry, progress, touched_at, scored, evaluation)
