"""The folder of a data set: what lies where, how a journal becomes a Parquet file, what dead writers left.

    dataset.json          format and version
    data/NAME.parquet     episodes that are over
    frames/NAME-N.blob    images, with NAME-N.idx beside
    journal/NAME.journal  what happened since; its writer lives as long as it is locked

A journal NAME becomes data/NAME.parquet, so that doing it twice, after a crash in the middle, gives one file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from osgym_sdk._exceptions import DatasetError
from osgym_sdk.data._events import Event, decode, rows_of
from osgym_sdk.data._journal import DeadJournal, read_journal
from osgym_sdk.data._schema import BY_NAME, FORMAT, SCHEMA, SCHEMA_VERSION, VERSION_KEY

_LOG = logging.getLogger("osgym.sdk")

ROW_GROUP_ROWS = 256
_NEEDED = ("episode", "step")
"""Columns that identify a row."""
_ROWS_AT_ONCE = 32
"""Rows that are turned to columns in one call, which lets no other thread run."""


class Layout:
    """Paths of a data set."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self.data = self.root / "data"
        self.frames = self.root / "frames"
        self.journal = self.root / "journal"
        self.marker = self.root / "dataset.json"

    def journal_of(self, writer: str, number: int) -> Path:
        """Return the path of a writer's journal."""
        return self.journal / f"{writer}-{number:06d}.journal"

    def following(self, journal: Path) -> Path:
        """Return the path of the journal after this one."""
        writer, _, number = journal.stem.rpartition("-")
        return self.journal_of(writer, int(number) + 1 if number.isdigit() else 0)

    def check(self) -> None:
        """Check that there is a data set that this version reads.

        Raises:
            DatasetError: there is none, or a newer SDK made it.
        """
        try:
            said = json.loads(self.marker.read_text("utf-8"))
        except FileNotFoundError as exc:
            raise DatasetError(f"{self.root} is not a data set, since it has no dataset.json") from exc
        except (OSError, ValueError) as exc:
            raise DatasetError(f"{self.marker} cannot be read: {exc}") from exc
        version = said.get("version") if isinstance(said, dict) and said.get("format") == FORMAT else None
        if not isinstance(version, int):
            raise DatasetError(f"{self.marker} was not written by a DatasetWriter")
        if version > SCHEMA_VERSION:
            text = (
                f"{self.root} has version {version}; this SDK reads versions up to {SCHEMA_VERSION}: "
                "update osgym-sdk"
            )
            raise DatasetError(text)

    def make(self) -> None:
        """Make the folder, or check the one that is there. Raises DatasetError if it cannot be used."""
        try:
            for folder in (self.data, self.frames, self.journal):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self.marker.exists():
                text = json.dumps({"format": FORMAT, "version": SCHEMA_VERSION}) + "\n"
                made = self.root / f".dataset-{uuid.uuid4().hex}"
                made.write_text(text, "utf-8")
                made.replace(self.marker)
        except OSError as exc:
            raise DatasetError(f"data set {self.root}: {exc.strerror}", code="dataset_io") from exc
        self.check()


def write_part(target: Path, episodes: Iterable[list[Event]]) -> None:
    """Write episodes as a Parquet file; it is there whole or not at all.

    Raises:
        OSError: it was not written.
    """
    made = target.with_name(f".{target.name}-{uuid.uuid4().hex}")
    try:
        with pq.ParquetWriter(made, SCHEMA, compression="zstd") as writer:
            for batch in _batches(episodes):
                writer.write_table(batch)
        with made.open("rb") as file:
            os.fsync(file.fileno())
        made.replace(target)
    except (OSError, pa.ArrowException) as exc:
        made.unlink(missing_ok=True)
        if isinstance(exc, OSError):
            raise
        raise OSError(f"{target}: {exc}") from exc


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """Return rows as a table, in small pieces, so that other threads get their turn."""
    pieces = [
        pa.Table.from_pylist(rows[at : at + _ROWS_AT_ONCE], SCHEMA)
        for at in range(0, len(rows), _ROWS_AT_ONCE)
    ]
    return pa.concat_tables(pieces) if pieces else SCHEMA.empty_table()


def _batches(episodes: Iterable[list[Event]]) -> Iterator[pa.Table]:
    rows: list[dict[str, Any]] = []
    for events in episodes:
        rows += rows_of(events)
        if len(rows) >= ROW_GROUP_ROWS:
            yield table_of(rows)
            rows = []
    if rows:
        yield table_of(rows)


def read_events(path: Path) -> dict[str, list[Event]]:
    """Return the events of a journal by episode.

    Raises:
        OSError: it cannot be read.
        DatasetError: it is no journal.
    """
    found: dict[str, list[Event]] = {}
    for record in read_journal(path):
        event = decode(record)
        if event is not None:
            found.setdefault(event["u"], []).append(event)
    return found


def merge_events(into: dict[str, list[Event]], more: Mapping[str, list[Event]]) -> None:
    """Take over episodes; of two accounts of one, the longer."""
    for episode, events in more.items():
        if len(events) > len(into.get(episode, ())):
            into[episode] = events


def recover(layout: Layout) -> int:
    """Turn the journals of dead writers to Parquet; return how many episodes that were.

    Raises:
        OSError: what they left could not be taken over; it is still there.
    """
    episodes = 0
    for stray in layout.data.glob(".*.parquet-*"):
        with contextlib.suppress(OSError):
            if not _is_young(stray):
                stray.unlink()
    for path in sorted(layout.journal.glob("*.journal")):
        dead = DeadJournal.take(path)
        if dead is None:
            continue
        try:
            episodes += _recover_one(layout, path)
        finally:
            dead.close()
    return episodes


def _recover_one(layout: Layout, path: Path) -> int:
    target = layout.data / f"{path.stem}.parquet"
    done = 0
    if not path.exists():  # it went with the one before it
        return 0
    if not target.exists():
        # Its writer died in a rotation: the next journal was begun with copies, and nothing else is in it.
        layout.following(path).unlink(missing_ok=True)
        try:
            events = read_events(path)
        except DatasetError as exc:
            _LOG.warning("%s is left unchanged", exc)
            return 0
        events = {episode: told for episode, told in events.items() if told}
        if events:
            write_part(target, events.values())
            done = len(events)
            _LOG.info("data set %s: took over %d episodes of a dead writer", layout.root, done)
    path.unlink()
    return done


def _is_young(path: Path) -> bool:
    """Tell a half-written file that may be a living writer's, by the clock of its file system."""
    return path.stat().st_mtime + 3600 > path.parent.stat().st_mtime


def check_part(schema: pa.Schema, path: Path) -> None:
    """Check that a file has a readable version and the columns of a data set.

    Columns that older versions lack may be missing.

    Raises:
        DatasetError: it is not.
    """
    said = (schema.metadata or {}).get(VERSION_KEY, b"")
    if not said.isdigit() or int(said) > SCHEMA_VERSION:
        raise DatasetError(f"{path} has a version that this SDK does not read: update osgym-sdk")
    missing = [name for name in _NEEDED if name not in schema.names]
    if missing:
        raise DatasetError(f"{path} has no column {missing[0]}: it was not written by a DatasetWriter")
    if len({*schema.names}) < len(schema.names):
        raise DatasetError(
            f"{path} has two columns with the same name: it was not written by a DatasetWriter"
        )
    for field in schema:
        found = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        column = BY_NAME.get(field.name)
        if column is None or found == column.type:
            continue
        if not (pa.types.is_large_string(found) and pa.types.is_string(column.type)):
            raise DatasetError(f"{path}: column {field.name} has {found}, where a data set has {column.type}")
