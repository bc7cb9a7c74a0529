"""Return of a hostile guest's memory to the kernel, as soon as its answer is dropped."""

from __future__ import annotations

import contextlib
import ctypes

LARGE_BYTES = 1024 * 1024
_M_MMAP_THRESHOLD = -3
"""Option of glibc's malloc.h."""


def give_back_large_blocks() -> None:
    """Make blocks of `LARGE_BYTES` and more be returned as soon as they are freed, for the whole process.

    glibc starts so with 128 KiB, but raises that to 32 MiB with the first large block that is freed. Later
    ones then come from a heap that shrinks only at its end. Setting a threshold turns the raising off. Other
    C libraries are left as they are.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
