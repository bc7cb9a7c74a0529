"""Memory that a hostile guest's answer took goes back to the kernel when the answer is dropped."""

from __future__ import annotations

import contextlib
import ctypes

LARGE_BYTES = 1024 * 1024
_M_MMAP_THRESHOLD = -3
"""Of glibc's malloc.h."""


def give_back_large_blocks() -> None:
    """Have blocks of `LARGE_BYTES` and more given back as soon as they are freed; for the whole process.

    glibc starts so with 128 KiB, but raises that to 32 MiB with the first large block that is freed: the next
    ones then come from a heap that shrinks only at its end. Naming a threshold turns the raising off.
    Another C library keeps its own ways.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
