"""Conversion of a host agent's recordings (its setting ``trajectory``) to a data set."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from osgym_sdk._exceptions import ConfigError, DatasetError
from osgym_sdk._models.evaluation import Evaluation
from osgym_sdk._models.observation import Observation
from osgym_sdk._models.recorder import EpisodeOutcome
from osgym_sdk._models.trajectory import StepRecord, Trajectory
from osgym_sdk.data._dataset import Dataset
from osgym_sdk.data._events import Event, Origin, begin_event, end_event, step_event
from osgym_sdk.data._plain import integer, number, text
from osgym_sdk.data._writer import DatasetWriter
from osgym_sdk.wire import (
    MAX_BLOB_BYTES,
    EvaluationAnswer,
    ParentInfo,
    SetupWarning,
    StepAnswer,
    WireFormatError,
)

LINES = "steps.jsonl"
RUNNING_S = 3600.0
MAX_LINE_CHARS = 16 * 1024 * 1024
_STEP_FIELDS = ("observation", "step", "actions", "done", "interventions")
_BESIDE = ("reach", "intervention")
"""Lines of what was done beside the steps, which have no row."""


@dataclass(slots=True)
class Converted:
    """Result of a conversion.

    Attributes:
        present: episodes that the data set had.
        running: that have no end, and were written to within the last hour.
        bad_lines: that could not be read.
    """

    episodes: int = 0
    present: int = 0
    running: int = 0
    bad_lines: int = 0


def convert_recordings(
    recordings: str | os.PathLike[str],
    target: str | os.PathLike[str],
    on_episode: Callable[[], object] = lambda: None,
) -> Converted:
    """Add a host's recorded episodes to a data set; those that it has, or that go on, are left out.

    The host records what it did, so requested actions, what the model said and the time in client and
    network are null; frames are there when ``trajectory`` was ``frames``. Nothing is removed.

    Args:
        recordings: the folder ``trajectories`` in the host agent's data_dir, or one episode's in it.
        target: the data set; made where there is none.

    Raises:
        ConfigError: there are no recordings.
        DatasetError: the data set cannot be written.
    """
    folders = recorded_episodes(recordings)
    found = Converted()
    with DatasetWriter(target) as writer:
        known = {str(episode.name) for episode in Dataset.open(target).episodes()}
        for folder in folders:
            name = hashlib.blake2b(folder.name.encode("utf-8", "replace"), digest_size=16).hexdigest()
            if name in known:
                found.present += 1
            elif _goes_on(folder / LINES):
                found.running += 1
            else:
                found.bad_lines += _Conversion(writer, folder, name).run()
                found.episodes += 1
                writer.wait_for_room()
            on_episode()
    return found


def recorded_episodes(recordings: str | os.PathLike[str]) -> list[Path]:
    """Return the folders of the episodes, the oldest first.

    Raises:
        ConfigError: there are none.
    """
    root = Path(recordings)
    if (root / LINES).is_file():
        return [root]
    found = [path.parent for path in root.glob(f"*/{LINES}") if not path.parent.is_symlink()]
    if not found:
        raise ConfigError(
            f"{root} has no recorded episodes (FOLDER/{LINES}); a host records them "
            "with the setting trajectory"
        )
    return sorted(found, key=lambda folder: (folder / LINES).stat().st_mtime)


def _goes_on(lines: Path) -> bool:
    """Tell an episode that is still recorded: it has no end, and was written to within the hour."""
    with lines.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4096))
        ended = b'"kind":"end"' in file.read()
    return not ended and time.time() - lines.stat().st_mtime < RUNNING_S


class _Conversion:
    """One episode."""

    def __init__(self, writer: DatasetWriter, folder: Path, name: str) -> None:
        self._writer = writer
        self._folder = folder
        self._origin = Origin(name, None, None)
        self._trajectory = Trajectory(None)
        self._data = b""
        self._evaluation: Evaluation | None = None
        self._bad = 0

    def run(self) -> int:
        """Add it; return how many lines could not be read."""
        for line in self._lines():
            try:
                self._take(line)
            except (WireFormatError, ValueError, TypeError, KeyError, AssertionError):
                self._bad += 1
        return self._bad

    def _take(self, line: Mapping[str, Any]) -> None:
        kind, time_s = line.get("kind"), number(line.get("time")) or 0.0
        if kind == "start":
            self._start(line, time_s)
        elif kind == "step":
            self._step(line, time_s)
        elif kind == "evaluation":
            answer = EvaluationAnswer.from_dict({k: v for k, v in line.items() if k != "kind"})
            self._evaluation = self._trajectory.evaluation = Evaluation.from_wire(answer)
        elif kind == "end":
            self._end(line, time_s)
        elif kind not in _BESIDE:
            self._bad += 1

    def _start(self, line: Mapping[str, Any], time_s: float) -> None:
        known = self._trajectory
        known.task_id = text(line.get("task_id"))
        known.episode_id = text(line.get("episode_id")) or self._folder.name
        known.replica_id = text(line.get("replica_id")) or ""
        known.generation = integer(line.get("generation")) or 0
        parent = line.get("parent")
        if isinstance(parent, Mapping):
            known.parent = ParentInfo(str(parent.get("episode_id")), integer(parent.get("step")) or 0)
        known.image_digest = line.get("image_digest") or None
        known.setup_warnings = tuple(SetupWarning.from_dict(one) for one in line.get("setup_warnings") or ())
        task = {"id": known.task_id, "instruction": line.get("instruction")} if known.task_id else None
        self._origin = replace(self._origin, task=task)
        if line.get("observation") is None:
            return
        obs = self._observation(line, StepAnswer.from_dict({"observation": line["observation"]}))
        known.screen = obs.screen
        origin = self._origin
        self._put(lambda frame: begin_event(origin, known, obs, None, frame, time_s), obs.data)

    def _step(self, line: Mapping[str, Any], time_s: float) -> None:
        answer = StepAnswer.from_dict({name: line[name] for name in _STEP_FIELDS if name in line})
        obs = self._observation(line, answer)
        record = StepRecord((), answer, None, info=text(line.get("note")))
        origin, parts = self._origin, _guest_parts(answer)

        def make(frame: str | None) -> Event:
            event = step_event(origin, record, obs, frame, time_s)
            event["row"] |= parts
            return event

        self._put(make, obs.data)

    def _end(self, line: Mapping[str, Any], time_s: float) -> None:
        reason = text(line.get("termination_reason")) or "closed"
        outcome = EpisodeOutcome.by_hand(self._evaluation, None, reason)
        outcome = replace(outcome, termination_reason=reason, note=text(line.get("cause")))
        if reason in ("replica_lost", "host_lost", "lease_expired", "internal"):
            outcome = replace(outcome, valid_for_training=False)
        origin, known = self._origin, self._trajectory
        self._put(lambda frame: end_event(origin, known, outcome, time_s))

    def _put(self, make: Callable[[str | None], Event], data: bytes = b"") -> None:
        self._writer.put(make, data)

    def _observation(self, line: Mapping[str, Any], answer: StepAnswer) -> Observation:
        """Return what was seen; the frame before where the line says that nothing changed."""
        assert answer.observation is not None
        if not answer.observation.frame.unchanged:
            self._data = self._frame(line)
        return Observation(answer, self._data)

    def _frame(self, line: Mapping[str, Any]) -> bytes:
        name = line.get("frame")
        if not isinstance(name, str) or Path(name).name != name or name.startswith("."):
            return b""
        path = self._folder / name
        try:
            if path.is_symlink() or path.stat().st_size > MAX_BLOB_BYTES:
                return b""
            return path.read_bytes()
        except (OSError, ValueError):
            return b""

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            with (self._folder / LINES).open(encoding="utf-8", errors="replace") as lines:
                while given := lines.readline(MAX_LINE_CHARS):
                    try:
                        line = json.loads(given)
                    except (ValueError, RecursionError):
                        line = None
                    if isinstance(line, dict):
                        yield line
                    else:
                        self._bad += 1
        except OSError as exc:
            raise DatasetError(f"{self._folder}: {exc.strerror}", code="dataset_io") from exc


def _guest_parts(answer: StepAnswer) -> dict[str, float | None]:
    """Return where the time in the guest went, which is all that the host's lines say of it."""
    assert answer.observation is not None
    said = answer.observation.timing_ms
    return {f"{name}_ms": number(said.get(name)) for name in ("input", "settle", "capture", "encode")}
