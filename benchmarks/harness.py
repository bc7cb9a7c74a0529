"""Access from the host to the harness of a `local` desktop: its X server and its guest agent."""

from __future__ import annotations

import socket
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from osgym_host.runtimes.processes import processes_of

_PEER = struct.Struct("3i")
_ENTER = ("nsenter", "--user", "--mount", "--pid", "--net", "--ipc", "--uts", "--setuid=0", "--setgid=0")
_GROUPS = Path("/sys/fs/cgroup")
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def agent_at(sock: Path) -> int:
    """Return the PID of the guest agent that listens at a socket.

    Raises:
        OSError: No process listens there.
    """
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(sock))
        return int(_PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0])


def harness_processes(first_pid: int, part: str) -> list[int]:
    """Return the processes of a replica whose command line has `part`, the oldest first."""
    found = []
    for pid in processes_of(first_pid):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        if part.encode() in line:
            found.append(pid)
    return sorted(found)


def run_beside(pid: int, argv: Sequence[str], *, timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
    """Run a command as the replica's root, in the namespaces and control groups of one of its processes.

    It needs root of the host.

    Raises:
        subprocess.SubprocessError: The command fails, or takes longer than `timeout_s`.
    """
    join = 'for file; do [ "$file" = -- ] && break; echo $$ > "$file"; shift; done; shift; exec "$@"'
    enter = [*_ENTER, f"--target={pid}", *argv]
    return subprocess.run(
        ["/bin/sh", "-c", join, "sh", *_group_files(pid), "--", *enter],
        env={"PATH": _PATH, "HOME": "/root", "LANG": "C.UTF-8"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=True,
    )


def _group_files(pid: int) -> list[str]:
    """Return the ``cgroup.procs`` files of a process's control groups, of both versions."""
    found = []
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, place = line.split(":", 2)
        for top in (controllers, "unified") if controllers else ("", "unified"):
            file = _GROUPS / top / place[1:] / "cgroup.procs"
            if place != "/" and file.exists():
                found.append(str(file))
                break
    return found
