"""The libraries of the extra ``osworld``, which some metrics need and a host may go without.

They are loaded by `warm_up.warm_up` before the evaluator shuts itself in.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
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
    "pypdf": "pypdf",
    "yaml": "PyYAML",
}
"""Distributions by the name that is imported."""


@cache
def is_there(module: str) -> bool:
    """Whether a library is installed; it is not imported."""
    return importlib.util.find_spec(module) is not None


def needs(*modules: str) -> Callable[[Mapping[str, Any]], list[str]]:
    """For a metric's ``unsupported``: which of these libraries are missing, and how to get them."""
    assert set(modules) <= DISTRIBUTIONS.keys()

    def missing(options: Mapping[str, Any]) -> list[str]:
        return [
            f"package {DISTRIBUTIONS[module]} (pip install 'osgym-host[osworld]')"
            for module in modules
            if not is_there(module)
        ]

    return missing
