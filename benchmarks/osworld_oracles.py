"""Oracles of OSWorld's tasks: Python that brings a final state about, by the id of the task."""

from __future__ import annotations

import tomllib
from pathlib import Path

_FILE = Path(__file__).with_suffix(".toml")
_HELPERS = "helpers"


def oracles() -> dict[str, str]:
    """Return the source to run in the desktop, as its user, with the oracles' shared part before each."""
    found: dict[str, str] = tomllib.loads(_FILE.read_text())
    helpers = found.pop(_HELPERS)
    return {task: helpers + code for task, code in found.items()}
