"""`python -m osgym_tasks`: instances as files, and families proved on the desktops of a host agent."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

from osgym_sdk import AsyncClient
from osgym_tasks.family import LEVELS, Instance
from osgym_tasks.registry import FAMILIES, UnknownFamily, family_named
from osgym_tasks.verify import Outcome, line_of, read_record, summary, trials_of, verify

EXIT_WRONG, EXIT_INFRASTRUCTURE = 3, 1


def main(argv: list[str] | None = None) -> int:
    """Run a command; return its exit code.

    0: all is as it must be. 1: the infrastructure spoilt episodes; the same command runs them again. 2: wrong
    usage. 3: an episode earned another reward than it must.
    """
    parser = argparse.ArgumentParser(prog="python -m osgym_tasks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (("write", "write task files"), ("verify", "prove families on real desktops")):
        command = commands.add_parser(name, help=what)
        command.add_argument("families", nargs="*", metavar="FAMILY", help="default all")
        command.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds 0 to N - 1 (default 1)")
        command.add_argument("--levels", type=int, nargs="+", default=list(LEVELS), choices=LEVELS)
        command.add_argument("--out", type=Path, required=True, help="folder, or record (JSONL)")
        if name == "verify":
            command.add_argument("--host", help="host agent; default OSGYM_HOSTS or this machine")
            command.add_argument("--image", required=True, help="digest of its golden image")
            command.add_argument("--concurrency", type=int, default=1)
            command.add_argument("--table", type=Path, help="write the table by family there as JSON")
    options = parser.parse_args(argv)
    try:
        families = [family_named(name) for name in options.families or FAMILIES]
    except UnknownFamily as error:
        parser.error(str(error))
    if options.seeds < 1:
        parser.error("--seeds must be 1 or more")
    seeds = range(options.seeds)
    made = [one.make(seed, level) for one in families for level in options.levels for seed in seeds]
    if options.command == "write":
        for instance in made:
            sys.stdout.write(f"{instance.write(options.out)}\n")
        return 0
    return asyncio.run(_verify(made, options))


async def _verify(made: list[Instance], options: argparse.Namespace) -> int:
    trials = [trial for instance in made for trial in trials_of(instance)]
    wanted = {trial.key for trial in trials}
    outcomes = [one for one in read_record(options.out, options.image) if (one.instance, one.way) in wanted]
    known = {(one.instance, one.way) for one in outcomes}
    left = [trial for trial in trials if trial.key not in known]
    sys.stdout.write(f"{len(left)} of {len(trials)} episodes to run\n")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    async with AsyncClient(options.host) as client:
        with options.out.open("a", encoding="utf-8") as record:
            async for one in verify(client, left, image=options.image, concurrency=options.concurrency):
                record.write(line_of(one))
                record.flush()
                outcomes.append(one)
                mark = "right" if one.is_right else "WRONG" if one.reward is not None else one.failure
                sys.stdout.write(f"{one.instance}, {one.way}: {one.reward}, {one.steps} steps, {mark}\n")
                sys.stdout.flush()
    return _report(outcomes, options.table)


def _report(outcomes: list[Outcome], table: Path | None) -> int:
    rows = summary(outcomes)
    for family, row in rows.items():
        sys.stdout.write(
            f"{family}: {row['proved']} of {row['instances']} instances proved at levels {row['levels']}, "
            f"{row['episodes']} episodes, oracle {row['oracle_steps_median']} steps, "
            f"{row['oracle_duration_s_median']} s (median)\n"
        )
    if table is not None:
        images = sorted({one.image for one in outcomes})
        table.write_text(json.dumps({"images": images, "families": rows}, indent=1) + "\n", encoding="utf-8")
    if any(one.reward is None for one in outcomes):
        return EXIT_INFRASTRUCTURE
    return 0 if all(one.is_right for one in outcomes) else EXIT_WRONG


if __name__ == "__main__":
    sys.exit(main())
