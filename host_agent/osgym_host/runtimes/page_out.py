"""Memory of single processes to swap, by process_madvise(2).

It takes the pages of a process in one pass, whether they were used lately or not. The kernel's reclaim of a
control group needs twice the CPU time for the working set of a step: it looks at a page twice before it takes
it, and asks the caches of the kernel after every 32 pages. But page_out takes only pages that no second
process has mapped.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

_PROCESS_MADVISE = 440
"""Number of the system call, the same for every processor (Linux 5.10)."""
_MADV_PAGEOUT = 21
_AT_ONCE = 1024
"""Most ranges for one call: UIO_MAXIOV of the kernel."""
_MOST_RANGES = 16_384
"""Most ranges of one process. A guest may make 65,530; an idle desktop's processes have 200 to 900."""

_libc = ctypes.CDLL(None, use_errno=True)  # releases the interpreter lock during a call
_libc.syscall.restype = ctypes.c_long


class _Range(ctypes.Structure):
    """`struct iovec`."""

    _fields_ = (("start", ctypes.c_size_t), ("bytes", ctypes.c_size_t))


def page_out(pids: Iterable[int]) -> None:
    """Move the memory of processes to swap, as far as it is their own. Blocking: 10 µs for each page.

    A process that ended meanwhile, or to which the kernel refuses it, is left out.
    """
    for pid in pids:
        with contextlib.suppress(OSError):
            _page_out(pid)


def _page_out(pid: int) -> None:
    pidfd = os.pidfd_open(pid)
    try:
        with Path(f"/proc/{pid}/maps").open() as lines:
            ranges = list(islice(swappable_ranges(lines), _MOST_RANGES))
        while ranges:
            part, ranges = ranges[:_AT_ONCE], ranges[_AT_ONCE:]
            ranges = part[_advise(pidfd, part) :] + ranges
    finally:
        os.close(pidfd)


def swappable_ranges(maps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield start and end of the mappings in `/proc/PID/maps` that may hold pages for swap.

    These are writable ones and those without a file. Programs and libraries are shared or read again
    from disk.
    """
    for line in maps:
        addresses, access, _, _, inode, *name = line.split(maxsplit=5)
        if access[1] != "w" and inode != "0":
            continue
        if name and name[0].startswith("[v"):  # the kernel's own: vvar, vdso
            continue
        start, _, end = addresses.partition("-")
        yield int(start, 16), int(end, 16)


def _advise(pidfd: int, ranges: list[tuple[int, int]]) -> int:
    """Page out ranges up to the first that the kernel refuses; return how many are done with, at least one.

    Raises:
        OSError: The process is gone, or the kernel refuses all.
    """
    array = (_Range * len(ranges))(*(_Range(start, end - start) for start, end in ranges))
    call = ctypes.c_long(_PROCESS_MADVISE)
    done = _libc.syscall(call, pidfd, array, ctypes.c_size_t(len(ranges)), _MADV_PAGEOUT, ctypes.c_uint(0))
    if done < 0:
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOMEM):  # a locked range, or one that is gone
            return 1
        raise OSError(code, f"process_madvise: {os.strerror(code)}")
    for number, (start, end) in enumerate(ranges):
        done -= end - start
        if done < 0:
            return number + 1
    return len(ranges)
