"""Detects that a caller, which sends no more, has closed its connection instead of waiting for its answer.

A peer that closed its connection and one that only ended its own direction (`shutdown(SHUT_WR)`) look the
same to a reader: both are the end of what comes. A Unix socket says which it was. Over TCP, and through a
tunnel, only writing tells: a closed peer resets the connection. What is written is an interim answer,
``100 Continue``, which HTTP/1.1 clients read past wherever it comes (RFC 9110, 15.2).
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable

from osgym_guest.http1 import CONTINUE

FIRST_PROBE_S = 0.25
MAX_PROBE_S = 5.0
"""Each probe waits twice as long as the one before, up to this."""


class CallerWatch:
    """Watches a socket whose peer sends no more, until `end`.

    Args:
        fd: the socket, non-blocking; nothing else is written while it is watched.
        may_probe: whether the peer reads interim answers.
        on_gone: called once when the peer has closed the connection.
    """

    def __init__(self, fd: int, may_probe: bool, on_gone: Callable[[], object]) -> None:
        self._fd = fd
        self._may_probe = may_probe
        self._on_gone = on_gone
        self._wait_s = FIRST_PROBE_S
        self._poll = select.poll()
        self._poll.register(fd, 0)  # hang-ups and errors are always reported
        self._timer = asyncio.get_running_loop().call_soon(self._look)

    def end(self) -> None:
        """Watch no more. Idempotent."""
        self._timer.cancel()

    def _look(self) -> None:
        if self._poll.poll(0):
            self._on_gone()
            return
        self._timer = asyncio.get_running_loop().call_later(self._wait_s, self._probe)
        self._wait_s = min(2 * self._wait_s, MAX_PROBE_S)

    def _probe(self) -> None:
        if self._may_probe:
            try:
                if os.write(self._fd, CONTINUE) < len(CONTINUE):
                    self._on_gone()  # it takes no 25 bytes: its answer would not reach it either
                    return
            except BlockingIOError:
                pass  # it has not read the probes before this one
            except OSError:
                self._on_gone()
                return
        self._look()
