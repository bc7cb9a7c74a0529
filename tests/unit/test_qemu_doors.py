"""What other parts may call of a room of the qemu runtime is said at its door, and nowhere else."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import osgym_host

HOST = Path(osgym_host.__file__).parent
QEMU = "osgym_host.runtimes.qemu"
ROOMS = sorted(path.parent.name for path in (HOST / "runtimes/qemu").glob("*/__init__.py"))


def imports_from(room: str) -> Iterator[tuple[Path, str, list[str]]]:
    """Each import of a room, or of a module in it, in a file outside of it."""
    for path in sorted(HOST.rglob("*.py")):
        if path.is_relative_to(HOST / "runtimes/qemu" / room):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.ImportFrom(module=str(module)) if f"{module}.".startswith(f"{QEMU}.{room}."):
                    yield path, module, [alias.name for alias in node.names]
                case ast.Import():
                    for alias in node.names:
                        if f"{alias.name}.".startswith(f"{QEMU}.{room}."):
                            yield path, f"{alias.name}.*", []


@pytest.mark.parametrize("room", ROOMS)
def test_nobody_reaches_past_a_door(room: str) -> None:
    """Others import from the room itself, and only what it names."""
    offered = set(importlib.import_module(f"{QEMU}.{room}").__all__)
    used: set[str] = set()
    for path, module, names in imports_from(room):
        assert module == f"{QEMU}.{room}", f"{path} reaches past the door of {room}: {module}"
        assert set(names) <= offered, f"{path}: {set(names) - offered} of {room} is not offered"
        used |= set(names)
    assert used, "a room that nobody calls"


def test_rooms_are_found() -> None:
    """The test above looks at something."""
    assert {"machine", "cloning", "branching", "network", "runner"} <= set(ROOMS)
