"""OSWorld's own DesktopEnv on these desktops: both scores of the same final states, and the times.

Each task is run through `desktop-env`'s DesktopEnv with `osgym_osworld` (their set-up, screenshots, getters
and metrics) and as episodes of the SDK (ours), in two final states each: see benchmarks/osworld_play.py. Of
all task files those are taken that `osgym task check` says run here; those that fetch files with files made
here in their place (tests/support/osworld_stand_ins.py), so that the internet is not needed.

    python -m benchmarks.osworld_harness --tasks OSWorld/evaluation_examples/examples --at-once 8

Needs OSWorld's package and what it imports in this environment: tests/trainers/osworld.txt. Without them,
`--harness ours` plays the SDK's half.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.common import argument_parser, leak_rows, local_service, machine, save, summary
from benchmarks.osworld_oracles import oracles
from benchmarks.osworld_play import Case, Ended, State, Times, ended, play_ours, play_theirs
from osgym_cli.evals.jobs import find_task_files
from osgym_host.images.store import ImageStore, default_data_dir
from osgym_host.tasks.needs import Verdict, needs_of, programs_of
from osgym_sdk import Client, OSGymError, Timeouts

WAIT_S = 600.0
SETTLED_S = 20.0
DIFFERENCES = Path(__file__).with_name("osworld_differences.toml")
"""Reasons for different scores of a state, by task and state."""


class _Quiet(SimpleHTTPRequestHandler):
    """Request handler without a log."""

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine's loopback; yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def cases(args: argparse.Namespace, files: Path, address: str) -> list[Case]:
    """Return the tasks that run here, those of different domains in turn."""
    from tests.support.osworld_stand_ins import has_stand_in, stand_in

    has_program = programs_of(ImageStore(default_data_dir()).resolve(args.image).rootfs)
    solved = oracles()
    domains: dict[str, list[Case]] = {}
    for path in find_task_files([str(args.tasks)]):
        task = json.loads(path.read_bytes())
        verdict = needs_of(task, has_program, default_data_dir() / "cache" / "downloads").verdict
        fetches = verdict is Verdict.FETCHES
        if not (verdict is Verdict.RUNS or (fetches and has_stand_in(task))):
            continue
        if args.only and not task["id"].startswith(tuple(args.only)):
            continue
        ours, theirs = (stand_in(task, files), stand_in(task, files, address)) if fetches else (task, task)
        case = Case(path.parent.name, ours, theirs, solved.get(task["id"]), fetches)
        domains.setdefault(path.parent.name, []).append(case)
    found: list[Case] = []
    while any(domains.values()):
        found += [tasks.pop(0) for tasks in domains.values() if tasks]
    return found[: args.count]


def play(client: Client, args: argparse.Namespace, folder: Path, case: Case) -> tuple[list[Ended], Times]:
    """Run one task's states both ways, and print errors."""
    states, times = ended(case), Times(case.task["id"])
    if args.harness != "ours":
        try:
            times = play_theirs(case, states, args.steps, folder / case.task["id"])
        except Exception as error:  # noqa: BLE001  # theirs raises any
            states[0].theirs_error = states[0].theirs_error or f"{type(error).__name__}: {error}"[:300]
    play_ours(client, case, states, WAIT_S)
    for state in states:
        why = "  ".join(filter(None, (state.theirs_error, state.ours_error)))
        why = why or (state.ours_note if state.ours != state.right else "")
        print(
            f"{state.domain:20} {state.task[:8]} {state.state:12} theirs {state.theirs} ours {state.ours}"
            f"  first frame {state.reset_ms.get('client', 0) / 1000:.1f} s, of it set-up"
            f" {state.reset_ms.get('setup', 0) / 1000:.1f} s  {why}",
            flush=True,
        )
    return states, times


def resumed(
    client: Client, args: argparse.Namespace, folder: Path, case: Case
) -> tuple[list[Ended], Times] | None:
    """Run one task's states, or take them from an earlier sitting; None where it is too late to begin."""
    kept = None if args.resume is None else args.resume / f"{case.task['id']}.json"
    if kept is not None and kept.exists():
        found = json.loads(kept.read_bytes())
        states = [Ended(**{**row, "state": State(row["state"])}) for row in found["states"]]
        return states, Times(**found["times"])
    if args.until_s is not None and time.monotonic() > args.until_s:
        return None
    states, times = play(client, args, folder, case)
    if kept is not None:
        row = {"states": [asdict(state) for state in states], "times": asdict(times)}
        kept.with_suffix(".new").write_text(json.dumps(row))
        kept.with_suffix(".new").rename(kept)
    return states, times


def resources(client: Client) -> dict[str, float]:
    """Return what could leak: leases of the host, descriptors and threads of this process."""
    states = client.host_states().values()
    return {
        "leases": sum(state.capacity.leased for state in states if not isinstance(state, OSGymError)),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }


VERDICTS = frozenset({"equal", "unexplained", "right", "wrong"})
"""Verdicts on a state; any other text is the reason for which its two scores differ."""


def verdict(state: Ended, reasons: dict[str, dict[str, str]], both: bool) -> str:
    """Return the comparison of a state's scores in a word or a sentence."""
    if not both:
        return "right" if state.ours == state.right else "wrong"
    if state.theirs == state.ours:
        return "equal"
    return reasons.get(state.task, {}).get(state.state, "unexplained")


def report(states: Sequence[Ended], times: Sequence[Times], verdicts: Sequence[str]) -> dict[str, Any]:
    """Return the agreement of the scores, and the distribution of each time."""

    def right(kind: str, *of: State) -> int:
        return sum(getattr(state, kind) == state.right for state in states if state.state in of)

    solved = State.ORACLE, State.GAVE_UP
    resets = [state.reset_ms for state in states if state.reset_ms]
    series = {
        "first_frame_ms": [each["client"] for each in resets],
        "setup_ms": [each["setup"] for each in resets],
        "theirs_start_s": [each.start_s for each in times if each.start_s is not None],
        "theirs_reset_s": [s.theirs_reset_s for s in states if s.theirs_reset_s is not None],
        "theirs_evaluate_s": [s.theirs_evaluate_s for s in states if s.theirs_evaluate_s is not None],
        "theirs_step_ms": [each for one in times for each in one.step_ms],
    }
    return {
        "tasks": len({state.task for state in states}),
        "tasks_that_fetch": len({state.task for state in states if state.fetches}),
        "states": len(states),
        "states_by_kind": dict(Counter(state.state for state in states)),
        "nothing_right": {kind: right(kind, State.NOTHING) for kind in ("theirs", "ours")},
        "solved_right": {kind: right(kind, *solved) for kind in ("theirs", "ours")},
        "verdicts": dict(Counter(word if word in VERDICTS else "named" for word in verdicts)),
        **{name: summary(values) for name, values in series.items() if values},
    }


def arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__, image="osworld")
    parser.add_argument("--tasks", type=Path, required=True, help="folder with OSWorld's task files")
    parser.add_argument("--count", type=int, default=None, help="tasks at most")
    parser.add_argument("--only", action="append", default=[], help="tasks whose id begins so")
    parser.add_argument("--at-once", type=int, default=8, help="tasks at a time (8)")
    parser.add_argument("--steps", type=int, default=3, help="steps of DesktopEnv that are timed (3)")
    parser.add_argument("--harness", choices=["both", "ours"], default="both", help="who plays and scores")
    parser.add_argument("--runtime", choices=["local", "qemu"], default="local")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of the host agent")
    parser.add_argument("--deadline-s", type=float, default=600.0, help="of a set-up, a step, a check (600)")
    parser.add_argument("--resume", type=Path, help="folder of what was played; it is gone on from there")
    parser.add_argument("--minutes", type=float, help="begin no task after these")
    args = parser.parse_args()
    args.until_s = None if args.minutes is None else time.monotonic() + 60 * args.minutes
    if args.resume is not None:
        args.resume.mkdir(parents=True, exist_ok=True)
    return args


def digest_of(args: argparse.Namespace) -> str:
    """Return which image it is; of a run in several sittings, the last one's."""
    return str(ImageStore(default_data_dir()).resolve(args.image).digest)


def settings_of(args: argparse.Namespace, files: Path) -> dict[str, str | int | float]:
    given: dict[str, str | int | float] = dict(pair.split("=", 1) for pair in args.set)
    return {
        "runtime": args.runtime, "warm": args.at_once, "max_replicas": args.at_once, "trajectory": "off",
        "task_files_dir": str(files), "setup_timeout_s": int(args.deadline_s),
        "evaluate_timeout_s": int(args.deadline_s), **given,
    }  # fmt: skip


def main() -> None:
    args = arguments()
    logging.disable(logging.WARNING)  # theirs tell every request
    described = machine()
    reasons = tomllib.loads(DIFFERENCES.read_text())
    patient = Timeouts(
        control_s=120.0, step_s=args.deadline_s, setup_s=args.deadline_s, evaluate_s=args.deadline_s
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as files,
        served(Path(files)) as address,
        local_service(args.image, settings_of(args, Path(files)), 180) as (url, _),
        Client(url, timeouts=patient) as client,
    ):
        if args.harness != "ours":
            from osgym_osworld import harness

            harness.install(url, wait_s=WAIT_S)
        before = resources(client)
        began = time.monotonic()
        with ThreadPoolExecutor(args.at_once) as pool:
            chosen = cases(args, Path(files), address)
            found = list(pool.map(partial(resumed, client, args, Path(folder)), chosen))
        wall_s = time.monotonic() - began
        leaks = leak_rows([before, settled(client, before)], {"leases": 0, "descriptors": 16, "threads": 24})
    played = [each for each in found if each is not None]
    states, times = [state for some, _ in played for state in some], [one for _, one in played]
    verdicts = [verdict(state, reasons, args.harness == "both") for state in states]
    result = report(states, times, verdicts)
    for name, row in result.items():
        print(f"{name:18} {row}")
    for leak in leaks:
        print(leak)
    rows = [{**asdict(state), "verdict": word} for state, word in zip(states, verdicts, strict=True)]
    save(
        "osworld_harness" if args.runtime == "local" else f"osworld_harness_{args.runtime}",
        {
            "machine": described,
            "image": args.image,
            "digest": digest_of(args),
            "at_once": args.at_once,
            "wall_s_of_last_sitting": round(wall_s, 1),
            "not_begun": len(found) - len(played),
            **result,
            "leaks": leaks,
            "rows": rows,
            "series": [asdict(one) for one in times],
        },
        args.out,
    )  # fmt: skip


def settled(client: Client, before: dict[str, float]) -> dict[str, float]:
    """Return the resources at the end, once leases are back."""
    until = time.monotonic() + SETTLED_S
    while time.monotonic() < until and resources(client)["leases"] > before["leases"]:
        time.sleep(0.5)
    return resources(client)


if __name__ == "__main__":
    main()
