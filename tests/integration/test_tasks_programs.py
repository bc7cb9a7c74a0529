"""A result's programs under a task's test: scored in the confined evaluator, run nowhere else."""

# ruff: noqa: ASYNC240 -- the only task of a test blocks nobody

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.host_process import wait_until

from osgym_host.tasks import sandbox as sandboxes
from osgym_host.tasks.evaluator.confine import ConfineError
from osgym_host.tasks.evaluator.inputs import InputFile
from osgym_host.tasks.evaluator.registry import METRICS, MetricEnd
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
        assert (await scored(sandbox, tmp_path, suite, a="A = 1")).score == score


async def test_what_a_program_says_can_be_passed_on(sandbox: Sandbox, tmp_path: Path) -> None:
    """Half a surrogate pair in it is replaced: it would be a fault of the host when it answers its client."""
    verdict = await scored(
        sandbox, tmp_path, "import a\ndef test(): return True", a="raise ValueError('\\ud800!')"
    )
    assert (verdict.score, verdict.note) == (0.0, "ValueError: ?!")


async def test_a_wrong_suite_is_the_tasks_fault(sandbox: Sandbox, tmp_path: Path) -> None:
    """No Python, no such function: no reward, whatever the program is."""
    for suite, said in (
        ("def test(:", "not valid Python"),
        ("def other(): pass", "the file has no function test"),
    ):
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
    for program in (
        "import time; time.sleep(99)",
        calls_off + "import time\nwhile True:\n    time.sleep(1)",
        "while True: pass",
    ):
        with pytest.raises(MetricFailed) as caught:
            await scored(sandbox, tmp_path, suite, a=program)
        assert caught.value.end is MetricEnd.PROGRAM_TIME, program
    verdict = await scored(sandbox, tmp_path, suite, a="a = bytearray(1 << 40)")
    assert (verdict.score, verdict.note.partition(":")[0]) == (0, "MemoryError")  # one of its own name
    assert (await scored(sandbox, tmp_path, suite, a="A = 1")).score == 1  # the evaluator goes on


FORGED = """
import json, os
said = json.dumps({verdict}).encode()
for fd in range(256):
    for data in (said, len(said).to_bytes(4, 'big') + said):
        try:
            os.write(fd, data)
        except OSError:
            pass
os._exit(0)
"""
ALWAYS = """
class {name}({base}):
    def always(self, *_):
        return True
    __eq__ = __lt__ = __gt__ = __ge__ = __le__ = always
    __bool__ = always
    def __ne__(self, other):
        return False
    def nothing(self, *_):
        return 0
    __hash__ = __abs__ = __sub__ = __rsub__ = nothing
def add(a, b):
    return {name}()
"""
CHEATS = {
    "os._exit(70)": "import os; os._exit(70)",
    "os._exit(71)": "import os; os._exit(71)",
    "os._exit(109)": "import os; os._exit(109)",
    "os._exit(0) when asked": "import os\ndef add(a, b): os._exit(0)",
    "a module of the host": "raise ModuleNotFoundError('x', name='pygame')",
    "a score of its own": FORGED.format(verdict="{'score': 1.0, 'note': ''}"),
    "a fault of the host": FORGED.format(verdict="{'error': 'host', 'end': 'outside'}"),
    "an answer of its own": FORGED.format(verdict="{'value': 5, 'changed': []}"),
    "equals everything": ALWAYS.format(name="Any", base="object"),
    "a number that equals everything": ALWAYS.format(name="Any", base="int"),
    "a text that equals everything": ALWAYS.format(name="Any", base="str"),
    "a list that equals everything": ALWAYS.format(name="Any", base="list"),
    "raises in its __bool__": "class A:\n    def __eq__(self, o): return self\n    def __bool__(self):"
    " raise MemoryError\ndef add(a, b): return A()",
    "replaces unittest": "import unittest\nunittest.TestCase.assertEqual = lambda *a: None",
    "replaces the test": "import sys\nfor m in list(sys.modules.values()):\n    m.test = lambda: True",
    "takes the caller's frame": "import sys\ndef add(a, b):\n    f = sys._getframe()\n    while f:\n"
    "        f.f_globals['test'] = lambda: 1\n        f = f.f_back",
    "ends an iteration": "def add(a, b): raise StopIteration",
    "memory": "def add(a, b): return 'a' * (1 << 28)",
    "a deep value": "def add(a, b):\n    v = []\n    for _ in range(100000): v = [v]\n    return v",
    "a bug of its own": "def add(a, b): return a - b",
    "signals the test": "import os, signal, ctypes\nctypes.CDLL(None).syscall(234, 1, 1, 9)",
}
SUITES = {
    "compared": "import a\ndef test(): return a.add(2, 3) == 5",
    "unittest": "import a, unittest\nclass T(unittest.TestCase):\n    def test_add(self):\n"
    "        self.assertEqual(a.add(2, 3), 5)\ndef test():\n"
    "    suite = unittest.defaultTestLoader.loadTestsFromTestCase(T)\n"
    "    return unittest.TextTestRunner().run(suite).wasSuccessful()",
    "nearly": "import a\ndef test(): return abs(a.add(2, 3) - 5) < 1",
    "ordered": "import a\ndef test(): return 4 < a.add(2, 3) < 6",
    "all": "import a\ndef test(): return all(map(lambda c: a.add(*c) == sum(c), [(2, 3), (4, 5)]))",
}


@pytest.mark.parametrize("suite", SUITES)
async def test_a_program_decides_nothing_but_what_it_returns(
    sandbox: Sandbox, tmp_path: Path, suite: str
) -> None:
    """Every cheat scores 0 at once, and none counts as a fault of the host or the task."""
    for what, program in CHEATS.items():
        verdict = await scored(sandbox, tmp_path, SUITES[suite], a=program)
        assert verdict.score == 0 and verdict.note, what
    assert (await scored(sandbox, tmp_path, SUITES[suite], a="def add(a, b): return a + b")).score == 1


HONEST = """
import enum, random
from collections import namedtuple
from decimal import Decimal

class Lost(ValueError):
    def __init__(self, text, score):
        super().__init__(text)
        self.score = score

class Colour(enum.IntEnum):
    RED = 1

Point = namedtuple("Point", "x y")

class Snake:
    LENGTH = 3
    def __init__(self):
        self.body, self.seen = [(0, 0)], {}
    def __len__(self):
        return len(self.body)
    def grow(self):
        self.body.append((len(self.body), 0))
        return self
    def die(self):
        raise Lost("over", len(self))
    def __add__(self, other):
        return self.grow()
    def __eq__(self, other):
        return isinstance(other, Snake) and self.body == other.body
    def __enter__(self):
        return self
    def __exit__(self, *error):
        self.seen["left"] = True

def sort(values):
    values.sort()

def called(function):
    return [function(n) for n in range(3)]

def asks():
    print("hello", input("name? "))

def dice():
    return random.randint(1, 6)

def count():
    yield from range(3)

PRICE = Decimal("1.20")
"""
HONEST_SUITE = """
import contextlib, io, unittest, unittest.mock
from decimal import Decimal
import a
from a import *

class Tests(unittest.TestCase):
    def test_objects(self):
        snake = Snake()
        self.assertIsInstance(snake, Snake)
        self.assertIsInstance(snake.body, list)
        self.assertEqual(snake.body, [(0, 0)])
        body = snake.body
        snake.grow().grow()
        self.assertEqual(body, [(0, 0), (1, 0), (2, 0)])
        self.assertEqual(len(snake), 3)
        body.insert(0, (9, 9))
        body[1] = (8, 8)
        self.assertEqual(list(snake.body), [(9, 9), (8, 8), (1, 0), (2, 0)])
        self.assertIn((8, 8), snake.body)
        snake.body = []
        self.assertFalse(snake.body)
        snake + 1
        self.assertEqual(snake, Snake())
        self.assertNotEqual(snake, Snake().grow())
        with snake as entered:
            self.assertIs(entered, snake)
        self.assertEqual(snake.seen, {"left": True})
        self.assertEqual(Snake.LENGTH, 3)
        Snake.LENGTH = 4
        self.assertEqual(Snake().LENGTH, 4)

    def test_errors(self):
        with self.assertRaises(Lost) as caught:
            Snake().die()
        self.assertEqual((str(caught.exception), caught.exception.score), ("over", 1))
        with self.assertRaises(ValueError):
            Snake().die()
        with self.assertRaises(AttributeError):
            a.nothing

    def test_values(self):
        self.assertEqual((Colour.RED, Point(1, 2).y, PRICE), (1, 2, Decimal("1.2")))
        self.assertEqual(Point(1, 2), (1, 2))
        self.assertEqual(list(count()), [0, 1, 2])
        values = [3, 1, 2]
        a.sort(values)
        self.assertEqual(values, [1, 2, 3])

    def test_calls_back(self):
        self.assertEqual(a.called(lambda n: n * n), [0, 1, 4])
        with unittest.mock.patch("builtins.input", return_value="Ada") as asked:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                a.asks()
        self.assertEqual(printed.getvalue(), "hello Ada\\n")
        asked.assert_called_once_with("name? ")
        with unittest.mock.patch("a.random.randint", return_value=4):
            self.assertEqual(a.dice(), 4)

def test():
    out = io.StringIO()
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Tests)
    if not unittest.TextTestRunner(stream=out).run(suite).wasSuccessful():
        raise AssertionError(out.getvalue())
    return True
"""


async def test_a_test_asks_a_program_what_tests_ask(sandbox: Sandbox, tmp_path: Path) -> None:
    """Objects, errors, generators, patches, input and output work across the two processes."""
    verdict = await scored(sandbox, tmp_path, HONEST_SUITE, a=HONEST)
    assert (verdict.score, verdict.note) == (1.0, "")


async def test_no_process_of_a_program_stays(sandbox: Sandbox, tmp_path: Path) -> None:
    """The helper of a tested program ends with it: the zygote has no child left."""
    for program in ("", "import os; os._exit(3)"):
        await scored(sandbox, tmp_path, "import a\ndef test(): return True", a=program)
    assert sandbox._zygote is not None
    children = Path(f"/proc/{sandbox._zygote.process.pid}/task/{sandbox._zygote.process.pid}/children")
    await asyncio.to_thread(wait_until, lambda: not children.read_text().split(), 5, "no child is left")


def test_nothing_runs_outside_of_the_confined_evaluator(tmp_path: Path) -> None:
    """The metric refuses in any other process, before it has read a line of the program."""
    path = tmp_path / "a.py"
    path.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    fd = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(ConfineError, match="namespaces and seccomp"):
            METRICS[FUNC].function(InputFile(fd, "a.py", "result"), InputFile(fd, "a.py", "expected"))
    finally:
        os.close(fd)
    assert not (tmp_path / "ran").exists()
