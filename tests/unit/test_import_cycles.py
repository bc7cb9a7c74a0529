"""No distribution imports in a circle, so that each module can be read, and loaded, after those it uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "osgym_protocol": "protocol/osgym_protocol",
    "osgym_sdk": "sdk/osgym_sdk",
    "osgym_guest": "guest_agent/osgym_guest",
    "osgym_host": "host_agent/osgym_host",
    "osgym_qemu": "qemu/osgym_qemu",
    "osgym_cli": "cli/osgym_cli",
    "osgym_infra": "infra/osgym_infra",
    "osgym_osworld": "osworld/osgym_osworld",
    "osgym_tasks": "tasks/families/osgym_tasks",
    "osgym_certify": "certify/osgym_certify",
}


def _modules(package: str, folder: Path) -> dict[str, Path]:
    found = {}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        name = ".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))
        found[name] = path
    return found


def _targets(node: ast.Import | ast.ImportFrom, module: str, is_package: bool) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = node.module or ""
    if node.level:
        parents = module.split(".")
        kept = parents[: len(parents) - node.level + is_package]
        base = ".".join([*kept, base] if base else kept)
    for alias in node.names:
        yield f"{base}.{alias.name}"
        yield base


def import_graph(package: str, folder: Path) -> dict[str, set[str]]:
    """Which modules of a package each of them imports, annotations and functions included.

    A package's own ``__init__`` counts where something is taken from it, not where a module beside it is.
    """
    modules = _modules(package, folder)
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        used = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                named = list(_targets(node, name, path.name == "__init__.py"))
                if isinstance(node, ast.Import):
                    used.update(target for target in named if target in modules)
                else:
                    pairs = zip(named[::2], named[1::2], strict=True)
                    used.update(full if full in modules else base for full, base in pairs)
        graph[name] = {target for target in used if target in modules and target != name}
    return graph


def _cycle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        return list(exc.args[1])
    return []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_distribution_imports_in_a_circle(package: str) -> None:
    """Neither at run time nor for type checkers."""
    graph = import_graph(package, ROOT / PACKAGES[package])
    assert len(graph) > 1
    assert _cycle(graph) == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    """Also one that is closed by an annotation, or inside a function."""
    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "a.py").write_text("from p import b\n")
    (tmp_path / "b.py").write_text("def f():\n    from .c import x\n")
    (tmp_path / "c.py").write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import p.a\nx = 1\n"
    )
    assert set(_cycle(import_graph("p", tmp_path))) == {"p.a", "p.b", "p.c"}


@pytest.mark.parametrize("folder", ["benchmarks", "examples", "images", "scripts", "tests"])
def test_what_nobody_type_checks_imports_names_that_exist(folder: str) -> None:
    """A name that was renamed in a distribution is not left behind in a benchmark or a slow test."""
    sources = {
        name: path.read_text("utf-8")
        for package, place in PACKAGES.items()
        for name, path in _modules(package, ROOT / place).items()
    }
    missing = [
        f"{path.relative_to(ROOT)}: {node.module}.{alias.name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES
        for alias in node.names
        if f"{node.module}.{alias.name}" not in sources
        and not re.search(rf"\b{alias.name}\b", sources.get(node.module or "", ""))
        and not f"{node.module}.{alias.name}".startswith("osgym_guest._native")  # written in C
    ]
    assert missing == []
