"""Faults of the host agent and of what it stands on: killed, its clock, its images, its disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from benchmarks.chaos.docker_faults import restart
from benchmarks.chaos.schedule import Kind
from benchmarks.chaos.service import STORES
from benchmarks.chaos.stage import CLEAN_WAIT_S, Impact, NoVictim, Stage

AWAY_S = 4.0
JUMPS_S = (3600, -3600, 86400 * 400, -60)
SECOND_TRIES_WAIT_S = 15.0
ENDS = (Kind.HOST_KILLED, Kind.DISK_FULL, Kind.DOCKER_RESTARTED)
"""Those that may end an episode; none may for a clock or an image that others need."""


def build_clock(folder: Path) -> tuple[Path, dict[str, str]] | None:
    """Compile what shifts a clock; the file that says by how much, and the environment that loads it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    library, file = folder / "clock_shift.so", folder / "clock"
    source = Path(__file__).with_name("clock_shift.c")
    argv = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source)]
    if subprocess.run(argv, capture_output=True, check=False).returncode:
        return None
    file.write_bytes(struct.pack("=q", 0))
    return file, {"LD_PRELOAD": str(library), "CHAOS_CLOCK": str(file)}


async def _killed(stage: Stage, draw: float) -> None:
    stage.restarted_at = time.monotonic()
    await asyncio.to_thread(stage.service.kill)
    await asyncio.to_thread(stage.service.start)


async def _clock(stage: Stage, draw: float) -> None:
    assert stage.means.clock_file is not None
    by_s = JUMPS_S[int(draw * len(JUMPS_S))]
    with stage.means.clock_file.open("r+b") as file:
        now = struct.unpack("=q", file.read(8))[0]
        file.seek(0)
        file.write(struct.pack("=q", 0 if now else by_s))


async def _image(stage: Stage, draw: float) -> None:
    moved = []
    for name in STORES:
        path = stage.service.folder / name
        if path.is_symlink():  # ours; never the store behind it
            path.rename(path.with_name(f"{name}.away"))
            moved.append(path)
    try:
        await asyncio.sleep(AWAY_S)
    finally:
        for path in moved:
            path.with_name(f"{path.name}.away").rename(path)


async def _disk(stage: Stage, draw: float) -> None:
    """Fill the disk of the data folder, and fill it again as room comes free."""
    filler = stage.service.folder / "filler"
    free = os.statvfs(stage.service.folder)
    end = time.monotonic() + AWAY_S
    try:
        with filler.open("wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - (64 << 10))
            file.seek(0, os.SEEK_END)
            while time.monotonic() < end:
                with contextlib.suppress(OSError):
                    for _ in range(1 << 12):
                        file.write(bytes(1 << 12))
                await asyncio.sleep(0.02)
    finally:
        filler.unlink(missing_ok=True)


ENDS_ALL = (Kind.HOST_KILLED, Kind.DOCKER_RESTARTED)
"""Those that hit every episode there is."""

WAYS: dict[Kind, Callable[[Stage, float], Awaitable[None]]] = {
    Kind.HOST_KILLED: _killed,
    Kind.CLOCK_JUMP: _clock,
    Kind.IMAGE_MISSING: _image,
    Kind.DISK_FULL: _disk,
    Kind.DOCKER_RESTARTED: restart,
}


async def harm_host(stage: Stage, kind: Kind, draw: float) -> Impact:
    """Hit the host agent, when nothing else does.

    Raises:
        NoVictim: Second attempts run all the time.
    """
    async with stage.one_at_a_time:
        return await _harm_alone(stage, kind, draw)


async def _harm_alone(stage: Stage, kind: Kind, draw: float) -> Impact:
    """Hit it once no second attempt runs: that would be the second hit in its trajectory."""

    def alone() -> bool:
        return not any(a.which > 1 or a.harmed_by for a in stage.flights.open.values())

    if kind in ENDS_ALL and not await stage.events.until(alone, SECOND_TRIES_WAIT_S):
        raise NoVictim("second attempts run all the time")
    impact = Impact(kind, stage.now_s())
    impact.touched = stage.flights.harmed(kind, None) if kind in ENDS else len(stage.flights.open)
    fault_at = time.monotonic()
    if kind in ENDS:
        stage.flights.outages.append(kind)
    try:
        await WAYS[kind](stage, draw)
    finally:
        if kind in ENDS:
            stage.flights.outages.remove(kind)
    over_at = fault_at if kind in (Kind.HOST_KILLED, Kind.CLOCK_JUMP) else time.monotonic()
    if await _serves_again(stage, over_at):
        impact.clean_s = time.monotonic() - over_at
    else:
        impact.wrong.append(f"no clean replica within {CLEAN_WAIT_S:g} s")
    return impact


async def _serves_again(stage: Stage, since: float) -> bool:
    """Whether a clean replica became ready, or is, after the fault was over."""

    async def free() -> bool:
        with contextlib.suppress(httpx.HTTPError, ValueError, KeyError):
            async with httpx.AsyncClient(timeout=5) as http:
                state = (await http.get(f"{stage.service.url}/v1/host")).json()
                return bool(state["capacity"]["ready"])
        return False

    end = time.monotonic() + CLEAN_WAIT_S
    while time.monotonic() < end:
        if any(at > since for at in stage.events.ready) or await free():
            return True
        await asyncio.sleep(0.05)
    return False
