"""The file with the number of the last step: what is left in it, whenever the agent is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from osgym_guest.sequence_file import SequenceFile

_KILLED_AT_ITS_WRITE = """
import pathlib, resource, signal, sys
from osgym_guest.sequence_file import SequenceFile

file = SequenceFile(pathlib.Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
file.keep("g1", 41)  # as it stands there: nothing is written
file.keep("g1", 42)
"""


def test_an_agent_that_is_killed_as_it_writes_leaves_the_old_number(tmp_path: Path) -> None:
    """The kernel ends it at the very call that would write, as late as a kill can come before it is done."""
    path = tmp_path / "seq"
    file = SequenceFile(path)
    file.keep("g1", 41)
    file.close()
    argv = [sys.executable, "-c", _KILLED_AT_ITS_WRITE, str(path)]
    ended = subprocess.run(argv, stderr=subprocess.PIPE, timeout=60)
    assert ended.returncode == -signal.SIGXFSZ, ended.stderr.decode()
    assert SequenceFile(path).number("g1") == 41


def test_a_number_is_there_for_the_next_agent(tmp_path: Path) -> None:
    """Of the same generation only; what a longer line left behind the shorter one does not count."""
    path = tmp_path / "seq"
    file = SequenceFile(path)
    assert file.number("g1") == 0
    for generation, number in (("12", 99), ("12", 100), ("1234", 100), ("9", 7), ("", 8)):
        file.keep(generation, number)
        other = SequenceFile(path)
        assert other.number(generation) == number
        assert other.number("another") == 0
        other.close()
    for _ in range(2):
        file.close()


@pytest.mark.parametrize("text", [b"", b"\n", b"g1 ", b"g1 x\n", b"g1 \xb2\n", b"g1 -5\n", b"\xff" * 600])
def test_what_is_no_line_of_ours_counts_as_none(tmp_path: Path, text: bytes) -> None:
    """Anyone in the guest may have written it; the agent starts nevertheless."""
    path = tmp_path / "seq"
    path.write_bytes(text)
    assert SequenceFile(path).number("g1") == 0


def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    """Not even the file's time changes."""
    path = tmp_path / "seq"
    file = SequenceFile(path)
    file.keep("g1", 3)
    os.utime(path, ns=(5, 5))
    file.keep("g1", 3)
    assert path.stat().st_mtime_ns == 5
    file.keep("g2", 3)
    assert path.stat().st_mtime_ns != 5
