"""Permissions and limits of tasks on this host, and the time that they have left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from osgym_host.tasks.errors import DeadlineExceeded

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class TaskPolicy:
    """Permissions and limits of tasks on this host.

    Attributes:
        task_files_dir: The only folder that ``upload_file.local_path`` and ``file:`` URLs may read;
            None forbids both.
        allow_private_addresses: Let downloads reach addresses that are not public.
        allow_downloads: False serves downloads from the cache only.
        max_file_bytes: Largest file fetched from the web or from a guest.
        evaluation_timeout_s: Time of one metric in all, on a host that has more to do.
        evaluation_memory_bytes: Memory of one metric, beyond that of the evaluator's libraries.
        disk_reserve_bytes: With less free disk than this nothing is downloaded.
        client_password: What ``{CLIENT_PASSWORD}`` in commands becomes.
    """

    task_files_dir: Path | None = None
    allow_downloads: bool = True
    allow_private_addresses: bool = False
    max_file_bytes: int = 64 * MIB
    disk_reserve_bytes: int = 0
    download_timeout_s: float = 120
    evaluation_cpu_s: float = 20
    evaluation_timeout_s: float = 120
    evaluation_memory_bytes: int = 1024 * MIB
    client_password: str = "password"  # noqa: S105 - OSWorld's published default, inside the replica


MAX_WAIT_S = 600.0
"""Longest time that all metrics of a check together wait for their turns. On a host so overloaded, the check
ends without a reward."""


class CheckDeadline:
    """Deadline of a check, extended by the time that the check waits for others.

    Attributes:
        at: Current deadline, in ``loop.time()``.
    """

    def __init__(self, at: float, limit: asyncio.Timeout | None = None) -> None:
        """Start at ``at``; ``limit``, a timeout around the whole check, is extended as well."""
        self.at = at
        self._limit = limit
        self._waited_s = 0.0

    @contextlib.contextmanager
    def standing_still(self) -> Iterator[None]:
        """Extend the deadline by the time that the ``with`` block takes.

        Raises:
            TimeoutError: All waits of the check together took `MAX_WAIT_S`.
        """
        began = asyncio.get_running_loop().time()
        ends = None if self._limit is None else self._limit.when()
        if self._limit is not None and ends is not None:
            self._limit.reschedule(max(ends, began + MAX_WAIT_S - self._waited_s))
        try:
            yield
        finally:
            waited = asyncio.get_running_loop().time() - began
            self._waited_s += waited
            self.at += waited
            if self._limit is not None and ends is not None and not self._limit.expired():
                self._limit.reschedule(ends + waited)


def remaining_s(deadline: float, what: str) -> float:
    """Return the seconds until ``deadline`` (in ``loop.time()``).

    Raises:
        DeadlineExceeded: None are left.
    """
    left = deadline - asyncio.get_running_loop().time()
    if left <= 0:
        raise DeadlineExceeded(f"no time left for {what}", {"what": what})
    return left
