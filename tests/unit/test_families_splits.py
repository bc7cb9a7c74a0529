"""Splits of families by content: no task stands in two, small levels are for training, counts are stored."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from osgym_tasks import FAMILIES, LEVELS, Curriculum, Split, levels_of, sample, split_of
from osgym_tasks.card import card_markdown
from osgym_tasks.cli import commands
from osgym_tasks.contents import FEW, IN_EACH, Effort, content_of, count, split_by_digest
from osgym_tasks.family import Draft, Family, Instance
from osgym_tasks.pieces import every, text_check
from osgym_tasks.splits import is_stored, levels_counted, stored_text

SEEDS = range(0, 401, 20)
"""Seeds of each family and level."""


def test_no_instruction_stands_in_two_splits() -> None:
    """Nor do two wordings of the same named values, whatever the level and the family."""
    texts: dict[str, set[Split]] = defaultdict(set)
    values: dict[tuple[str, ...], set[Split]] = defaultdict(set)
    for family, level, seed in itertools.product(FAMILIES.values(), LEVELS, SEEDS):
        instance = family.make(seed, level)
        split = split_of(instance)
        texts[instance.task["instruction"]].add(split)
        values[tuple(sorted(instance.named.values()))].add(split)
    assert [text for text, splits in texts.items() if len(splits) > 1] == []
    assert [value for value, splits in values.items() if len(splits) > 1] == []


def test_the_content_of_a_task_is_not_its_wording() -> None:
    """Nor order, case, punctuation; every other word counts."""
    one = {"jobs": "delete A, copy B and rename /x/c.txt", "note": "Save"}
    assert content_of(one) == content_of({"note": "save", "jobs": "rename /x/c.txt, copy B and delete A."})
    for other in ("delete A, copy B and rename /x/d.txt", "delete A, copy B, B and rename /x/c.txt"):
        assert content_of(one) != content_of({**one, "jobs": other})
    family = FAMILIES["edit.lines"]
    wordings = [family.make(3, 2, wording=number) for number in range(6)]
    assert len({split_of(instance) for instance in wordings}) == 1


@pytest.mark.parametrize("name", FAMILIES)
def test_counts_of_each_family_are_stored(name: str) -> None:
    """`osgym task family count --out tasks/families/osgym_tasks/distinct.jsonl` counts after a change."""
    family = FAMILIES[name]
    assert is_stored(family), "the version has no stored counts: `osgym task family count` makes them"
    for level, counted in zip(LEVELS, levels_counted(family), strict=True):
        drawn = {content_of(family.named(seed, level)) for seed in range(6)}
        assert not counted.few or drawn <= set(counted.few), "the output changed, but not the version"
        assert len(counted.few) < FEW and bool(counted.few) == (counted.found < FEW)
        assert (level in levels_of(family, Split.TEST)) == counted.in_all_splits
    assert levels_of(family, Split.TRAIN) == LEVELS


def drawing(choices: int) -> Family:
    """A family of tasks that name one of so many words at level 1, and of ten times as many at the others."""

    def draft(dice: random.Random, level: int) -> Draft:
        word = f"word{dice.randrange(choices * (1 if level == 1 else 10))}"
        ways = FAMILIES["edit.lines"].draft(random.Random(1), 1).ways
        return Draft(["{word}"] * 6, {"word": word}, [], every(text_check("/x", word)), ways, changes=())

    return Family(f"test.of{choices}", 1, draft, ("mousepad",))


def test_a_small_level_is_counted_whole_and_is_for_training() -> None:
    """Its tasks are for training at other levels as well."""
    small, *others = count(drawing(12), Effort(100, 2000))
    assert (small.found, small.exact, small.at_least, len(small.few)) == (12, True, 12, 12)
    assert not small.in_all_splits
    assert all(level.in_all_splits and level.found == 120 and not level.few for level in others)
    free = [split_by_digest(content_of({"word": f"word{number}"})) for number in range(12, 120)]
    assert (others[0].validation, others[0].test) == (free.count(Split.VALIDATION), free.count(Split.TEST))


def test_a_large_level_has_a_lower_bound() -> None:
    """Below the true number, and not by orders of magnitude."""
    level = count(drawing(5000), Effort(300, 2000))[0]
    assert not level.exact and level.seeds < 2000
    assert 1000 < level.at_least < 10_000
    repeated = count(drawing(900), Effort(300, 2000))[0]
    assert repeated.seeds == 2000 and 700 < repeated.at_least < 1000


def test_a_family_without_stored_counts_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one of another distribution, or one that is being written."""
    family = drawing(14)
    monkeypatch.setitem(FAMILIES, family.name, family)
    assert levels_of(family, "test") == (2, 3, 4, 5)
    assert {split_of(family.make(seed, 1)) for seed in range(200)} == {Split.TRAIN}
    assert Counter(split_of(family.make(seed, 2)) for seed in range(2000))[Split.TEST] > 60
    rows = [json.loads(line) for line in stored_text({family.name: count(family)}).splitlines()]
    assert [name for name, *_ in rows] == list(FAMILIES)
    assert [version for name, version, _ in rows if name == family.name] == [family.version]
    assert f"| `{family.name}` | (14) | " in card_markdown()


def instances(split: Split, number: int, family: str, level: int | None = None) -> list[Instance]:
    return list(itertools.islice(sample(split=split, families=[family], level=level, seed=2), number))


def test_small_levels_are_drawn_for_training_only() -> None:
    """A family whose levels are all small is refused for the other splits, before anything is drawn."""
    levels = {name: levels_of(family, Split.TEST) for name, family in FAMILIES.items()}
    none = next(name for name, found in levels.items() if not found)
    some = next(name for name, found in levels.items() if 0 < len(found) < len(LEVELS))
    (missing, *_) = sorted(set(LEVELS) - set(levels[some]))
    for name, level in ((none, None), (none, 1), (some, missing)):
        with pytest.raises(ValueError, match=f"{name} has too few different tasks.* test; use train"):
            sample(split="test", families=[name], level=level)
        assert {split_of(one) for one in instances(Split.TRAIN, 5, name, level)} == {Split.TRAIN}
    with pytest.raises(ValueError, match="too few"):
        Curriculum(split="test", families=[none])
    assert none not in Curriculum(split="test").levels()
    assert {one.level for one in instances(Split.TEST, 20, some)} <= set(levels[some])
    course = Curriculum(split="test", families=[some], seed=1)
    course.load({"drawn": 0, "standing": {some: [float(missing), 0]}})
    drawn = course.next()
    assert split_of(drawn) is Split.TEST and drawn.level in levels[some]


def test_levels_with_three_splits_have_tasks_of_each() -> None:
    """At least some of those that were counted."""
    for family in FAMILIES.values():
        for level in levels_counted(family):
            if level.in_all_splits:
                assert min(level.validation, level.test) >= IN_EACH
                assert level.found - level.validation - level.test >= FEW / 2


def test_counts_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of named families anew, the others as they are stored."""
    path = tmp_path / "distinct.jsonl"
    done = CliRunner().invoke(commands, ["count", "vlc.setting", "--out", str(path)])
    assert done.exit_code == 0, done.output
    stored = Path("tasks/families/osgym_tasks/distinct.jsonl").read_text()
    assert path.read_text() == stored, "counts of the same version are the same"
    assert CliRunner().invoke(commands, ["count", "--all", "vlc.setting"]).exit_code == 2


def test_draws_in_a_language_are_the_tasks_of_the_same_draws_in_english() -> None:
    """Only families with wordings in it are drawn; one that lacks it is refused by name."""
    some, none = "term.count", "long.trip"
    for ours, theirs in itertools.islice(
        zip(
            sample(families=[some], level=2, seed=4),
            sample(families=[some], level=2, seed=4, language="de"),
            strict=True,
        ),
        3,
    ):
        assert (
            theirs.task["instruction"]
            == FAMILIES[some].make(theirs.seed, 2, language="de").task["instruction"]
        )
        assert (theirs.seed, theirs.named) == (ours.seed, ours.named)
        assert theirs.task["instruction"] != ours.task["instruction"]
    course = Curriculum(language="es")
    assert some in course.levels() and none not in course.levels()
    assert course.next().task["id"].endswith("-es")
    with pytest.raises(ValueError, match=r"long\.trip has no wording in 'de', only in en"):
        sample(families=[none], language="de")
    with pytest.raises(ValueError, match="language must be one of en, de, es, zh, not 'fr'"):
        Curriculum(language="fr")
