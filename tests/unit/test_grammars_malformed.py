"""Malformed outputs come to the actions that are meant for certain, or to a refusal that helps the model."""

from __future__ import annotations

import tomllib

import pytest
from tests.support.malformed import PATH, Malformed, load

from osgym_protocol.grammars import GRAMMARS, UnreadableAction, parse

CORPUS = load()
_MEANS_IT_ELSEWHERE = {("pyautogui", "click(412, 88)"), ("pyautogui", "DONE()")}
"""Refused as pyautogui's, which has no bare `click`; the first is OSGym's own form, the second GLM's."""


def _id(entry: Malformed) -> str:
    return f"{entry.grammar}-{entry.kind}-{entry.output[:50]!r}"


@pytest.mark.parametrize("entry", CORPUS, ids=_id)
def test_the_answer_is_exactly_the_right_one(entry: Malformed) -> None:
    """Nothing else is done; a refusal names the place and what stands there."""
    if entry.position is None:
        parsed = parse(entry.output, entry.context, entry.grammar)
        assert parsed.actions == entry.actions
        assert (parsed.ending and parsed.ending.value) == entry.ending
        return
    with pytest.raises(UnreadableAction) as caught:
        parse(entry.output, entry.context, entry.grammar)
    error = caught.value
    assert (error.grammar, error.position) == (entry.grammar, entry.position)
    assert entry.message in error.message
    assert error.read in error.message and error.allowed in error.message
    assert len(error.message) < 1000


@pytest.mark.parametrize("entry", CORPUS, ids=_id)
def test_no_other_grammar_makes_actions_of_it(entry: Malformed) -> None:
    """`auto` refuses what the model's grammar refuses, and reads the rest as that grammar does."""
    try:
        parsed = parse(entry.output, entry.context)
    except (UnreadableAction, ValueError):
        return
    if (entry.grammar, entry.output) in _MEANS_IT_ELSEWHERE:
        assert parsed.grammar != entry.grammar
        return
    assert entry.position is None
    assert parsed.actions == entry.actions


def test_the_corpus_is_large_and_explained() -> None:
    """Each grammar has kinds with an explanation, and no output is there twice."""
    kinds = tomllib.loads(PATH.read_text("utf-8"))["kinds"]
    assert len(CORPUS) >= 680
    assert {kind["grammar"] for kind in kinds} == set(GRAMMARS)
    assert all(len(kind["explanation"]) > 20 for kind in kinds)
    outputs = [(entry.grammar, entry.context.version, entry.output) for entry in CORPUS]
    assert len(set(outputs)) == len(outputs)
