"""Splits by content: tasks that name the same lie in one split, whatever their wording, family and level."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib import resources

from osgym_tasks.contents import QUICK, LevelCount, Split, content_of, count, in_train_of, split_by_digest
from osgym_tasks.family import LEVELS, Family, Instance
from osgym_tasks.registry import FAMILIES

STORED = "distinct.jsonl"
"""File beside this module with the counts of each family; `osgym task family count` writes it."""


def split_of(instance: Instance) -> Split:
    """Return the split of an instance, by what its instruction names (`content_of`).

    Contents of levels that have fewer than `FEW` of them are for training.
    """
    content = content_of(instance.named)
    return Split.TRAIN if content in _in_train(instance.family) else split_by_digest(content)


def levels_of(family: Family, split: Split | str) -> tuple[int, ...]:
    """Return the levels of a family that have tasks in a split; a level with too few has training only."""
    if Split(split) is Split.TRAIN:
        return LEVELS
    counted = zip(LEVELS, levels_counted(family), strict=True)
    return tuple(level for level, one in counted if one.in_all_splits)


def levels_counted(family: Family) -> tuple[LevelCount, ...]:
    """Return the counted contents of a family's levels: the stored ones, or a quick count if it has none."""
    version, levels = _stored().get(family.name, (None, ()))
    return levels if version == family.version else _counted(family)


def is_stored(family: Family) -> bool:
    """Return whether the stored counts are those of the family's version."""
    return _stored().get(family.name, (None, ()))[0] == family.version


def stored_text(counted: Mapping[str, tuple[LevelCount, ...]]) -> str:
    """Return the stored file with these families counted anew, without those that are gone: a line each."""
    lines = []
    for name, family in FAMILIES.items():
        version, levels = (family.version, counted[name]) if name in counted else _stored()[name]
        lines.append(json.dumps([name, version, [asdict(level) for level in levels]]) + "\n")
    return "".join(lines)


@cache
def _counted(family: Family) -> tuple[LevelCount, ...]:
    return count(family, QUICK)


@cache
def _in_train(family: str) -> frozenset[str]:
    """Return the contents of all small levels: those of the stored counts, and of a family that has none."""
    stored = (in_train_of(levels) for _, levels in _stored().values())
    own = in_train_of(levels_counted(FAMILIES[family])) if family in FAMILIES else ()
    return frozenset().union(*stored, own)


@cache
def _stored() -> dict[str, tuple[int, tuple[LevelCount, ...]]]:
    text = resources.files(__package__).joinpath(STORED).read_text(encoding="utf-8")
    return {
        name: (version, tuple(LevelCount(**{**level, "few": tuple(level["few"])}) for level in levels))
        for name, version, levels in map(json.loads, text.splitlines())
    }
