"""OSWorld's own metrics, one module at a time, to compare ours with.

The package desktop-env is installed without its dependencies, which are gigabytes. What a module imports
and the compared functions do not use is replaced while it is loaded.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from pathlib import Path
from unittest import mock

import pytest


def load(module: str, *, without: tuple[str, ...] = ()) -> types.ModuleType:
    """``desktop_env.evaluators.metrics.<module>``; skips when it is not installed.

    Args:
        without: Modules that are replaced by empty ones, each under its full name.
    """
    found = importlib.util.find_spec("desktop_env")
    if found is None or found.submodule_search_locations is None:
        pytest.skip("missing: desktop-env")
    root = Path(next(iter(found.submodule_search_locations)))
    packages = {
        name: types.ModuleType(name)
        for name in ("desktop_env", "desktop_env.evaluators", "desktop_env.evaluators.metrics")
    }
    for name, package in packages.items():
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    replaced = {name: mock.MagicMock(name=name) for name in without}
    with mock.patch.dict(sys.modules, {**packages, **replaced}):
        return importlib.import_module(f"desktop_env.evaluators.metrics.{module}")
