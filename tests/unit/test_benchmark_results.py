"""The series of benchmarks that are kept: short to read, whole when loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.common import RESULTS, dumps, save
from hypothesis import given
from hypothesis import strategies as st

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values)
def test_nothing_is_lost(value: Any) -> None:
    """What was written is what is read, whatever the shape."""
    assert json.loads(dumps(value)) == value


def test_a_series_is_one_line(tmp_path: Path) -> None:
    """A row of a table, too."""
    rows = [{"replicas": n, "step_ms": [1.5, 2.5]} for n in (1, 2)]
    saved = save("x", {"settings": {"steps": 2, "by_name": {"a": [1, 2]}}, "rows": rows}, tmp_path / "x.json")
    assert saved.read_text().splitlines()[3:] == [
        ' "settings": {',
        '  "steps": 2,',
        '  "by_name": {',
        '   "a": [1, 2]',
        "  }",
        " },",
        ' "rows": [',
        '  {"replicas": 1, "step_ms": [1.5, 2.5]},',
        '  {"replicas": 2, "step_ms": [1.5, 2.5]}',
        " ]",
        "}",
    ]


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.json")), ids=lambda path: path.stem)
def test_the_kept_series_are_as_written(path: Path) -> None:
    """A file that was saved in another way would fill a change with lines; none says where files were."""
    text = path.read_text()
    kept = json.loads(text)
    assert dumps(kept) + "\n" == text
    assert not [word for word in kept.get("argv", ()) if word.startswith("/")]
