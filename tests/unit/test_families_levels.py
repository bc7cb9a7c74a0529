"""Levels of families: there is more to look through, and more to do, on each higher one."""

from __future__ import annotations

import itertools
import json
from statistics import mean, median

import pytest

from osgym_tasks import FAMILIES, LEVELS, Family
from osgym_tasks.card import FLAT, GROWTH
from osgym_tasks.family import count_actions

SEEDS = range(20)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_levels_rise_in_what_there_is_to_look_through(family: Family) -> None:
    """The task and what its oracle does grow; the highest level takes three times the actions."""
    of = {level: [family.make(seed, level) for seed in SEEDS] for level in LEVELS}
    oracles = {level: [json.dumps(one.ways.oracle) for one in of[level]] for level in LEVELS}
    sizes = [
        mean(len(json.dumps(one.task["config"])) + len(oracle) for one, oracle in zip(*both, strict=True))
        for both in ((of[level], oracles[level]) for level in LEVELS)
    ]
    assert all(low < high for low, high in itertools.pairwise(sizes)), sizes
    counted = [[count_actions(one.ways.oracle) for one in of[level]] for level in LEVELS]
    actions = [mean(counts) for counts in counted]
    assert all(low <= high for low, high in itertools.pairwise(actions)), actions
    grows = median(counted[-1]) >= GROWTH * median(counted[0])
    assert grows == (family.name not in FLAT), "an exception is stated, and no other family is one"
