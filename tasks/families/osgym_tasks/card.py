"""Card of the families: their numbers by application, wordings and near misses. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from osgym_tasks.contents import ACTION_SEEDS, FEW, LevelCount
from osgym_tasks.family import LANGUAGES, LEVELS, Draft, dice_of
from osgym_tasks.registry import FAMILIES
from osgym_tasks.splits import levels_counted
from osgym_tasks.variation import VARIATIONS

GROWTH = 3
"""Least number of an oracle's actions at the highest level, as a multiple of those at the lowest."""
FLAT = {
    "long.month_close": "its steps triple, and its actions nearly do",
    "writer.page": "one dialog has all settings of a page",
}
"""Families whose oracles grow less than `GROWTH`, each with the reason."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of one family.

    Attributes:
        wordings: Smallest number of wordings over its levels.
        near: Largest number of near misses and spoilt set-ups of an instance.
        levels: Counted contents of each level.
        languages: Languages of its wordings.
    """

    family: str
    version: int
    apps: tuple[str, ...]
    flavor: str
    wordings: int
    near: int
    levels: tuple[LevelCount, ...]
    languages: tuple[str, ...]


def counts() -> list[Counts]:
    """Count every family, from one instance of each level."""
    found = []
    for family in FAMILIES.values():
        drafts = [family.draft(dice_of("card", 1, 0, level), level) for level in LEVELS]
        found.append(
            Counts(
                family.name,
                family.version,
                family.apps,
                family.flavor,
                min(len(set(draft.wordings)) for draft in drafts),
                max(_wrong_ways(draft) for draft in drafts),
                levels_counted(family),
                tuple(language for language in LANGUAGES if drafts[0].templates(language)),
            )
        )
    return found


def _wrong_ways(draft: Draft) -> int:
    return len(draft.ways.near) + len(draft.ways.spoilt) + (draft.changes is not None)


def card_markdown() -> str:
    rows = counts()
    apps = Counter(app for row in rows for app in row.apps)
    groups = Counter(row.family.partition(".")[0] for row in rows)
    several = sum(len(row.apps) > 1 for row in rows)
    small = sum(row.flavor == "small" for row in rows)
    least = min(row.wordings for row in rows)
    all_levels = [level for row in rows for level in row.levels]
    whole = [level for level in all_levels if level.in_all_splits]
    facts = {
        "families": f"{len(rows)}, of them {several} over two applications or more",
        "applications": f"{len(apps)}",
        "levels of each": f"{len(LEVELS)}",
        "different tasks": f"80 % of them to train, 10 % to validate, 10 % to test; {len(whole)} of "
        f"{len(all_levels)} levels have all three, the others training only",
        "wordings": f"{sum(row.wordings for row in rows)}, at least {least} of each family",
        "families with wordings in German, Spanish and Chinese": (
            f"{sum(row.languages == LANGUAGES for row in rows)}"
        ),
        "kinds of near misses": f"{sum(row.near for row in rows)}",
        "variations around a task": f"{len(VARIATIONS)}: {', '.join(VARIATIONS)}",
        "images": f"the full one runs all, the small one {small}",
    }
    lines = [
        "# Families of tasks in figures",
        "",
        "What `osgym task family card` wrote; [what families are](README.md).",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in facts.items()),
        "",
        "| group | families |",
        "|---|---|",
        *(f"| `{group}` | {number} |" for group, number in sorted(groups.items())),
        "",
        "| application | families |",
        "|---|---|",
        *(f"| {app} | {number} |" for app, number in sorted(apps.items())),
        "",
        "| family | version | wordings | languages | near misses | image | applications |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| `{row.family}` | {row.version} | {row.wordings} | {', '.join(row.languages)} | {row.near} "
            f"| {row.flavor} | {', '.join(row.apps)} |"
            for row in rows
        ),
        "",
        "## Different tasks of each level",
        "",
        "Instances whose instructions name the same values, in any order, count as one task and lie in one",
        "split. A level in brackets has tasks for training only: there are fewer than "
        f"{FEW}, or too few of them",
        "are free for validation and test. A number without ≥ is exact: every task came up about ten times.",
        "Otherwise, it is Chao's lower bound, from the tasks that 120 to 600 seeds brought once and twice.",
        "",
        f"| family | {' | '.join(f'level {level}' for level in LEVELS)} |",
        f"|---|{'---|' * len(LEVELS)}",
        *(f"| `{row.family}` | {' | '.join(map(_different, row.levels))} |" for row in rows),
        "",
        "## Actions of the oracle on each level",
        "",
        f"Median of {ACTION_SEEDS} seeds; waits do not count. The highest level takes at least",
        f"{GROWTH} times the actions of the lowest, except in "
        + "; ".join(f"`{name}`, since {why}" for name, why in FLAT.items())
        + ".",
        "",
        f"| family | {' | '.join(f'level {level}' for level in LEVELS)} |",
        f"|---|{'---|' * len(LEVELS)}",
        *(f"| `{row.family}` | {' | '.join(f'{level.actions:g}' for level in row.levels)} |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _different(level: LevelCount) -> str:
    """Return the number of a level's tasks: a lower bound has two digits, rounded down."""
    unit = 10 ** max(0, len(str(level.at_least)) - 2)
    said = f"{level.at_least:,}" if level.exact else f"≥ {level.at_least // unit * unit:,}"
    return said if level.in_all_splits else f"({said})"
