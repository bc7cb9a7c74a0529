"""The CPU time of a machine's virtual processors: whether its guest is at work, seen from outside.

A guest that waits has halted its processors, and their threads sleep. Nothing in the guest is needed to
see this, and it costs 10 µs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from osgym_qemu.machine.qmp import Qmp, QmpError

_INNER = re.compile(r"^NSpid:\s+(?:\d+\s+)*(\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class VcpuWork:
    """What the virtual processors have done so far.

    Attributes:
        running: One of the threads runs or wants to.
    """

    cpu_ns: int
    running: bool


class Vcpus:
    """The threads of one QEMU process that carry out guest code."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    @classmethod
    async def of(cls, qmp: Qmp, pid: int) -> Vcpus | None:
        """Find the threads of the QEMU with this host PID; None when they cannot be seen from here.

        Raises:
            QmpError: QEMU does not answer.
        """
        answer = await qmp.execute("query-cpus-fast")
        if not isinstance(answer, list):
            raise QmpError("query-cpus-fast", "", "a list was expected")
        wanted = {entry.get("thread-id") for entry in answer if isinstance(entry, dict)}
        folders = [folder for tid, folder in _threads(pid) if tid in wanted]
        # Several processors may share one thread.
        return cls(folders) if folders else None

    def read(self) -> VcpuWork | None:
        """Return what they have done; None when the process is gone."""
        total, running = 0, False
        try:
            for folder in self._folders:
                total += int((folder / "schedstat").read_bytes().split()[0])
                stat = (folder / "stat").read_bytes()
                running = running or stat[stat.rfind(b")") + 2 :][:1] == b"R"
        except (OSError, IndexError, ValueError):
            return None
        return VcpuWork(total, running)


def _threads(pid: int) -> list[tuple[int, Path]]:
    """Threads by the number that QEMU itself knows them by (it may have a PID namespace of its own)."""
    found: list[tuple[int, Path]] = []
    try:
        folders = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
    for folder in folders:
        try:
            inner = _INNER.search((folder / "status").read_text())
        except OSError:
            continue
        found.append((int(inner.group(1)) if inner else int(folder.name), folder))
    return found
