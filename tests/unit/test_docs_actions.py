"""docs/actions.md against the table of grammars: names, versions, calls, and the date that it was read on."""

from __future__ import annotations

import re
from pathlib import Path

from osgym_protocol.grammars import DOCUMENTATION_READ_ON, GRAMMARS
from osgym_protocol.grammars.base import MAX_DEPTH, MAX_OUTPUT_CHARS
from osgym_protocol.grammars.pyautogui_calls import FUNCTIONS
from osgym_protocol.limits import MAX_ACTIONS, PIXELS_PER_SCROLL_CLICK

TEXT = (Path(__file__).parents[2] / "docs" / "actions.md").read_text("utf-8")


def test_the_table_has_every_grammar_and_version() -> None:
    """In the order of the code, and no other."""
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", TEXT.split("## Grammars")[1].split("\n\n`auto`")[0], re.M)
    assert [name for name, _ in rows] == list(GRAMMARS)
    for name, row in rows:
        for version in GRAMMARS[name].versions:
            assert f"`{version}`" in row
    assert DOCUMENTATION_READ_ON in TEXT


def test_the_calls_and_bounds_are_those_of_the_code() -> None:
    """Every function that is read is named, and every number is real."""
    source = TEXT.split("## Source code")[1].split("\n## ")[0]
    for name in FUNCTIONS:
        assert f"`{name.removeprefix('pyautogui.')}`" in source
    assert f"{MAX_OUTPUT_CHARS:,} characters and {MAX_ACTIONS} actions" in TEXT
    assert f"{MAX_DEPTH} deep" in TEXT and f"{PIXELS_PER_SCROLL_CLICK} to a click" in TEXT
