"""Wordings of families: they name what is checked, in every language."""

from __future__ import annotations

import itertools
import json
import re
import string
from pathlib import Path

import pytest
from click.testing import CliRunner

from osgym_tasks import FAMILIES, LANGUAGES, LEVELS, VARIATIONS, Family
from osgym_tasks.cli import commands
from osgym_tasks.family import MIN_WORDINGS, dice_of

every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
LITERALS = re.compile(r'"[^"]*"|/[\w./-]+|\d+')
"""What a translation must have as it is: quotes, paths and numbers."""


@every_family
def test_every_wording_names_what_is_checked(family: Family) -> None:
    """Literally, but for what the first screen shows, in at least six wordings, which the seeds all use."""
    for level, seed in itertools.product(LEVELS, range(2)):
        draft = family.draft(dice_of("any", 1, seed, level), level)
        assert len(set(draft.wordings)) >= MIN_WORDINGS
        assert set(draft.shown) <= set(draft.named)
        for number in range(len(draft.wordings)):
            instance = family.make(seed, level, wording=number)
            assert set(instance.named) - set(draft.shown) <= set(instance.said)
            for text in instance.said.values():
                assert text and text in instance.task["instruction"]
    assert len({family.make(seed, 1).task["instruction"][:9] for seed in range(50)}) >= MIN_WORDINGS


def placeholders(template: str) -> set[str]:
    """Names of the fields in a template."""
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


@every_family
def test_translations_name_what_the_english_wordings_do(family: Family) -> None:
    """In each other language: the same placeholders, and the same literal values inside."""
    for level, seed in itertools.product(LEVELS, range(2)):
        draft = family.draft(dice_of("any", 1, seed, level), level)
        assert set(draft.translations) <= set(LANGUAGES[1:])
        assert set(draft.translated) <= set(draft.translations)
        for language, templates in draft.translations.items():
            assert templates
            for template in templates:
                fields = placeholders(template)
                assert set(draft.named) - set(draft.shown) <= fields <= set(draft.named)
            for name, value in draft.translated.get(language, {}).items():
                assert sorted(LITERALS.findall(value)) == sorted(LITERALS.findall(draft.named[name]))
    for level, language, vary in itertools.product((1, 5), family.languages, ((), VARIATIONS)):
        plain, made = family.make(0, level), family.make(0, level, language=language, vary=vary)
        assert all(text in made.task["instruction"] for text in made.said.values())
        assert made.named == plain.named
        assert made.task["evaluator"] == plain.task["evaluator"]
        assert ("-" + language in made.name) == (language != "en")


def test_an_unknown_language_is_refused() -> None:
    """By the function with those that the family has, by the command as a usage error."""
    with pytest.raises(ValueError, match=r"edit.lines has no wording in 'xx'; it has \('en',"):
        FAMILIES["edit.lines"].make(0, 1, language="xx")


def test_files_are_written_in_a_language(tmp_path: Path) -> None:
    """With its mark in their names; a named family that lacks it is a usage error."""
    run = CliRunner().invoke
    family = next(name for name, one in FAMILIES.items() if "zh" in one.languages)
    said = ["write", family, "--levels", "1", "--language", "zh", "--out", str(tmp_path)]
    assert run(commands, said).exit_code == 0
    (path,) = (path for path in tmp_path.glob("*.json") if "oracle" not in path.name)
    assert path.stem.endswith("-s0-zh")
    assert re.search(r"[\u4e00-\u9fff]", json.loads(path.read_text())["instruction"])
    lacking = next(name for name, one in FAMILIES.items() if "zh" not in one.languages)
    refused = run(commands, ["write", lacking, "--language", "zh", "--out", str(tmp_path)])
    assert refused.exit_code == 2
    assert f"{lacking} has no wordings in 'zh'" in refused.output


def test_many_families_have_all_languages() -> None:
    """At least twenty families."""
    assert sum(family.languages == LANGUAGES for family in FAMILIES.values()) >= 20
