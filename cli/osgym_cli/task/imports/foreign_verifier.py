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

_PROVIDED = frozenset({"copy_from_env", "env_id", "episode_dir", "files", "query_vlm"})
"""Keys of ``env_info`` that the confined evaluator fills, and the one that is named as a vision model."""
_MAX_HELPERS = 20
_VISION = "gym_anything"
NO_VISION: Mapping[str, str] = {
    _VISION: "__path__ = []\n",
    f"{_VISION}.vlm": (
        "def sample_trajectory_frames(*arguments, **named):\n    return []\n"
        "def query_vlm(*arguments, **named):\n    return {'success': False, 'error': 'no vision model'}\n"
        "def __getattr__(name):\n    return lambda *arguments, **named: None\n"
    ),
}
"""Stand-ins for the set's module of vision models: they see nothing, so the other points are scored."""


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
        SourceError: The task is scored in another way, or the verifier cannot be read or loaded here.
    """
    program, function = _program(original)
    text = source.text(f"{place}/{program}")
    try:
        tree = parse_verifier(text, program)
        definition = function_of(tree, function)
    except VerifierUnreadable as error:
        raise SourceError(str(error)) from None
    if not _names_read(definition) & {argument.arg for argument in definition.args.args}:
        raise SourceError("its verifier looks at nothing of the desktop: it is a placeholder")
    modules, trees = _helpers(source, tree, (place, str(PurePosixPath(place).parent), home))
    missing: list[str] = []
    if any(_asks_vision(one) for one in (tree, *trees)):
        modules |= NO_VISION
        missing.append("a vision model, which the verifier asks")
    metadata = list(_texts(original.get("metadata")))
    paths = [*(path for one in (tree, *trees) for path in named_paths(one)), *paths_among(iter(metadata))]
    paths = list(dict.fromkeys(paths))
    if len(paths) > MAX_FILES:
        missing.append(f"{len(paths) - MAX_FILES} of the files that the verifier names")
    missing += [
        f"env_info.{key} of the verifier" for key in _env_keys((tree, *trees)) if key not in _PROVIDED
    ]
    if _names_read(definition) & {"traj", "trajectory"}:
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
) -> tuple[dict[str, str], list[ast.Module]]:
    """Return the helper modules by name, and their trees.

    Raises:
        SourceError: A module is neither beside the verifier nor available in the evaluator.
    """
    modules: dict[str, str] = {}
    trees: list[ast.Module] = []
    left = needed_modules(tree)
    while left:
        name = left.pop(0)
        known = name in modules or name in LIBRARY or name in PACKAGES or name == "__future__"
        if known or name.partition(".")[0] == _VISION:
            continue
        paths = (f"{folder}/{name}.py" for folder in folders if name.isidentifier())
        path = next((path for path in paths if source.has(path)), None)
        if path is None or len(modules) >= _MAX_HELPERS:
            raise SourceError(f"its verifier needs the module {name[:80]}, which the evaluator does not have")
        modules[name] = source.text(path)
        try:
            trees.append(parse_verifier(modules[name], path))
        except VerifierUnreadable as error:
            raise SourceError(str(error)) from None
        left += needed_modules(trees[-1])
    return modules, trees


def _asks_vision(tree: ast.Module) -> bool:
    """Return whether a source imports the set's module of vision models, or reads ``query_vlm``."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(name.partition(".")[0] == _VISION for name in names):
            return True
        if isinstance(node, ast.Constant) and node.value == "query_vlm":
            return True
    return False


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


def _names_read(function: ast.FunctionDef) -> set[str]:
    return {node.id for part in function.body for node in ast.walk(part) if isinstance(node, ast.Name)}
