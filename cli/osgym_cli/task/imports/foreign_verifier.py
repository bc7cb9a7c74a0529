"""A verifier of Gym-Anything as its source shows it: its function, helpers, files, and what it lacks here.

Nothing is run. The files are those that the source, or the task's metadata, names by absolute paths.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from osgym_cli.task.imports.source import SourceError, SourceFolder
from osgym_cli.task.imports.staging import text_parameter
from osgym_host.tasks.evaluator.program.verifier_source import (
    LIBRARY,
    PACKAGES,
    VerifierUnreadable,
    function_of,
    named_paths,
    needed_modules,
    parse_verifier,
    paths_among,
)
from osgym_host.tasks.getters import MAX_FILES

_PROVIDED = frozenset({"copy_from_env", "env_id", "episode_dir", "files"})
"""Keys of ``env_info`` that the confined evaluator fills."""
_MAX_HELPERS = 20


@dataclass(frozen=True, slots=True)
class ForeignVerifier:
    """A verifier that the confined evaluator can run.

    Attributes:
        path: Path of its file in the original's desktop, where it must never be.
        modules: Sources of its helper modules, by name.
        paths: Files of the desktop that it may ask for.
        missing: Names of what it asks for and does not get.
    """

    path: str
    source: str = field(repr=False)
    function: str
    modules: Mapping[str, str] = field(repr=False)
    paths: tuple[str, ...]
    missing: tuple[str, ...]


def read_verifier(
    source: SourceFolder, place: str, home: str, original: Mapping[str, Any]
) -> ForeignVerifier:
    """Read the verifier of a task.

    Args:
        place: Folder of the task.
        home: Folder of its environment, where helper modules may lie.

    Raises:
        SourceError: The task is scored in another way, or the verifier cannot be read.
    """
    program, function = _program(original)
    text = source.text(f"{place}/{program}")
    try:
        tree = parse_verifier(text, program)
        definition = function_of(tree, function)
    except VerifierUnreadable as error:
        raise SourceError(str(error)) from None
    modules, trees, missing = _helpers(source, tree, (place, str(PurePosixPath(place).parent), home))
    metadata = list(_texts(original.get("metadata")))
    paths = [*(path for one in (tree, *trees) for path in named_paths(one)), *paths_among(iter(metadata))]
    paths = list(dict.fromkeys(paths))
    if len(paths) > MAX_FILES:
        missing.append(f"{len(paths) - MAX_FILES} of the files that the verifier names")
    missing += [
        f"env_info.{key} of the verifier" for key in _env_keys((tree, *trees)) if key not in _PROVIDED
    ]
    if _reads_trajectory(definition):
        missing.append("the trajectory, which the verifier reads")
    where = f"/workspace/tasks/{PurePosixPath(place).name}/{program}"
    return ForeignVerifier(where, text, function, modules, tuple(paths[:MAX_FILES]), tuple(missing))


def _program(original: Mapping[str, Any]) -> tuple[str, str]:
    success = original.get("success")
    success = success if isinstance(success, dict) else {}
    spec = success.get("spec")
    if (mode := success.get("mode", "program")) != "program":
        raise SourceError(f"it is scored by {str(mode)[:80]!r}, not by a program")
    text = text_parameter(spec.get("program") if isinstance(spec, dict) else None, "success.spec.program")
    program, _, function = text.partition("::")
    if PurePosixPath(program).suffix != ".py" or not function.isidentifier():
        raise SourceError(f"success.spec.program must be FILE.py::FUNCTION, not {text[:100]!r}")
    return program, function


def _helpers(
    source: SourceFolder, tree: ast.Module, folders: tuple[str, ...]
) -> tuple[dict[str, str], list[ast.Module], list[str]]:
    """Return the helper modules by name, their trees, and the names of modules that are missing."""
    modules: dict[str, str] = {}
    trees: list[ast.Module] = []
    missing: list[str] = []
    left = needed_modules(tree)
    while left:
        name = left.pop(0)
        if name in modules or name in LIBRARY or name in PACKAGES or name == "__future__":
            continue
        path = next(
            (p for p in (f"{one}/{name}.py" for one in folders) if name.isidentifier() and source.has(p)),
            None,
        )
        if path is None or len(modules) >= _MAX_HELPERS:
            missing.append(f"module {name} of the verifier")
            continue
        modules[name] = source.text(path)
        try:
            trees.append(parse_verifier(modules[name], path))
        except VerifierUnreadable as error:
            raise SourceError(str(error)) from None
        left += needed_modules(trees[-1])
    return modules, trees, list(dict.fromkeys(missing))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(inner)


def _env_keys(trees: tuple[ast.Module, ...]) -> list[str]:
    """Return the keys of ``env_info`` that the sources read."""
    found: dict[str, None] = {}
    for node in (node for tree in trees for node in ast.walk(tree)):
        match node:
            case (
                ast.Call(
                    func=ast.Attribute(value=ast.Name(id="env_info"), attr="get"),
                    args=[ast.Constant(value=key), *_],
                )
                | ast.Subscript(value=ast.Name(id="env_info"), slice=ast.Constant(value=key))
            ):
                found[str(key)] = None
    return list(found)


def _reads_trajectory(function: ast.FunctionDef) -> bool:
    names = (node for part in function.body for node in ast.walk(part) if isinstance(node, ast.Name))
    return any(name.id in {"traj", "trajectory"} for name in names)
