"""Recorded episodes as pages of HTML that need nothing else, made by a process `osgym data replay`.

What guests showed is decoded in that process, which has none of our secrets, is held to bounds of time and
memory, and ends with its page; never here.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

from osgym_host.episodes.recorder import TrajectoryRecorder
from osgym_host.errors import ServiceError
from osgym_host.programs import run_program
from osgym_protocol.codes import ErrorCode

MAKE_S = 150.0
WAIT_S = 30.0
"""Longest wait for a page, since one page is made at a time; then the client is told to ask again."""
MEMORY_BYTES = 8 << 30
"""Bound of the process's address space, of which it uses a fraction."""
MAX_SAID_CHARS = 2000
NOT_RECORDED = "This host has no recording of the episode (setting `trajectory`)."
COMMAND = (sys.executable, "-m", "osgym_cli", "data", "replay")
NEEDS = "osgym_cli"
"""Package of the distribution osgym-cli, which hosts may lack."""
_KEPT = ("PATH", "PYTHONPATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV")


class ReplayPages:
    """Makes the pages. For one event loop."""

    def __init__(self, recorder: TrajectoryRecorder) -> None:
        self._recorder = recorder
        self._turn = asyncio.Semaphore(1)

    async def page(self, episode_id: str) -> bytes:
        """Return the page of an episode that has ended.

        Raises:
            ServiceError: `not_found`: nothing was recorded of it; `bad_request`: it goes on; `rate_limited`:
                others have pages made; `internal`: it cannot be made, and why; `unsupported`: osgym-cli is
                not installed beside the host agent.
        """
        if importlib.util.find_spec(NEEDS) is None:
            message = (
                "Pages of episodes need the distribution osgym-cli, which is not installed on this host."
            )
            raise ServiceError(ErrorCode.UNSUPPORTED, message)
        try:
            folder = await asyncio.to_thread(self._recorder.folder, episode_id)
        except FileNotFoundError:
            raise ServiceError(ErrorCode.NOT_FOUND, NOT_RECORDED) from None
        try:
            async with asyncio.timeout(WAIT_S):
                await self._turn.acquire()
        except TimeoutError:
            message = "The pages of other episodes are being made; try again later."
            raise ServiceError(ErrorCode.RATE_LIMITED, message) from None
        try:
            with tempfile.TemporaryDirectory(prefix="osgym-replay-") as place:
                return await self._made(folder, Path(place) / "page.html")
        finally:
            self._turn.release()

    async def _made(self, folder: Path, page: Path) -> bytes:
        bounds = [f"--as={MEMORY_BYTES}", f"--cpu={MAKE_S:.0f}"]
        prefix = ["prlimit", *bounds, "--", "nice", "-n", "10"] if shutil.which("prlimit") else []
        argv = [*prefix, *COMMAND, str(folder), "--out", str(page)]
        environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
        try:
            status, said = await run_program(argv, timeout_s=MAKE_S, environ=environ)
        except TimeoutError:
            raise ServiceError(
                ErrorCode.TIMEOUT, f"The page was not finished within {MAKE_S:.0f} s."
            ) from None
        if status != 0:
            raise _not_made(status, said[-MAX_SAID_CHARS:].strip())
        return await asyncio.to_thread(page.read_bytes)


def _not_made(status: int | None, said: str) -> ServiceError:
    if status == os.EX_TEMPFAIL:
        return ServiceError(
            ErrorCode.BAD_REQUEST, "The episode is still running; its page can be made after its end."
        )
    return ServiceError(
        ErrorCode.INTERNAL, f"The page could not be made: {said or 'the command printed no reason'}"
    )
