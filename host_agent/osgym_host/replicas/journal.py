"""Journal of replicas, kept past a kill: the last generation, and the replicas of the previous agent.

The runtime finds leftovers by itself (processes, mounts, files). The journal gives generations that are never
reused in the data directory, and names the lost replicas after a restart.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from osgym_host.whole_file import write_whole
from osgym_protocol.codec import OMIT, Message

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Line(Message):
    """One line: the last generation, a replica about to be made, or a replica that is gone."""

    generation: int | None = field(default=None, metadata=OMIT)
    created: str | None = field(default=None, metadata=OMIT)
    gone: str | None = field(default=None, metadata=OMIT)


class ReplicaJournal:
    """Append-only file of JSON lines, compacted when it is opened."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None
        self.generation = 0
        self.leftovers: tuple[str, ...] = ()

    def open(self) -> None:
        """Read the previous agent's lines and start a fresh file. The caller owns the instance.

        Raises:
            OSError: The file cannot be written.
        """
        self.generation, self.leftovers = _read(self._path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._path, json.dumps({"generation": self.generation}).encode() + b"\n")
        self._file = self._path.open("a", encoding="utf-8", buffering=1)

    def next_generation(self) -> int:
        """Return a number that no replica of this data directory had."""
        self.generation += 1
        return self.generation

    def created(self, replica_id: str, generation: int) -> None:
        """Write that a replica is about to be made; call it before the runtime makes the replica."""
        self._write(_Line(generation, created=replica_id))

    def gone(self, replica_id: str) -> None:
        self._write(_Line(gone=replica_id))

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: _Line) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line.to_dict()) + "\n")


def _read(path: Path) -> tuple[int, tuple[str, ...]]:
    generation = 0
    alive: dict[str, None] = {}
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return 0, ()
    for text in lines:
        try:
            line = _Line.from_dict(json.loads(text))
        except (ValueError, RecursionError):
            log.warning("journal %s: skipped a torn line", path)
            continue
        generation = max(generation, line.generation or 0)
        if line.created is not None:
            alive[line.created] = None
        if line.gone is not None:
            alive.pop(line.gone, None)
    return generation, tuple(alive)


def host_id(data_dir: Path) -> str:
    """Return the name of this host agent's data directory, made at first use.

    Raises:
        OSError: It cannot be written.
    """
    path = data_dir / "state" / "host_id"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = f"{os.uname().nodename[:40]}-{os.urandom(4).hex()}"
        path.write_text(made + "\n")
        return made
