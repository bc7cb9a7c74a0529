"""The libraries of the extra ``osworld``, which some metrics need and a host may go without.

They are loaded by `warm_up.warm_up` before the evaluator shuts itself in.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

DISTRIBUTIONS = {
    "av": "av",
    "cssselect": "cssselect",
    "docx": "python-docx",
    "lxml": "lxml",
    "mutagen": "mutagen",
    "numpy": "numpy",
    "pptx": "python-pptx",
    "pygame": "pygame",
    "pypdf": "pypdf",
    "yaml": "PyYAML",
}
"""Distributions by the name that is imported."""

FOR_PROGRAMS = ("numpy", "pygame")
"""Packages of OSWorld's own installation that programs of tasks import. A host is checked for them before the
episode begins. An import error of the program itself is no evidence, since the program could forge it."""


@cache
def is_there(module: str) -> bool:
    """Whether a library is installed; it is not imported."""
    return importlib.util.find_spec(module) is not None


@dataclass(frozen=True, slots=True)
class Needed:
    """What a metric's ``unsupported`` says of the libraries that it needs.

    Attributes:
        modules: The names that are imported.
    """

    modules: tuple[str, ...]

    def __call__(self, options: Mapping[str, Any]) -> list[str]:
        """Which of them are missing, and how to get them."""
        return [
            f"package {DISTRIBUTIONS[module]} (pip install 'osgym-host[osworld]')"
            for module in self.modules
            if not is_there(module)
        ]


def needs(*modules: str) -> Needed:
    """For a metric's ``unsupported``: the libraries that it needs."""
    assert set(modules) <= DISTRIBUTIONS.keys()
    return Needed(modules)
