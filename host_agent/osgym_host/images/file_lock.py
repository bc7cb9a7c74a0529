"""Lock of work that one process at a time does; a waiting process learns which one holds it."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from osgym_host.images.errors import ImageError

log = logging.getLogger(__name__)

LOCK_WAIT_S = 3600.0
"""Time that exceeds any bake or snapshot."""
_LOCK_POLL_S = 0.1


@contextlib.contextmanager
def exclusive(
    path: Path, what: str, wait_s: float | None = None, tell: Callable[[str], object] | None = None
) -> Iterator[None]:
    """Hold a file lock for the time of the block; the file names the holding process.

    Args:
        what: Name of the locked work, for messages.
        wait_s: Longest wait for another holder; None: `LOCK_WAIT_S`.
        tell: Called once with a sentence that names the other holder, if there is one; None: logs it.

    Raises:
        ImageError: Another process holds it after that time.
        OSError: The file is not this user's to write.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _lock(fd, what, LOCK_WAIT_S if wait_s is None else wait_s, tell or log.info)
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, what: str, wait_s: float, tell: Callable[[str], object]) -> None:
    end_s = time.monotonic() + wait_s
    waits = False
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            said = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            holder = f"process {said}" if said.isdigit() else "another process"
            if time.monotonic() > end_s:
                hint = f"see what it does: ps -fp {said}" if said.isdigit() else "try again later"
                raise ImageError(f"{holder} has been making {what} for {wait_s:.0f} s", hint) from None
        if not waits:
            waits = True
            tell(f"waiting for {holder}, which makes {what}")
        time.sleep(_LOCK_POLL_S)
