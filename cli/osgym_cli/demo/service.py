"""The demo's host agent: a child process on a free loopback port, ended with the block."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from osgym_host.errors import OsgymHostError

_LISTENING = re.compile(r"OSGym listens on (\S+)")
_PR_SET_PDEATHSIG = 1
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0


class ServiceFailed(OsgymHostError):
    """The host agent did not come up; the message has the end of its log."""


@contextlib.asynccontextmanager
async def local_service(image: str, replicas: int, log: Path) -> AsyncIterator[str]:
    """Run `osgym host serve` for the time of the block.

    Args:
        log: File for its output.

    Yields:
        Its URL.

    Raises:
        ServiceFailed: It ended or did not listen in time.
    """
    settings = {
        "instance": "demo",
        "ports": 0,
        "image": image,
        "warm": replicas,
        "max_replicas": 2 * replicas,
        "trajectory": "off",
    }
    argv = [sys.executable, "-m", "osgym_host", "serve"]
    for name, value in settings.items():
        argv += ["--set", f"{name}={value}"]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is ours alone; we end it in order
            preexec_fn=_end_with_parent,  # only prctl, before any thread was started
        )
    try:
        yield await _url(process, log)
    finally:
        await _stop(process)


def _end_with_parent() -> None:
    """Have the kernel send the child SIGTERM if this process is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def _url(process: asyncio.subprocess.Process, log: Path) -> str:
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while True:
                text = _text(log)
                if found := _LISTENING.search(text):
                    return found[1]
                if process.returncode is not None:
                    raise ServiceFailed(f"osgym host serve ended with {process.returncode}:\n{text[-2000:]}")
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise ServiceFailed(
            f"osgym host serve did not listen within {START_TIMEOUT_S} s:\n{_text(log)[-2000:]}"
        ) from error


def _text(log: Path) -> str:
    return log.read_text(errors="replace")


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End it in order; a cancellation meanwhile does not leave it running."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    waiting = asyncio.ensure_future(_wait(process))
    while not waiting.done():
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            continue


async def _wait(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
