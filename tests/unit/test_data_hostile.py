"""Data sets from untrusted sources: large in memory, with missing columns or columns of other types."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.support.data_episodes import play

from osgym_cli.main import main
from osgym_sdk import DatasetError
from osgym_sdk.data import Dataset, DatasetWriter

ROWS = 1_000_000
MOST_MIB = 600
"""A small data set may take 256 MiB, and all that is imported some 150."""


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data set that the writer made."""
    path = tmp_path_factory.mktemp("data") / "set"
    with DatasetWriter(path) as writer:
        for number in range(3):
            play(writer, {"id": f"t{number}", "instruction": "Do it"}, 2, reward=1.0)
    return path


def changed(
    honest: Path, tmp_path: Path, change: Callable[[pa.Table], pa.Table], group_rows: int = 256
) -> Path:
    """Return a copy of a data set with another table."""
    shutil.copytree(honest, tmp_path / "set")
    (path,) = (tmp_path / "set" / "data").glob("*.parquet")
    table = change(pq.read_table(path))
    pq.write_table(table, path, compression="zstd", row_group_size=group_rows)
    return tmp_path / "set"


def repeated(table: pa.Table, count: int, row: int = 0) -> pa.Table:
    """Repeat one row; each text is once in memory."""
    columns = []
    for column in table.slice(row, 1).columns:
        value = column.combine_chunks()
        if pa.types.is_string(value.type) and value.null_count == 0:
            columns.append(pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), value))
        else:
            columns.append(pa.repeat(value[0], count))
    return pa.table(columns, names=table.column_names).replace_schema_metadata(table.schema.metadata)


def long_episode(table: pa.Table) -> pa.Table:
    """Return one episode of very many steps."""
    steps = repeated(table, ROWS, 1)
    at = steps.column_names.index("step")
    numbers = pa.concat_arrays([pa.array([0]), pa.repeat(pa.scalar(1), ROWS - 1)])
    return steps.set_column(at, "step", numbers)


def with_long_text(table: pa.Table) -> pa.Table:
    """Return a table with an instruction of 300 MiB, which compresses to almost nothing."""
    one = table.slice(0, 1)
    at = one.schema.get_field_index("instruction")
    return one.set_column(at, one.schema.field(at), pa.array(["A" * (300 << 20)]))


def stats(folder: Path) -> tuple[str, int]:
    """Run `osgym data stats` in a process of its own; return its output and its memory in MiB."""
    code = (
        "import re, sys; from osgym_cli.main import main\n"
        "try: main(['data', 'stats', sys.argv[1]], standalone_mode=False)\n"
        "except Exception as exc: print(f'{type(exc).__name__}: {exc}')\n"
        "print(int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) >> 10)"
    )
    argv = [sys.executable, "-c", code, str(folder)]
    *said, mib = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    return "\n".join(said), int(mib)


@pytest.mark.parametrize(
    ("change", "group_rows"),
    [
        (lambda table: repeated(table, ROWS), 1 << 20),
        (lambda table: repeated(table, ROWS // 10), 256),
        (long_episode, 1 << 16),
        (with_long_text, 256),
    ],
    ids=["many episodes", "many groups", "one long episode", "a long text"],
)
def test_a_small_file_takes_little_memory(
    honest: Path, tmp_path: Path, change: Callable[[pa.Table], pa.Table], group_rows: int
) -> None:
    """A file of less than 8 MiB that would take gigabytes in memory is refused before it is decoded."""
    folder = changed(honest, tmp_path, change, group_rows)
    (part,) = (folder / "data").glob("*.parquet")
    assert part.stat().st_size < 8 << 20
    said, mib = stats(folder)
    assert "was not written by a DatasetWriter" in said
    assert mib < MOST_MIB


@pytest.mark.parametrize("column", ["step", "episode"])
def test_a_missing_column_is_named(honest: Path, tmp_path: Path, column: str) -> None:
    """The command says it in one line, the SDK by its own error."""
    folder = changed(honest, tmp_path, lambda table: table.drop_columns([column]))
    with pytest.raises(DatasetError, match=f"has no column {column}"):
        Dataset.open(folder)
    shown = CliRunner().invoke(main, ["data", "stats", str(folder)])
    assert shown.exit_code == 1 and f"no column {column}" in shown.output and "Traceback" not in shown.output


def test_columns_of_another_version_may_be_missing(honest: Path, tmp_path: Path) -> None:
    """Columns that an older version lacks are null."""
    folder = changed(honest, tmp_path, lambda table: table.drop_columns(["runtime", "text"]))
    dataset = Dataset.open(folder)
    assert [len(dataset), dataset[0]["runtime"], dataset[0]["text"]] == [6, None, None]


@pytest.mark.parametrize(("column", "values"), [("step", "0"), ("reward", "1.0"), ("episode", 7)])
def test_a_column_of_another_type_is_named(honest: Path, tmp_path: Path, column: str, values: object) -> None:
    """The error comes before any row is read."""

    def change(table: pa.Table) -> pa.Table:
        at = table.column_names.index(column)
        return table.set_column(at, column, pa.array([values] * len(table)))

    with pytest.raises(DatasetError, match=f"column {column} has"):
        Dataset.open(changed(honest, tmp_path, change))


def test_json_without_end_of_depth_is_an_error_of_the_data_set(honest: Path, tmp_path: Path) -> None:
    """Too deep JSON is an error that names its column and episode."""

    def change(table: pa.Table) -> pa.Table:
        at = table.column_names.index("executed")
        return table.set_column(at, table.schema.field(at), pa.array(["[" * 100_000] * len(table)))

    step = Dataset.open(changed(honest, tmp_path, change))[0]
    with pytest.raises(DatasetError, match="column executed of episode"):
        step["executed"]


def test_what_is_no_file_is_not_waited_for(honest: Path, tmp_path: Path) -> None:
    """A pipe in the place of a part is refused at once."""
    folder = tmp_path / "set"
    shutil.copytree(honest, folder)
    os.mkfifo(folder / "data" / "x.parquet")
    with pytest.raises(DatasetError, match=r"x\.parquet is not a file"):
        Dataset.open(folder)


def test_rows_share_a_long_text(honest: Path, tmp_path: Path) -> None:
    """Reading an episode of many rows takes the memory of a long text once."""

    def change(table: pa.Table) -> pa.Table:
        at = table.column_names.index("instruction")
        return table.set_column(at, table.schema.field(at), pa.array(["a" * (8 << 20)] * len(table)))

    rows = next(iter(Dataset.open(changed(honest, tmp_path, change)).episodes())).rows
    assert len(rows) == 3 and len(rows[0]["instruction"]) == 8 << 20
    assert rows[0].raw["instruction"] is rows[2].raw["instruction"]
