"""Client of the accessibility helper, which starts when it is needed and ends when it is idle."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from osgym_guest.osworld.process import ChildProcess, start
from osgym_guest.osworld.session import DesktopSession
from osgym_guest.osworld.session_pids import PROGRAMS_BELOW

# Time beyond the helper's own deadline for its start, rendering and the way back.
GRACE_S = 4.0
STOP_TIMEOUT_S = 2.0
HELPER = (sys.executable, "-I", "-m", "osgym_guest.osworld.a11y")


class HelperError(Exception):
    """The accessibility tree cannot be read."""


@dataclass(frozen=True)
class HelperAnswer:
    """Payload of the helper, and whether it is incomplete."""

    payload: bytes
    partial: bool


class Helper:
    """Manages at most one helper process, and sends it one request at a time.

    Args:
        session: Environment of the helper, where it finds the session bus.
        argv: Command line of the helper.
        warm_s: Idle time after which it ends; infinite: never.
    """

    def __init__(self, session: DesktopSession, *, argv: Sequence[str] = HELPER, warm_s: float):
        self._session = session
        self._argv = list(argv)
        self._warm_s = warm_s
        self._lock = asyncio.Lock()
        self._child: ChildProcess | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the running helper, or None."""
        return self._child.pid if self._child is not None else None

    async def ask(self, op: str, *, deadline_s: float) -> HelperAnswer:
        """Ask for ``tree`` or ``terminal``. A helper that does not answer in time is killed.

        Raises:
            HelperError: There is no accessibility bus, or the helper failed.
        """
        async with self._lock:
            self._cancel_expiry()
            try:
                return await asyncio.wait_for(self._ask(op, deadline_s), deadline_s + GRACE_S)
            except (OSError, EOFError, ValueError, asyncio.TimeoutError) as exc:
                self.close()
                raise HelperError(f"the accessibility helper failed: {exc or type(exc).__name__}") from exc
            except asyncio.CancelledError:
                self.close()
                raise
            finally:
                if math.isfinite(self._warm_s):
                    self._expiry = asyncio.get_running_loop().call_later(self._warm_s, self.close)

    async def _ask(self, op: str, deadline_s: float) -> HelperAnswer:
        if self._child is None or self._child.returncode is not None or self._streams is None:
            self.close()
            await self._start()
        if self._streams is None:
            raise EOFError("not started")
        reader, writer = self._streams
        writer.write(json.dumps({"op": op, "deadline_s": deadline_s}).encode() + b"\n")
        line = await reader.readline()
        if not line:
            raise EOFError("the helper ended without an answer")
        header = json.loads(line)
        if not header["ok"]:
            raise HelperError(str(header["error"]))
        return HelperAnswer(await reader.readexactly(int(header["size"])), bool(header["partial"]))

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            # what goes wrong in the helper belongs into the agent's log: its standard error is ours
            self._child = await start(
                self._argv,
                self._session,
                stdin=theirs.fileno(),
                stderr=None,
                env={PROGRAMS_BELOW: "1"} if self._session.starter is not None else None,
                beside_agent=True,
            )
        self._streams = await asyncio.open_unix_connection(sock=ours)

    def _cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def close(self) -> None:
        """End the helper. Idempotent."""
        self._cancel_expiry()
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
        if self._child is not None:
            self._child.kill_session()
            self._child = None

    async def stop(self) -> None:
        """End the helper and wait for its exit."""
        child = self._child
        self.close()
        if child is not None:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(child.wait(), STOP_TIMEOUT_S)
