"""Metrics that run what the result brings: confined, or not at all."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any

from osgym_host.tasks.evaluator import confine
from osgym_host.tasks.evaluator.inputs import Argument, InputFile, NotHere, Unreadable, as_file
from osgym_host.tasks.evaluator.packages import is_there
from osgym_host.tasks.evaluator.registry import Score, differ, metric

OF_THE_HOST = ("pygame", "numpy")
"""What programs of tasks import that OSWorld's own installation has: without it there is no score."""


@metric(runs_program=True)
def check_python_file_by_test_suite(
    result: Argument, expected: Argument, test_function_name: str = "test"
) -> Score:
    """What a function of the expected Python file returns, true or 0 to 1; it imports the result's files.

    They run in this process, with no other file, no network and no other process. So a program can tell
    that it is tested, and lie about itself; it can do nothing to anybody else.
    """
    if not confine.holds_programs():
        raise NotHere("programs run behind user namespaces and seccomp only, which this machine lacks")
    test = as_file(expected, "expected")
    code = _compiled(test)
    files = result if isinstance(result, list) else [result]
    named = {PurePosixPath(file.name).stem: file for file in files if isinstance(file, InputFile)}
    sys.meta_path.insert(0, _Given(named))
    module = ModuleType("osgym_test_suite")
    module.__file__ = test.name
    sys.modules[module.__name__] = module
    failed = _failed(lambda: exec(code, module.__dict__))  # noqa: S102 - in a process that is shut in
    if failed is None and not callable(getattr(module, test_function_name, None)):
        raise test.bad(f"it has no function {test_function_name}")
    got: list[Any] = []
    failed = failed or _failed(lambda: got.append(getattr(module, test_function_name)()))
    return Score(0.0, failed) if failed is not None else _score_of(got[0])


def _failed(work: Callable[[], object]) -> str | None:
    """Return what programs raised, whatever it is.

    Raises:
        NotHere: they need a package of the host that it has not.
        MemoryError: they took all.
    """
    try:
        work()
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit too
        lacks = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        if lacks in OF_THE_HOST and not is_there(lacks):
            raise NotHere(f"programs need {lacks} on this host (pip install {lacks})") from None
        return f"{type(error).__name__}: {error}"
    return None


def _compiled(test: InputFile) -> Any:
    try:
        return compile(test.text(), test.name, "exec")
    except (SyntaxError, ValueError) as error:
        raise test.bad(f"no Python: {error}") from error


def _score_of(got: Any) -> Score:
    """As OSWorld has it: numbers are scores, anything else is true or not."""
    value = float(got) if isinstance(got, int | float) else float(bool(got))
    if math.isnan(value) or value <= 0:
        return differ("the test", got, True)
    return Score(min(1.0, value))


class _Given(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports modules from a result's files: there is no folder to import from."""

    def __init__(self, files: Mapping[str, InputFile]) -> None:
        self._files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a module that is one of the files."""
        if fullname not in self._files:
            return None
        return importlib.util.spec_from_loader(fullname, self, origin=self._files[fullname].name)

    def exec_module(self, module: ModuleType) -> None:
        """Run the file."""
        file = self._files[module.__name__]
        module.__file__ = file.name
        try:
            text = file.text()
        except Unreadable as error:
            raise ImportError(str(error)) from error
        exec(compile(text, file.name, "exec"), module.__dict__)  # noqa: S102 - the process is shut in
