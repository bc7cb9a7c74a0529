"""Hosts of `client_scale`: agents of this run, and the frames that their replicas answer with."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import LISTENING, ROOT, local_service
from benchmarks.load_curve import TICK_S
from osgym_sdk import Client

STEP_MS = 100.0


@dataclass(slots=True)
class Host:
    process: subprocess.Popen[bytes]
    url: str = ""

    def cpu_s(self) -> float:
        """Return the CPU time so far; it stops when the host is killed."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) * TICK_S


@contextlib.contextmanager
def host_agents(count: int, replicas: int, frames: Path) -> Iterator[list[Host]]:
    """Run host agents with replicas, all of them ready."""
    with tempfile.TemporaryDirectory(prefix="osgym-scale-") as folder:
        settings = {
            "ports": 0, "image": "small", "warm": replicas, "max_replicas": replicas, "max_starting": 32,
            "ram_reserve_mib": 0, "replica_ram_mib": 64, "disk_reserve_mib": 0, "cpu_per_replica": 0,
            "trajectory": "off", "osgym_max_steps": 1_000_000,
        }  # fmt: skip
        env = {**os.environ, "SCALE_FRAMES": str(frames), "SCALE_STEP_MS": str(STEP_MS)}
        hosts = []
        try:
            for number in range(count):
                own = {**settings, "data_dir": f"{folder}/{number}", "instance": f"scale-{number}"}
                argv = [sys.executable, "-m", "benchmarks.scale_agent", "serve"]
                for name, value in own.items():
                    argv += ["--set", f"{name}={value}"]
                with Path(folder, f"{number}.log").open("wb") as log:
                    hosts.append(Host(subprocess.Popen(argv, stdout=log, stderr=log, cwd=ROOT, env=env)))
            for number, host in enumerate(hosts):
                host.url = _listens(host, Path(folder, f"{number}.log"))
            yield hosts
        finally:
            for host in hosts:
                host.process.send_signal(signal.SIGINT)
            for host in hosts:
                try:
                    host.process.wait(60)
                except subprocess.TimeoutExpired:
                    host.process.kill()
                    host.process.wait()


def _listens(host: Host, log: Path) -> str:
    end_s = time.monotonic() + 120
    while time.monotonic() < end_s and host.process.poll() is None:
        if found := LISTENING.search(log.read_text(errors="replace")):
            return found.group(1)
        time.sleep(0.05)
    raise SystemExit(f"a host agent did not come up:\n{log.read_text(errors='replace')[-2000:]}")


def record_frames(folder: Path) -> None:
    """Save some frames of a real desktop of the small image, as its host answers them."""
    doings: list[Any] = [
        [{"op": "click", "x": 640, "y": 500, "button": "right"}],
        [{"op": "key", "keys": ["escape"]}],
        [{"op": "key", "keys": ["alt", "f2"]}],
        [{"op": "type", "text": "xfce4-terminal"}],
        [{"op": "key", "keys": ["enter"]}],
        {"op": "wait", "duration_ms": 3000},
        [{"op": "type", "text": "ls -l /usr/bin | head -n 40", "press_enter": True}],
        [{"op": "type", "text": "cat /etc/passwd", "press_enter": True}],
    ]
    with (
        local_service("small", {"max_replicas": 1, "warm": 1, "trajectory": "off"}) as (url, _),
        Client(url) as client,
        client.episode(wait_s=60) as episode,
    ):
        shown = [episode.observation, *(episode.step(doing) for doing in doings)]
        kept = dict.fromkeys(obs.data for obs in shown if obs.data)
        for number, data in enumerate(kept):
            (folder / f"{number:02d}.png").write_bytes(data)
