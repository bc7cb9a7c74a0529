"""Threads of a process with descriptor tables of their own. Blocking."""

# ruff: noqa: PTH208 -- paths of /proc as text

from __future__ import annotations

import ctypes
import os
import platform

_KCMP = {"x86_64": 312, "aarch64": 272}.get(platform.machine())
_KCMP_FILES = 2
_libc = ctypes.CDLL(None, use_errno=True)


def tasks_with_own_files(pid: int) -> list[int]:
    """Return the threads of a process that have different descriptor tables, the first thread first.

    Threads share one table unless one of them unshared it (`CLONE_FILES`). Where the kernel does not say
    (`kcmp`), every thread is returned.
    """
    try:
        tasks = sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return []
    own: list[int] = []
    for task in tasks:
        if not any(_same_files(task, other) for other in own):
            own.append(task)
    return own


def _same_files(one: int, other: int) -> bool:
    if _KCMP is None:
        return False
    return int(_libc.syscall(_KCMP, one, other, _KCMP_FILES, 0, 0)) == 0
