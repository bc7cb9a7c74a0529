"""Faults of the host that meet all trajectories of a turn together, and their reversal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos.synthetic.faults import Case, Fault
from benchmarks.chaos.synthetic.players import Players

LEFT_ON_FULL_DISK_KIB = 2048
"""Space left on a full disk: less than a host agent calls full, and enough for it to go on."""
NICE = 10
"""Niceness of a process that gets a tenth of the core that it shares with a busy one."""
_BUSY = "while True: pass"


@dataclass(frozen=True, slots=True)
class Processes:
    """Processes of this machine that stand for replicas: one sleeps, one is stopped."""

    idle: subprocess.Popen[bytes]
    stopped: subprocess.Popen[bytes]

    def pids(self) -> dict[Fault, int]:
        """Return the process of each fault for which the host agent reads a process state."""
        return {Fault.FROZEN: self.idle.pid, Fault.STOPPED_OUTSIDE: self.stopped.pid}


@contextlib.contextmanager
def processes() -> Iterator[Processes]:
    """Run a process that sleeps and one that is stopped."""
    with _running("sleep", "infinity") as idle, _running("sleep", "infinity") as stopped:
        stopped.send_signal(signal.SIGSTOP)
        yield Processes(idle, stopped)


@contextlib.contextmanager
def starved_process() -> Iterator[int]:
    """Run a process that always wants to compute and gets a tenth of a core, since another has the rest."""
    core = min(os.sched_getaffinity(0))
    with _running(sys.executable, "-c", _BUSY) as busy, _running(sys.executable, "-c", _BUSY) as starved:
        for process in (busy, starved):
            os.sched_setaffinity(process.pid, {core})
        os.setpriority(os.PRIO_PROCESS, starved.pid, os.getpriority(os.PRIO_PROCESS, busy.pid) + NICE)
        yield starved.pid


@contextlib.contextmanager
def _running(*argv: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def hit_host(players: Players, members: Sequence[Case]) -> None:
    """Hit the host as the members of a turn wait for, and undo it after it has met them all."""
    service, trajectories = players.service, players.trajectories
    assert trajectories.round is not None
    struck = trajectories.round.struck
    first = [trajectories.seen[case.number][0].episode_id for case in members]

    async def until_all_ended() -> None:
        await asyncio.gather(*map(trajectories.until_ended, first))

    if members[0].disk_is_full:
        with _full(service.folder):
            struck.set()
            await until_all_ended()
        return
    match members[0].strikes[0].fault:
        case Fault.AGENT_KILLED | Fault.AGENT_STOPPED as fault:
            await players.count_retired()
            await asyncio.to_thread(service.kill if fault is Fault.AGENT_KILLED else service.stop)
            await asyncio.to_thread(service.start)
        case Fault.HOST_GOES:
            await trajectories.http.post(f"{service.url}/v1/drain", json={"deadline_s": 0})
            await until_all_ended()
            await trajectories.http.delete(f"{service.url}/v1/drain")
        case Fault.STARVED:
            with starved_process() as pid:
                starved = {Fault.STARVED: pid, Fault.STARVED_BY_ITSELF: pid}
                trajectories.pids = {**trajectories.pids, **starved}
                struck.set()
                await until_all_ended()
        case _:
            raise NotImplementedError(members[0].row)
    struck.set()


@contextlib.contextmanager
def _full(folder: Path) -> Iterator[None]:
    """Fill the disk of the data folder but for a little."""
    filler = folder / "filler"
    free = os.statvfs(folder)
    try:
        with filler.open("wb", buffering=0) as file:
            size = free.f_bavail * free.f_frsize - (LEFT_ON_FULL_DISK_KIB << 10)
            os.posix_fallocate(file.fileno(), 0, size)
        yield
    finally:
        filler.unlink()
