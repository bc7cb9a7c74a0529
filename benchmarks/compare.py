"""Comparison of two runs of a benchmark: series that differ beyond noise.

    python -m benchmarks.compare before.json after.json
    python -m benchmarks.compare before.json after.json --series step_ms --json

Every series of numbers that both files have is compared: medians, each with the 95 % interval of a bootstrap,
their ratio with its interval, and the p-value of the Mann-Whitney test, which asks nothing of the
distribution. Since many series are looked at, p is Holm's. A difference is called one only where p is under
0.01 and the ratio's interval leaves out 1. What one run measured in the morning and another in the evening
differs by the machine as well: pairs that took turns in one run say more.

Exit codes: 0 nothing differs - 3 something does - 2 wrong usage, or nothing to compare.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

MIN_SAMPLES = 5
"""Number of samples on each side: the smallest with which the test can be significant at 0.01."""
RESAMPLES = 2000
P = 0.01
NAMES = ("way", "policy", "name", "app", "flow", "task", "window", "load", "what", "mode", "row")
"""Columns that name the row of a table; the other columns of its rows of one name are one series."""
SKIPPED = {"index", "round", "seed", "n", "step", "machine", "options", "settings"}
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Compared:
    """One series in both files.

    Attributes:
        ratio: Ratio of the medians, second to first; None where the first is 0.
        p: Probability that both have one distribution, corrected for all series that were compared.
    """

    series: str
    counts: tuple[int, int]
    medians: tuple[float, float]
    intervals: tuple[Interval, Interval]
    ratio: float | None
    ratio_interval: Interval | None
    p: float

    @property
    def differs(self) -> bool:
        if self.p >= P:
            return False
        return self.ratio_interval is None or not self.ratio_interval[0] <= 1 <= self.ratio_interval[1]


def series_of(found: Any, path: str = "") -> Iterator[tuple[str, list[float]]]:
    """Yield all series of numbers in a result: lists of them, and the columns of lists of rows."""
    if isinstance(found, Mapping):
        for name, value in found.items():
            if name not in SKIPPED:
                yield from series_of(value, f"{path}.{name}" if path else str(name))
    elif isinstance(found, list) and found:
        if all(_is_number(value) for value in found):
            yield path, [float(value) for value in found]
        elif all(isinstance(value, Mapping) for value in found):
            yield from _columns(found, path)


def _columns(rows: Sequence[Mapping[str, Any]], path: str) -> Iterator[tuple[str, list[float]]]:
    columns: dict[str, list[float]] = {}
    for row in rows:
        named = "/".join(str(row[name]) for name in NAMES if isinstance(row.get(name), str))
        for name, value in _numbers(row, ""):
            columns.setdefault(f"{path}[{named}].{name}" if named else f"{path}.{name}", []).append(value)
    yield from columns.items()


def _numbers(row: Mapping[str, Any], path: str) -> Iterator[tuple[str, float]]:
    for name, value in row.items():
        if name in SKIPPED:
            continue
        if _is_number(value):
            yield path + name, float(value)
        elif isinstance(value, Mapping):
            yield from _numbers(value, f"{path}{name}.")
        elif isinstance(value, list) and all(_is_number(one) for one in value):
            yield from ((path + name, float(one)) for one in value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def compare(first: Any, second: Any, only: str = "") -> list[Compared]:
    """Compare the series of which both results have at least five numbers.

    Args:
        only: Part of the names of the series.
    """
    from scipy import stats  # a second, which who wants intervals only need not wait

    other = dict(series_of(second))
    pairs = [
        (name, np.asarray(a), np.asarray(other[name]))
        for name, a in series_of(first)
        if only in name and min(len(a), len(other.get(name, ()))) >= MIN_SAMPLES
    ]
    raw = [float(stats.mannwhitneyu(a, b, alternative="two-sided").pvalue) for _, a, b in pairs]
    return [_compared(name, a, b, p) for (name, a, b), p in zip(pairs, holm(raw), strict=True)]


def holm(found: Sequence[float]) -> list[float]:
    """Correct p-values for their number, by Holm's step-down method."""
    corrected, highest = [1.0] * len(found), 0.0
    for rank, place in enumerate(sorted(range(len(found)), key=found.__getitem__)):
        highest = max(highest, min(1.0, (len(found) - rank) * found[place]))
        corrected[place] = highest
    return corrected


def _compared(name: str, a: Any, b: Any, p: float) -> Compared:
    dice = np.random.default_rng(0)  # the same files, the same intervals
    of_a, of_b = (np.median(dice.choice(one, (RESAMPLES, len(one))), axis=1) for one in (a, b))
    medians = (float(np.median(a)), float(np.median(b)))
    ratio = None if medians[0] == 0 else medians[1] / medians[0]
    whole = ratio is not None and bool(np.all(of_a != 0))
    return Compared(
        name,
        (len(a), len(b)),
        medians,
        (_interval(of_a), _interval(of_b)),
        ratio,
        _interval(of_b / of_a) if whole else None,
        p,
    )


def median_interval(values: Sequence[float]) -> Interval:
    """Return the 95 % interval of a series' median, by a bootstrap with a fixed seed."""
    dice = np.random.default_rng(0)
    series = np.asarray(values, dtype=float)
    return _interval(np.median(dice.choice(series, (RESAMPLES, len(series))), axis=1))


def _interval(values: Any) -> Interval:
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def lines(found: Sequence[Compared]) -> Iterator[str]:
    """Yield the lines of the table, different series first."""
    width = max(len(one.series) for one in found)
    yield f"{'SERIES':{width}}  {'FIRST (95 %)':>28}  {'SECOND (95 %)':>28}  {'RATIO (95 %)':>22}        P"
    for one in sorted(found, key=lambda one: (not one.differs, one.p)):
        sides = [
            f"{median:.4g} ({low:.4g} to {high:.4g})"
            for median, (low, high) in zip(one.medians, one.intervals, strict=True)
        ]
        ratio = "" if one.ratio is None else f"{one.ratio:.3f}"
        if one.ratio_interval is not None:
            ratio += " ({:.3f} to {:.3f})".format(*one.ratio_interval)
        mark = "  differs" if one.differs else ""
        yield f"{one.series:{width}}  {sides[0]:>28}  {sides[1]:>28}  {ratio:>22}  {one.p:7.2g}{mark}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--series", default="", help="only series with this in their name")
    parser.add_argument("--json", action="store_true", help="everything, as JSON")
    options = parser.parse_args()
    try:
        kept = [json.loads(path.read_text(encoding="utf-8")) for path in (options.first, options.second)]
    except (OSError, ValueError) as error:
        parser.error(str(error))
    found = compare(kept[0], kept[1], options.series)
    if not found:
        parser.error(f"the files have no series of {MIN_SAMPLES} numbers or more in common")
    if options.json:
        print(json.dumps([{**asdict(one), "differs": one.differs} for one in found], indent=1))
    else:
        for one in kept:
            told = one.get("machine", {}) if isinstance(one, dict) else {}
            said = (
                told.get("commit", "unknown commit"),
                told.get("date", "no date"),
                told.get("load_before"),
            )
            print("{}, {}, load before {}".format(*said))
        print(*lines(found), sep="\n")
    return 3 if any(one.differs for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
