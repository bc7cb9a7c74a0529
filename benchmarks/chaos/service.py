"""Host agent under test: its data folder on a small disk of its own, its process, its events."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.common import LISTENING, ServiceFailed
from osgym_host.images.store import default_data_dir

STORES = ("images", "disks", "snapshots")
"""Folders below the data folder that are links to the stores of this machine."""
START_S, STOP_S = 90.0, 60.0
Setting = str | int | float


@contextlib.contextmanager
def data_folder(size_mib: int) -> Iterator[tuple[Path, bool]]:
    """Make a data folder on a disk of its own, for the time of the block.

    Yields:
        The folder, and whether its disk is its own: that takes root and a loop device.
    """
    top = Path(tempfile.mkdtemp(prefix="osgym-chaos-", dir="/var/tmp"))
    top.chmod(0o755)
    folder, disk = top / "data", top / "disk"
    folder.mkdir()
    own = False
    try:
        if os.geteuid() == 0 and shutil.which("mkfs.ext4"):
            with disk.open("wb") as file:
                file.truncate(size_mib << 20)
            quiet = ["mkfs.ext4", "-q", "-F", "-m", "0", str(disk)]
            made = subprocess.run(quiet, capture_output=True, check=False).returncode == 0
            own = made and _run("mount", "-o", "loop", str(disk), str(folder))
        for name in STORES:
            if (default_data_dir() / name).exists():
                (folder / name).symlink_to(default_data_dir() / name)
        yield folder, own
    finally:
        if own and not _run("umount", str(folder)):
            _run("umount", "-l", str(folder))
        shutil.rmtree(top, ignore_errors=True)


def _run(*argv: str) -> bool:
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


@dataclass
class Service:
    """One host agent, on the same port after each restart.

    Attributes:
        program: Module that is run as `osgym`.
        environment: Variables of its process, besides this one's.
    """

    folder: Path
    instance: str
    settings: Mapping[str, Setting]
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    port: int = 0
    starts: int = 0
    program: str = "osgym_host"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> Path:
        """Output of all of its processes, on another disk than the one that is filled."""
        return self.folder.parent / "log"

    @property
    def run_folder(self) -> Path:
        return self.folder / "run" / self.instance

    def start(self) -> None:
        """Start it and wait until it listens.

        Raises:
            ServiceFailed: It does not.
        """
        self.port = self.port or _free_port()
        given = {**self.settings, "instance": self.instance, "ports": self.port, "data_dir": self.folder}
        argv = [sys.executable, "-m", self.program, "serve"]
        for name, value in given.items():
            argv += ["--set", f"{name}={value}"]
        with self.log.open("ab") as log:
            place = log.tell()
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **self.environment},
            )
        self.starts += 1
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            said = self.log.read_bytes()[place:].decode(errors="replace")
            if LISTENING.search(said):
                return
            if self.process.poll() is not None:
                raise ServiceFailed(f"osgym host serve ended with {self.process.returncode}:\n{said[-3000:]}")
            time.sleep(0.02)
        raise ServiceFailed(f"osgym host serve did not listen within {START_S:g} s:\n{said[-3000:]}")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_S)

    def stop(self) -> int | None:
        """Ask it to end, and return its exit code; None when it had to be killed."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def said(self, pattern: str) -> list[str]:
        """Return matching lines of its log; for a traceback, the line before it and its error."""
        wanted = re.compile(pattern)
        lines = self.log.read_text(errors="replace").splitlines()
        said = [number for number, line in enumerate(lines) if wanted.search(line)]
        return [_whole(lines, number) for number in said]


def _whole(lines: list[str], number: int) -> str:
    """Return a line; for one that begins a traceback, the line before, its last frames and its error."""
    margin, word, _ = lines[number].partition("Traceback")
    if not word or margin.strip(" |"):
        return lines[number]
    below = [line.removeprefix(margin) for line in lines[number + 1 :]]
    frames = list(itertools.takewhile(lambda line: line.startswith(" "), below))
    places = [frame.strip() for frame in frames if frame.startswith("  File")]
    error = below[len(frames) :][:1]
    return " | ".join([*lines[max(number - 1, 0) : number + 1], *places[-3:], *error])


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Events:
    """Follows the host's events over its restarts, with the time of each replica's states."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._news = asyncio.Event()
        self.seen: dict[tuple[str, str], tuple[float, dict[str, Any]]] = {}
        """Time and event by replica and state (of a replica, `retiring`)."""
        self.ready: list[float] = []
        """Times at which replicas became ready."""

    async def follow(self) -> None:
        last = starts = 0
        async with httpx.AsyncClient(timeout=30) as http:
            while True:
                if starts != self._service.starts:
                    last, starts = 0, self._service.starts
                try:
                    path = f"{self._service.url}/v1/events?after={last}&wait_s=5"
                    answer = (await http.get(path)).raise_for_status().json()
                except (httpx.HTTPError, ValueError):
                    await asyncio.sleep(0.05)
                    continue
                if starts == self._service.starts:
                    last = answer["last_id"] if not answer["events"] else answer["events"][-1]["id"]
                    self._take(answer["events"])

    def _take(self, events: list[dict[str, Any]]) -> None:
        now = time.monotonic()
        for event in events:
            if event["kind"] == "replica":
                self.seen.setdefault((event["replica_id"], event["state"]), (now, event))
                if event["state"] == "ready":
                    self.ready.append(now)
        if events:
            self._news.set()
            self._news = asyncio.Event()

    def when(self, replica_id: str, state: str) -> float | None:
        """Return the time at which a replica came into a state."""
        found = self.seen.get((replica_id, state))
        return found[0] if found else None

    def event(self, replica_id: str, state: str) -> dict[str, Any]:
        """Return the event by which it did; empty when it did not."""
        return self.seen.get((replica_id, state), (0.0, {}))[1]

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Return whether a condition came true in time; it is checked with each event, and every 50 ms."""
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), 0.05)
        return True
