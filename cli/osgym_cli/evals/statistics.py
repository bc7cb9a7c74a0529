"""Means, confidence intervals and pass@k. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from osgym_cli.evals.rows import Row

_Z = 1.959964
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t for 95 %, two-sided, of 1 to 30 degrees of freedom."""
PASSED = 1.0
"""Smallest reward with which a task counts as done."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Mean and its 95 % confidence interval over tasks; the bounds are None if there are too few tasks."""

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of all episodes of a run.

    Attributes:
        reward: Mean over the episodes that were scored; None without any.
        passed: Share of the episodes with the full reward; those in which the model failed count as not
            passed, those that the infrastructure or the task spoilt do not count.
        passed_at_least: Same share if every episode without a result counts as not passed; None if all
            episodes have a result.
        losses: Number of attempts that were lost for infrastructure after the policy had begun to act.
        lost_again: Number of such losses by task, for tasks with more than one; each was on a fresh desktop.
        pass_at: k → chance that at least one of k tries of a task passes (Chen et al. 2021, the unbiased
            estimate), over tasks that were tried at least k times.
    """

    episodes: int
    scored: int
    reward: Estimate | None
    passed: Estimate | None
    pass_at: dict[int, float]
    failures: dict[str, int]
    passed_at_least: Estimate | None = None
    losses: int = 0
    lost_again: dict[str, int] = field(default_factory=dict)


def summarize(rows: Sequence[Row]) -> Summary:
    rewards: dict[str, list[float]] = {}
    passes: dict[str, list[float]] = {}
    at_least: dict[str, list[float]] = {}
    failures: dict[str, int] = {}
    losses: dict[str, int] = {}
    for row in rows:
        losses[row.task] = losses.get(row.task, 0) + row.losses
        if row.reward is not None:
            rewards.setdefault(row.task, []).append(row.reward)
        if row.counts:
            passes.setdefault(row.task, []).append(float(row.reward is not None and row.reward >= PASSED))
        if row.counts or row.is_lost:
            at_least.setdefault(row.task, []).append(float(row.reward is not None and row.reward >= PASSED))
        if row.failure_class is not None:
            failures[row.failure_class] = failures.get(row.failure_class, 0) + 1
    most = max((len(tries) for tries in passes.values()), default=0)
    at = {k: pass_at_k(passes, k) for k in (1, 2, 4, 8, 16, 32, 64) if k <= most} if most > 1 else {}
    if most > 1:
        at[most] = pass_at_k(passes, most)
    scored = sum(map(len, rewards.values()))
    by_class = dict(sorted(failures.items()))
    return Summary(
        len(rows),
        scored,
        estimate(rewards),
        estimate(passes),
        dict(sorted(at.items())),
        by_class,
        passed_at_least=estimate(at_least) if any(row.is_lost for row in rows) else None,
        losses=sum(losses.values()),
        lost_again={task: count for task, count in losses.items() if count > 1},
    )


def estimate(values: dict[str, list[float]]) -> Estimate | None:
    """Estimate the mean over tasks of their means.

    Tries of one task are no independent samples, so the interval is over tasks: Wilson's where each was tried
    once and is 0 or 1, else Student's.
    """
    means = [sum(tries) / len(tries) for tries in values.values()]
    n = len(means)
    if not n:
        return None
    mean = sum(means) / n
    if all(len(tries) == 1 and tries[0] in (0.0, 1.0) for tries in values.values()):
        return Estimate(mean, *wilson(mean, n))
    if n < 2:
        return Estimate(mean)
    spread = math.sqrt(sum((one - mean) ** 2 for one in means) / (n - 1) / n)
    reach = (_T[n - 2] if n - 2 < len(_T) else _Z) * spread
    low, high = min(0.0, *means), max(1.0, *means)
    return Estimate(mean, max(low, mean - reach), min(high, mean + reach))


def wilson(share: float, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of ``n``."""
    z2 = _Z * _Z
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    reach = _Z / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, centre - reach), min(1.0, centre + reach)


def pass_at_k(passes: dict[str, list[float]], k: int) -> float:
    """Return the mean over tasks of 1 - C(n-c, k) / C(n, k), with c of n tries passed."""
    chances = []
    for tries in passes.values():
        n, c = len(tries), int(sum(tries))
        if n >= k:
            chances.append(1.0 - math.comb(n - c, k) / math.comb(n, k))
    return sum(chances) / len(chances)
