"""Measured difficulty: the oracle's effort at each level, and the reward of chance. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import mean, median
from typing import Any

from osgym_tasks.record import BASELINE, Outcome

SLACK = 0.9
"""Share of the effort below which a level counts as easier than the one before: seeds differ."""


@dataclass(frozen=True, slots=True)
class Difficulty:
    """Difficulty of one level of a family.

    Attributes:
        instances: Number of instances whose oracle earned 1.0; the figures are of these.
        steps, actions, characters, duration_s: Medians of the oracle; None where the record has none.
        effort: Mean sum of actions and typed characters, by which levels are ordered.
        chance: Mean rewards of baselines, by policy.
    """

    family: str
    level: int
    instances: int
    steps: float | None
    actions: float | None
    characters: float | None
    duration_s: float | None
    effort: float | None
    chance: dict[str, float]


def difficulties(outcomes: Iterable[Outcome]) -> list[Difficulty]:
    """Return every level of every family in the record, in order."""
    levels: dict[tuple[str, int], list[Outcome]] = {}
    for one in outcomes:
        levels.setdefault((one.family, one.level), []).append(one)
    return [_measured(family, level, levels[family, level]) for family, level in sorted(levels)]


def _measured(family: str, level: int, outcomes: list[Outcome]) -> Difficulty:
    oracles = [one for one in outcomes if one.is_oracle and one.reward == 1.0]
    counted = [one for one in oracles if one.actions is not None and one.characters is not None]
    chance: dict[str, list[float]] = {}
    for one in outcomes:
        if one.is_baseline and one.reward is not None:
            chance.setdefault(one.way.removeprefix(BASELINE), []).append(one.reward)
    return Difficulty(
        family,
        level,
        len({one.instance for one in oracles}),
        median(one.steps for one in oracles) if oracles else None,
        median(one.actions or 0 for one in counted) if counted else None,
        median(one.characters or 0 for one in counted) if counted else None,
        round(median(one.duration_s for one in oracles), 3) if oracles else None,
        round(mean((one.actions or 0) + (one.characters or 0) for one in counted), 1) if counted else None,
        {policy: round(mean(rewards), 4) for policy, rewards in sorted(chance.items())},
    )


def disorder(rows: Iterable[Difficulty]) -> list[tuple[str, int, int]]:
    """Return family, lower and higher level wherever the higher one costs the oracle less."""
    found = []
    for family, of_family in itertools.groupby(rows, key=lambda row: row.family):
        known = [(row.level, row.effort) for row in of_family if row.effort is not None]
        for (low, less), (high, more) in itertools.pairwise(known):
            if more < SLACK * less:
                found.append((family, low, high))
    return found


def as_json(rows: list[Difficulty]) -> list[dict[str, Any]]:
    """Return rows for a file."""
    return [asdict(row) for row in rows]
