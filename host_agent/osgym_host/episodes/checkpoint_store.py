"""Kept checkpoints on disk: their descriptions, and the form in which they travel to other hosts.

One file `<checkpoint_id>.json`, 0600, per checkpoint. A travelling one is `MAGIC`, the length of a JSON
object (u32, big endian), the object, and the runtime's own file to its end.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from osgym_host.episodes.episode_state import SavedEpisode
from osgym_host.replicas.saved_desktops import SavedDesktop
from osgym_host.whole_file import write_whole
from osgym_protocol.bounds import Bounds
from osgym_protocol.codec import OMIT, Message, WireFormatError
from osgym_protocol.host_api import CheckpointInfo

log = logging.getLogger(__name__)

MAGIC = b"OSGYM-CHECKPOINT 1\n"
MAX_HEAD_BYTES = 64 * 1024 * 1024
"""Bound of the JSON object of a travelling checkpoint: a task may carry files."""
_LENGTH = struct.Struct(">I")
_LATEST = 1e12
"""Latest expiry in Unix time that is accepted."""


@dataclass(frozen=True, slots=True)
class CheckpointRecord(Message):
    """Description of a checkpoint, apart from its branch point.

    Attributes:
        suspended: True if its episode ended with it.
        saved: State of the episode; None if only the branch point was found, which restores without a task.
        episode_id: Episode from which the checkpoint was taken.
    """

    episode_id: Annotated[str, Bounds(pattern="[A-Za-z0-9_-]{0,64}")]
    expires_at: Annotated[float, Bounds(ge=0, le=_LATEST)] | None
    saved: SavedEpisode | None = field(metadata={"key": "moment"})
    suspended: bool = field(default=False, metadata=OMIT)


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint(SavedDesktop):
    """Desktop of an episode that a client keeps."""

    record: CheckpointRecord

    @property
    def expires_at(self) -> float | None:
        return self.record.expires_at


def describe(checkpoint: Checkpoint) -> CheckpointInfo:
    """Return a checkpoint as clients see it."""
    point, kept = checkpoint.point, checkpoint.record
    task = kept.saved.task if kept.saved is not None else None
    task_id: Any = task.get("id") if isinstance(task, Mapping) else None
    return CheckpointInfo(
        checkpoint_id=point.point_id,
        episode_id=kept.episode_id,
        step=kept.saved.progress.step if kept.saved is not None else 0,
        kept=point.kept,
        created_at=round(point.created_at, 3),
        expires_at=kept.expires_at,
        ram_mib=round(point.ram_mib, 3),
        disk_mib=round(point.disk_mib, 3),
        pause_ms=round(point.pause_ms, 3),
        image_digest=point.image_digest,
        task_id=task_id if isinstance(task_id, str) else None,
        suspended=kept.suspended,
    )


class CheckpointStore:
    """Folder of descriptions of kept checkpoints. Calls block for a short time.

    Attributes:
        shared: True if other host agents use the folder as well.
    """

    def __init__(self, folder: Path, *, shared: bool = False) -> None:
        self._folder = folder
        self.shared = shared

    def open(self) -> dict[str, CheckpointRecord]:
        """Read the descriptions by checkpoint id; remove partly written files of a killed agent.

        Raises:
            OSError: The folder cannot be used.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        for path in self._folder.iterdir():
            if path.suffix != ".json" and not self.shared:
                path.unlink(missing_ok=True)
        return self.read()

    def read(self) -> dict[str, CheckpointRecord]:
        """Return the descriptions by checkpoint id.

        Raises:
            OSError: The folder cannot be read.
        """
        found: dict[str, CheckpointRecord] = {}
        for path in sorted(self._folder.glob("*.json")):
            try:
                found[path.stem] = CheckpointRecord.from_dict(_json(path.read_bytes()))
            except FileNotFoundError:  # another host agent has removed it
                continue
            except (OSError, ValueError) as error:
                log.warning("checkpoint %s: its episode cannot be read: %s", path.stem, error)
        return found

    def put(self, checkpoint_id: str, kept: CheckpointRecord) -> None:
        """Write a description atomically.

        Raises:
            OSError: It cannot be written.
        """
        write_whole(self._folder / f"{checkpoint_id}.json", json.dumps(kept.to_dict()).encode())

    def remove(self, checkpoint_id: str) -> None:
        """Remove a description. Idempotent."""
        with contextlib.suppress(OSError):
            (self._folder / f"{checkpoint_id}.json").unlink(missing_ok=True)

    def scratch(self) -> Path:
        """Return the path for a temporary file."""
        return self._folder / f"{secrets.token_hex(8)}.tmp"


def head_of(kept: CheckpointRecord) -> bytes:
    """Return the bytes with which a travelling checkpoint begins."""
    text = json.dumps(kept.to_dict()).encode()
    return MAGIC + _LENGTH.pack(len(text)) + text


def read_head(file: BinaryIO) -> CheckpointRecord:
    """Read the beginning of a travelling checkpoint and leave the file at the runtime's part.

    Raises:
        WireFormatError: A field is missing or of another form.
    """
    if file.read(len(MAGIC)) != MAGIC:
        raise WireFormatError("the data is not a checkpoint of this version")
    packed = file.read(_LENGTH.size)
    if len(packed) != _LENGTH.size:
        raise WireFormatError("the checkpoint is truncated")
    (length,) = _LENGTH.unpack(packed)
    if length > MAX_HEAD_BYTES:
        raise WireFormatError(f"the description of the checkpoint is larger than {MAX_HEAD_BYTES} bytes")
    text = file.read(length)
    if len(text) != length:
        raise WireFormatError("the checkpoint is truncated")
    try:
        return CheckpointRecord.from_dict(_json(text))
    except ValueError as error:
        raise WireFormatError(f"the description of the checkpoint cannot be read: {error}") from error


def _json(text: bytes) -> Any:
    """Decode strict JSON: no NaN, no lone surrogates, no deep nesting.

    Raises:
        ValueError: The bytes are not strict JSON.
    """
    try:
        data = json.loads(text)
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError as error:
        raise ValueError("the description of the checkpoint is nested too deep") from error
    return data
