"""Starts processes that work once when they are told to, and then wait for ever at one descriptor each.

`python many_workers.py COUNT`. In its folder it makes the file `forked` when all are there; they work when
the file `go` is there. The program itself uses the processor from then until there is the file `rest`.
"""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path


def main() -> None:
    """Start the workers, tell them to go, and work until all may rest."""
    start_reader, start_writer = os.pipe()
    end_reader, _end_writer = os.pipe()
    for _ in range(int(sys.argv[1])):
        if not os.fork():
            os.close(start_writer)
            _wait(start_reader)
            _work(0.002)
            _wait(end_reader)
            os._exit(0)
    Path("forked").touch()
    while not Path("go").exists():
        time.sleep(0.02)
    os.close(start_writer)
    while not Path("rest").exists():
        _work(0.005)
    _wait(end_reader)


def _wait(descriptor: int) -> None:
    """Wait until a pipe has no writer any more."""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    waiting.poll()


def _work(seconds: float) -> None:
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        pass


if __name__ == "__main__":
    main()
