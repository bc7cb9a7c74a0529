"""Count the instructions of the hot paths and compare them with those that are kept.

    python -m benchmarks.instructions             # 1 when a count is 10 % or more above the kept one
    python -m benchmarks.instructions --accept    # keep the counts as they are now

Counts do not depend on how busy a machine is; two runs differ by less than 1 %. Of the guest agent's native
core callgrind counts machine instructions (over a screen of 1920x1080 in memory); of SDK, protocol and host
agent the interpreter's own are counted, a step through all of them. What is kept stands in baseline.json
beside the versions that it depends on. With other versions nothing can be said, and the exit code is 77.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import dumps
from benchmarks.instructions import native, python_steps

BASELINE = Path(__file__).with_name("baseline.json")
PERCENT = 10
"""Percentage above the kept count from which a count is a regression."""
UNAVAILABLE = 77  # not 2, with which argparse refuses arguments: the test skips by it
ACCEPT = "if it is meant, `python -m benchmarks.instructions --accept` and commit baseline.json"


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of one way, and the versions that they depend on."""

    versions: Mapping[str, str]
    counts: Mapping[str, int]


def count_native() -> Counted:
    """Count the guest agent's native core.

    Raises:
        Unavailable: A tool is missing.
    """
    versions = native.tools()
    with tempfile.TemporaryDirectory() as scratch:
        return Counted(versions, native.counts(Path(scratch)))


def count_python() -> Counted:
    """Count a step through SDK, protocol and host agent."""
    versions = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    with tempfile.TemporaryDirectory() as scratch:
        return Counted(versions, python_steps.counts(Path(scratch)))


WAYS = {"native": count_native, "python": count_python}


def kept() -> dict[str, Counted]:
    found = json.loads(BASELINE.read_text(encoding="utf-8"))
    return {way: Counted(one["versions"], one["counts"]) for way, one in found.items()}


def check_versions(before: Counted, now: Counted) -> None:
    """Check that the two can be compared.

    Raises:
        Unavailable: They are of different versions.
    """
    if differing := [name for name, value in before.versions.items() if now.versions.get(name) != value]:
        of = ", ".join(f"{n} {now.versions.get(n)}, kept is {before.versions[n]}" for n in differing)
        raise native.Unavailable(f"the kept counts are of other versions: {of}")


def regressions(before: Counted, now: Counted) -> list[str]:
    """Return sentences about counts that went up by 10 % or more, and those that only one side has. Pure."""
    found = []
    for name in sorted(before.counts.keys() | now.counts.keys()):
        old, new = before.counts.get(name), now.counts.get(name)
        if old is None or new is None:
            found.append(f"{name}: {'not kept yet' if old is None else 'no longer counted'}; {ACCEPT}")
        elif 100 * new >= (100 + PERCENT) * old:
            found.append(f"{name}: {new:,} instructions, {new / old:.2f} times the kept {old:,}; {ACCEPT}")
    return found


def _shown(way: str, before: Counted | None, now: Counted) -> None:
    print(f"{way}: {', '.join(f'{name} {version}' for name, version in now.versions.items())}")
    for name, new in now.counts.items():
        old = before.counts.get(name) if before else None
        print(f"  {name:24} {new:12,}" + (f"  {new / old:6.3f} of the kept {old:,}" if old else ""))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--accept", action="store_true", help="keep the counts as they are now")
    parser.add_argument("--only", choices=list(WAYS), help="one of the two ways")
    options = parser.parse_args()
    before = kept() if BASELINE.is_file() else {}
    after: dict[str, Any] = {
        way: {"versions": one.versions, "counts": one.counts} for way, one in before.items()
    }
    wrong: list[str] = []
    try:
        for way in [options.only] if options.only else list(WAYS):
            now = WAYS[way]()
            _shown(way, before.get(way), now)
            after[way] = {"versions": now.versions, "counts": now.counts}
            if not options.accept:
                check_versions(before[way], now)
                wrong += regressions(before[way], now)
    except native.Unavailable as error:
        print(f"cannot be compared: {error}", file=sys.stderr)
        return UNAVAILABLE
    if options.accept:
        BASELINE.write_text(dumps(after) + "\n", encoding="utf-8")
        print(f"kept: {BASELINE.name}")
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
