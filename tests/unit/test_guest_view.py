"""What programs of a replica see of their host's clock and disk: the preload, in programs of this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import osgym_guest
from osgym_guest.clock import DesktopClock
from osgym_guest.http import HttpError
from osgym_protocol.codec import WireFormatError

SOURCES = [Path(osgym_guest.__file__).parents[1] / "native" / name for name in ("view.c", "view_waits.c")]
NINE_NS = 1_767_258_000 * 10**9  # 2026-01-01 09:00 UTC
WAITS = """
import ctypes, sys, time
libc = ctypes.CDLL(None)
class Timespec(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
def soon(clock):
    at = time.clock_gettime_ns(clock) + 200_000_000
    return ctypes.byref(Timespec(at // 10**9, at % 10**9))
room = [ctypes.create_string_buffer(128) for _ in range(3)]
libc.sem_init(room[0], 0, 0)
libc.pthread_mutex_lock(room[1])
for wait in (
    lambda: libc.sem_timedwait(room[0], soon(time.CLOCK_REALTIME)),
    lambda: libc.pthread_cond_timedwait(room[2], room[1], soon(time.CLOCK_REALTIME)),
    lambda: libc.clock_nanosleep(time.CLOCK_REALTIME, 1, soon(time.CLOCK_REALTIME), None),
    lambda: libc.clock_nanosleep(time.CLOCK_MONOTONIC, 1, soon(time.CLOCK_MONOTONIC), None),
    lambda: libc.sem_clockwait(room[0], time.CLOCK_MONOTONIC, soon(time.CLOCK_MONOTONIC)),
):
    began = time.monotonic()
    wait()
    assert 0.19 < time.monotonic() - began < 5, time.monotonic() - began
print("all waited")
"""


class Desktop:
    """Programs that are preloaded, and a page of their own."""

    def __init__(self, folder: Path) -> None:
        self.page = folder / "clock"
        self.preload = folder / "view.so"
        argv = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-fPIC", "-shared"]
        subprocess.run([*argv, f'-DPAGE="{self.page}"', "-o", self.preload, *SOURCES], check=True)

    def run(self, *argv: str) -> str:
        """What a program says."""
        env = {**os.environ, "LD_PRELOAD": str(self.preload), "TZ": "UTC", "LC_ALL": "C"}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=60)
        assert not done.stderr
        return done.stdout.strip()

    def set(self, **body: Any) -> None:
        """As the guest agent does; without a panel."""
        no_engine: Any = None
        asyncio.run(DesktopClock(no_engine, None, self.page).set(body))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Desktop:
    """The preload, with all warnings as errors."""
    if shutil.which("cc") is None:
        pytest.skip("missing: a C compiler")
    return Desktop(tmp_path_factory.mktemp("view"))


@pytest.fixture
def desktop(compiled: Desktop, monkeypatch: pytest.MonkeyPatch) -> Desktop:
    """A desktop without a panel, whose clock is not set."""
    monkeypatch.setattr("osgym_guest.clock.PANEL", "no such program")
    compiled.page.write_bytes(b" " * 64)
    return compiled


def test_nothing_changes_until_a_clock_is_set(desktop: Desktop) -> None:
    """Times, waits and the times of files are the host's."""
    assert abs(int(desktop.run("date", "+%s")) - time.time()) < 60
    assert desktop.run(sys.executable, "-c", WAITS) == "all waited"


@pytest.mark.parametrize("start_ns", [NINE_NS, 2_000_000_000 * 10**9], ids=["past", "future"])
def test_a_clock_that_runs(desktop: Desktop, tmp_path: Path, start_ns: int) -> None:
    """It begins where it should; waits are as long as ever; new files are as old as they look."""
    (tmp_path / "old").touch()
    before = int(desktop.run("stat", "-c", "%Y", str(tmp_path / "old")))
    desktop.set(start_ns=start_ns)
    shown = float(desktop.run("date", "+%s.%N"))
    assert 0 < shown - start_ns / 1e9 < 30
    assert int(desktop.run(sys.executable, "-c", "import time; print(time.time_ns())")) / 1e9 > shown
    assert desktop.run(sys.executable, "-c", WAITS) == "all waited"
    assert int(desktop.run("stat", "-c", "%Y", str(tmp_path / "old"))) == before
    (tmp_path / "new").touch()
    for seen in (
        float(desktop.run("stat", "-c", "%.Y", str(tmp_path / "new"))),
        float(
            desktop.run(
                sys.executable, "-c", f"import os; print(os.stat({str(tmp_path / 'new')!r}).st_mtime)"
            )
        ),
    ):
        assert shown < seen < shown + 30


def test_a_clock_that_stands_still(desktop: Desktop, tmp_path: Path) -> None:
    """All programs see one time, and no wait becomes endless."""
    desktop.set(start_ns=NINE_NS, frozen=True)
    assert {desktop.run("date", "+%s.%N") for _ in range(2)} == {"1767258000.000000001"}
    assert desktop.run(sys.executable, "-c", WAITS) == "all waited"
    (tmp_path / "new").touch()
    assert desktop.run("stat", "-c", "%.Y", str(tmp_path / "new")) == "1767258000.000000000"


def test_programs_that_run_already_follow(desktop: Desktop) -> None:
    """Without being told."""
    script = "read line; date +%s"
    env = {**os.environ, "LD_PRELOAD": str(desktop.preload)}
    with subprocess.Popen(
        ["bash", "-c", f"printf '%(%s)T\\n' -1; {script}; printf '%(%s)T\\n' -1"],
        env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as shell:  # fmt: skip
        assert shell.stdout is not None
        assert abs(int(shell.stdout.readline()) - time.time()) < 60
        desktop.set(start_ns=NINE_NS, frozen=True)
        said, _ = shell.communicate("go\n", timeout=60)
    assert said.split() == ["1767258000", "1767258000"]


@pytest.mark.parametrize(
    "body",
    [{}, {"start_ns": "1"}, {"start_ns": True}, {"start_ns": 1}, {"start_ns": 5 * 10**18},
     {"start_ns": NINE_NS, "frozen": 1}, {"start_ns": NINE_NS, "speed": 2}],
)  # fmt: skip
def test_what_is_refused(desktop: Desktop, body: dict[str, Any]) -> None:
    """Other forms, other fields, other times; and nothing was set."""
    with pytest.raises((HttpError, WireFormatError)):
        desktop.set(**body)
    assert abs(int(desktop.run("date", "+%s")) - time.time()) < 60


def test_a_clock_is_set_once(desktop: Desktop, tmp_path: Path) -> None:
    """And not at all where the image has no page for it."""
    desktop.set(start_ns=NINE_NS)
    with pytest.raises(HttpError, match="already"):
        desktop.set(start_ns=NINE_NS)
    desktop.page.unlink()
    with pytest.raises(HttpError) as refused:
        desktop.set(start_ns=NINE_NS)
    assert refused.value.status == 501


def test_the_disk_of_others_is_seen_as_it_is(desktop: Desktop) -> None:
    """Only a replica's root is an overlay; what is asked in either way agrees."""
    script = "import os; v = os.statvfs('/proc'); print(v.f_bsize, v.f_frsize, v.f_namemax, v.f_flag)"
    bare = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert desktop.run(sys.executable, "-c", script) == bare.strip()
