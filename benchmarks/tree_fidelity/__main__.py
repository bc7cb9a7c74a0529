"""Accessibility trees of every toolkit: checked for correctness, and for harm by reading them.

Each program runs in a desktop of its own. Two readers read the tree of the whole desktop, each as often as
asked for, while a second window of the program, or its menus, opens and closes. A row is good when the
program lives, is in each tree and has all expected names, when its window is where X says, when reading it
changes no pixel of a quiet desktop, and when it makes the program's main loop stand still for no more than
`--most-ms`. The program's own timer tells how long the loop stood still, or, in rows without `timer`, its
answers to the window manager's ping. Other work of the machine counts in that, so what is judged is for how
long the loop was busy: the CPU time of its thread in one gap. Beside both stands the same without readers,
while the windows open and close.

The image `toolkits` has all programs: `osgym image build --add benchmarks/input_fidelity/addition`.

python -m benchmarks.tree_fidelity --image toolkits --reads 100
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, argument_parser, local_service, machine, quantile, save
from benchmarks.tree_fidelity.programs import FOLDER, GAPS, INSIDE, Program, chosen
from osgym_sdk import Client, Episode

SETTLE_S = 20.0
NO_TREE_S = 5.0
"""Time to wait for the tree of a program that has none; one that came later is a fault of the reads."""
ALONE_S = 8.0
FRAME_PX = 40
"""Most that a frame may be larger than its window: GTK and Java count the title bar, Qt does not."""
SECONDS_PER_READ = 6.0
GAP_SERIES = ("gaps_read", "gaps_alone")


def look_at(episode: Episode, program: Program, reads: int, alone_s: float = ALONE_S) -> dict[str, Any]:
    """Run one program in a desktop and return the findings, with a verdict.

    Args:
        alone_s: Time for which its gaps are measured without readers; 0: they are not measured.
    """
    for path in FOLDER.iterdir():
        if path.suffix in (".py", ".java"):
            episode.write_file(f"{INSIDE}/benchmarks/tree_fidelity/{path.name}", path.read_bytes())
    order = {
        "argv": program.argv,
        "churn": program.churn,
        "reads": reads,
        "start_s": program.start_s,
        "settle_s": SETTLE_S if program.tree else NO_TREE_S,
        "alone_s": alone_s,
        "expect": program.expect,
        "gaps": GAPS if program.timer else "",
    }
    done = episode.execute(
        ["python3", "-m", "benchmarks.tree_fidelity.inside"],
        stdin=json.dumps(order).encode(),
        env={"PYTHONPATH": INSIDE},
        cwd=INSIDE,
        timeout_s=min(590.0, 60 + program.start_s + reads * SECONDS_PER_READ),
    )
    if done.returncode != 0:
        failure = "no end within its time" if done.timed_out else done.stderr[-1000:]
        return {"failure": failure, "faults": ["failure"]}
    found = json.loads(done.stdout)
    return {**found, "faults": faults(found, program)}


def faults(found: dict[str, Any], program: Program) -> list[str]:
    """Return what is wrong with a row, apart from the main loop's gaps; nothing for a good one."""
    if found["failure"]:
        return ["failure"]
    offsets = found["frame_offset_px"]
    tests = {
        "dead": not found["alive"],
        "no tree": program.tree and not found["has_tree"],
        "failed reads": bool(found["failed_reads"]),
        "missing in reads": found["missing_reads"] > 0,
        "names": bool(found["missing_names"]),
        "place": not offsets or max(map(abs, offsets)) > FRAME_PX,
        "pixels": found["frame_changed"] is True,
    }
    return [name for name, is_wrong in tests.items() if is_wrong]


def worst(gaps: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the largest gap of a main loop and the most that it was busy in one; 0 where nothing tells."""
    return max((gap[0] for gap in gaps), default=0.0), max((gap[1] for gap in gaps), default=0.0)


def line(name: str, toolkit: str, found: dict[str, Any]) -> str:
    if found["failure"]:
        return f"{name:15} {toolkit:12} {found['failure']}"
    reads = found["read_ms"]
    gaps = "".join(f"{value:7.0f}" for key in GAP_SERIES for value in worst(found[key]))
    return (
        f"{name:15} {toolkit:12} {found['nodes']:6} {len(reads):5} {quantile(reads, 0.5):8.0f} "
        f"{found['windows_opened']:7}{gaps}  {', '.join(found['faults']) or 'good'}"
    )


def kept_rows(file: Path, measured_anew: set[str]) -> list[dict[str, Any]]:
    """Return the rows of a result file but for those that are measured anew."""
    rows: list[dict[str, Any]] = json.loads(file.read_text())["rows"] if file.is_file() else []
    return [row for row in rows if row["name"] not in measured_anew]


def main() -> int:
    parser = argument_parser(__doc__, image="toolkits")
    parser.add_argument("--reads", type=int, default=100, help="of each of the two readers (100)")
    parser.add_argument("--programs", default="", help="names with commas; all that the image has")
    parser.add_argument("--most-ms", type=float, default=50.0, help="largest gap of a main loop (50)")
    parser.add_argument("--keep", action="store_true", help="rows of other programs that the file has")
    options = parser.parse_args()
    programs = chosen(options.image, options.programs)
    file = options.out or RESULTS / "tree_fidelity.json"
    rows = kept_rows(file, {program.name for program in programs}) if options.keep else []
    about = {"machine": machine(), "image": options.image, "reads": options.reads}
    print(f"{'':65}gap ms, busy ms while read; alone")
    print("program         toolkit       nodes reads  read ms windows    gap   busy    gap   busy  verdict")
    with local_service(options.image, {"warm": 1}) as (url, _), Client(url) as client:
        for program in programs:
            with client.episode() as episode:
                found = look_at(episode, program, options.reads)
            if not found["failure"]:
                busy_read, busy_alone = (worst(found[key])[1] for key in GAP_SERIES)
                if busy_read > max(options.most_ms, busy_alone):
                    found["faults"].append("stalls")
            print(line(program.name, program.toolkit, found), flush=True)
            rows.append({"name": program.name, "toolkit": program.toolkit, **found, **about})
            save("tree_fidelity", {"machine": about["machine"], "rows": rows}, file)
    print("raw series:", file)
    return int(any(row["faults"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
