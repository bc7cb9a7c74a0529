"""Record of outcomes, one line each: written as episodes end, read for tables, pages and training."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any, get_type_hints

from osgym_tasks.registry import FAMILIES

BASELINE = "baseline: "
"""Prefix of the ways of policies without a model."""
ORACLE = "oracle "


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a trial: one line of the record.

    Attributes:
        image: Golden image, as the runner named it.
        wanted: Reward that it must earn; for a baseline, the desired one.
        reward: None when the infrastructure failed; `failure` says how. Such a trial is run again.
        duration_s: Time of the episode, from the request for a desktop to the reward.
        actions: Number of actions; `characters` is the length of all typed texts.
        setup_s: Part of `duration_s` that the task's set-up took.
        vary: Variations of the instance, separated by commas.
    """

    image: str
    family: str
    seed: int
    level: int
    instance: str
    way: str
    wanted: float
    reward: float | None
    failure: str
    steps: int
    duration_s: float
    actions: int | None = None
    characters: int | None = None
    setup_s: float | None = None
    vary: str = ""

    @property
    def is_right(self) -> bool:
        """Whether it earned what it must."""
        return self.reward == self.wanted

    @property
    def is_baseline(self) -> bool:
        """Whether it measures a policy, and proves nothing."""
        return self.way.startswith(BASELINE)

    @property
    def is_oracle(self) -> bool:
        """Whether it is the oracle's."""
        return self.way.startswith(ORACLE)

    @property
    def is_current(self) -> bool:
        """Whether the family is known, and has the version that made the instance."""
        family = FAMILIES.get(self.family)
        return family is not None and self.instance.startswith(
            f"{self.family.replace('.', '-')}-v{family.version}-"
        )


_KINDS: dict[str, Any] = get_type_hints(Outcome)


def line_of(outcome: Outcome) -> str:
    return json.dumps(asdict(outcome), ensure_ascii=False, allow_nan=False) + "\n"


def read_outcomes(path: Path, image: str | None = None, *, every_image: bool = False) -> list[Outcome]:
    """Return the newest outcome of each trial on this image, preferring one with a reward.

    A line that was not written to its end, or has another form, is skipped.

    Args:
        image: Digest of the image; None means that of the record's last line.
        every_image: Outcomes of all images instead.

    Raises:
        OSError: It cannot be read.
    """
    every = [
        one for line in path.read_text(encoding="utf-8").splitlines() if (one := _read(line)) is not None
    ]
    if image is None and every:
        image = every[-1].image
    found: dict[tuple[str, str, str], Outcome] = {}
    for outcome in every:
        key = outcome.image, outcome.instance, outcome.way
        if every_image or outcome.image == image:  # noqa: SIM102 - two questions
            if outcome.reward is not None or _has_no_reward(found.get(key)):
                found[key] = outcome
    return list(found.values())


def _has_no_reward(outcome: Outcome | None) -> bool:
    return outcome is None or outcome.reward is None


def _read(line: str) -> Outcome | None:
    try:
        values = json.loads(line)
        outcome = Outcome(**values)
    except (ValueError, TypeError, RecursionError):
        return None
    for field in fields(Outcome):
        value, kind = getattr(outcome, field.name), _KINDS[field.name]
        number = kind not in (str, int, int | None) and type(value) is int
        if not number and (not isinstance(value, kind) or isinstance(value, bool)):
            return None
    return outcome


def read_record(path: Path, image: str) -> list[Outcome]:
    """Return the newest outcome with a reward of each trial on this image; none where there is no record.

    Raises:
        OSError: It exists and cannot be read.
    """
    return [one for one in read_outcomes(path, image) if one.reward is not None] if path.exists() else []


def summary(outcomes: Iterable[Outcome]) -> dict[str, dict[str, Any]]:
    """Return by family what was proved, with median steps and seconds of the oracle; without baselines."""
    rows: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if not outcome.is_baseline:
            rows.setdefault(outcome.family, []).append(outcome)
    return {family: row_of(rows[family]) for family in sorted(rows)}


def row_of(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return the table row of these outcomes."""
    oracles = [one for one in outcomes if one.is_oracle]
    instances: dict[str, list[Outcome]] = {}
    for one in outcomes:
        instances.setdefault(one.instance, []).append(one)
    return {
        "instances": len(instances),
        "proved": sum(all(one.is_right for one in all_of) for all_of in instances.values()),
        "levels": sorted({one.level for one in outcomes}),
        "episodes": len(outcomes),
        "wrong": [[one.instance, one.way, one.reward] for one in outcomes if not one.is_right],
        "oracle_steps_median": median([one.steps for one in oracles]) if oracles else None,
        "oracle_duration_s_median": median([one.duration_s for one in oracles]) if oracles else None,
    }
