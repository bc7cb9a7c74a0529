"""Detection of callers that closed their connection instead of waiting for the answer.

A peer that closed its connection and a peer that only ended its own direction (`shutdown(SHUT_WR)`) look the
same to a reader: both end the input. A Unix socket distinguishes them. Over TCP, and through a tunnel, only a
write does: a closed peer resets the connection. The write is an interim answer, ``100 Continue``, which
HTTP/1.1 clients skip at any point (RFC 9110, 15.2).
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable

from osgym_guest.http1 import CONTINUE

FIRST_PROBE_S = 0.25
MAX_PROBE_S = 5.0
"""Upper bound of the interval between probes, which doubles with each probe."""


class CallerWatch:
    """Watches the socket of a caller that has ended its own direction, until `end`.

    Args:
        fd: Non-blocking socket. Nothing else may write to it while it is watched.
        may_probe: The peer skips interim answers.
        on_gone: Called once when the peer has closed the connection.
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
        """Stop watching. Idempotent."""
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
