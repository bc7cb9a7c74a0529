"""Scores and criteria over what a check's own program printed, and the expressions that they may use."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.tasks.evaluator.expressions import (
    MAX_EXPRESSION_CHARS,
    ExpressionRefused,
    check_expression,
    evaluate_expression,
)
from osgym_host.tasks.evaluator.inputs import TaskObject, Unreadable
from osgym_host.tasks.evaluator.metrics.reports import check_printed_score, check_printed_value

SCENE: dict[str, Any] = {
    "active": "Cam",
    "format": {"duration": "6.10"},
    "objects": [{"name": "Bottle", "size": 3}, {"name": "Stage", "size": 5}],
    "count": 2,
    "none": None,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("result.get('active') == 'Cam'", True),
        ("float(result['format']['duration']) <= 6.15", True),
        ("len(result['objects']) == 2 and not result['none']", True),
        ("any(o['name'] == 'Stage' and o.get('size') > 4 for o in result['objects'])", True),
        ("sorted([o['name'].lower() for o in result['objects']])[0]", "bottle"),
        ("{o['name']: o['size'] for o in result['objects']}['Bottle']", 3),
        ("[a + b for a, b in zip([1, 2], [3, 4]) if a > 1]", [6]),
        ("result['active'] in ('Cam', 'Eye') and 1 < result['count'] <= 2", True),
        ("'x' if result.get('gone') is None else 'y'", "x"),
        ("isinstance(result['count'], int) and isinstance(result['objects'], (list, str))", True),
        ("-result['count'] % 3 + 7 // 2 - 1 / 4", 3.75),
        ("','.join(sorted(result['format'].keys()))", "duration"),
        ("result['active'][-2:]", "am"),
        ("min(len({1, 2}), 5) if result else 0", 2),
    ],
)
def test_expressions_have_the_values_of_python(text: str, value: object) -> None:
    """Each expression has the value that Python gives it."""
    assert evaluate_expression(text, SCENE) == value
    assert eval(text, {"result": SCENE}) == value


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("__import__('os')", "the name __import__"),
        ("result.__class__", "the attribute __class__"),
        ("open('/etc/passwd')", "the name open"),
        ("(lambda: 1)()", "a computed function"),
        ("lambda: 1", "Lambda"),
        ("result.get", "the attribute get"),
        ("2 ** 999", "Pow"),
        ("1 << 999", "LShift"),
        ("[x := 1]", "NamedExpr"),
        ("f'{result}'", "JoinedStr"),
        ("'{0.__class__}'.format(result)", "the attribute format"),
        ("getattr(result, 'get')", "the name getattr"),
        ("sum", "the name sum"),
        ("b'a'", "a literal of the type bytes"),
        ("len(*result)", "Starred"),
        ("1 +", "is not Python"),
        ("import os", "is not Python"),
        ("a" * (MAX_EXPRESSION_CHARS + 1), "more than"),
        ("+".join("1" * 300), "more than"),
        ("(" * 900 + "1" + ")" * 900, "is not Python"),
    ],
)
def test_all_other_syntax_is_refused_by_name(text: str, named: str) -> None:
    """Refused before anything is computed."""
    with pytest.raises(ExpressionRefused, match=r".*") as raised:
        check_expression(text)
    assert named in str(raised.value)


@pytest.mark.parametrize(
    "text", ["'a' * 999999999", "[0] * 9999999", "'%999999999d' % 1", "'a'.replace('', 'b' * 999999)"]
)
def test_large_values_are_not_made(text: str) -> None:
    """A short expression cannot use up memory."""
    with pytest.raises(ValueError, match=r"too|formats"):
        evaluate_expression(text, None)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text has another end than a value, a refusal, or an error of an operation."""
    try:
        check_expression(text)
    except ExpressionRefused:
        return
    evaluate_expression("1", None)


@pytest.mark.parametrize(
    ("output", "score"),
    [
        ('{"overall_score": 0.25, "subscores": {}, "errors": []}', 0.25),
        ('checking…\n{"score": 1}\n', 1.0),
        ('{"score": 0}\n{"reward": 0.5}', 0.5),
        ('{\n "score": 0.75\n}', 0.75),
        ('{"score": true}', 1.0),
        ('{"score": 7}', 1.0),
        ('{"score": -1}', 0.0),
        ('{"score": "1"}', 0.0),
        ('{"score": NaN}', 0.0),
        ('{"other": 1}', 0.0),
    ],
)
def test_a_printed_score_counts(output: str, score: float) -> None:
    """The last JSON object's score, between 0 and 1."""
    assert check_printed_score(output, None).score == score


def test_a_printed_score_may_be_in_percent() -> None:
    """By the option ``maximum``; the program's errors become the note."""
    verdict = check_printed_score('{"score": 40, "errors": ["no title"]}', None, maximum=100)
    assert (verdict.score, verdict.note) == (0.4, "no title")
    with pytest.raises(Unreadable) as raised:
        check_printed_score("{}", None, maximum=0)
    assert raised.value.role == "expected"


@pytest.mark.parametrize("output", ["", "1", "[1]", "Traceback", "[" * 100_000, '{"score": ' * 50_000])
def test_output_without_an_object_is_a_wrong_result(output: str) -> None:
    """The program of the check failed in the desktop."""
    with pytest.raises(Unreadable) as raised:
        check_printed_score(output, None)
    assert raised.value.role == "result"


@pytest.mark.parametrize(
    ("rules", "score"),
    [
        ({"key": "exists", "expected": True}, 1.0),
        ({"key": "exists", "expected": False}, 0.0),
        ({"key": "names", "expected": ["a"]}, 1.0),
        ({"key": "gone", "expected": 1}, 0.0),
        ({"eval": "result['names'][0] == 'a'"}, 1.0),
        ({"eval": "result['names'][7] == 'a'"}, 0.0),
        ({"eval": "result['gone']"}, 0.0),
    ],
)
def test_a_criterion_compares_what_was_printed(rules: dict[str, Any], score: float) -> None:
    """By key and value, or by an expression, whose errors are a wrong result."""
    assert check_printed_value('{"exists": true, "names": ["a"]}', TaskObject.of(rules)).score == score


@pytest.mark.parametrize("rules", [{}, {"key": "a"}, {"eval": "result.pop()"}, {"eval": "open('x')"}])
def test_a_criterion_of_the_task_may_be_wrong(rules: dict[str, Any]) -> None:
    """A missing rule and a refused expression are the task's fault."""
    with pytest.raises(Unreadable) as raised:
        check_printed_value("{}", TaskObject.of(rules))
    assert raised.value.role == "expected"
