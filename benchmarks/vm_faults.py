"""Each fault of a virtual machine, provoked on purpose: what the client sees, how soon the slot is clean.

python -m benchmarks.vm_faults --image small

The harm is done under an episode while another one runs beside it. Measured from the harm: `noticed`,
until the host retires the machine; `clean`, until nothing of it is left and its slot may be used again.
`client` is what the client's next call raises. Run it as root on the machine itself: harm inside a guest
goes through its agent, with the token from the host agent's records.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.common import local_service, machine, save, summary
from osgym_host.guest import GuestClient, GuestError
from osgym_host.images.store import default_data_dir
from osgym_host.runtimes.qemu.records import VmRecord
from osgym_sdk import Client, EpisodeLost, OSGymError

FILL = "dd if=/dev/urandom of=/big bs=1M count=300 conv=fsync"
DISK_MIB = 64
WAIT_S = 120.0


@dataclass(frozen=True)
class Fault:
    """A way to do harm: to the process of QEMU, or by a command of the guest's root."""

    name: str
    number: signal.Signals | None = None
    command: str = ""


FAULTS = (
    Fault("QEMU killed (SIGKILL)", signal.SIGKILL),
    Fault("QEMU crashed (SIGSEGV)", signal.SIGSEGV),
    Fault("QEMU stopped (SIGSTOP)", signal.SIGSTOP),
    Fault("guest kernel panic", command="echo c >/proc/sysrq-trigger"),
    Fault("guest restarts itself", command="reboot -ff"),
    Fault("guest switches itself off", command="poweroff -ff"),
    Fault(f"guest writes more than its {DISK_MIB} MiB of disk", command=FILL),
    Fault("guest agent stands still, the client calls", command="pkill -STOP -f osgym_guest"),
)


def _record(instance: str, replica_id: str) -> VmRecord:
    """The machine of a replica, as the host agent has written it down."""
    for path in (default_data_dir() / "run" / instance / "records").glob("v*.json"):
        record = VmRecord.model_validate_json(path.read_text())
        if record.replica is not None and record.replica.replica_id == replica_id:
            return record
    raise LookupError(f"no machine is {replica_id}")


async def _inside(record: VmRecord, command: str) -> None:
    assert record.replica is not None
    guest = record.as_replica().guest
    with contextlib.suppress(GuestError):
        async with GuestClient(guest, token=record.replica.token) as client:
            await client.execute(["sudo", "-n", "sh", "-c", command], timeout_s=20)


def _harm(fault: Fault, record: VmRecord) -> None:
    assert record.pid is not None
    if fault.number is not None:
        os.kill(record.pid, fault.number)
    else:
        asyncio.run(_inside(record, fault.command))


class Watch:
    """Follows the host's events about one replica."""

    def __init__(self, url: str, replica_id: str) -> None:
        self._url = url
        self._replica_id = replica_id
        self._last = httpx.get(f"{url}/v1/events?after=0&wait_s=0").json()["last_id"]
        self.seen: dict[str, tuple[float, dict[str, Any]]] = {}

    def run(self) -> None:
        """Until nothing of it is left."""
        end = time.monotonic() + WAIT_S
        while "gone" not in self.seen and time.monotonic() < end:
            answer = httpx.get(f"{self._url}/v1/events?after={self._last}&wait_s=5", timeout=30).json()
            now = time.monotonic()
            self._last = answer["last_id"]
            for event in answer["events"]:
                if event.get("replica_id") == self._replica_id:
                    self.seen.setdefault(event["state"], (now, event))


def provoke(client: Client, url: str, instance: str, fault: Fault) -> dict[str, Any]:
    """Do one harm and say what came of it."""
    with client.episode(wait_s=WAIT_S) as neighbour, client.episode(wait_s=WAIT_S) as victim:
        neighbour.step("move(5,5)")
        victim.step("move(6,6)")
        replica_id = victim.trajectory.replica_id
        assert replica_id is not None
        watch = Watch(url, replica_id)
        watching = threading.Thread(target=watch.run)
        watching.start()
        harming = threading.Thread(target=_harm, args=(fault, _record(instance, replica_id)))
        began = time.monotonic()
        harming.start()
        seen = "nothing"
        if "client calls" in fault.name:
            time.sleep(1.0)
        else:
            _until(lambda: "retiring" in watch.seen)
        try:
            victim.step("move(7,7)")
        except EpisodeLost as lost:
            seen = f"EpisodeLost: {lost.cause}"
        except OSGymError as error:
            seen = f"{type(error).__name__}: {error.code}"
        watching.join(WAIT_S)
        harming.join(30)
        unharmed = neighbour.step("move(8,8)").step == 2
    times = {state: at - began for state, (at, _) in watch.seen.items()}
    return {
        "fault": fault.name,
        "noticed_s": times.get("retiring"),
        "clean_s": times.get("gone"),
        "client": seen,
        "neighbour_unharmed": unharmed,
        "detail": watch.seen.get("retiring", (0, {}))[1].get("detail", "")[:200],
    }


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


def main() -> None:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--image", default="small", help="golden image: full or small")
    parser.add_argument("--rounds", type=int, default=1, help="how often each (1)")
    parser.add_argument("--out", type=Path, help="where the raw series goes")
    args = parser.parse_args()
    instance = f"bench-{os.getpid()}"
    settings: dict[str, str | int | float] = {
        "runtime": "qemu", "warm": 1, "parked": 1, "replica_disk_mib": DISK_MIB, "instance": instance
    }  # fmt: skip
    rows = []
    with local_service(args.image, settings) as (url, _), Client(url) as client:
        for _round in range(args.rounds):
            for fault in FAULTS:
                row = provoke(client, url, instance, fault)
                rows.append(row)
                print(json.dumps(row), flush=True)
    print("\n| fault | noticed s | slot clean s | the client's next call | neighbour |")
    print("|---|---|---|---|---|")
    for fault in FAULTS:
        mine = [row for row in rows if row["fault"] == fault.name]
        told = [summary([row[k] for row in mine if row[k] is not None])["median"] for k in _TIMES]
        figures = " | ".join(f"{value:.2f}" for value in told)
        well = "unharmed" if all(row["neighbour_unharmed"] for row in mine) else "HARMED"
        print(f"| {fault.name} | {figures} | {', '.join(sorted({row['client'] for row in mine}))} | {well} |")
    result = {"machine": machine(), "image": args.image, "rows": rows}
    print(f"saved {save('vm_faults', result, args.out)}")


_TIMES = ("noticed_s", "clean_s")

if __name__ == "__main__":
    main()
