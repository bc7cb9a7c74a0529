"""Content of a task apart from its wording, and counts of the contents of a family's levels. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from osgym_tasks.family import LEVELS, Family

FEW = 30
"""Smallest number of different contents of a level that has validation and test tasks."""
IN_EACH = 3
"""Smallest number of contents that validation and test each need among those counted."""
ACTION_SEEDS = 20
"""Number of seeds whose oracles are counted."""
_MARKS = ",.;:"
_JOINING = frozenset({"and", "then"})


class Split(StrEnum):
    """Purpose of a task: of a hundred contents, 80 are for training, 10 for validation and 10 for test."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


def content_of(named: Mapping[str, str]) -> str:
    """Return a digest of what an instruction names: its words in any order, case and punctuation.

    All wordings of a task have the same content, and so have tasks that ask for the same in another order.
    """
    words = (word.strip(_MARKS) for value in named.values() for word in value.casefold().split())
    kept = sorted(word for word in words if word and word not in _JOINING)
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()[:16]


def split_by_digest(content: str) -> Split:
    """Return the split of a content that lies in any of them."""
    part = int(content, 16) % 10
    return Split.TRAIN if part < 8 else Split.VALIDATION if part == 8 else Split.TEST


@dataclass(frozen=True, slots=True)
class LevelCount:
    """Number of different contents of a family's level.

    Attributes:
        seeds: Number of seeds whose contents were counted, from 0 on.
        found: Number of different contents among them.
        exact: No content came up only once and every content ten times on average, so there are no others.
        at_least: `found` if it is exact. Otherwise Chao's lower bound of the number of contents, from those
            that came up once and twice (A. Chao, 1984, Scandinavian Journal of Statistics 11:265).
        validation: Number of contents found that are for validation.
        test: Number of contents found that are for test.
        actions: Median number of the oracle's actions, over the first seeds.
        few: All contents found, if they are too few for three splits. All are for training.
    """

    seeds: int
    found: int
    exact: bool
    at_least: int
    validation: int
    test: int
    actions: float
    few: tuple[str, ...] = ()

    @property
    def in_all_splits(self) -> bool:
        """Return whether the level has tasks for validation and test."""
        return not self.few and min(self.validation, self.test) >= IN_EACH


@dataclass(frozen=True, slots=True)
class Effort:
    """Rule by which counting stops.

    Attributes:
        first: Number of seeds after which counting stops if fewer than a quarter of them repeat a content.
        most: Largest number of seeds.
    """

    first: int
    most: int

    def suffices(self, seen: Counter[str]) -> bool:
        seeds = seen.total()
        if seeds >= self.most or (seeds >= self.first and seeds - len(seen) < seeds / 10):
            return True
        return seeds % 50 == 0 and _complete(seen)


THOROUGH = Effort(first=120, most=600)
"""Effort for the stored counts: seconds of a level."""
QUICK = Effort(first=100, most=200)
"""Effort for a family that has no stored counts."""


def count(family: Family, effort: Effort = THOROUGH) -> tuple[LevelCount, ...]:
    """Count the contents of each level, the same for the same family and effort."""
    seen = [_seen(family, level, effort) for level in LEVELS]
    few = [tuple(sorted(one)) if len(one) < FEW else () for one in seen]
    in_train = frozenset().union(*few)
    actions = [median(family.actions(seed, level) for seed in range(ACTION_SEEDS)) for level in LEVELS]
    return tuple(_level(*of_level, in_train) for of_level in zip(seen, actions, few, strict=True))


def _seen(family: Family, level: int, effort: Effort) -> Counter[str]:
    seen: Counter[str] = Counter()
    while not seen or not effort.suffices(seen):
        seen[content_of(family.named(seen.total(), level))] += 1
    return seen


def _complete(seen: Counter[str]) -> bool:
    return 1 not in seen.values() and seen.total() >= 10 * len(seen)


def _level(seen: Counter[str], actions: float, few: tuple[str, ...], in_train: frozenset[str]) -> LevelCount:
    times = Counter(seen.values())
    once, twice = times[1], times[2]
    unseen = once * once / (2 * twice) if twice else once * (once - 1) / 2
    splits = Counter(split_by_digest(content) for content in seen if content not in in_train)
    exact = _complete(seen)
    at_least = len(seen) if exact else len(seen) + int(unseen)
    return LevelCount(
        seen.total(), len(seen), exact, at_least, splits[Split.VALIDATION], splits[Split.TEST], actions, few
    )


def in_train_of(levels: Sequence[LevelCount]) -> frozenset[str]:
    """Return the contents of levels that have too few for three splits."""
    return frozenset(content for level in levels for content in level.few)
