"""A test that is skipped says what it misses, so that nobody takes it for one that passed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]


def reasons(path: Path) -> Iterator[tuple[int, str]]:
    """Line and reason of every `pytest.skip` and `skipif` of a file; of f-strings how they begin."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == "skip" and ast.unparse(node.func.value) == "pytest":
            yield node.lineno, beginning(node.args[0])
        elif node.func.attr in ("skipif", "skip") and ast.unparse(node.func.value) == "pytest.mark":
            given = [word.value for word in node.keywords if word.arg == "reason"]
            yield node.lineno, beginning(given[0]) if given else ""


def beginning(node: ast.expr) -> str:
    """The text that an expression begins with; empty where a variable comes first."""
    if isinstance(node, ast.JoinedStr):
        node = node.values[0]
    if isinstance(node, ast.BinOp):
        return beginning(node.left)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_every_skip_names_what_is_missing() -> None:
    """`missing: …` and the component; 40 of them and more, so this looks at something."""
    found = [(path, line, text) for path in sorted(TESTS.rglob("*.py")) for line, text in reasons(path)]
    wrong = [f"{p.relative_to(TESTS)}:{line} {text!r}" for p, line, text in found if "missing:" not in text]
    assert len(found) > 40
    assert wrong == []
