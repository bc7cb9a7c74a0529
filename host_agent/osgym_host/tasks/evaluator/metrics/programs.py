"""The metric that runs a program of the result, in a confined process only."""

from __future__ import annotations

import importlib
import io
import math
import sys
import unittest
from collections.abc import Callable
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any

from osgym_host.tasks.evaluator import confine
from osgym_host.tasks.evaluator.inputs import Argument, InputFile, Unreadable, as_file
from osgym_host.tasks.evaluator.program.remote import TEST_MODULE, Program, ProgramModules, plain
from osgym_host.tasks.evaluator.registry import NeededPackages, Score, differ, is_installed, metric

_PACKAGES = {"numpy": "numpy", "pygame": "pygame"}
"""Packages of OSWorld's own installation that programs of tasks import. A host is checked for them before the
episode begins. An import error of the program itself is no evidence, since the program could forge it."""
_LIBRARY = (
    "argparse", "array", "bisect", "cmath", "collections.abc", "colorsys", "contextlib", "copy",
    "dataclasses", "datetime", "decimal", "difflib", "enum", "fractions", "functools", "hashlib",
    "heapq", "inspect", "io", "itertools", "json", "logging", "math", "numbers", "operator", "os",
    "pathlib", "pprint", "queue", "random", "re", "secrets", "shutil", "statistics", "string",
    "subprocess", "sys", "tempfile", "textwrap", "threading", "time", "traceback", "types", "typing",
    "unittest.mock", "uuid", "warnings", "weakref",
)  # fmt: skip
"""Modules of Python's own library that a result's programs and their tests may import."""


@metric(runs_program=True, unsupported=NeededPackages(_PACKAGES, "osgym-host[osworld]"))
def check_python_file_by_test_suite(
    result: Argument, expected: Argument, test_function_name: str = "test"
) -> Score:
    """Score that a function of the expected Python file gives to the result's files, which it imports.

    The programs run in a process of their own, without files, network or other processes. The test calls
    their functions from here and compares the returned plain values here. A program may therefore notice that
    it is tested and return other values than usual, but it cannot change the test.
    """
    fd = confine.program_fd()
    test = as_file(expected, "expected")
    code = _compiled(test)
    files = [
        file for file in (result if isinstance(result, list) else [result]) if isinstance(file, InputFile)
    ]
    try:
        texts = {PurePosixPath(file.name).stem: file.text() for file in files}
    except Unreadable as error:
        if error.role == "expected":
            raise
        return Score(0.0, str(error))
    module = ModuleType(TEST_MODULE)
    module.__file__ = test.name
    sys.modules[module.__name__] = module
    sys.meta_path.insert(0, ProgramModules(Program(fd, texts), tuple(texts)))
    failed = _failed(lambda: exec(code, module.__dict__))  # noqa: S102 - the test is the task's
    if failed is None and not callable(getattr(module, test_function_name, None)):
        raise test.bad(f"the file has no function {test_function_name}")
    got: list[Any] = []
    failed = failed or _failed(lambda: got.append(plain(getattr(module, test_function_name)())))
    return Score(0.0, failed) if failed is not None else _score_of(got[0])


def _failed(work: Callable[[], object]) -> str | None:
    """Return the error that the test raised, of any kind, as a text; None without one.

    Raises:
        MemoryError: The test used all memory that it may have.
    """
    try:
        work()
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit too
        return f"{type(error).__name__}: {error}"
    return None


def _compiled(test: InputFile) -> Any:
    try:
        return compile(test.text(), test.name, "exec")
    except (SyntaxError, ValueError) as error:
        raise test.bad(f"the file is not valid Python: {error}") from error


def _score_of(got: Any) -> Score:
    """Return the score as OSWorld does: of a number itself, of anything else its truth."""
    value = float(got) if isinstance(got, int | float) else float(bool(got))
    if math.isnan(value) or value <= 0:
        return differ("the test", got, True)
    return Score(min(1.0, value))


def warm_up() -> None:
    """Import the modules that programs may import."""
    for name in (*_LIBRARY, *filter(is_installed, _PACKAGES)):
        importlib.import_module(name)
    unittest.TextTestRunner(stream=io.StringIO()).run(unittest.TestSuite())
