"""Parts that the benchmarks of virtual machines share: options, service, and a look at its machines."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from benchmarks.common import argument_parser, local_service, machine
from osgym_host.guest_client import GuestClient, GuestError
from osgym_host.images.store import default_data_dir
from osgym_host.runtimes.processes import pss_mib
from osgym_qemu.machine.records import VmPhase, VmRecord
from osgym_qemu.snapshots import SnapshotStore

START_S = 180.0


def options(
    description: str | None, *, image: str = "small", snapshot: str = "desktop"
) -> argparse.ArgumentParser:
    parser = argument_parser(description, image=image)
    parser.add_argument("--snapshot", default=snapshot, help=f"which frozen moment of it ({snapshot})")
    parser.add_argument(
        "--accel", choices=["auto", "tcg", "kvm"], default="auto", help="what runs guest code"
    )
    parser.add_argument("--quick", action="store_true", help="a try: few repetitions")
    return parser


def described(args: argparse.Namespace) -> dict[str, Any]:
    """Return what is measured, and on what: to be printed and saved with every result."""
    snapshot = SnapshotStore(default_data_dir()).resolve(f"{args.image}@{args.snapshot}")
    manifest = snapshot.manifest
    return {
        **machine(),
        "image": manifest.reference,
        "snapshot_digest": snapshot.digest[:12],
        "screen": list(manifest.screen),
        "guest_ram_mib": manifest.ram_mib,
        "accel": manifest.shape.get("accel") if args.accel == "auto" else args.accel,
        "qemu": qemu_version(),
    }


def qemu_version() -> str:
    """Return the version of the installed QEMU; empty when there is none."""
    with contextlib.suppress(OSError):
        said = subprocess.run(
            ["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=False
        )
        if found := re.search(r"version (\S+)", said.stdout):
            return found.group(1)
    return ""


class Service:
    """Host agent with virtual machines, and what can be seen of them from outside."""

    def __init__(self, url: str, pid: int, instance: str) -> None:
        self.url = url
        self.pid = pid
        self.instance = instance
        self.run_folder = default_data_dir() / "run" / instance

    def last_event(self) -> int:
        answer = httpx.get(f"{self.url}/v1/events?after=0&wait_s=0", timeout=30)
        return int(answer.raise_for_status().json()["last_id"])

    def events(self, after: int) -> list[dict[str, Any]]:
        answer = httpx.get(f"{self.url}/v1/events?after={after}&wait_s=0", timeout=30)
        found: list[dict[str, Any]] = answer.raise_for_status().json()["events"]
        return found

    def records(self) -> list[VmRecord]:
        """Return the host agent's records of all machines."""
        found = []
        for path in (self.run_folder / "records").glob("v*.json"):
            with contextlib.suppress(OSError, ValueError):  # replaced or removed while it was read
                found.append(VmRecord.model_validate_json(path.read_text()))
        return found

    def parked(self) -> int:
        """Return the number of processes that wait to become clones."""
        return sum(record.phase is VmPhase.PARKED for record in self.records())

    def machine_pids(self) -> list[int]:
        """Return processes of QEMU whose disk is in this instance's folder, recorded or not."""
        mark = os.fsencode(self.run_folder) + b"/"
        found = []
        for held in os.scandir("/proc"):
            with contextlib.suppress(OSError):
                if held.name.isdigit():
                    arguments = Path(f"/proc/{held.name}/cmdline").read_bytes()
                    if b"-blockdev\0" in arguments and mark in arguments:
                        found.append(int(held.name))
        return found

    def record_of(self, replica_id: str) -> VmRecord:
        """Return the machine that is a replica.

        Raises:
            LookupError: The replica has no machine.
        """
        for record in self.records():
            if record.replica is not None and record.replica.replica_id == replica_id:
                return record
        raise LookupError(f"no machine is {replica_id}")

    def agent(self) -> dict[str, float]:
        """Return the host agent's own resources: descriptors, among them memory files, and memory."""
        held = {"fds": 0.0, "memfds": 0.0, "pss_mib": pss_mib([self.pid])}
        with contextlib.suppress(OSError):
            for path in Path(f"/proc/{self.pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    held["fds"] += 1
                    held["memfds"] += path.readlink().name.startswith("memfd:")
        return held

    def pss_mib(self, replica_id: str) -> float:
        """Return the memory of a replica's QEMU, with shared pages by their part."""
        pid = self.record_of(replica_id).pid
        return pss_mib([pid]) if pid is not None else 0.0

    async def inside(
        self, replica_id: str, command: str, *, root: bool = False, timeout_s: float = 60.0
    ) -> str:
        """Return the output of a shell command in a replica, past the host agent, by its token from the
        records.

        Raises:
            GuestError: It did not answer, or refused.
        """
        record = self.record_of(replica_id)
        assert record.replica is not None
        argv = ["sudo", "-n", "sh", "-c", command] if root else ["sh", "-c", command]
        async with GuestClient(record.as_replica().guest, token=record.replica.token) as guest:
            return (await guest.execute(argv, timeout_s=timeout_s)).output

    def answers(self, replica_id: str) -> bool:
        """Return whether a replica's guest agent answers within seconds."""
        try:
            return "yes" in asyncio.run(self.inside(replica_id, "echo yes", timeout_s=5))
        except GuestError:
            return False

    def harm(self, replica_id: str, command: str) -> None:
        """Run a command as root in a replica that may not live to answer."""
        with contextlib.suppress(GuestError):
            asyncio.run(self.inside(replica_id, command, root=True, timeout_s=20))


@contextlib.contextmanager
def vm_service(args: argparse.Namespace, settings: Mapping[str, str | int | float]) -> Iterator[Service]:
    """Run a host agent of its own with the benchmark's image for the time of the block.

    Raises:
        ServiceFailed: It did not start.
    """
    given: dict[str, str | int | float] = {
        "runtime": "qemu",
        "qemu.snapshot": args.snapshot,
        "qemu.accel": args.accel,
        "trajectory": "off",
        "instance": f"bench-{os.getpid()}",
        **settings,
    }
    with local_service(args.image, given, START_S) as (url, pid):
        yield Service(url, pid, str(given["instance"]))
