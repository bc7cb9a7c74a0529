"""Feed every parser of what strangers send with inputs made of its corpus, for a given time.

    make fuzz SECONDS=300 SEED=7
    python -m tests.fuzz --seconds 60 --only actions

The seconds are shared by all targets. Inputs that reach lines of code which none before reached are kept
and changed further. An input that breaks the promise (taken, or refused by the target's own error, in
bounded time and memory) is printed as Python bytes: put it into the corpus with what mends it. The
guests' targets need Xvfb and QEMU. The exit code is 1 when something was found.
"""

from __future__ import annotations

import argparse
import time

from tests.fuzz.engine import fuzz
from tests.fuzz.targets import TARGETS, missing


def main() -> int:
    """Run the targets one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120, help="for all targets together (120)")
    parser.add_argument("--seed", type=int, default=None, help="makes a run repeatable (by the clock)")
    parser.add_argument("--only", default="", help="only targets with this in their name")
    options = parser.parse_args()
    seed = int(time.time()) if options.seed is None else options.seed
    chosen = [target for target in TARGETS if options.only in target.name]
    if not chosen:
        parser.error(f"no such target; there are {', '.join(target.name for target in TARGETS)}")
    print(f"seed {seed}")
    found = 0
    for target in chosen:
        if lacking := missing(target):
            print(f"{target.name:20} skipped, missing: {lacking}")
            continue
        report = fuzz(target, options.seconds / len(chosen), seed)
        print(
            f"{target.name:20} {report.inputs:8} inputs {report.lines:5} lines {report.kept:5} kept "
            f"{report.grown_mib:6.1f} MiB more {len(report.findings):3} found",
            flush=True,
        )
        for finding in report.findings:
            print(finding, flush=True)
        found += len(report.findings)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
