"""Result files of the matrix: rows of earlier runs, and their tables in README.md beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS
from benchmarks.input_fidelity import tables
from benchmarks.input_fidelity.matrix import Row

NOW = RESULTS / "input_fidelity.json"
BEFORE = RESULTS / "input_fidelity_before.json"
"""The same programs on an image whose guest typed and clicked without waiting for programs."""
TYPING = """\
Median milliseconds for each character: until the guest agent has typed the text / until the program has
received all of it, checked every 50 ms (2026-11-27, `--cells plain --load 0 --repeat 3`)."""
JsonRows = Sequence[Mapping[str, Any]]


def read(path: Path) -> Mapping[str, Any]:
    """Return a result file; empty for a missing one."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def joined(kept: JsonRows, found: JsonRows) -> list[Mapping[str, Any]]:
    """Return the new rows, after the kept ones that were not run again."""
    again = {_key(row) for row in found}
    return [row for row in kept if _key(row) not in again] + list(found)


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(field) for field in ("toolkit", "cell", "load", "text"))


def document() -> str:
    """Return what benchmarks/input_fidelity/README.md shows of the files."""
    found = read(NOW)
    now, before = ([Row.from_json(row) for row in file.get("rows", ())] for file in (found, read(BEFORE)))
    parts = [tables.markdown(now), "Cells that were not right:", f"```text\n{tables.differences(now)}\n```"]
    parts += ["### Time for each character", TYPING, tables.typing_times(found.get("typing", ()))]
    return "\n\n".join([*parts, "### Before the guest waited for programs", tables.markdown(before)])
