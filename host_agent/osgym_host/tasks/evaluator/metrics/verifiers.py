"""Metric that runs a verifier of another task set, a Python function, in a confined process only."""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from osgym_host.tasks.evaluator import confine
from osgym_host.tasks.evaluator.inputs import Argument, InputFile, Unreadable, rules_of
from osgym_host.tasks.evaluator.program.memory_files import TEMPORARY, MemoryFiles
from osgym_host.tasks.evaluator.program.served import GivenFiles
from osgym_host.tasks.evaluator.program.verifier_source import (
    LIBRARY,
    PACKAGES,
    VerifierUnreadable,
    function_of,
    needed_modules,
    parse_verifier,
)
from osgym_host.tasks.evaluator.registry import Score, is_installed, metric

_MODULE = "verifier"
_EMPTY_TRAJECTORY: Mapping[str, Any] = {"steps": [], "frames": [], "episode_dir": TEMPORARY}
_PERCENT = 100.0


@metric(runs_program=True)
def check_by_verifier(result: Argument, expected: Argument, passed_only: bool = False) -> Score:
    """Score that the Python function ``rules.function`` of ``rules.verifier`` gives to copies of the files.

    The function runs in a process without files, network or other processes, and reads its copies from
    memory. Its parameters are filled by their names: ``files`` (bytes by path), ``env_info`` (with
    ``copy_from_env``), ``task_info`` or ``task`` (``rules.task``), ``traj`` (empty). It returns a bool, a
    number, or an object with ``passed``, ``score`` and ``feedback``; with ``passed_only``, only ``passed``
    counts.
    """
    confine.program_fd()
    rules = rules_of(expected)
    source, name = str(rules["verifier"]), str(rules["function"])
    modules = {str(key): str(text) for key, text in rules.get("modules", {}).items()}
    _check(source, name, modules)
    files = {file.name: file.data() for file in _given(result)}
    memory = MemoryFiles(files)
    with memory.installed():
        function = _loaded(source, name, modules)
        arguments = _arguments(function, memory, files, rules.get("task", {}))
        try:
            got = function(*arguments)
        except MemoryError:
            raise
        except BaseException as error:  # noqa: BLE001 - SystemExit too
            return Score(0.0, f"the verifier failed: {type(error).__name__}: {error}")
    return _score_of(got, passed_only)


def _given(result: Argument) -> list[InputFile]:
    given = result if isinstance(result, list) else [result]
    return [file for file in given if isinstance(file, InputFile)]


def _check(source: str, name: str, modules: Mapping[str, str]) -> None:
    """Check that the function is there and that every module it needs can be imported.

    Raises:
        Unreadable: The task is wrong, or the host lacks a package.
    """
    try:
        tree = parse_verifier(source, f"{_MODULE}.py")
        function_of(tree, name)
    except VerifierUnreadable as error:
        raise Unreadable("expected", str(error)) from None
    for module in needed_modules(tree):
        if module not in modules and module not in sys.modules:
            raise Unreadable("expected", f"the verifier imports {module}, which is not available here")


def _loaded(source: str, name: str, modules: Mapping[str, str]) -> Callable[..., object]:
    """Run the module's body, which sees no result yet, and return its function.

    Raises:
        Unreadable: The body raised an error.
    """
    sys.meta_path.insert(0, GivenFiles(modules))
    module = ModuleType(_MODULE)
    module.__file__ = f"/{_MODULE}.py"
    sys.modules[_MODULE] = module
    try:
        exec(compile(source, module.__file__, "exec"), module.__dict__)  # noqa: S102 - the task's, and confined
        function: Callable[..., object] = getattr(module, name)
    except MemoryError:
        raise
    except BaseException as error:
        raise Unreadable(
            "expected", f"the verifier cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    return function


def _arguments(
    function: Callable[..., object], memory: MemoryFiles, files: Mapping[str, bytes], task: object
) -> list[object]:
    """Return the arguments of the function, by the names of its parameters, else by their number."""

    def copy_from_env(source: str, target: str) -> None:
        memory.put(target, memory.read(source))

    env_info = {
        "copy_from_env": copy_from_env,
        "files": {path: path for path in files},
        "episode_dir": TEMPORARY,
    }
    trajectory = dict(_EMPTY_TRAJECTORY)
    by_name = {
        "traj": trajectory,
        "trajectory": trajectory,
        "env_info": env_info,
        "env": env_info,
        "files": dict(files),
        "task_info": task,
        "task": task,
    }
    parameters = [
        p for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    by_place = [trajectory, env_info, task] if len(parameters) == 3 else [env_info, task]
    known = [p for p in parameters if p.default is p.empty or p.name in by_name]
    return [by_name.get(p.name, by_place[min(at, len(by_place) - 1)]) for at, p in enumerate(known)]


def _score_of(got: Any, passed_only: bool) -> Score:
    """Return the score of what a verifier returned.

    A number above 1 is in percent. Beside ``passed: false`` every number is in percent: one point of a
    hundred would else count as a full reward.
    """
    note, passed = "", None
    if isinstance(got, dict):
        note, passed = str(got.get("feedback", "")), got.get("passed")
        if "score" not in got or (passed_only and passed is not None):
            return Score(float(passed is True), note or f"passed: {passed}")
        got = got["score"]
    if not isinstance(got, bool | int | float) or not math.isfinite(got):
        return Score(0.0, note or f"the verifier returned no score: {str(got)[:200]}")
    in_percent = got > 1 or (passed is False and not isinstance(got, bool))
    return Score(min(1.0, max(0.0, float(got) / (_PERCENT if in_percent else 1.0))), note)


def warm_up() -> None:
    """Import the modules that verifiers may import."""
    for name in (*LIBRARY, *(name for name in PACKAGES if is_installed(name))):
        importlib.import_module(name)
