"""An idle clone is idle: whoever adds a timer to the guest finds it named here."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.runtime_kits import QemuKit, contract_spec

from osgym_host.guest_client import GuestClient
from osgym_qemu.cloning.replica import QemuReplica
from osgym_qemu.snapshots import Snapshot

SETTLE_S = 15.0
WINDOW_S = 30.0
ALLOWED_TIMERS: frozenset[str] = frozenset()
"""systemd's timers that may be active. None: each would fire in every clone at once."""
MOST_WAKEUPS = 2
"""Of one process of the guest within the window. A timer of 10 s is found, one that comes once is not."""
MOST_TICKS = 100
"""Timer interrupts within the window; 30 on a quiet machine, 200 with a clock in the panel."""
MOST_CPU = 0.002
"""Part of a core of the host; 0.0003 to 0.0005 under emulation, more where eight others compete for it."""
MOST_DRIFT_KIB = 2048
"""Memory that becomes a clone's own within the window; some 10 KiB on a quiet machine."""
_SCHEDULER_CLOCK = 2  # CPUCLOCK_SCHED: a process's CPU time in nanoseconds

# Runs in the session while nobody talks to the guest; what runs above counts to the interrupts.
WATCH = f"""
import json, os, time

def look():
    wakeups = {{}}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        try:
            stat = open(f"/proc/{{pid}}/stat").read()
            for thread in os.listdir(f"/proc/{{pid}}/task"):
                for line in open(f"/proc/{{pid}}/task/{{thread}}/status"):
                    if line.startswith("voluntary_ctxt_switches"):
                        name = stat[stat.index("(") + 1 : stat.rindex(")")]
                        wakeups[f"{{name}}[{{thread}}]"] = int(line.split()[1])
        except OSError:
            pass
    for line in open("/proc/interrupts"):
        if line.split()[0] == "LOC:":
            ticks = int(line.split()[1])
    return wakeups, ticks

time.sleep({SETTLE_S})
before, ticks = look()
time.sleep({WINDOW_S})
after, ticks_after = look()
woken = {{name: count - before.get(name, 0) for name, count in after.items()}}
with open("/tmp/wakeups.new", "w") as file:
    json.dump({{"ticks": ticks_after - ticks, "woken": woken}}, file)
os.rename("/tmp/wakeups.new", "/tmp/wakeups.json")
"""


TIMERS = """
cd /usr/lib/systemd/system/timers.target.wants && set -- * /etc/systemd/system/timers.target.wants/*
for path; do
    name=$(basename "$path")
    [ -e "$path" ] && [ "$(readlink "/etc/systemd/system/$name")" != /dev/null ] && echo "$name"
done; true
"""
"""Lists the timers of the image that init starts and that are not masked: programs do not reach init."""


@pytest.fixture
async def clone(small_snapshot: Snapshot, tmp_path: Path) -> AsyncIterator[QemuReplica]:
    """A clone of the golden desktop that nobody uses."""
    kit = QemuKit(small_snapshot, parked=0)
    runtime = kit.make(tmp_path)
    await runtime.start()
    try:
        replica = await runtime.create(contract_spec(kit))
        assert isinstance(replica, QemuReplica)
        yield replica
    finally:
        await runtime.stop()


def anonymous_kib(pid: int) -> int:
    """Memory that is the process's own."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Anonymous:"))


@pytest.mark.timeout(300)
async def test_nothing_wakes_an_idle_clone(clone: QemuReplica) -> None:
    """No timer of systemd, no process that wakes by itself, next to no CPU time and no memory."""
    async with GuestClient(clone.guest, token=clone.guest_token) as guest:
        listed = await guest.execute(TIMERS, shell=True)
        timers = set(listed.output.split())
        assert timers <= ALLOWED_TIMERS, f"timers that init starts: {timers - ALLOWED_TIMERS}"
        await guest.launch(["python3", "-I", "-c", WATCH])
    # A connection that is open keeps QEMU's user network busy: nobody may look in before the end.
    clock = (~clone.pid << 3) | _SCHEDULER_CLOCK
    await asyncio.sleep(SETTLE_S + 5)
    before, memory = time.clock_gettime(clock), anonymous_kib(clone.pid)
    await asyncio.sleep(WINDOW_S - 10)
    used = (time.clock_gettime(clock) - before) / (WINDOW_S - 10)
    drift = anonymous_kib(clone.pid) - memory
    await asyncio.sleep(10)
    async with GuestClient(clone.guest, token=clone.guest_token) as guest:
        await guest.execute_with_verification(
            ["true"],
            verification={"command_success": "test -e /tmp/wakeups.json"},
            max_wait_s=30,
        )
        seen = json.loads(await guest.file("/tmp/wakeups.json"))
    print(f"CPU {used:.2%}, drift {drift} KiB, ticks {seen['ticks']}, {os.getloadavg()[0]:.0f} busy")
    busy = {name: count for name, count in seen["woken"].items() if count > MOST_WAKEUPS}
    assert not busy, f"processes that wake up in {WINDOW_S:g} s without being asked: {busy}"
    assert seen["ticks"] <= MOST_TICKS
    assert drift <= MOST_DRIFT_KIB
    assert used <= MOST_CPU
