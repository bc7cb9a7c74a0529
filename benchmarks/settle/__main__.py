"""Measure when the screen is final: `python -m benchmarks.settle run`, then `report`.

It needs a host agent with the full image (`osgym host serve`); nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from benchmarks.common import dumps
from benchmarks.settle.image import FLAVOR, PLAIN_FLAVOR, bake
from benchmarks.settle.live import (
    FIXED_PAUSES_MS,
    HOGS_PER_CORE,
    TRUTH_AFTER_S,
    Played,
    Verdict,
    load,
    run_application,
)
from benchmarks.settle.record import record
from benchmarks.settle.report import HEADER, markdown, plot, rest_table, row
from benchmarks.settle.rest import STAGES, RestError
from benchmarks.settle.scenarios import MIXES, application, chosen
from benchmarks.settle.stats import summarize
from osgym_host.calibration.replay import Trace, decide, oracle_ms, premature, read_rule, read_traces
from osgym_sdk import Client, OSGymError, SettlePolicy

CURVE_MS = (0.0, 60.0, 120.0, 160.0, 200.0, 260.0, 360.0, 500.0, 700.0, 1000.0)
"""Horizons from no timer to timers of a second."""
DEFAULT_HOST = "http://127.0.0.1:20000"
ALONE, OVERLOADED = "alone", "three times overloaded"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.settle", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="drive the scenarios and save the verdicts")
    run.add_argument("--host", default=os.environ.get("OSGYM_HOSTS", DEFAULT_HOST))
    run.add_argument(
        "--mix", choices=MIXES, default="all", help="flows carried through, single strokes, or both"
    )
    run.add_argument("--apps", help="names, separated by commas, in place of a mix")
    run.add_argument("--policies", default="exact,fast,certain,fixed")
    run.add_argument("--seeds", default="1", help="each seed is one more round over all applications")
    run.add_argument("--repetitions", type=int, default=1, help="of each seed")
    run.add_argument("--truth-s", type=float, default=TRUTH_AFTER_S, help="when a screen counts as final")
    run.add_argument("--at-most", type=int, help="so many actions of each application only")
    run.add_argument(
        "--smoke", action="store_true", help="a few actions of one application, to see that it runs"
    )
    run.add_argument(
        "--parallel", type=int, default=1, help="replicas at once; they disturb each other a little"
    )
    run.add_argument(
        "--rest", default="", metavar="STAGES",
        help=f"in turns with a replica that is in each of these before a step, of {','.join(STAGES)}; "
        "benchmarks/settle/rest.py has the settings of the host",
    )  # fmt: skip
    run.add_argument("--load", action="store_true", help=f"with {HOGS_PER_CORE} busy processes on each core")
    run.add_argument("--out", type=Path, default=Path("out/settle.json"))
    image = commands.add_parser("image", help=f"bake the benchmark's own image, {FLAVOR}")
    image.add_argument("--record", action="store_true", help="its guest agents write down their signals")
    image.add_argument(
        "--without-remedies", action="store_true", help=f"applications as Debian has them: {PLAIN_FLAVOR}"
    )
    recorder = commands.add_parser("record", help="record signals, to try rules on")
    recorder.add_argument("--host", default=os.environ.get("OSGYM_HOSTS", DEFAULT_HOST))
    recorder.add_argument("--mix", choices=MIXES, default="flows")
    recorder.add_argument("--apps", help="names, separated by commas, in place of a mix")
    recorder.add_argument("--kept", action="store_true", help="what is kept for the end, and nothing else")
    recorder.add_argument("--seed", type=int, default=1)
    recorder.add_argument("--parallel", type=int, default=1)
    recorder.add_argument("--out", type=Path, default=Path("traces"))
    report = commands.add_parser("report", help="tables and plot of saved runs")
    report.add_argument("files", type=Path, nargs="+")
    report.add_argument("--save", type=Path, help="folder for tables, plot and merged series")
    rules = commands.add_parser("rules", help="evaluate the guest agent's policies on recorded traces")
    rules.add_argument("traces", type=Path, nargs="+")
    rules.add_argument("--settle", type=Path, default=Path("guest_agent/osgym_guest/data/settle.json"))
    rules.add_argument(
        "--curve", action="store_true", help="`exact` with all its horizons at 0, 60, … ms: what waiting buys"
    )
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> int:
    """Run all applications under all policies; one that fails is named and left out."""
    if options.smoke:
        options.apps, options.policies, options.truth_s, options.at_most = "mousepad-flow", "exact", 0.8, 8
    seeds = [int(text) for text in options.seeds.split(",")]
    policies = [SettlePolicy(text) for text in options.policies.split(",")]
    stages = options.rest.split(",") if options.rest else [""]
    if unknown := set(stages) - {"", *STAGES}:
        print(f"--rest: no stage {', '.join(sorted(unknown))}, only {', '.join(STAGES)}", file=sys.stderr)
        return 2
    rounds = range(1, options.repetitions + 1)
    verdicts: list[Verdict] = []
    failures: list[dict[str, Any]] = []
    hogs = load(HOGS_PER_CORE) if options.load else nullcontext()
    with Client(options.host) as client, hogs, ThreadPoolExecutor(options.parallel) as pool:
        started = {
            pool.submit(_play, client, name, policy, seed, stage, options): (
                name,
                policy,
                seed,
                number,
                stage,
            )
            for number in rounds
            for seed in seeds
            for name in _names(client, options)
            for policy in policies
            for stage in stages
        }
        for job in as_completed(started):
            name, policy, seed, number, stage = started[job]
            try:
                played = job.result()
            except (OSGymError, TimeoutError, RestError, httpx.HTTPError) as error:
                print(f"{name} {policy.value}: {error!r}", file=sys.stderr, flush=True)
                failures.append({"app": name, "policy": policy.value, "error": repr(error)})
                continue
            if played.carried is False:
                error = "not carried through: a file that it saves is not there"
                failures.append({"app": name, "policy": policy.value, "error": error})
            found = [dataclasses.replace(v, seed=seed, round=number) for v in played.verdicts]
            verdicts.extend(found)
            text = f"{name} {policy.value} {stage}: {sum(v.premature for v in found)}/{len(found)} premature"
            print(text if played.carried is not False else f"{text}, NOT FINISHED", flush=True)
            save(options, verdicts, failures)
    return 1 if failures else 0


def _names(client: Client, options: argparse.Namespace) -> list[str]:
    """Return the applications to run: those asked for, else those of the mix that the host's image has."""
    if options.apps:
        return [application(name).name for name in options.apps.split(",")]
    (state,) = client.host_states().values()
    if isinstance(state, OSGymError):
        raise state
    own_image = state.image is not None and state.image.flavor in (FLAVOR, PLAIN_FLAVOR)
    return [app.name for app in chosen(options.mix, own_image=own_image)]


def _play(
    client: Client, name: str, policy: SettlePolicy, seed: int, stage: str, options: argparse.Namespace
) -> Played:
    return run_application(
        client,
        application(name),
        policy,
        seed,
        truth_after_s=options.truth_s,
        at_most=options.at_most,
        rest=stage,
        host=options.host,
    )


def record_all(options: argparse.Namespace) -> int:
    """Record the applications; those that are kept for the end only when they are asked for."""
    failed = 0
    options.out.mkdir(parents=True, exist_ok=True)
    with Client(options.host) as client, ThreadPoolExecutor(options.parallel) as pool:
        apps = [application(name) for name in _names(client, options)]
        taken = apps if options.apps else [app for app in apps if app.kept == options.kept]
        jobs = {pool.submit(record, client, app, options.seed, options.out): app.name for app in taken}
        for job in as_completed(jobs):
            try:
                print(job.result(), flush=True)
            except (OSGymError, OSError, TimeoutError, ValueError) as error:
                print(f"{jobs[job]}: {error!r}", file=sys.stderr, flush=True)
                failed += 1
    return 1 if failed else 0


def save(options: argparse.Namespace, verdicts: list[Verdict], failures: list[dict[str, Any]]) -> None:
    """Write the raw series after each application, so that an interrupted run is not lost."""
    head = {
        "title": OVERLOADED if options.load else ALONE,
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release()},
        "seeds": options.seeds,
        "failures": failures,
    }
    write(options.out, head, verdicts)


def write(path: Path, head: dict[str, Any], verdicts: list[Verdict]) -> None:
    """Save a run: one document, one verdict on a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dumps({**head, "verdicts": [dataclasses.asdict(verdict) for verdict in verdicts]}) + "\n")


def read(path: Path) -> tuple[dict[str, Any], list[Verdict]]:
    """Return the head and the verdicts of a saved run."""
    head = json.loads(path.read_text())
    verdicts = []
    for entry in head.pop("verdicts"):
        entry["box"] = tuple(entry["box"]) if entry["box"] else None
        verdicts.append(Verdict(**entry))
    return head, verdicts


def report(options: argparse.Namespace) -> int:
    """Write tables, plot and merged series of saved runs; runs of the same title belong together."""
    heads: dict[str, dict[str, Any]] = {}
    runs: dict[str, list[Verdict]] = {}
    for path in options.files:
        head, verdicts = read(path)
        for verdict in verdicts:
            title = ", ".join(filter(None, (head["title"], verdict.rest)))
            heads.setdefault(title, head | {"title": title})
            runs.setdefault(title, []).append(verdict)
    text = "\n".join(markdown(title, verdicts) for title, verdicts in runs.items())
    text += rest_table([verdict for verdicts in runs.values() for verdict in verdicts])
    print(text)
    if options.save:
        options.save.mkdir(parents=True, exist_ok=True)
        (options.save / "RESULTS.md").write_text(text)
        plot(options.save / "premature.png", list(runs.items()))
        for title, verdicts in runs.items():
            write(options.save / f"{title.replace(' ', '-')}.json", heads[title], verdicts)
    return 0


def try_rules(options: argparse.Namespace) -> int:
    """Replay recorded traces with the policies of a settings file."""
    traces: list[Trace] = []
    for path in options.traces:
        with path.open() as lines:
            traces.extend(read_traces(lines))
    settings = json.loads(options.settle.read_text())
    waits = {name: [decide(t, read_rule(settings, name)) for t in traces] for name in ("exact", "fast")}
    waits |= {f"{pause:g} ms": [pause] * len(traces) for pause in FIXED_PAUSES_MS}
    if options.curve:
        exact = read_rule(settings, "exact")
        for horizon_ms in CURVE_MS:
            rule = replace(exact, horizon_ms=horizon_ms, change_horizon_ms=horizon_ms, horizons={})
            waits[f"exact, horizons {horizon_ms:g} ms"] = [decide(trace, rule) for trace in traces]
    print(f"{len(traces)} actions; who knows the last change waits {oracle_ms(traces):.0f} ms in the mean\n")
    print(HEADER.format("policy"))
    for name, waited in waits.items():
        wrong = [premature(trace, wait) for trace, wait in zip(traces, waited, strict=True)]
        regrets = [
            None if early else wait - (trace.changes_ms[-1] if trace.changes_ms else 0.0)
            for trace, wait, early in zip(traces, waited, wrong, strict=True)
        ]
        print(row(summarize(name, waited, wrong, regrets)))
    return 0


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.command == "run":
        return run(options)
    if options.command == "image":
        return bake(record=options.record, remedies=not options.without_remedies)
    if options.command == "record":
        return record_all(options)
    if options.command == "rules":
        return try_rules(options)
    return report(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
