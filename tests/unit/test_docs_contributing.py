"""CONTRIBUTING.md names files, tests and make targets that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
FOLDERS = tuple(f"{path.name}/" for path in ROOT.iterdir() if path.is_dir() and path.name[0] != ".")
PATHS = sorted({path for path in re.findall(r"[\w.*-]+(?:/[\w.*-]*)+", TEXT) if path.startswith(FOLDERS)})


def test_the_table_names_many_files() -> None:
    """The pattern that finds them does find them."""
    assert len([path for path in PATHS if path.endswith(".py")]) > 15


@pytest.mark.parametrize("path", PATHS)
def test_every_named_file_exists(path: str) -> None:
    """Whoever moves a file changes the table with it."""
    assert (ROOT / path).exists()


def test_every_named_target_and_test_exists() -> None:
    """What one is told to run can be run."""
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`?make ([a-z-]+)`?", TEXT):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for path, test in re.findall(r"(tests/[\w/]+\.py)::(\w+)", TEXT):
        assert f"def {test}(" in (ROOT / path).read_text()
