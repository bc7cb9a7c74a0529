"""Pytest plugin: processes share a list of test files, so that all end at about the same time.

Start `pytest -p tests.support.shared_files --taken FOLDER FILE…` several times with the same folder. The
process that comes to a file first takes it, and the others pass it over. Each names its slowest files.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

# Number of files that are named at the end.
SLOWEST = 25


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--taken`."""
    parser.addoption("--taken", type=Path, help="folder that names the test files that a process has taken")


def pytest_configure(config: pytest.Config) -> None:
    """Share the files if there is a folder for it."""
    folder: Path | None = config.option.taken
    if folder is not None:
        folder.mkdir(exist_ok=True)
        config.pluginmanager.register(SharedFiles(folder, config.rootpath))


class SharedFiles:
    """Replaces pytest's loop over all tests by one over those in files that this process takes."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder = folder
        self._root = root
        self._mine: dict[Path, bool] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests of one file after the other until all files are taken.

        The next file is taken before the last test of a file, so that fixtures of the session stay set up.
        """
        if session.testsfailed or session.config.option.collectonly:
            return None
        tests = self._tests(session.items)
        test = next(tests, None)
        while test is not None:
            following = next(tests, None)
            test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
            test = following
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a test's time, or that of its fixtures, to the time of its file."""
        self._seconds[report.location[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the slowest files."""
        terminalreporter.section(f"slowest {SLOWEST} files")
        for file in sorted(self._seconds, key=self._seconds.__getitem__, reverse=True)[:SLOWEST]:
            terminalreporter.write_line(f"{self._seconds[file]:.1f}s {file}")

    def _tests(self, collected: list[pytest.Item]) -> Iterator[pytest.Item]:
        for test in collected:
            if test.path not in self._mine:
                self._mine[test.path] = self._take(test.path)
            if self._mine[test.path]:
                yield test

    def _take(self, file: Path) -> bool:
        name = str(file.relative_to(self._root)).replace("/", "+")
        try:
            os.close(os.open(self._folder / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True
