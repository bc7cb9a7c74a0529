"""File with the number of the last step, which survives the agent, so that a step is never done twice."""

from __future__ import annotations

import os
from pathlib import Path

MOST_BYTES = 512
"""Upper bound of a line's length."""


class SequenceFile:
    """One line, `generation number`, that is overwritten and never emptied.

    Bytes behind the first line are left of a longer one. A reader, at any moment at which the agent may have
    been killed, finds the old line or the new one: one `pwrite` within a page is done or not done, where
    copying into a mapping could be cut in two. The file stays open, since each step writes and an emulated
    clone pays for each system call.
    """

    def __init__(self, path: Path) -> None:
        """Open the file; make it when it does not exist. Raises OSError if it cannot be written."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._line = os.pread(self._fd, MOST_BYTES, 0).partition(b"\n")[0]

    def number(self, generation: str) -> int:
        """Return the number that was saved for a generation; 0 for another one and for an empty file."""
        kept, _, number = self._line.rpartition(b" ")
        return int(number) if kept == generation.encode() and number.isdigit() else 0

    def keep(self, generation: str, number: int) -> None:
        """Write the line, unless the file has it already.

        Raises:
            OSError: It cannot be written; then the old line stays.
        """
        line = f"{generation} {number}".encode()
        if line != self._line:
            os.pwrite(self._fd, line + b"\n", 0)
            self._line = line

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
