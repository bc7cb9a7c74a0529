"""Estimates with 95 % intervals from raw series. Pure; resampling uses a seed, so results repeat."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

RESAMPLES = 1000
SEED = 20260720


@dataclass(frozen=True, slots=True)
class Estimate:
    """Value with its 95 % interval, from `n` observations; `low == high == value` where n is 1."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Line:
    """Line y = intercept + slope·x by least squares."""

    slope: float
    intercept: float


def quantile(values: Sequence[float], q: float) -> float:
    """Return the q-quantile (0..1) by linear interpolation of a non-empty series."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def bootstrap(
    sample: Sequence[T], statistic: Callable[[Sequence[T]], float], resamples: int = RESAMPLES
) -> Estimate:
    """Return a sample's statistic and its percentile-bootstrap interval (Efron, Tibshirani 1993, ch. 13).

    Resamples on which the statistic cannot be computed (`ValueError`) are left out.

    Raises:
        ValueError: The statistic cannot be computed on the sample itself.
    """
    value = statistic(sample)
    if len(sample) < 2:
        return Estimate(value, value, value, len(sample))
    rng = random.Random(SEED)  # noqa: S311  # not for secrets
    found = []
    for _ in range(resamples):
        try:
            found.append(statistic(rng.choices(sample, k=len(sample))))
        except ValueError:
            continue
    if not found:
        return Estimate(value, value, value, len(sample))
    low, high = quantile(found, 0.025), quantile(found, 0.975)
    return Estimate(value, min(low, value), max(high, value), len(sample))


def mean(sample: Sequence[float]) -> Estimate:
    """Return the mean with its interval."""
    return bootstrap(sample, statistics.fmean)


def line(points: Sequence[tuple[float, float]]) -> Line:
    """Fit a line by least squares.

    Raises:
        ValueError: Fewer than two different x.
    """
    mean_x = statistics.fmean(x for x, _ in points)
    mean_y = statistics.fmean(y for _, y in points)
    spread = math.fsum((x - mean_x) ** 2 for x, _ in points)
    if spread <= 1e-12 * (1 + mean_x**2):
        raise ValueError("all x are the same")
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return Line(slope, mean_y - slope * mean_x)


def slope(points: Sequence[tuple[float, float]]) -> Estimate:
    """Return the slope of a line through (x, y), with its interval by resampling the points."""
    return bootstrap(points, lambda sample: line(sample).slope)


def ratio(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """Return Σy / Σx over pairs (x, y), with its interval by resampling the pairs.

    Raises:
        ValueError: Σx is not above 0.
    """

    def of(sample: Sequence[tuple[float, float]]) -> float:
        total = math.fsum(x for x, _ in sample)
        if total <= 0:
            raise ValueError("nothing to divide by")
        return math.fsum(y for _, y in sample) / total

    return bootstrap(pairs, of)


def hinge(points: Sequence[tuple[float, float]]) -> float:
    """The x at which y = max(y₀, y₀ + m·(x − x₀)) bends, by least squares over all candidate x₀.

    Raises:
        ValueError: Fewer than three different x, or y does not rise.
    """
    xs = sorted({x for x, _ in points})
    if len(xs) < 3:
        raise ValueError("three different x at least")
    best, where = math.inf, None
    steps = 20
    for left, right in itertools.pairwise(xs):
        for part in range(steps):
            knee = left + (right - left) * part / steps
            bent = [(max(0.0, x - knee), y) for x, y in points]
            fitted = line(bent)
            if fitted.slope <= 0:
                continue
            error = math.fsum((y - fitted.intercept - fitted.slope * x) ** 2 for x, y in bent)
            if error < best * (1 - 1e-9):
                best, where = error, knee
    if where is None:
        raise ValueError("y does not rise with x")
    return where
