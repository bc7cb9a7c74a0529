"""Faults of a virtual machine: the client's view, and the time to a clean slot.

    python -m benchmarks.vm_faults --image small
    python -m benchmarks.vm_faults --accel kvm     # on a host with KVM and such a snapshot

The harm is done under an episode while another one beside it takes a step every fifth of a second. Measured
from the harm: `noticed`, until the host retires the machine; `clean`, until nothing of it is left and its
slot is free; `answered`, until the client's next call is over, and what it says. The last two rows are faults
that no episode ends by: an agent inside that is started again, a host agent that is. Run it as root on the
machine itself: harm inside a guest goes through its agent, by the host agent's records.
"""

from __future__ import annotations

import argparse
import enum
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks.common import save, summary
from benchmarks.vm_common import Service, described, options, vm_service
from osgym_sdk import Client, Episode, EpisodeLost, OSGymError, Timeouts

DISK_MIB = 64
WAIT_S = 120.0
NEIGHBOUR_EVERY_S = 0.2
CALL_AFTER_S = 1.5
_LATER = "(sleep 1; {}) >/dev/null 2>&1 &"
"""Harm to the guest agent, which has to answer the command first."""
_AGENT = "pkill -{} -f [o]sgym_guest"
_FILL = f"dd if=/dev/urandom of=/big bs=1M count={5 * DISK_MIB} conv=fsync"


class When(enum.Enum):
    """Moment of the client's next step."""

    NOTICED = "once the host has noticed"
    SOON = "soon after the harm, which nothing tells but a call"
    BACK = "when the guest agent was started again; the episode is meant to go on"


@dataclass(frozen=True)
class Fault:
    """A way to do harm: to the process of QEMU, or by a command of the guest's root."""

    name: str
    number: signal.Signals | None = None
    command: str = ""
    when: When = When.NOTICED


FAULTS = (
    Fault("QEMU killed (SIGKILL)", signal.SIGKILL),
    Fault("QEMU crashed (SIGSEGV)", signal.SIGSEGV),
    Fault("QEMU stopped (SIGSTOP)", signal.SIGSTOP),
    Fault("guest kernel panic", command="echo c >/proc/sysrq-trigger"),
    Fault("guest restarts itself", command="reboot -ff"),
    Fault("guest switches itself off", command="poweroff -ff"),
    Fault(f"guest writes more than its {DISK_MIB} MiB of disk", command=_FILL),
    Fault(
        "guest agent stands still, the client calls",
        command=_LATER.format(_AGENT.format("STOP")),
        when=When.SOON,
    ),
    Fault(
        "guest agent killed, the client calls at once",
        command=_LATER.format(_AGENT.format("KILL")),
        when=When.SOON,
    ),
    Fault(
        "guest agent killed, the client calls when it is back",
        command=_LATER.format(_AGENT.format("KILL")),
        when=When.BACK,
    ),
)
ANSWERED = "the step's answer"
AGENT_KILLED = "host agent killed (SIGKILL), started again"


class Watch:
    """Follows the host's events about one replica."""

    def __init__(self, url: str, replica_id: str) -> None:
        self._url = url
        self._replica_id = replica_id
        self._last = httpx.get(f"{url}/v1/events?after=0&wait_s=0", timeout=30).json()["last_id"]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seen: dict[str, tuple[float, dict[str, Any]]] = {}
        self._thread.start()

    def _run(self) -> None:
        while "gone" not in self.seen and not self._ended.is_set():
            answer = httpx.get(f"{self._url}/v1/events?after={self._last}&wait_s=2", timeout=30).json()
            now = time.monotonic()
            self._last = answer["last_id"]
            for event in answer["events"]:
                if event.get("replica_id") == self._replica_id:
                    self.seen.setdefault(event["state"], (now, event))

    def wait(self, state: str) -> bool:
        """Return whether the replica came into this state in time."""
        return until(lambda: state in self.seen)

    def close(self) -> None:
        self._ended.set()
        self._thread.join(WAIT_S)


class Neighbour:
    """Steps another episode all the time, and records the results."""

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.step_ms: list[float] = []
        self.error = ""
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(NEIGHBOUR_EVERY_S) and not self.error:
            began = time.monotonic()
            try:
                self._episode.step(f"move({len(self.step_ms) % 50},5)", settle="fast")
            except OSGymError as error:
                self.error = f"{type(error).__name__}: {error}"
            else:
                self.step_ms.append(1000 * (time.monotonic() - began))

    def close(self) -> dict[str, Any]:
        enough = len(self.step_ms) + 2  # one of them began after the harm was over
        until(lambda: len(self.step_ms) >= enough or bool(self.error))
        self._ended.set()
        self._thread.join(WAIT_S)
        told = summary(self.step_ms)
        well = not self.error and len(self.step_ms) > 0
        return {"well": well, "error": self.error, "median_ms": told["median"], "max_ms": told["max"]}


def until(condition: Callable[[], bool]) -> bool:
    """Return whether a condition that another thread fulfils came true in time."""
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def call(episode: Episode) -> str:
    """Take a step; return the client's view."""
    try:
        episode.step("move(7,7)", settle="fast")
    except EpisodeLost as lost:
        return f"EpisodeLost, cause {lost.cause}"
    except OSGymError as error:
        return f"{type(error).__name__}, {error.code}"
    return ANSWERED


def replica_of(episode: Episode) -> str:
    replica_id = episode.replica_id
    assert replica_id is not None
    return replica_id


def provoke(client: Client, service: Service, fault: Fault) -> dict[str, Any]:
    """Do one harm and return its consequences."""
    with client.episode(wait_s=WAIT_S) as other, client.episode(wait_s=WAIT_S) as victim:
        victim.step("move(6,6)")
        replica_id = replica_of(victim)
        pid = service.record_of(replica_id).pid
        assert pid is not None
        watch, neighbour = Watch(service.url, replica_id), Neighbour(other)
        harming = threading.Thread(target=service.harm, args=(replica_id, fault.command))
        began = time.monotonic()
        if fault.number is not None:
            os.kill(pid, fault.number)
        else:
            harming.start()
        match fault.when:
            case When.NOTICED:
                watch.wait("retiring")
            case When.SOON:
                harming.join(WAIT_S)
                time.sleep(CALL_AFTER_S)
            case When.BACK:
                harming.join(WAIT_S)
                time.sleep(CALL_AFTER_S)
                until(lambda: service.answers(replica_id))
        seen = call(victim)
        answered_s = time.monotonic() - began
        if seen != ANSWERED:
            watch.wait("gone")
        watch.close()
        if harming.ident is not None:
            harming.join(WAIT_S)
        beside = neighbour.close()
    times = {state: at - began for state, (at, _) in watch.seen.items()}
    return {
        "fault": fault.name,
        "noticed_s": times.get("retiring"),
        "clean_s": times.get("gone"),
        "answered_s": answered_s,
        "client": seen,
        "as_meant": (fault.when is When.BACK) == (seen == ANSWERED),
        "neighbour": beside,
        "detail": watch.seen.get("retiring", (0, {}))[1].get("detail", "")[:200],
    }


def kill_host_agent(args: argparse.Namespace, settings: dict[str, str | int | float]) -> dict[str, Any]:
    """Kill the host agent under two episodes; both go on with the next one."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    settings = {**settings, "ports": port}
    with (
        vm_service(args, settings) as service,
        Client(service.url, timeouts=Timeouts(retry_s=WAIT_S, step_s=WAIT_S)) as client,
        client.episode(wait_s=WAIT_S) as other,
        client.episode(wait_s=WAIT_S) as victim,
    ):
        victim.step("move(6,6)")
        pid = service.record_of(replica_of(victim)).pid
        neighbour = Neighbour(other)
        began = time.monotonic()
        os.kill(service.pid, signal.SIGKILL)
        seen: list[tuple[str, float]] = []
        calling = threading.Thread(target=lambda: seen.append((call(victim), time.monotonic() - began)))
        calling.start()
        with vm_service(args, {**settings, "instance": service.instance}) as again:
            listens_s = time.monotonic() - began
            calling.join(WAIT_S)
            same = again.record_of(replica_of(victim)).pid == pid
            beside = neighbour.close()
            victim.close()
            other.close()
    told, answered_s = seen[0] if seen else ("nothing", WAIT_S)
    return {
        "fault": AGENT_KILLED,
        "noticed_s": None,
        "clean_s": None,
        "answered_s": answered_s,
        "listens_s": listens_s,
        "client": told,
        "as_meant": told == ANSWERED and same,
        "neighbour": beside,
        "detail": f"same QEMU: {same}",
    }


def table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| fault | noticed s | slot clean s | call over s | the client's next call | neighbour's slowest |",
        "|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["fault"] for row in rows):
        mine = [row for row in rows if row["fault"] == name]
        cells = [name]
        for column in ("noticed_s", "clean_s", "answered_s"):
            values = [row[column] for row in mine if row[column] is not None]
            cells.append(f"{summary(values)['median']:.2f}" if values else "–")
        cells.append("; ".join(sorted({row["client"] for row in mine})))
        well = all(row["neighbour"]["well"] for row in mine)
        slowest = max(row["neighbour"]["max_ms"] for row in mine)
        cells.append(f"unharmed, {slowest:.0f} ms" if well else "HARMED")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each (3)")
    parser.add_argument("--only", default="", help="only faults with this in their name")
    args = parser.parse_args()
    times = 1 if args.quick else args.rounds
    about = described(args)
    print(about)
    settings: dict[str, str | int | float] = {
        "warm": 1,
        "parked": 1,
        "cpu_per_replica": 0,
        "replica_disk_mib": DISK_MIB,
    }
    rows = []
    chosen = [fault for fault in FAULTS if args.only in fault.name]
    if chosen:
        with vm_service(args, settings) as service, Client(service.url) as client:
            for fault in times * chosen:
                rows.append(provoke(client, service, fault))
                print(json.dumps(rows[-1]), flush=True)
    if args.only in AGENT_KILLED:
        for _ in range(times):
            rows.append(kill_host_agent(args, settings))
            print(json.dumps(rows[-1]), flush=True)
    print("", *table(rows), sep="\n")
    right = all(row["as_meant"] and row["neighbour"]["well"] for row in rows)
    where = save("vm_faults", {"machine": about, "rounds": times, "right": right, "rows": rows}, args.out)
    print(f"everything as it is meant to be: {right}; raw series in {where}")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
