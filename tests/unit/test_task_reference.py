"""The page of all setup steps, getters and metrics is the one that the code gives."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from osgym_cli.main import main
from osgym_host.tasks.evaluator.registry import METRICS
from osgym_host.tasks.parse import ACCOUNTS
from osgym_host.tasks.reference import page
from osgym_host.tasks.registry import GETTERS, STEPS

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"


def test_the_page_is_up_to_date() -> None:
    """`osgym task reference > docs/tasks.md` after a change."""
    assert PAGE.read_text("utf-8") == page()
    assert CliRunner().invoke(main, ["task", "reference"]).output == page()


def test_each_has_a_row_and_says_what_it_is() -> None:
    """Once, with a sentence; what is refused is named."""
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.*) \|$", page(), re.MULTILINE)
    assert sorted(name for name, _, _ in rows) == sorted([*STEPS, *GETTERS, *METRICS])
    assert [name for name, _, what in rows if not what.endswith((".", ":"))] == []
    for feature, need in ACCOUNTS.items():
        assert f"- {feature}: {need}." in page()


def test_parameters_have_kinds_and_defaults() -> None:
    """As a task's author writes them: nested, by their names in files, with bounds and packages."""
    text = page()
    assert "`files` list of {`url` text, `path` text}" in text
    assert "`partIndex` number (≥ -100, ≤ 100)" in text
    assert "`shell = false` true or false" in text
    row = next(line for line in text.splitlines() if line.startswith("| `compare_images` "))
    assert "`reference_base_result`" in row and "package numpy" in row
