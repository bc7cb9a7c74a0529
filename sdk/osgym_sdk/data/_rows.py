"""Rows of a data set where they lie: Parquet files, row group by row group, and journals in memory."""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from osgym_sdk._exceptions import DatasetError
from osgym_sdk.data._events import Event, rows_of
from osgym_sdk.data._parts import Layout, check_part, merge_events, read_events, table_of
from osgym_sdk.data._schema import COLUMNS

_CACHED_GROUPS = 16
_LISTED = [column.name for column in COLUMNS if column.per_episode and not column.json]
"""What is read of every episode when a data set is opened."""


class Source(Protocol):
    """Some rows; those of an episode lie together."""

    def rows(self, start: int, stop: int) -> list[dict[str, Any]]:
        """Return rows with all columns."""


@dataclass(frozen=True, slots=True)
class EpisodeEntry:
    """Where an episode lies, and its columns that are no JSON."""

    source: Source
    start: int
    count: int
    values: dict[str, Any]


class PartSource:
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open_file()

    def __getstate__(self) -> Path:
        return self._path

    def __setstate__(self, path: Path) -> None:
        self.__init__(path)  # type: ignore[misc]  # opens the file anew, as making it does

    def _open_file(self) -> None:
        try:
            self._file = pq.ParquetFile(self._path)
        except (OSError, pa.ArrowException) as exc:
            raise DatasetError(f"{self._path} cannot be read: {exc}", code="dataset_io") from exc
        check_part(self._file.schema_arrow, self._path)
        meta = self._file.metadata
        self._ends: list[int] = []
        for group in range(meta.num_row_groups):
            self._ends.append(meta.row_group(group).num_rows + (self._ends[-1] if self._ends else 0))
        self._groups: OrderedDict[int, pa.Table] = OrderedDict()

    def entries(self) -> Iterator[EpisodeEntry]:
        """Yield the episodes of the file."""
        there = set(self._file.schema_arrow.names)
        try:
            table = self._file.read([name for name in ("step", *_LISTED) if name in there])
        except (OSError, pa.ArrowException) as exc:
            raise DatasetError(f"{self._path} cannot be read: {exc}", code="dataset_io") from exc
        starts = [at for at, step in enumerate(table["step"].to_pylist()) if step == 0]
        first = table.take(starts).to_pylist() if starts else []
        for start, stop, values in zip(starts, [*starts[1:], table.num_rows], first, strict=True):
            del values["step"]
            yield EpisodeEntry(self, start, stop - start, {**dict.fromkeys(_LISTED), **values})

    def rows(self, start: int, stop: int) -> list[dict[str, Any]]:
        """See :class:`Source`."""
        found: list[dict[str, Any]] = []
        at = start
        while at < stop:
            group = bisect.bisect_right(self._ends, at)
            before = self._ends[group - 1] if group else 0
            length = min(stop, self._ends[group]) - at
            found += self._group(group).slice(at - before, length).to_pylist()
            at += length
        return found

    def _group(self, number: int) -> pa.Table:
        if number in self._groups:
            self._groups.move_to_end(number)
            return self._groups[number]
        try:
            table = self._file.read_row_group(number)
        except (OSError, pa.ArrowException) as exc:
            raise DatasetError(f"{self._path} cannot be read: {exc}", code="dataset_io") from exc
        self._groups[number] = table
        if len(self._groups) > _CACHED_GROUPS:
            self._groups.popitem(last=False)
        return table


class MemorySource:
    """What journals hold: few rows."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def rows(self, start: int, stop: int) -> list[dict[str, Any]]:
        """See :class:`Source`."""
        found: list[dict[str, Any]] = table_of(self._rows[start:stop]).to_pylist()  # typed as a file's
        return found


def read_entries(layout: Layout) -> list[EpisodeEntry]:
    """Return all episodes, the oldest writers' first; also those that run now.

    Journals are read before Parquet files: what moves from the one to the other in between is seen twice,
    never missed, and taken once.

    Raises:
        DatasetError: something cannot be read.
    """
    told: dict[str, list[Event]] = {}
    for path in sorted(layout.journal.glob("*.journal")):
        try:
            merge_events(told, read_events(path))
        except FileNotFoundError:
            continue
        except OSError as exc:
            raise DatasetError(f"{path}: {exc.strerror}", code="dataset_io") from exc
    found: dict[str, EpisodeEntry] = {}
    for path in sorted(layout.data.glob("[!.]*.parquet")):
        for entry in PartSource(path).entries():
            found.setdefault(str(entry.values["episode"]), entry)
    for episode, events in told.items():
        rows = [] if episode in found else rows_of(events)
        if rows:
            values = {name: rows[0][name] for name in _LISTED}
            found[episode] = EpisodeEntry(MemorySource(rows), 0, len(rows), values)
    return list(found.values())
