"""Processes of pytest that share a list of test files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Tests that note that they ran, one of which waits until both processes are there.
CONFTEST = """
import os, pathlib, time, pytest

HERE = pathlib.Path(__file__).parent

@pytest.fixture(autouse=True, scope="session")
def both():
    (HERE / f"started-{os.getpid()}").touch()
    deadline = time.monotonic() + 60
    while len(list(HERE.glob("started-*"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield
    (HERE / f"ended-{os.getpid()}").touch()

@pytest.fixture
def ran(request):
    with (HERE / "ran").open("a") as file:
        file.write(f"{request.node.name} {os.getpid()}\\n")
"""
FILES, TESTS = 12, 3


def start(folder: Path) -> subprocess.Popen[str]:
    plugins = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "tests.support.shared_files")
    folders = ("--taken", str(folder.parent / "taken"), "--rootdir", str(folder), str(folder))
    argv = (sys.executable, "-m", "pytest", *plugins, *folders)
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_each_file_is_run_once_and_each_process_ends_its_fixtures(tmp_path: Path) -> None:
    """Two processes run all tests once together, each file in one of them, which fails if a test fails."""
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "conftest.py").write_text(CONFTEST)
    names = [f"test_{number}_{test}" for number in range(FILES) for test in range(TESTS)]
    for name in names:
        with (folder / f"{name[:-2]}.py").open("a") as file:
            file.write(f"def {name}(ran): assert {name != 'test_0_0'}\n")
    processes = [start(folder), start(folder)]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert sorted(process.returncode for process in processes) == [0, 1], outputs
    ran = [line.split() for line in (folder / "ran").read_text().splitlines()]
    assert sorted(name for name, _ in ran) == sorted(names), outputs
    by_file = {(name.split("_")[1], process) for name, process in ran}
    assert len(by_file) == FILES
    assert {process for _, process in by_file} == {str(process.pid) for process in processes}, outputs
    assert len(list(folder.glob("ended-*"))) == 2
    assert all("slowest 25 files" in output for output in outputs)
