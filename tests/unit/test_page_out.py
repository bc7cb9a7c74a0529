"""Moving the memory of one process to swap."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from osgym_host.runtimes.page_out import page_out, swappable_ranges
from osgym_host.runtimes.swap import read_swap

MAPS = """\
55d0c0a00000-55d0c0a02000 r-xp 00000000 fe:00 1234    /usr/bin/Xvfb
55d0c0a02000-55d0c0a03000 rw-p 00002000 fe:00 1234    /usr/bin/Xvfb
55d0c1000000-55d0c1021000 rw-p 00000000 00:00 0       [heap]
7f0000000000-7f0000800000 rw-s 00000000 00:41 7       /run/a name\\012with a line end
7f0001000000-7f0001001000 r--p 00000000 00:00 0
7f0002000000-7f0002001000 r--s 00000000 00:41 7       /run/read only
7ffc00000000-7ffc00004000 r--p 00000000 00:00 0       [vvar]
7ffc00004000-7ffc00006000 r-xp 00000000 00:00 0       [vdso]
"""
USES_MEMORY = """
import sys
held = bytearray(bytes(range(256)) * (1 << 17))
print("ready", flush=True)
sys.stdin.readline()
print(held == bytes(range(256)) * (1 << 17), flush=True)
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    """A process that holds 32 MiB."""
    with subprocess.Popen(
        [sys.executable, "-c", USES_MEMORY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def swapped_mib(pid: int) -> float:
    found = re.search(r"VmSwap:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def test_writable_mappings_and_those_without_a_file_are_chosen() -> None:
    """Programs are left out, and what the kernel maps itself."""
    starts = [start for start, _ in swappable_ranges(MAPS.splitlines())]
    assert starts == [0x55D0C0A02000, 0x55D0C1000000, 0x7F0000000000, 0x7F0001000000]
    assert next(iter(swappable_ranges(MAPS.splitlines()))) == (0x55D0C0A02000, 0x55D0C0A03000)


def test_a_process_keeps_what_it_holds(child: subprocess.Popen[str]) -> None:
    """With swap it moves there; in any case the bytes are the same afterwards."""
    page_out([child.pid])
    if read_swap().free_mib > 64 and os.geteuid() == 0:
        assert swapped_mib(child.pid) > 24
    out, _ = child.communicate("\n", timeout=30)
    assert out == "True\n"


def test_processes_that_are_gone_are_left_out(child: subprocess.Popen[str]) -> None:
    """They do not keep the others from being paged out."""
    gone = subprocess.Popen(["true"])
    gone.wait(10)
    page_out([gone.pid, child.pid])
    if read_swap().free_mib > 64 and os.geteuid() == 0:
        assert swapped_mib(child.pid) > 24
