"""A result's programs under a task's test: scored in the confined evaluator, run nowhere else."""

# ruff: noqa: ASYNC240 -- the only task of a test blocks nobody

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from osgym_host.tasks import sandbox as sandboxes
from osgym_host.tasks.evaluator.inputs import InputFile, NotHere
from osgym_host.tasks.evaluator.metrics import METRICS
from osgym_host.tasks.evaluator.registry import MetricEnd
from osgym_host.tasks.sandbox import MetricFailed, MetricJob, MetricVerdict, Sandbox
from osgym_host.tasks.values import NamedFile, Value

FUNC = "check_python_file_by_test_suite"
SUITE = """
import random, unittest
from snake import Snake
import food

class Moves(unittest.TestCase):
    def test_it(self):
        self.assertEqual(Snake().moved(1, 0), (1, 0))

def test():
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Moves)
    return unittest.TextTestRunner().run(suite).wasSuccessful() and food.AT == (3, 3)
"""
SNAKE = "class Snake:\n    def moved(self, x, y):\n        return x, y\n"


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A confined evaluator that can hold programs."""
    async with Sandbox() as value:
        if not {"namespaces", "seccomp"} <= set(await value.confinement()):
            pytest.skip("missing: user namespaces or seccomp, for programs of a result")
        yield value


def job(folder: Path, suite: str, *, timeout_s: float = 60, cpu_s: float = 5, **programs: str) -> MetricJob:
    """The job of a test suite, over programs named by their modules."""
    (folder / "suite").write_text(suite)
    files = []
    for name, text in programs.items():
        (folder / name).write_text(text)
        files.append(NamedFile(folder / name, f"{name}.py"))
    expected = Value(files=(NamedFile(folder / "suite", "test_suite.py"),))
    return MetricJob(FUNC, Value(files=tuple(files), many=True), expected, {}, timeout_s, cpu_s=cpu_s)


async def scored(sandbox: Sandbox, folder: Path, suite: str, **programs: str) -> MetricVerdict:
    """The verdict on programs."""
    return await sandbox.run(job(folder, suite, **programs))


async def test_programs_are_tested(sandbox: Sandbox, tmp_path: Path) -> None:
    """Two files that a unit test imports, right and wrong; what they raise is a wrong result."""
    right = await scored(sandbox, tmp_path, SUITE, snake=SNAKE, food="AT = 3, 3")
    assert (right.score, right.note) == (1.0, "")
    for wrong in ("AT = 4, 3", "raise SystemExit(0)", "AT = (", "import no_such_module", "1 / 0"):
        verdict = await scored(sandbox, tmp_path, SUITE, snake=SNAKE, food=wrong)
        assert verdict.score == 0 and verdict.note, wrong
    for given, score in (("0.25", 0.25), ("7", 1.0), ("-1", 0.0), ("'yes'", 1.0), ("float('nan')", 0.0)):
        suite = f"def test():\n    return {given}\n"
        assert (await scored(sandbox, tmp_path, suite, a="")).score == score


async def test_what_a_program_says_can_be_passed_on(sandbox: Sandbox, tmp_path: Path) -> None:
    """Half a surrogate pair in it is replaced: it would be a fault of the host when it answers its client."""
    verdict = await scored(
        sandbox, tmp_path, "import a\ndef test(): return True", a="raise ValueError('\\ud800!')"
    )
    assert (verdict.score, verdict.note) == (0.0, "ValueError: ?!")


async def test_a_wrong_suite_is_the_tasks_fault(sandbox: Sandbox, tmp_path: Path) -> None:
    """No Python, no such function: no reward, whatever the program is."""
    for suite, said in (("def test(:", "no Python"), ("def other(): pass", "it has no function test")):
        with pytest.raises(MetricFailed, match=said) as caught:
            await scored(sandbox, tmp_path, suite, a="")
        assert caught.value.end is MetricEnd.EXPECTED


ATTACKS = {
    "a file": "open('/etc/passwd')",
    "a new file": "open('/tmp/mine', 'w')",
    "a folder": "import os; os.listdir('/')",
    "a process": "import subprocess; subprocess.run(['/bin/true'])",
    "a fork": "import os; os.fork()",
    "a thread": "import threading; threading.Thread(target=print).start()",
    "the network": "import socket; socket.create_connection(('127.0.0.1', 1))",
    "a signal": "import os; os.kill(1, 9)",
    "the kernel": "import ctypes; assert ctypes.CDLL(None).syscall(165, 0, 0, 0, 0, 0) == 0",  # mount
}


@pytest.mark.parametrize("what", ATTACKS)
async def test_a_program_reaches_nothing(sandbox: Sandbox, tmp_path: Path, what: str) -> None:
    """Each attempt fails inside, and its end says that it was the program's."""
    verdict = await scored(sandbox, tmp_path, "import a\ndef test(): return True", a=ATTACKS[what])
    assert verdict.score == 0 and verdict.note, what
    assert not os.path.exists("/tmp/mine")


async def test_a_program_that_waits_or_works_for_ever(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told from a slow host, so that it can earn 0 and no failure of ours; also where it resists."""
    monkeypatch.setattr(sandboxes, "PROGRAM_S", 1.0)
    suite = "import a\ndef test(): return True"
    calls_off = "import signal; signal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
    for program, end in (
        ("import time; time.sleep(99)", MetricEnd.PROGRAM_TIME),
        (calls_off + "import time\nwhile True:\n    time.sleep(1)", MetricEnd.PROGRAM_TIME),
        ("while True: pass", MetricEnd.PROGRAM_TIME),
        ("import os; os._exit(0)", MetricEnd.CRASHED),
        ("a = bytearray(1 << 40)", MetricEnd.OUT_OF_MEMORY),
    ):
        with pytest.raises(MetricFailed) as caught:
            await scored(sandbox, tmp_path, suite, a=program)
        assert caught.value.end is end, program
    assert (await scored(sandbox, tmp_path, suite, a="")).score == 1  # the evaluator goes on


def test_nothing_runs_outside_of_the_confined_evaluator(tmp_path: Path) -> None:
    """The metric refuses in any other process, before it has read a line of the program."""
    path = tmp_path / "a.py"
    path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    fd = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(NotHere, match="namespaces and seccomp"):
            METRICS[FUNC].function(InputFile(fd, "a.py", "result"), InputFile(fd, "a.py", "expected"))
    finally:
        os.close(fd)
    assert not (tmp_path / "ran").exists()
