"""Injection of faults by the host's tools: signals, and commands in two places of a desktop.

A policy's own commands run in the session. On `local`, "beside the guest agent" is above the session, where
no command of it reaches. A virtual machine has one place only, in which root reaches the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path

from benchmarks.chaos.service import Service
from benchmarks.harness import run_beside
from osgym_host.addresses import UnixAddress
from osgym_host.guest_client import GuestClient, GuestError
from osgym_host.runtimes.processes import start_time_ticks
from osgym_qemu.machine.records import VmRecord

AGENT, DISPLAY = "osgym_guest.pyc", "Xvfb"
"""Parts of command lines by which processes inside are found."""
HEALTH_S = 2.0


class Reach(ABC):
    """Injector of faults into the replicas of one runtime."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @abstractmethod
    def first_process(self, replica_id: str) -> int:
        """Return the number of the process with which the replica ends.

        Raises:
            LookupError: It is gone.
        """

    @abstractmethod
    def guest(self, replica_id: str) -> GuestClient:
        """Return a client of its guest agent, past the host agent.

        Raises:
            LookupError: It is gone.
        """

    async def signal_harness(self, replica_id: str, part: str, number: signal.Signals) -> None:
        """Send a signal to the processes that look after the desktop and have `part` in their command line.

        Raises:
            LookupError: No process has it, or the host's tools do not reach those of this runtime.
        """
        raise LookupError(f"{replica_id}: what looks after its desktop is not reached from outside")

    @abstractmethod
    def freeze(self, replica_id: str) -> None:
        """Stop everything that runs in it.

        Raises:
            LookupError: It is gone.
        """

    async def run_beside_agent(self, replica_id: str, command: str) -> None:
        """Start a shell command as root beside the guest agent, without waiting for its end.

        Raises:
            LookupError: The replica is gone, or the host's tools do not reach into those of this runtime.
        """
        raise LookupError(f"{replica_id}: what looks after its desktop is not reached from outside")

    async def put(self, replica_id: str, path: str, data: bytes) -> None:
        """Put a file inside.

        Raises:
            LookupError: The replica is gone, or its guest agent does not answer.
        """
        try:
            async with self.guest(replica_id) as guest:
                await guest.upload(path, data, timeout_s=15)
        except GuestError as error:
            raise LookupError(f"{replica_id}: {error}") from error

    async def answers(self, replica_id: str) -> bool:
        """Return whether its guest agent answers at once."""
        try:
            async with self.guest(replica_id) as guest:
                await guest.health(timeout_s=HEALTH_S)
        except (GuestError, LookupError):
            return False
        return True


class LocalReach(Reach):
    """Injector for replicas that are processes of this kernel."""

    def first_process(self, replica_id: str) -> int:
        """Return the session's process, as recorded beside its overlay."""
        path = self._service.run_folder / "replicas" / replica_id / "replica.json"
        with contextlib.suppress(OSError, ValueError, KeyError):
            noted = json.loads(path.read_text())
            if start_time_ticks(noted["pid"]) == noted["start_ticks"]:
                return int(noted["pid"])
        raise LookupError(f"{replica_id} is gone")

    def guest(self, replica_id: str) -> GuestClient:
        path = self._service.run_folder / "replicas" / replica_id / "agent.sock"
        if not path.exists():
            raise LookupError(f"{replica_id} is gone")
        return GuestClient(UnixAddress(path))

    async def signal_harness(self, replica_id: str, part: str, number: signal.Signals) -> None:
        """Send the signal from outside, where the replica's processes are seen as well."""
        if not _signal_all(tree_of(self.first_process(replica_id)), part, number):
            raise LookupError(f"{replica_id} has no {part}")

    async def run_beside_agent(self, replica_id: str, command: str) -> None:
        """Start it in the namespaces of the replica's first process, above those of the session."""
        inside = f"setsid sh -c {shlex.quote(command)} >/dev/null 2>&1 </dev/null &"
        try:
            await asyncio.to_thread(run_beside, self.first_process(replica_id), ["sh", "-c", inside])
        except (OSError, subprocess.SubprocessError) as error:
            raise LookupError(f"{replica_id}: {error}") from error

    def freeze(self, replica_id: str) -> None:
        for pid in tree_of(self.first_process(replica_id)):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGSTOP)


class QemuReach(Reach):
    """Injector for replicas that are virtual machines."""

    def record(self, replica_id: str) -> VmRecord:
        """Return the host agent's record of the machine.

        Raises:
            LookupError: It is gone.
        """
        for path in (self._service.run_folder / "records").glob("v*.json"):
            with contextlib.suppress(OSError, ValueError):  # replaced or removed while it was read
                record = VmRecord.model_validate_json(path.read_text())
                if record.replica is not None and record.replica.replica_id == replica_id:
                    return record
        raise LookupError(f"{replica_id} is gone")

    def first_process(self, replica_id: str) -> int:
        pid = self.record(replica_id).pid
        if pid is None:
            raise LookupError(f"{replica_id} has no process")
        return pid

    def guest(self, replica_id: str) -> GuestClient:
        """Return a client by the address and token in the machine's record."""
        record = self.record(replica_id)
        assert record.replica is not None
        return GuestClient(record.as_replica().guest, token=record.replica.token)

    def freeze(self, replica_id: str) -> None:
        """Stop QEMU, and with it all CPUs of the machine."""
        os.kill(self.first_process(replica_id), signal.SIGSTOP)


def tree_of(pid: int) -> list[int]:
    found = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += tree_of(int(child))
    return found


def _signal_all(pids: list[int], part: str, number: signal.Signals) -> int:
    """Send a signal to those that have `part` in their command line, and return their number."""
    hit = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            if part in Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace"):
                os.kill(pid, number)
                hit += 1
    return hit
