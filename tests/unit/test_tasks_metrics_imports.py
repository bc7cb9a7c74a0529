"""Modules that metrics import when they are called: the confined evaluator can import nothing any more."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import osgym_host.tasks.evaluator.metrics
import osgym_osworld.metrics

FOLDERS = [Path(one.__path__[0]) for one in (osgym_host.tasks.evaluator.metrics, osgym_osworld.metrics)]
WARM = """
import json, sys
from PIL import Image
from osgym_host.tasks.evaluator.__main__ import warm_up
Image.init()
warm_up()
print(json.dumps(sorted(sys.modules)))
"""


def late_imports(path: Path) -> set[str]:
    """Modules that functions of a file import, by their full names."""
    found = set()
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module == "PIL":
                found |= {f"PIL.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(str(node.module))
    return found


def test_the_evaluator_imports_what_metrics_need_before_it_is_confined() -> None:
    """Each module that a function imports; tests that call metrics themselves would not miss it."""
    done = subprocess.run(
        [sys.executable, "-c", WARM], capture_output=True, text=True, timeout=120, check=True
    )
    warm = set(json.loads(done.stdout.splitlines()[-1]))
    late = {
        (path.name, module)
        for folder in FOLDERS
        for path in folder.glob("*.py")
        for module in late_imports(path)
    }
    assert ("images.py", "PIL.ImageFilter") in late
    assert {one for one in late if one[1] not in warm} == set()
