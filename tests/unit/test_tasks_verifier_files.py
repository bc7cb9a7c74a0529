"""Files in memory that a verifier reads, and what its source names."""

# ruff: noqa: SIM115 -- verifiers open files in every way

from __future__ import annotations

import builtins
import glob
import io
import json
import os
import shutil
import sqlite3
import tempfile
import zipfile
from pathlib import Path

import openpyxl
import pytest
from PIL import Image

from osgym_host.tasks.evaluator.metrics.verifiers import _score_of
from osgym_host.tasks.evaluator.program.memory_files import MemoryFiles
from osgym_host.tasks.evaluator.program.verifier_source import (
    VerifierUnreadable,
    function_of,
    named_paths,
    needed_modules,
    parse_verifier,
)


def _workbook() -> bytes:
    book, buffer = openpyxl.Workbook(), io.BytesIO()
    assert book.active is not None
    book.active["A1"] = "x"
    book.save(buffer)
    return buffer.getvalue()


def _picture() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (3, 2), "red").save(buffer, "PNG")
    return buffer.getvalue()


def _database() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE a (b)")
    connection.execute("INSERT INTO a VALUES (7)")
    connection.commit()
    data = bytes(connection.serialize())
    connection.close()
    return data


def test_libraries_read_files_in_memory() -> None:
    """Text, JSON, workbooks, archives, pictures and databases, by paths and by pathlib."""
    files = {"/d/a.txt": b"a\nb\n", "/d/b.xlsx": _workbook(), "/d/c.png": _picture(), "/d/d.db": _database()}
    with MemoryFiles(files).installed():
        assert open("/d/a.txt").read().split() == ["a", "b"]
        assert Path("/d/a.txt").read_text() == "a\nb\n" and Path("/d/a.txt").stat().st_size == 4
        sheet = openpyxl.load_workbook("/d/b.xlsx").active
        assert sheet is not None and sheet["A1"].value == "x"
        with Image.open("/d/c.png") as picture:
            assert picture.size == (3, 2)
        with zipfile.ZipFile("/d/b.xlsx") as archive:
            assert "xl/workbook.xml" in archive.namelist()
        for name, uri in (("/d/d.db", False), ("file:/d/d.db?mode=ro", True)):
            connection = sqlite3.connect(name, uri=uri)
            assert connection.execute("SELECT b FROM a").fetchall() == [(7,)]
            connection.close()
        assert sorted(glob.glob("/d/*.txt")) == ["/d/a.txt"]
        assert [(folder, names) for folder, _, names in os.walk("/d")] == [
            ("/d", ["a.txt", "b.xlsx", "c.png", "d.db"])
        ]
        assert (os.path.exists("/d/e"), os.path.isdir("/d"), os.path.isfile("/d/a.txt")) == (
            False,
            True,
            True,
        )


def test_temporary_files_share_their_content_with_copies() -> None:
    """The usual ways of a verifier: a temporary file is made, filled by another, read, and removed."""
    memory = MemoryFiles({"/r.json": b'{"a": 1}'})
    with memory.installed():
        kept = tempfile.NamedTemporaryFile(delete=False, suffix=".json")
        memory.put(kept.name, memory.read("/r.json"))
        assert kept.name.endswith(".json") and json.load(kept) == {"a": 1}
        kept.close()
        assert json.loads(open(kept.name).read()) == {"a": 1}
        os.unlink(kept.name)
        assert not os.path.exists(kept.name)
        with tempfile.NamedTemporaryFile("w+") as gone:
            gone.write("text")
            gone.seek(0)
            assert gone.read() == "text"
        assert not os.path.exists(gone.name)
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy("/r.json", folder + "/copy.json")
            os.makedirs(f"{folder}/a/b")
            assert sorted(os.listdir(folder)) == ["a", "copy.json"]
        assert not os.path.exists(folder)
        fd, name = tempfile.mkstemp()
        os.close(fd)
        with open(name, "a") as file:
            file.write("x")
        with open(name, "r+") as file:
            file.seek(0, io.SEEK_END)
            file.write("y")
        os.rename(name, "/tmp/z")
        assert open("/tmp/z").read() == "xy"


def test_errors_are_those_of_a_file_system() -> None:
    """A missing file, a missing folder, a folder as a file; a file of the machine is not there."""
    with MemoryFiles({"/d/a": b""}).installed():
        for path, kind in (("/etc/passwd", FileNotFoundError), ("/d", IsADirectoryError)):
            with pytest.raises(kind):
                open(path)
        with pytest.raises(FileNotFoundError):
            open("/no/folder/x", "w")
        with pytest.raises(FileExistsError):
            open("/d/a", "x")
        with pytest.raises(NotADirectoryError):
            os.listdir("/d/a")
        with pytest.raises(OSError, match="not empty"):
            os.rmdir("/d")
        with pytest.raises(io.UnsupportedOperation):
            open("/d/a").write("x")


def test_the_functions_come_back() -> None:
    """After the block, Python's own functions are in place again, also after an error."""
    before = (builtins.open, os.stat, tempfile.mkdtemp, sqlite3.connect, tempfile.tempdir)
    with pytest.raises(KeyError), MemoryFiles({}).installed():
        assert builtins.open is not before[0]
        raise KeyError
    assert (builtins.open, os.stat, tempfile.mkdtemp, sqlite3.connect, tempfile.tempdir) == before


SOURCE = """
import json, os.path
from helpers import read
try:
    from gym_anything.vlm import sample
except ImportError:
    import csv
def verify(traj, env_info, task_info):
    import openpyxl
    env_info["copy_from_env"]("/tmp/result.json", "x")
    return "/home/ga/plots/a b.png", "/workspace/tasks/a.sh", "/", "a/b", "//x", "/a\\n"
"""


def test_a_source_says_what_it_needs() -> None:
    """Modules outside of a try block, and paths of the desktop."""
    tree = parse_verifier(SOURCE, "verifier.py")
    assert needed_modules(tree) == ["json", "os.path", "helpers", "csv", "openpyxl"]
    assert named_paths(tree) == ["/tmp/result.json", "/home/ga/plots/a b.png"]
    assert function_of(tree, "verify").name == "verify"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(:", "not valid Python"),
        ("(" * 900, "not valid Python"),
        ("x = 1", "has no function verify"),
        ("def verify(): pass", "one to three parameters"),
        ("def verify(a, b, c, d): pass", "one to three parameters"),
        ("def verify(a, *, b): pass", "one to three parameters"),
    ],
)
def test_a_wrong_source_is_named(source: str, message: str) -> None:
    """Before anything runs."""
    with pytest.raises(VerifierUnreadable, match=message):
        function_of(parse_verifier(source, "verifier.py"), "verify")


@pytest.mark.parametrize(
    ("got", "passed_only", "score"),
    [
        (True, False, 1.0),
        (False, False, 0.0),
        (0.25, False, 0.25),
        (40, False, 0.4),
        (-3, False, 0.0),
        (float("nan"), False, 0.0),
        ({"score": 0.5}, False, 0.5),
        ({"passed": True, "score": 80}, False, 0.8),
        ({"passed": True, "score": 80}, True, 1.0),
        ({"passed": False, "score": 59}, False, 0.59),
        ({"passed": False, "score": 59}, True, 0.0),
        ({"passed": False, "score": 1}, False, 0.01),
        ({"passed": True, "score": 1}, False, 1.0),
        ({"passed": True}, False, 1.0),
        ({"passed": "yes"}, False, 0.0),
        ({"score": "1"}, False, 0.0),
        ({"score": None}, False, 0.0),
        (None, False, 0.0),
    ],
)
def test_scores_of_a_verifier(got: object, passed_only: bool, score: float) -> None:
    """A bool, a number, or an object; never more than was earned."""
    assert _score_of(got, passed_only).score == pytest.approx(score)
