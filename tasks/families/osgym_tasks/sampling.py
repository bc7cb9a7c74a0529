"""Splits without overlap, and endless draws of instances from a split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from osgym_tasks.family import LEVELS, Instance, dice_of
from osgym_tasks.registry import FAMILIES, family_named
from osgym_tasks.variation import checked

MAX_SEED = 1 << 31


class Split(StrEnum):
    """Purpose of an instance: 80, 10 and 10 of a hundred seeds of each family."""

    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


def split_of(family: str, seed: int) -> Split:
    """Return the split of a seed in a family, the same for all levels and versions."""
    digest = hashlib.sha256(json.dumps([family, seed]).encode()).digest()
    part = int.from_bytes(digest[:8]) % 10
    return Split.TRAIN if part < 8 else Split.VALIDATION if part == 8 else Split.TEST


def sample(
    *,
    split: Split | str = Split.TRAIN,
    families: Sequence[str] | None = None,
    level: int | None = None,
    seed: int = 0,
    shard: int = 0,
    shards: int = 1,
    vary: Iterable[str] = (),
) -> Iterator[Instance]:
    """Yield instances without end, the same for the same arguments.

    Args:
        families: Names; None means all.
        level: 1 to 5; None draws it.
        seed: Seed of the draws, not of an instance.
        shard: Number of this iterator among `shards`, which together give what one alone would.
        vary: Names in `VARIATIONS` that every instance has.

    Raises:
        ValueError: An argument is out of range, at the call.
        UnknownFamily: There is no such family, at the call.
    """
    split = Split(split)
    chosen = [family_named(name) for name in (FAMILIES if families is None else families)]
    if not chosen:
        raise ValueError("families must name at least one family, or be None for all")
    if level is not None and level not in LEVELS:
        raise ValueError(f"level must be one of {LEVELS} or None, not {level}")
    if not 0 <= shard < shards:
        raise ValueError(f"shard must be 0 to shards - 1, not {shard} of {shards}")
    varied = checked(vary)

    def drawn() -> Iterator[Instance]:
        dice = dice_of(f"sample:{split}", 1, seed, 0)
        number = 0
        while True:
            family = dice.choice(chosen)
            its_level = dice.choice(LEVELS)
            its_seed = dice.randrange(MAX_SEED)
            while split_of(family.name, its_seed) is not split:
                its_seed = dice.randrange(MAX_SEED)
            if number % shards == shard:
                yield family.make(its_seed, its_level if level is None else level, vary=varied)
            number += 1

    return drawn()
