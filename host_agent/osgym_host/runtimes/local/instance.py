"""Folder of one instance on disk: its lock, and the leftovers of a killed predecessor."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from pathlib import Path

from osgym_host.runtimes.base import RuntimeFault
from osgym_host.runtimes.cgroups import CgroupTree
from osgym_host.runtimes.folder_lock import FolderLock
from osgym_host.runtimes.instance_groups import RECORD, record_groups, recorded_groups
from osgym_host.runtimes.processes import ProcessIdentity

ZYGOTE_RECORD = "zygote.json"
_ZYGOTE_END_TIMEOUT_S = 10.0
_POLL_S = 0.02


class InstanceDir:
    """`<data>/run/<instance>`: `agent.lock`, `zygote.lock`, `zygote.json`, `cgroups.json`, `replicas/`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.replicas = path / "replicas"
        self.egress_record = egress_record(path)
        self._lock = FolderLock(path)

    def acquire(self) -> None:
        """Take the folder for this host agent.

        Raises:
            DataDirBusy: Another live host agent has it.
        """
        self.replicas.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)
        self._lock.acquire()

    def release(self) -> None:
        """Release the folder. Idempotent."""
        self._lock.release()

    async def zygote_lock(self) -> int:
        """Wait for the end of a former zygote, kill one that stays, and take its lock.

        Returns:
            Descriptor of the lock, which is held as long as any copy of it is open.

        Raises:
            RuntimeFault: A former zygote cannot be ended.
        """
        fd = os.open(self.path / "zygote.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + _ZYGOTE_END_TIMEOUT_S
        killed = False
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            else:
                return fd
            if time.monotonic() > deadline:
                if killed:
                    os.close(fd)
                    raise RuntimeFault(f"a former supervisor of {self.path} cannot be ended")
                kill_recorded(self.path / ZYGOTE_RECORD)
                killed = True
                deadline = time.monotonic() + _ZYGOTE_END_TIMEOUT_S
            await asyncio.sleep(_POLL_S)

    def leftover_names(self) -> list[str]:
        """Return the names of former replicas' folders."""
        return sorted(entry.name for entry in os.scandir(self.replicas))

    def kill_leftovers(self, tree: CgroupTree) -> int:
        """Kill processes of former replicas and remove their control groups. Blocking.

        Returns:
            Number of killed processes.

        Raises:
            RuntimeFault: A control group cannot be removed.
        """
        killed = 0
        for name in self.leftover_names():
            killed += kill_recorded(self.replicas / name / "replica.json")
        for name, group in tree.leftovers():
            killed += group.kill()
            try:
                group.remove()
            except OSError as exc:
                raise RuntimeFault(f"control group {name} of a former replica is busy: {exc}") from exc
        try:
            killed += tree.reap_elsewhere(recorded_groups(self.path))
        except OSError as exc:
            raise RuntimeFault(f"a control group of a previous host agent is busy: {exc}") from exc
        record_groups(self.path, tree.folders)
        return killed

    def forget(self) -> None:
        """Remove the records of an instance that has no leftovers."""
        for name in (ZYGOTE_RECORD, RECORD):
            (self.path / name).unlink(missing_ok=True)


def egress_record(run_folder: Path) -> Path:
    """Return the file that exists while links or rules of this instance may be on the host."""
    return run_folder / "egress"


def record_process(path: Path, pid: int) -> None:
    """Write the identity of a process to disk, for a later host agent."""
    identity = ProcessIdentity.of(pid)
    if identity is not None:
        path.write_text(json.dumps({"pid": identity.pid, "start_ticks": identity.start_ticks}))


def kill_recorded(path: Path, timeout_s: float = 5.0) -> int:
    """Kill the recorded process, if its identity is the same, and wait for its end. Blocking.

    Returns:
        1 when a process was killed, else 0.
    """
    try:
        record = json.loads(path.read_text())
        wanted = ProcessIdentity(int(record["pid"]), int(record["start_ticks"]))
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return int(wanted.kill(timeout_s))
