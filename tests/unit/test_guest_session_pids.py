"""PIDs of programs in namespaces below, with real processes in real namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from osgym_guest.osworld.session_pids import PROGRAMS_BELOW, session_pid

NEST = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "unshare", "--pid", "--fork"]


@pytest.fixture
def two_below() -> Iterator[int]:
    """Yield our PID of a process two PID namespaces below ours."""
    if shutil.which("unshare") is None or subprocess.run([*NEST, "true"], check=False).returncode:
        pytest.skip("missing: user namespaces")
    outer = subprocess.Popen([*NEST, "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while not (
            found := [pid for pid in below(outer.pid) if len(numbers(pid)) == len(numbers(os.getpid())) + 2]
        ):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield found[0]
    finally:
        outer.communicate(timeout=10)


def below(pid: int) -> list[int]:
    """Return all descendants of a process."""
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [deeper for child in children for deeper in below(child)]


def numbers(pid: int) -> list[str]:
    """Return the PIDs of a process in all namespaces, ours first."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1:] for line in lines if line.startswith("NSpid:"))


def test_a_program_below_has_another_number(two_below: int) -> None:
    """The first process of the namespace below has the PID 1 there."""
    assert session_pid(two_below, below=True) == 1
    assert session_pid(two_below, below=False) == two_below


def test_what_is_not_in_the_session_has_no_number_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process and one that is gone have no PID there; without such a namespace PIDs are the same."""
    assert session_pid(os.getpid()) == os.getpid()
    monkeypatch.setenv(PROGRAMS_BELOW, "1")
    assert session_pid(os.getpid()) is None
    assert session_pid(2**22 + 1) is None
    assert session_pid(None) is None
