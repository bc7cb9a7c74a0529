"""Rows of a data set where they lie: Parquet files, row group by row group, and journals in memory."""

from __future__ import annotations

import bisect
import stat
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from osgym_sdk._exceptions import DatasetError
from osgym_sdk.data._events import Event, rows_of
from osgym_sdk.data._parts import Layout, check_part, merge_events, read_events, table_of
from osgym_sdk.data._schema import COLUMNS

_CACHED_GROUPS = 16
_LEAST_BYTES, _BYTES_PER_BYTE = 256 << 20, 16
"""Memory limit of a data set: a constant plus a multiple of its files' size. One from a writer takes 3."""
_ROW_BYTES = 4096
"""Memory of a row as a dict, or of an :class:`EpisodeEntry`, without its texts, which rows share."""
_PLAIN_BYTES = 32 << 20
"""Size of a row group's texts up to which each row gets its own copy, which is read faster."""
_CELL_BYTES = 8
"""Memory of a value in a table: a number, or the index of a text."""
_FOOTER_STRING_BYTES, _FOOTER_ITEMS = 16 << 20, 1 << 22
_LISTED = [column.name for column in COLUMNS if column.per_episode and not column.json]
"""Columns that are read of every episode when a data set is opened."""
_TEXTS = [column.name for column in COLUMNS if pa.types.is_string(column.type)]


class Source(Protocol):
    """Source of rows; those of an episode lie together."""

    def rows(self, start: int, stop: int) -> list[dict[str, Any]]:
        """Return rows with all columns."""


@dataclass(frozen=True, slots=True)
class EpisodeEntry:
    """Location of an episode, and its columns that are no JSON."""

    source: Source
    start: int
    count: int
    values: dict[str, Any]


class PartSource:
    """A Parquet file that is read within a memory limit, checked by the sizes in its footer beforehand.

    Texts stay dictionary-encoded, as in the file: for each text, however long, a row holds a number.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        """Open the file.

        Args:
            most_bytes: Largest memory of its episodes, or of a row group.

        Raises:
            DatasetError: The file is not part of a data set.
        """
        self._path = path
        self._most_bytes = most_bytes
        self._open_file()

    def __getstate__(self) -> tuple[Path, int]:
        return self._path, self._most_bytes

    def __setstate__(self, state: tuple[Path, int]) -> None:
        self.__init__(*state)  # type: ignore[misc]  # opens the file anew, as making it does

    def _open_file(self) -> None:
        try:
            if not stat.S_ISREG(self._path.stat().st_mode):
                raise DatasetError(f"{self._path} is not a file")
            seen = pq.ParquetFile(
                self._path,
                thrift_string_size_limit=_FOOTER_STRING_BYTES,
                thrift_container_size_limit=_FOOTER_ITEMS,
            )
            check_part(seen.schema_arrow, self._path)
            there = {*seen.schema_arrow.names}
            texts = [name for name in _TEXTS if name in there]
            self._file = pq.ParquetFile(self._path, metadata=seen.metadata, read_dictionary=texts)
        except (OSError, pa.ArrowException) as exc:
            raise DatasetError(f"{self._path} cannot be read: {exc}", code="dataset_io") from exc
        meta = self._file.metadata
        self._ends: list[int] = []
        for group in range(meta.num_row_groups):
            self._ends.append(meta.row_group(group).num_rows + (self._ends[-1] if self._ends else 0))
        self._groups: OrderedDict[int, pa.Table] = OrderedDict()

    def entries(self) -> Iterator[EpisodeEntry]:
        """Yield the episodes of the file.

        Raises:
            DatasetError: The file cannot be read, or takes too much memory.
        """
        there = set(self._file.schema_arrow.names)
        listed = [name for name in _LISTED if name in there]
        taken_bytes = at = 0
        open_entry: tuple[int, dict[str, Any]] | None = None
        for group in range(len(self._ends)):
            table = self._read(group, ("step", *listed), taken_bytes)
            starts = pc.indices_nonzero(pc.equal(table["step"], 0)).to_pylist()
            taken_bytes += len(starts) * _ROW_BYTES + (table.nbytes if starts else 0)
            self._require(taken_bytes)
            for start, values in zip(
                starts, _dicts(table.select(listed).take(pa.array(starts, pa.int64()))), strict=True
            ):
                if open_entry is not None:
                    yield self._entry(*open_entry, stop=at + start)
                open_entry = at + start, values
            at = self._ends[group]
        if open_entry is not None:
            yield self._entry(*open_entry, stop=at)

    def _entry(self, start: int, values: dict[str, Any], *, stop: int) -> EpisodeEntry:
        return EpisodeEntry(self, start, stop - start, {**dict.fromkeys(_LISTED), **values})

    def rows(self, start: int, stop: int) -> list[dict[str, Any]]:
        """See :class:`Source`. Raises DatasetError if the rows cannot be read, or take too much memory."""
        self._require((stop - start) * _ROW_BYTES)
        found: list[dict[str, Any]] = []
        at = start
        while at < stop:
            group = bisect.bisect_right(self._ends, at)
            before = self._ends[group - 1] if group else 0
            length = min(stop, self._ends[group]) - at
            table = self._group(group).slice(at - before, length)
            found += _dicts(table) if _has_shared_texts(table) else table.to_pylist()
            at += length
        return found

    def _group(self, number: int) -> pa.Table:
        if number in self._groups:
            self._groups.move_to_end(number)
            return self._groups[number]
        table = self._read(number, None)
        if _texts_bytes(table) <= _PLAIN_BYTES:
            plain = [pa.field(one.name, pa.string()) if _is_shared(one.type) else one for one in table.schema]
            table = table.cast(pa.schema(plain))
        self._groups[number] = table
        held_bytes = sum(one.nbytes for one in self._groups.values())
        while len(self._groups) > 1 and (len(self._groups) > _CACHED_GROUPS or held_bytes > self._most_bytes):
            held_bytes -= self._groups.popitem(last=False)[1].nbytes
        return table

    def _read(self, number: int, names: Sequence[str] | None, taken_bytes: int = 0) -> pa.Table:
        """Return some columns of a row group, all for None.

        Raises:
            DatasetError: Together with ``taken_bytes`` that would exceed the memory limit.
        """
        group = self._file.metadata.row_group(number)
        chunks = [group.column(at) for at in range(group.num_columns)]
        read = [one for one in chunks if names is None or one.path_in_schema.partition(".")[0] in names]
        need_bytes = sum(one.total_uncompressed_size + one.num_values * _CELL_BYTES for one in read)
        self._require(taken_bytes + need_bytes)
        try:
            return self._file.read_row_group(number, names)
        except (OSError, pa.ArrowException) as exc:
            raise DatasetError(f"{self._path} cannot be read: {exc}", code="dataset_io") from exc

    def _require(self, need_bytes: int) -> None:
        if need_bytes > self._most_bytes:
            raise DatasetError(
                f"{self._path} would take more than {need_bytes >> 20} MiB of memory, and a data set of this "
                f"size {self._most_bytes >> 20} at most: it was not written by a DatasetWriter"
            )


def _is_shared(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind)  # type: ignore[no-any-return]  # pyarrow has no types


def _has_shared_texts(table: pa.Table) -> bool:
    return any(_is_shared(one.type) for one in table.schema)


def _texts_bytes(table: pa.Table) -> int:
    """Return the size of all texts of a table if each row had its own copy."""
    total = 0
    for column in table.columns:
        for chunk in column.chunks if _is_shared(column.type) else ():
            total += pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0
    return total


def _dicts(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table; equal texts are one object."""
    columns = [[value for chunk in column.chunks for value in _values(chunk)] for column in table.columns]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(chunk: pa.Array) -> list[Any]:
    if not isinstance(chunk, pa.DictionaryArray):
        return chunk.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types
    places, texts = chunk.indices.to_pylist(), chunk.dictionary
    known: dict[int | None, Any] = {one: texts[one].as_py() for one in {*places} if one is not None}
    return [known.get(one) for one in places]


class MemorySource:
    """Rows of journals; they are few."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def rows(self, start: int, stop: int) -> list[dict[str, Any]]:
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
    parts = sorted(layout.data.glob("[!.]*.parquet"))
    most_bytes = _LEAST_BYTES + _BYTES_PER_BYTE * sum(path.stat().st_size for path in parts)
    for path in parts:
        for entry in PartSource(path, most_bytes).entries():
            found.setdefault(str(entry.values["episode"]), entry)
    for episode, events in told.items():
        rows = [] if episode in found else rows_of(events)
        if rows:
            values = {name: rows[0][name] for name in _LISTED}
            found[episode] = EpisodeEntry(MemorySource(rows), 0, len(rows), values)
    return list(found.values())
