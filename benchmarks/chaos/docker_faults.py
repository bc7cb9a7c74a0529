"""Docker daemon of the run's own, and its faults under the runner containers of virtual machines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import docker
import docker.errors

from benchmarks.chaos.reach import QemuReach
from benchmarks.common import ServiceFailed
from osgym_qemu.runner.daemon import DockerDaemon
from osgym_qemu.runner.runner_image import build_runner_image

if TYPE_CHECKING:
    from benchmarks.chaos.stage import Stage

START_S, STOP_S, ASK_S = 60.0, 60.0, 10.0
AWAY_S = 1.0


class Daemon:
    """A `dockerd` that changes nothing of this machine: no bridge, no rules, data of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self._folder}/docker.sock"

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            ServiceFailed: It does not.
        """
        folder = self._folder
        argv = ["dockerd", "--host", self.url, "--data-root", f"{folder}/data", "--exec-root"]
        argv += [f"{folder}/exec", "--pidfile", f"{folder}/pid", "--storage-driver", "overlay2"]
        argv += ["--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                raise ServiceFailed(f"dockerd: {(folder / 'log').read_text(errors='replace')[-1500:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it, and with it all containers. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def remove(self, container: str) -> None:
        """Remove a container by force, as an operator's clean-up would.

        Raises:
            LookupError: It is gone.
        """
        client = docker.APIClient(base_url=self.url, timeout=ASK_S)
        try:
            client.remove_container(container, force=True)
        except docker.errors.NotFound as error:
            raise LookupError(f"container {container} is gone") from error
        finally:
            client.close()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as end:
            end.settimeout(ASK_S)
            end.connect(self.url.removeprefix("unix://"))
            end.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b"200" in end.recv(64)
        return False


@contextlib.asynccontextmanager
async def daemon_for(runner: str) -> AsyncIterator[Daemon | None]:
    """Yield the daemon of a run whose machines are in containers, with the runner's image; None for
    processes.

    Raises:
        ServiceFailed: There is no dockerd here, or it does not start.
    """
    if runner != "container":
        yield None
        return
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        raise ServiceFailed("--runner container needs root and dockerd (docker.io)")
    place = {"prefix": "osgym-chaos-", "dir": "/var/tmp"}
    with tempfile.TemporaryDirectory(**place, ignore_cleanup_errors=True) as name:
        daemon = Daemon(Path(name))
        await asyncio.to_thread(daemon.start)
        try:
            await _build_image(daemon, Path(name))
            yield daemon
        finally:
            await asyncio.to_thread(daemon.stop)


async def _build_image(daemon: Daemon, folder: Path) -> None:
    asked = DockerDaemon(daemon.url, timeout_s=300)
    await asked.open()
    try:
        await build_runner_image(asked, folder)
    finally:
        await asked.close()


async def restart(stage: Stage, draw: float) -> None:
    """Restart the daemon, which ends its containers."""
    assert stage.means.docker is not None
    await asyncio.to_thread(stage.means.docker.stop)
    await asyncio.sleep(AWAY_S)
    await asyncio.to_thread(stage.means.docker.start)


async def remove_runner(stage: Stage, replica_id: str) -> None:
    """Remove the container of one machine without the host agent's knowledge.

    Raises:
        LookupError: It is gone.
    """
    assert stage.means.docker is not None
    assert isinstance(stage.reach, QemuReach)
    await asyncio.to_thread(stage.means.docker.remove, stage.reach.record(replica_id).keeper)
