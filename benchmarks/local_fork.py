"""Forks and suspensions on `local` in the middle of work: the parent's pause, the children, memory freed.

    python -m benchmarks.local_fork --rounds 20

Needs a host with CRIU, as root. An editor has text that no file has. Each round types a letter, forks, looks
at the child's first frame and compares it with the parent's, and closes the child. `pause_ms` is what the
host says; `gap_ms` is the longest time in which a program of the parent, which looks at the clock each
millisecond, did not run. It includes what the machine's other work takes from it; `gap_before_ms` is the same
without a fork. Then rounds that suspend the episode, wait until its replica is gone, and resume it:
`resume_ms` is until its first frame.
"""

from __future__ import annotations

import os
import time
from typing import Any

import httpx

from benchmarks.common import argument_parser, local_service, machine, save, summary
from benchmarks.vm_fork import differing_share
from osgym_sdk import Client, Episode

OPEN_EDITOR = "setsid mousepad >/dev/null 2>&1 </dev/null &"
TICKER = """
import time
longest = 0.0
last = began = time.monotonic()
while last - began < {seconds}:
    time.sleep(0.001)
    now = time.monotonic()
    longest, last = max(longest, now - last), now
print(1000 * longest)
"""
QUIET_S = 2.0
FORK_S = 1.5
LOOK_S = 0.1
GONE_S = 20.0


def begin(client: Client) -> Episode:
    """Return an episode with text in an editor."""
    episode = client.episode(wait_s=60, lease_ttl_s=300)
    episode.start()
    episode.execute(OPEN_EDITOR)
    time.sleep(QUIET_S)
    episode.step({"op": "type", "text": "never saved"})
    episode.write_file("~/ticker.py", TICKER.format(seconds=FORK_S))
    return episode


def fork_once(url: str, parent: Episode) -> dict[str, Any]:
    """Fork once beside a program that watches the clock; return the times."""
    parent.step({"op": "type", "text": "o"}, settle="certain")
    gap_before_ms = float(parent.execute("python3 ~/ticker.py").stdout)
    before = parent.observe()
    parent.execute("python3 ~/ticker.py > ~/gap 2>&1 &")
    time.sleep(0.2)
    last = httpx.get(f"{url}/v1/events").json()["events"][-1]["id"]
    began = time.monotonic()
    (child,) = parent.fork(1, wait_s=60)
    forked = time.monotonic()
    frame = child.observe()
    ready = time.monotonic()
    (event,) = [
        event
        for event in httpx.get(f"{url}/v1/events", params={"after": last}).json()["events"]
        if event["kind"] == "fork"
    ]
    child.close()
    time.sleep(FORK_S)
    return {
        "pause_ms": event["pause_ms"],
        "gap_ms": float(parent.execute("cat ~/gap").stdout),
        "gap_before_ms": gap_before_ms,
        "fork_ms": 1000 * (forked - began),
        "first_frame_ms": 1000 * (ready - began),
        "screen_differs": differing_share(before, frame),
    }


def suspend_once(url: str, client: Client, episode: Episode) -> tuple[Episode, dict[str, Any]]:
    """Suspend an episode, wait until its replica is gone, and resume it."""
    row = next(r for r in httpx.get(f"{url}/v1/replicas").json() if r["replica_id"] == episode.replica_id)
    before = episode.observe()
    began = time.monotonic()
    suspended = episode.suspend(ttl_s=600)
    done = time.monotonic()
    while _has_replica(url, episode.replica_id) and time.monotonic() - done < GONE_S:
        time.sleep(LOOK_S)
    gone = time.monotonic()
    again = client.resume(suspended)
    resumed = time.monotonic()
    return again, {
        "suspend_ms": 1000 * (done - began),
        "freed_after_ms": 1000 * (gone - began),
        "resume_ms": 1000 * (resumed - gone),
        "pss_mib": row["pss_mib"],
        "ram_on_disk_mib": suspended.info.ram_mib,
        "files_on_disk_mib": suspended.info.disk_mib,
        "screen_differs": differing_share(before, again.observation),
    }


def _has_replica(url: str, replica_id: str) -> bool:
    return any(row["replica_id"] == replica_id for row in httpx.get(f"{url}/v1/replicas").json())


def wait_for_pss(url: str, replica_id: str) -> None:
    """Wait until the host has measured the memory of a replica."""
    end = time.monotonic() + GONE_S
    while time.monotonic() < end:
        rows = httpx.get(f"{url}/v1/replicas").json()
        if any(row["replica_id"] == replica_id and row["pss_mib"] is not None for row in rows):
            return
        time.sleep(LOOK_S)


def measure(image: str, rounds: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    given = {"warm": 0, "max_replicas": 3, "branching": "on", "instance": f"lfork{os.getpid()}"}
    with local_service(image, given) as (url, _), Client(url) as client:
        episode = begin(client)
        forks = [fork_once(url, episode) for _ in range(rounds + 1)][1:]
        suspensions = []
        for _ in range(rounds // 2 + 1):
            wait_for_pss(url, episode.replica_id)
            episode, row = suspend_once(url, client, episode)
            suspensions.append(row)
        episode.close()
    return forks, suspensions[1:]


def main() -> None:
    parser = argument_parser(__doc__, image="small")
    parser.add_argument("--rounds", type=int, default=20, help="forks, and half as many suspensions (20)")
    args = parser.parse_args()
    about = machine()
    forks, suspensions = measure(args.image, args.rounds)
    about["load_after"] = os.getloadavg()[0]
    for rows in (forks, suspensions):
        for name in rows[0]:
            told = summary([row[name] for row in rows])
            print(f"  {name:18} median {told['median']:8.2f}  p95 {told['p95']:8.2f}  max {told['max']:8.2f}")
    result = {"machine": about, "image": args.image, "forks": forks, "suspensions": suspensions}
    print(f"saved {save('local_fork', result, args.out)}")


if __name__ == "__main__":
    main()
