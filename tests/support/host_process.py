"""A host agent as its users start it, in a process of its own, and what it may not leave behind."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from osgym_host.images.store import default_data_dir

OSGYM = str(Path(sys.executable).with_name("osgym"))
START_S = 60.0
STOP_S = 30.0
MACHINES = ("runtime=qemu", "qemu.parked=1", "ram_reserve_mib=256")
"""Settings of a host with virtual machines."""


def wait_until(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    """Polls until the condition gives something true, and returns that."""
    end = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.05)


def osgym(
    *args: str, timeout_s: float = 120.0, cwd: str | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Runs the `osgym` command to its end."""
    argv = [OSGYM, *args]
    return subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=cwd,
        env={**os.environ, **env},
        check=False,
    )


@dataclass
class HostProcess:
    """One `osgym host serve`. `instance` makes everything it leaves behind recognisable."""

    instance: str
    process: subprocess.Popen[bytes]
    url: str
    log: Path
    data_dir: Path
    seen: dict[int, str] = field(default_factory=dict)
    """Processes of it by number, with their start time: numbers are used again."""
    urls: list[str] = field(default_factory=list)
    """One for each port."""

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def get(self, path: str) -> Any:
        """JSON of a GET."""
        return httpx.get(f"{self.url}{path}", timeout=20).raise_for_status().json()

    def replicas(self, *states: str) -> list[dict[str, Any]]:
        """Replicas in one of the states; remembers the processes of all of them."""
        found: list[dict[str, Any]] = self.get("/v1/replicas")
        first = {r["pid"] for r in found if r["pid"]}
        for pid in first | _descendants(self.process.pid) | set().union(*map(_descendants, first)):
            if started := process_start(pid):
                self.seen[pid] = started
        return [r for r in found if not states or r["state"] in states]

    def descendants_now(self) -> set[int]:
        """Processes below the service."""
        return _descendants(self.process.pid)

    def wait_ready(self, count: int, timeout_s: float = START_S) -> None:
        """Waits until so many clean replicas wait."""
        wait_until(lambda: len(self.replicas("ready")) >= count, timeout_s, f"{count} ready\n{self.tail()}")

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:]

    def stop(self, sig: signal.Signals = signal.SIGTERM) -> int:
        """Ends it with a signal, as its user would, and gives its exit code."""
        if self.process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                self.replicas()
            self.process.send_signal(sig)
        return self.process.wait(STOP_S)

    def survivors(self) -> list[str]:
        """Everything of it that is still there: processes, groups, mounts, overlays, the port."""
        if self.process.poll() is None:
            return [f"the service itself, process {self.process.pid}"]
        folder = self.data_dir / "run" / self.instance
        found = [f"overlay {path}" for kind in ("replicas", "vms") for path in (folder / kind).glob("*")]
        found += [f"record {path}" for path in (folder / "records").glob("*")]
        found += [f"process {pid}" for pid, started in self.seen.items() if process_start(pid) == started]
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        found += [f"mount {line}" for line in mounts if str(folder) in line]
        for top, folders, _ in os.walk("/sys/fs/cgroup"):
            found += [f"group {top}/{name}" for name in folders if name.startswith(f"osgym-{self.instance}-")]
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", self.port)) == 0:
                found.append(f"port {self.port}")
        return found

    def assert_nothing_left(self, timeout_s: float = 10.0) -> None:
        """Fails, naming them, unless everything is gone soon."""
        end = time.monotonic() + timeout_s
        while left := self.survivors():
            if time.monotonic() > end:
                raise AssertionError(f"left behind: {left}\n{self.tail()}")
            time.sleep(0.05)
        shutil.rmtree(self.data_dir / "run" / self.instance, ignore_errors=True)  # its lock files


def process_start(pid: int) -> str | None:
    """When a process started, in ticks; None when it is gone or dead and only not yet waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found |= {int(child)} | _descendants(int(child))
    return found


def start_host(
    instance: str,
    *,
    image: str = "small",
    warm: int = 2,
    max_replicas: int = 6,
    port: int = 0,
    ports: int = 1,
    log_dir: Path | None = None,
    settings: Sequence[str] = (),
    wait: bool = True,
    command: Sequence[str] = (sys.executable, "-m", "osgym_host"),
    cwd: Path | None = None,
    data_dir: Path | None = None,
    env: dict[str, str] | None = None,
) -> HostProcess:
    """Starts `osgym host serve` and waits until it listens and its pool is warm."""
    where = log_dir or Path(tempfile.mkdtemp(prefix="osgym-test-"))
    log = where / f"{instance}-{time.monotonic_ns()}.log"
    argv = [*command, "serve", "--image", image]
    argv += ["--port", str(port), "--warm", str(warm), "--max-replicas", str(max_replicas)]
    argv += ["--port", "0"] * (ports - 1)
    for pair in (f"instance={instance}", *settings):
        argv += ["--set", pair]
    if data_dir is not None:
        argv += ["--data-dir", str(data_dir)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(env or {})},
        )
    host = HostProcess(instance, process, "", log, data_dir or default_data_dir())

    def listening() -> list[str]:
        if process.poll() is not None:
            raise AssertionError(f"osgym host serve ended with {process.returncode}:\n{host.tail()}")
        found = re.search(r"listens on (.+)\n", host.tail())
        return found.group(1).split() if found else []

    try:
        host.urls = wait_until(listening, START_S, f"listening\n{host.tail()}")
        host.url = host.urls[0]
        if wait:
            host.wait_ready(warm)
    except BaseException:
        process.kill()
        process.wait(STOP_S)
        raise
    return host


@contextlib.contextmanager
def running_host(instance: str, **options: Any) -> Iterator[HostProcess]:
    """A host for the time of a block; afterwards nothing of it is left."""
    host = start_host(instance, **options)
    try:
        yield host
    finally:
        code = host.stop()
        host.assert_nothing_left()
        assert code in (0, -signal.SIGKILL), host.tail()
