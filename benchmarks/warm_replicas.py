"""Effect of `warm_apps` and `warm_clones` on a turn of a replica, from its lease to its successor at rest.

    python -m benchmarks.warm_replicas --rounds 8

Host agents side by side, one for each way, take turns: lease the one warm replica (with a task or none), look
at the first frame, close, wait until the next one has waited for 3 s. `cpu_s` is all that the host agent, its
zygote, CRIU and the replicas used meanwhile: making the next replica and what runs in it, handing over,
set-up, first frame, end. `replica_cpu_s` is of the next replica alone, once it waits. `setup_ms` is what the
answer of `create` says; `ready_ms` is from the lease of one until the next waits, with its programs: its
making begins with the lease, beside the set-up. `begins_alike` compares first frames with those of the first
way, panel apart.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import httpx
from PIL import Image, ImageChops

from benchmarks.common import argument_parser, local_service, machine, save, summary
from benchmarks.settle.live import PANEL_HEIGHT_PX
from osgym_host.tasks.shipped import load_shipped
from osgym_sdk import Client

WAYS = {
    "as ever": {},
    "warm_apps": {"warm_apps": "calc,chromium"},
    "warm_clones": {"warm_clones": "on"},
    "both, office only": {"warm_apps": "calc", "warm_clones": "on"},
}
TASKS = (
    "",
    "mousepad/write-note",
    "libreoffice_calc/total",
    "libreoffice_writer/delivery-day",
    "chrome/order-shirt",
)
LOOK_S = 0.05
REST_S = 3.0
"""Time of rest: work of a replica in its first seconds of waiting still counts to the turn that made it."""
TURN_S = 90.0


def group_cpu_s(instance: str, replica: str = "") -> float:
    """Return the CPU time of all replicas of a host agent, or of one. Gone ones count into the group above.

    Raises:
        FileNotFoundError: Replicas have no control groups that count it.
    """
    below = f"{replica}/" if replica else ""
    for path in Path("/sys/fs/cgroup").glob(f"**/osgym-{instance}-*/{below}cpuacct.usage"):
        return int(path.read_text()) / 1e9
    for path in Path("/sys/fs/cgroup").glob(f"**/osgym-{instance}-*/{below}cpu.stat"):
        return int(path.read_text().split()[1]) / 1e6
    raise FileNotFoundError(f"no control group of {instance} counts CPU time")


class Way:
    """One host agent with its settings."""

    def __init__(self, name: str, url: str, pid: int, instance: str) -> None:
        self.name = name
        self.url = url
        self._pid = pid
        self._instance = instance
        self._last_event = 0

    def cpu_s(self) -> float:
        """Return the CPU time so far: replicas, the host agent with its children (CRIU, cp), the zygote."""
        ticks = 0
        for pid, reaped in ((self._pid, True), *((child, False) for child in self._children())):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11 : 15 if reaped else 13])
        return group_cpu_s(self._instance) + ticks / os.sysconf("SC_CLK_TCK")

    def _children(self) -> list[int]:
        listed = [path.read_text() for path in Path(f"/proc/{self._pid}/task").glob("*/children")]
        return [int(pid) for text in listed for pid in text.split()]

    def rest(self) -> dict[str, float]:
        """Wait until the warm replica has rested for `REST_S`; return its resources so far.

        Raises:
            TimeoutError: No warm replica rested in time.
        """
        end, alone = time.monotonic() + TURN_S, 0.0
        while time.monotonic() < end:
            rows = httpx.get(f"{self.url}/v1/replicas").json()
            if len(rows) != 1 or rows[0]["state"] != "ready":
                alone = 0.0
            elif not alone:
                alone = time.monotonic()
            elif time.monotonic() - alone >= REST_S and rows[0]["pss_mib"] is not None:
                cpu_s = group_cpu_s(self._instance, rows[0]["replica_id"])
                return {"pss_mib": rows[0]["pss_mib"], "replica_cpu_s": cpu_s}
            time.sleep(LOOK_S)
        raise TimeoutError(f"{self.name}: no replica was ready within {TURN_S:g} s")

    def ready_ms(self) -> float:
        """Return the time from the last lease until the next replica waited."""
        events = httpx.get(f"{self.url}/v1/events", params={"after": self._last_event}).json()["events"]
        self._last_event = events[-1]["id"] if events else self._last_event
        at = {row["state"]: row["time"] for row in events if row["kind"] == "replica"}
        return float((at["ready"] - at["leased"]) * 1000)

    def forget_events(self) -> None:
        while events := httpx.get(f"{self.url}/v1/events", params={"after": self._last_event}).json()[
            "events"
        ]:
            self._last_event = events[-1]["id"]


def turn(way: Way, client: Client, task: dict[str, Any] | None) -> tuple[dict[str, Any], Image.Image]:
    began = way.cpu_s()
    with client.episode(task) as episode:
        image = episode.observation.image.convert("RGB")
        timing = episode.trajectory.reset_ms
        used = list(episode.warm_apps or ())
    waiting = way.rest()
    row = {
        "setup_ms": timing["setup"],
        "create_ms": timing["total"],
        "cpu_s": way.cpu_s() - began,
        **waiting,
        "used": used,
    }
    return row, image.crop((0, 0, image.width, image.height - PANEL_HEIGHT_PX))


def measure(names: list[str], rounds: int) -> list[dict[str, Any]]:
    """Measure every task by every way in each round, in changing order; the first round only warms caches."""
    tasks = {entry.name: entry.task for entry in load_shipped()}
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        ways, clients = [], {}
        for name, settings in WAYS.items():
            instance = f"warm{len(ways)}x{os.getpid()}"
            given = {"warm": 1, "max_replicas": 3, "instance": instance, **settings}
            way = Way(name, *stack.enter_context(local_service("full", given)), instance)
            way.rest()
            ways.append(way)
            clients[name] = stack.enter_context(Client(way.url))
        for number in range(rounds + 1):
            for task in names:
                first: Image.Image | None = None
                order = ways if number % 2 else ways[::-1]
                found = {}
                for way in order:
                    way.forget_events()
                    row, image = turn(way, clients[way.name], tasks[task] if task else None)
                    found[way.name] = (row | {"ready_ms": way.ready_ms()}, image)
                first = found[ways[0].name][1]
                for name, (row, image) in found.items():
                    alike = ImageChops.difference(first, image).getbbox() is None
                    rows.append({"way": name, "task": task, **row, "begins_alike": alike})
            if not number:
                rows.clear()
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    for task in dict.fromkeys(row["task"] for row in rows):
        print(f"\n{task or 'no task'}")
        for way in dict.fromkeys(row["way"] for row in rows):
            mine = [row for row in rows if (row["way"], row["task"]) == (way, task)]
            told = {
                name: summary([row[name] for row in mine])["median"]
                for name in ("setup_ms", "cpu_s", "replica_cpu_s", "ready_ms", "pss_mib")
            }
            alike = sum(row["begins_alike"] for row in mine)
            print(
                f"  {way:18} set-up {told['setup_ms']:7.0f} ms  turn {told['cpu_s']:6.3f} CPU-s, "
                f"of it a replica until it waits {told['replica_cpu_s']:6.3f}  "
                f"ready after {told['ready_ms']:6.0f} ms  PSS {told['pss_mib']:4.0f} MiB  "
                f"alike {alike} of {len(mine)}"
            )


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=8, help="turns of each task by each way (8)")
    args = parser.parse_args()
    about = machine()
    rows = measure(list(TASKS), args.rounds)
    about["load_after"] = machine()["load_before"]
    show(rows)
    print(f"saved {save('warm_replicas', {'machine': about, 'rows': rows}, args.out)}")


if __name__ == "__main__":
    main()
