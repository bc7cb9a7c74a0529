"""A Docker daemon for tests: the one that runs, else one of our own that touches nothing of the host."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

START_S = 60.0
_STOP_S = 30.0


@contextlib.contextmanager
def docker_daemon() -> Iterator[str]:
    """The `unix://` address of a daemon; one started here is gone afterwards, with all it stored."""
    usual = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if _answers(usual):
        yield usual
        return
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("missing: a running Docker daemon, or dockerd (docker.io) and root to start one")
    # Not below pytest's folder: a long path would not fit into the address of a socket, and layers of
    # overlayfs cannot lie on every file system.
    with (
        tempfile.TemporaryDirectory(
            prefix="osgym-docker-", dir="/var/tmp", ignore_cleanup_errors=True
        ) as name,
        _own(Path(name)) as url,
    ):
        yield url


@contextlib.contextmanager
def _own(folder: Path) -> Iterator[str]:
    url = f"unix://{folder}/docker.sock"
    argv = ["setpriv", "--pdeathsig", "TERM"]  # it stops with its containers, also when the tests are killed
    argv += ["dockerd", "--host", url, "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
    argv += ["--pidfile", f"{folder}/pid", "--storage-driver", "overlay2"]
    # No bridge, no rules, no forwarding: the host's network stays as it is.
    argv += ["--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_S
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > deadline:
                said = (folder / "log").read_text(errors="replace")[-1500:]
                pytest.skip(f"missing: a Docker daemon that starts here: {said}")
            time.sleep(0.1)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _answers(url: str) -> bool:
    if not url.startswith("unix://"):
        return False
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as end:
        end.settimeout(5)
        end.connect(url.removeprefix("unix://"))
        end.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        return b"200" in end.recv(64)
    return False
