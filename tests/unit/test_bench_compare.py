"""Two runs compared: a shift is found, noise is not, whatever the shape of the file."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.common import ROOT
from benchmarks.compare import compare, holm, series_of
from hypothesis import given
from hypothesis import strategies as st


def noise(seed: int, scale: float = 1.0, count: int = 60) -> list[float]:
    """Times as they are: skewed, with a long tail."""
    dice = random.Random(seed)
    return [scale * dice.lognormvariate(3, 0.4) for _ in range(count)]


def test_series_are_found_in_every_shape() -> None:
    """Lists, columns of rows, columns by the row's name, parts within rows; no options."""
    result = {
        "machine": {"load": [1, 2]},
        "options": {"sizes": [1, 2, 3]},
        "step_ms": [1, 2.5],
        "rows": [{"way": "fast", "index": 0, "parts": {"a_ms": 1}}, {"way": "exact", "parts": {"a_ms": 2}}],
        "curve": [{"replicas": 1, "ms": [4, 5], "good": True}],
        "words": ["a"],
    }
    assert dict(series_of(result)) == {
        "step_ms": [1.0, 2.5],
        "rows[fast].parts.a_ms": [1.0],
        "rows[exact].parts.a_ms": [2.0],
        "curve.replicas": [1.0],
        "curve.ms": [4.0, 5.0],
    }


def test_a_shift_is_found_and_noise_is_not() -> None:
    """Twenty series, one of them slower by a third; the same seeds give the same intervals."""
    before = {f"s{n}_ms": noise(n) for n in range(20)}
    after = {f"s{n}_ms": noise(100 + n, 1.33 if n == 7 else 1.0) for n in range(20)}
    found = compare(before, after)
    assert [one.series for one in found if one.differs] == ["s7_ms"]
    (slower,) = (one for one in found if one.differs)
    assert slower.ratio is not None and slower.ratio_interval is not None
    assert 1 < slower.ratio_interval[0] < slower.ratio < slower.ratio_interval[1] < 2.5
    assert found == compare(before, after)
    assert not any(one.differs for one in compare(before, before))


def test_what_is_too_short_or_not_in_both_is_left_out() -> None:
    """And a part of the name chooses; a median of 0 has no ratio."""
    first = {"a_ms": noise(1), "b_ms": [1.0] * 4, "c_ms": noise(2), "zero": [0.0] * 40}
    second = {"a_ms": noise(3), "b_ms": noise(4), "zero": [1.0] * 40}
    assert [one.series for one in compare(first, second)] == ["a_ms", "zero"]
    (zero,) = compare(first, second, only="zero")
    assert (zero.ratio, zero.ratio_interval, zero.differs) == (None, None, True)


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_is_holms(found: list[float]) -> None:
    """Never below what it corrects, at most 1, in the same order; a single one stays."""
    corrected = holm(found)
    assert all(a <= b <= 1 for a, b in zip(found, corrected, strict=True))
    order = sorted(range(len(found)), key=found.__getitem__)
    assert [corrected[n] for n in order] == sorted(corrected)
    if len(found) == 1:
        assert corrected == found


def test_holm_takes_the_step_down() -> None:
    """The textbook's example."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@pytest.mark.parametrize(("shift", "code"), [(1.0, 0), (2.0, 3)])
def test_the_command_says_it_by_its_exit_code(tmp_path: Path, shift: float, code: int) -> None:
    """With a table that names the series, or as JSON."""
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, scale in zip(paths, (1.0, shift), strict=True):
        path.write_text(json.dumps({"machine": {"commit": "abc"}, "step_ms": noise(5, scale)}))
    argv = [sys.executable, "-m", "benchmarks.compare", *map(str, paths)]
    table = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (table.returncode, "step_ms" in table.stdout, "abc" in table.stdout) == (code, True, True)
    told: list[dict[str, Any]] = json.loads(
        subprocess.run([*argv, "--json"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    )
    assert [(one["series"], one["differs"]) for one in told] == [("step_ms", code == 3)]


def test_nothing_to_compare_is_said(tmp_path: Path) -> None:
    """With exit code 2."""
    path = tmp_path / "a.json"
    path.write_text('{"step_ms": [1, 2]}')
    argv = [sys.executable, "-m", "benchmarks.compare", str(path), str(path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "no series" in done.stderr) == (2, True)
