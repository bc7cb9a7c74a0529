"""Certificates of OSWorld's published tasks: those whose check pays a wrong end, or refuses a right one.

Of the task files those are certified that have an oracle in osworld_oracles.toml, and infeasible ones. Files
that a task fetches are made here in their place (tests/support/osworld_stand_ins.py); a mutation is one of a
stand-in.

    osgym image build --flavor osworld
    python -m benchmarks.osworld_certificates --tasks OSWorld/evaluation_examples/examples --at-once 4
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.common import local_service
from benchmarks.osworld_harness import cases
from benchmarks.osworld_play import INFEASIBLE, Case
from osgym_certify.certificate import Verdict
from osgym_certify.record import read_record


def write_case(folder: Path, case: Case) -> bool:
    """Write a task and its oracle; return False, and write nothing, if it has none."""
    if case.task["evaluator"]["func"] == INFEASIBLE:
        ways = {"oracle": [[{"op": "fail"}]]}
    elif case.oracle is not None:
        ways = {"script": case.oracle}
    else:
        return False
    path = folder / case.domain / f"{case.task['id']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(case.task), encoding="utf-8")
    path.with_suffix(".oracle.json").write_text(json.dumps(ways), encoding="utf-8")
    return True


def main() -> int:
    """Certify the tasks and print the wrong ends of each faulty one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", type=Path, required=True, help="folder with OSWorld's task files")
    parser.add_argument("--image", default="osworld", help="golden image")
    parser.add_argument("--only", action="append", default=[], help="tasks whose id begins so")
    parser.add_argument("--count", type=int, help="tasks at most")
    parser.add_argument("--at-once", type=int, default=4, help="tasks certified at once")
    parser.add_argument("--out", type=Path, default=Path("out/osworld"), help="folder of the record")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as files, tempfile.TemporaryDirectory() as folder:
        found = [case for case in cases(given, Path(files), "") if write_case(Path(folder), case)]
        settings = {"task_files_dir": files, "setup_timeout_s": 600}
        with local_service(given.image, settings, 180) as (url, _):
            program = Path(sys.executable).with_name("osgym")
            words = ["task", "certify", folder, "--host", url, "--at-once", str(given.at_once)]
            subprocess.run([program, *words, "--golden-runs", "2", "--out", given.out], check=False)
    names = {case.task["id"]: case for case in found}
    certificates = [one for one in read_record(given.out / "certificates.jsonl") if _id(one.task) in names]
    for one in certificates:
        if one.verdict is Verdict.CERTIFIED:
            continue
        print(f"\n{one.task}: {one.verdict}. {one.instruction[:160]} {one.failure}")
        for trial in one.trials:
            if trial.is_wrong:
                print(f"  {trial.kind} “{trial.end}” {trial.about} earned {trial.earned:g}. {trial.note}")
    counts = {verdict: sum(one.verdict is verdict for one in certificates) for verdict in Verdict}
    print(f"\n{len(certificates)} of {len(found)} tasks:", ", ".join(f"{n} {v}" for v, n in counts.items()))
    return 0


def _id(name: str) -> str:
    return name.rpartition("/")[2]


if __name__ == "__main__":
    sys.exit(main())
