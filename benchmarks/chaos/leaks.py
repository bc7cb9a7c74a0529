"""Leaks of a host agent: its own resources, counted from outside, before and after."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.chaos.reach import tree_of
from benchmarks.chaos.service import Service
from osgym_host.runtimes.processes import start_time_ticks

REST_S, LOOK_EVERY_S, GONE_S = 60.0, 0.5, 10.0
SLACK = {"descriptors": 32, "threads": 16, "rss_mib": 20.0}
"""Amounts by which the host agent may hold more at rest than before: connections, a pool of threads, caches.

Of descriptors, three restarts of a Docker daemon in a row gave 44, then 59, 67 and 62 at rest.
"""


@dataclass
class Census:
    """Follows everything below the host agent, whatever becomes of its parents.

    Attributes:
        processes: Start time of each process, by number.
        namespaces: Number of namespaces that a mount held before the run.
    """

    service: Service
    processes: dict[int, int] = field(default_factory=dict)
    namespaces: int = field(default_factory=lambda: _held_namespaces())

    async def follow(self) -> None:
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Remember the processes that exist now."""
        pid = self.service.process.pid if self.service.process else 0
        for found in tree_of(pid) if pid else []:
            ticks = start_time_ticks(found)
            if ticks is not None:
                self.processes[found] = ticks

    def left(self) -> list[str]:
        """Return everything that exists though the service has ended.

        A namespace lives by a process, which is seen by its number or its control group, or by a mount.
        """
        service = self.service
        found = []
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            pid = int(entry.name)
            alive = self.processes.get(pid) == start_time_ticks(pid) is not None
            inside = f"osgym-{service.instance}" in _text(Path(f"/proc/{pid}/cgroup"))
            if (alive or inside) and not _is_dead(pid):
                argv = _text(Path(f"/proc/{pid}/cmdline")).replace("\0", " ")[:80]
                found.append(f"process {pid} {argv}")
        mounts = _text(Path("/proc/self/mountinfo")).splitlines()
        found += [f"mount {line.split()[4]}" for line in mounts if f"{service.folder}/" in line]
        if (more := _held_namespaces() - self.namespaces) > 0:
            found.append(f"{more} namespaces that a mount holds")
        for top, names, _ in os.walk("/sys/fs/cgroup"):
            found += [f"cgroup {top}/{name}" for name in names if f"osgym-{service.instance}" in name]
        for kind in ("replicas", "vms", "records"):
            found += [f"file {path}" for path in (service.run_folder / kind).glob("*")]
        found += [f"network namespace {p}" for p in Path("/run/netns").glob(f"*{service.instance}*")]
        rules = _said("nft", "list", "tables")
        found += [f"nft {line}" for line in rules.splitlines() if service.instance in line]
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", service.port)) == 0:
                found.append(f"port {service.port}")
        return found

    async def after_stop(self) -> list[str]:
        """Return the same after a time for what is about to end."""
        end = time.monotonic() + GONE_S
        while True:
            left = await asyncio.to_thread(self.left)
            if not left or time.monotonic() > end:
                return left
            await asyncio.sleep(0.2)


async def at_rest(service: Service, warm: int) -> dict[str, float] | None:
    """Return the host agent's resources when nothing is leased and the pool is warm; None if never."""
    end = time.monotonic() + REST_S
    async with httpx.AsyncClient(timeout=10) as http:
        while time.monotonic() < end:
            with contextlib.suppress(httpx.HTTPError, ValueError, KeyError):
                now = (await http.get(f"{service.url}/v1/host")).json()["capacity"]
                if (now["leased"], now["starting"], now["waiting"]) == (0, 0, 0) and now["ready"] >= warm:
                    break
            await asyncio.sleep(0.2)
        else:
            return None
    return {
        "descriptors": len(os.listdir(f"/proc/{service.pid}/fd")),
        "threads": len(os.listdir(f"/proc/{service.pid}/task")),
        "rss_mib": round(rss_mib(service.pid), 1),
    }


def grown(before: dict[str, float], after: dict[str, float]) -> list[str]:
    """Return the resources of which the host agent holds more at rest than it may."""
    return [
        f"the host agent at rest: {name} {before[name]:g} before, {after[name]:g} after"
        for name, slack in SLACK.items()
        if after[name] - before[name] > slack
    ]


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process; 0 when it has gone."""
    for line in _text(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _is_dead(pid: int) -> bool:
    state = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return not state or state[0] == "Z"


def _held_namespaces() -> int:
    """Return the namespaces that live by a mount; those of network namespaces have a name."""
    mounts = _text(Path("/proc/self/mountinfo")).splitlines()
    return sum(" nsfs " in line and "/netns/" not in line for line in mounts)


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def _said(*argv: str) -> str:
    with contextlib.suppress(OSError):
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    return ""


def left_on_disk(top: Path) -> list[str]:
    """Return loop devices and mounts of a data folder that is gone."""
    found: list[Any] = [p for p in Path("/sys/block").glob("loop*/loop/backing_file") if str(top) in _text(p)]
    mounts = _text(Path("/proc/self/mountinfo")).splitlines()
    found += [line.split()[4] for line in mounts if str(top) in line]
    return [f"loop device or mount {item}" for item in found] + ([f"folder {top}"] if top.exists() else [])
