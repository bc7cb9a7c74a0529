"""Rows of data sets for trainers: JSON lines or Parquet files that carry task files of ours as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import click

from osgym_cli.task.imports.results import Attempt, Conversion, ImportOptions
from osgym_cli.task.imports.source import SourceError, SourceFolder, parse_object
from osgym_cli.task.imports.staging import text_parameter

_COLUMNS = ("task", "desktop_task", "extra_info", "answer", "info")
"""Columns that may hold a task: those of OSGym's own integrations first."""
MAX_ROWS_BYTES = 1 << 30
MAX_ROWS = 100_000


def find(source: SourceFolder) -> list[str]:
    """Return the names of files with rows."""
    return [*source.names_ending(".jsonl"), *source.names_ending(".parquet")]


def convert_all(source: SourceFolder, options: ImportOptions) -> Iterator[Attempt]:
    """Yield the conversion of each row."""
    for name in find(source):
        rows = _parquet(source, name) if name.endswith(".parquet") else _lines(source, name)
        source.begin()
        try:
            for number, row in enumerate(rows, 1):
                yield _attempt(source, f"{name}:{number}", row, options)
        except SourceError as error:
            yield Attempt(name, source.digest(), refusal=str(error))


def _attempt(
    source: SourceFolder, place: str, row: Mapping[str, Any] | SourceError, options: ImportOptions
) -> Attempt:
    source.begin()
    if isinstance(row, SourceError):
        return Attempt(place, source.digest(), refusal=str(row))
    source.note("row", json.dumps(row, sort_keys=True, default=str).encode())
    try:
        conversion = _convert(place, row, options)
    except SourceError as error:
        return Attempt(place, source.digest(), refusal=str(error))
    return Attempt(place, source.digest(), conversion)


def _convert(place: str, row: Mapping[str, Any], options: ImportOptions) -> Conversion:
    task = _task(row)
    name = text_parameter(task.get("id"), "id of the task")
    if not task.get("instruction"):
        task["instruction"] = text_parameter(_prompt(row.get("prompt")), "instruction of the task")
    if "osgym" not in task and "x_osgym" not in task:
        task["osgym"] = {"flavor": options.flavor, "apps": []}
    return Conversion(task, name, PurePosixPath(place.rpartition(":")[0]).stem)


def _task(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task of a row.

    Raises:
        SourceError: It has none.
    """
    for column in _COLUMNS:
        value = row.get(column)
        if isinstance(value, str) and value.lstrip().startswith("{"):
            value = parse_object(value, f"column {column}")
        if isinstance(value, dict) and isinstance(value.get("task"), dict | str):
            return _task({"task": value["task"]})
        if isinstance(value, dict) and "evaluator" in value:
            return dict(value)
    if row.get("answer") is not None:
        raise SourceError("the row has an answer and no task: nothing says how a desktop shows the answer")
    raise SourceError(f"none of the columns {', '.join(_COLUMNS)} holds a task")


def _prompt(value: Any) -> str:
    """Return the text of a prompt: a text, or the user's messages."""
    if isinstance(value, str):
        return value
    messages = value if isinstance(value, list) else []
    texts = [m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user"]
    return "\n".join(text for text in texts if isinstance(text, str))


def _lines(source: SourceFolder, name: str) -> Iterator[Mapping[str, Any] | SourceError]:
    text = source.file(name, MAX_ROWS_BYTES).data.decode(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    for number, line in enumerate(lines[:MAX_ROWS], 1):
        try:
            yield parse_object(line, f"line {number}")
        except SourceError as error:
            yield error
    if len(lines) > MAX_ROWS:
        raise SourceError(f"{name}: more than {MAX_ROWS} rows")


def _parquet(source: SourceFolder, name: str) -> Iterator[Mapping[str, Any]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise click.UsageError("Parquet files need pyarrow: pip install 'osgym-sdk[data]'") from None
    data = source.file(name, MAX_ROWS_BYTES).data
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            columns = [one for one in (*_COLUMNS, "prompt") if one in file.schema_arrow.names]
            if file.metadata.num_rows > MAX_ROWS:
                raise SourceError(f"{name}: more than {MAX_ROWS} rows")
            for batch in file.iter_batches(batch_size=64, columns=columns):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{name}: not a readable Parquet file: {str(error)[:200]}") from None
