"""Output of QEMU, in a bounded file in memory."""

from __future__ import annotations

import fcntl
import os

OUTPUT_BYTES = 64 * 1024
"""Number of bytes kept, the first ones: a guest that makes QEMU complain without end cannot fill the disk."""

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "MALLOC_ARENA_MAX": "1"}
"""Environment of QEMU, besides the request's. One arena: each further one costs a machine up to a MB for
threads that hardly allocate."""


def bounded_output() -> int:
    """Return a file in memory that holds at most `OUTPUT_BYTES`."""
    fd = os.memfd_create("osgym-qemu-output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, OUTPUT_BYTES)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return fd


def read_output(output: int, max_bytes: int) -> str:
    """Return the last bytes of such a file. The writer shares its position, which stays."""
    end = os.lseek(output, 0, os.SEEK_CUR)
    start = max(0, end - max_bytes)
    return os.pread(output, end - start, start).decode(errors="replace")
