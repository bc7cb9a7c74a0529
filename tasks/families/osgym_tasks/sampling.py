"""Endless draws of instances from a split."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence

from osgym_tasks.contents import Split
from osgym_tasks.family import LANGUAGES, LEVELS, Family, Instance, dice_of
from osgym_tasks.registry import FAMILIES, family_named
from osgym_tasks.splits import levels_of, split_of
from osgym_tasks.variation import checked

MAX_SEED = 1 << 31


def sample(
    *,
    split: Split | str = Split.TRAIN,
    families: Sequence[str] | None = None,
    level: int | None = None,
    seed: int = 0,
    shard: int = 0,
    shards: int = 1,
    vary: Iterable[str] = (),
    language: str = "en",
) -> Iterator[Instance]:
    """Yield instances without end, the same for the same arguments.

    Args:
        families: Names; None means all that have tasks in the split and wordings in the language.
        level: 1 to 5; None draws it.
        seed: Seed of the draws, not of an instance.
        shard: Number of this iterator among `shards`, which together give what one alone would.
        vary: Names in `VARIATIONS` that every instance has.
        language: Language of all instructions, such as `de`.

    Raises:
        ValueError: At the call: an argument is out of range, or a named family has no task in the split or no
            wording in the language.
        UnknownFamily: There is no such family, at the call.
    """
    split = Split(split)
    if level is not None and level not in LEVELS:
        raise ValueError(f"level must be one of {LEVELS} or None, not {level}")
    if not 0 <= shard < shards:
        raise ValueError(f"shard must be 0 to shards - 1, not {shard} of {shards}")
    chosen = with_levels(families, split, level, language)
    varied = checked(vary)

    def drawn() -> Iterator[Instance]:
        for number in itertools.count(shard, shards):
            dice = dice_of(f"sample:{split}", 2, seed, number)
            family, levels = dice.choice(chosen)
            yield draw(family, dice.choice(levels), split, dice, varied, language)

    return drawn()


def with_levels(
    families: Sequence[str] | None, split: Split, level: int | None = None, language: str = "en"
) -> list[tuple[Family, tuple[int, ...]]]:
    """Return families with their levels in a split.

    Args:
        families: Names; None means all that have a level in the split and wordings in the language.
        level: Only this level; None means all.

    Raises:
        ValueError: No family is named, or a named one has no such level in the split or no such wording.
        UnknownFamily: There is no such family.
    """
    if language not in LANGUAGES:
        raise ValueError(f"language must be one of {', '.join(LANGUAGES)}, not {language!r}")
    found = []
    for name in FAMILIES if families is None else families:
        family = family_named(name)
        if language != "en" and language not in family.languages:
            if families is not None:
                raise ValueError(
                    f"{name} has no wording in {language!r}, only in {', '.join(family.languages)}"
                )
            continue
        levels = tuple(one for one in levels_of(family, split) if level in (None, one))
        if levels:
            found.append((family, levels))
        elif families is not None:
            where = "" if level is None else f" at level {level}"
            raise ValueError(f"{name} has too few different tasks{where} for the split {split}; use train")
    if not found:
        raise ValueError("families must name at least one family, or be None for all")
    return found


def draw(
    family: Family,
    level: int,
    split: Split,
    dice: random.Random,
    vary: Iterable[str] = (),
    language: str = "en",
) -> Instance:
    """Return an instance of a level that has tasks in the split, by seeds of the dice."""
    while True:
        instance = family.make(dice.randrange(MAX_SEED), level, vary=vary, language=language)
        if split_of(instance) is split:
            return instance
