"""Input fidelity: events that a desktop's programs receive, compared with the actions.

For each GUI toolkit, a small program (a witness) shows a window in a real desktop and writes down what it
receives. Each cell of the matrix does one thing with actions of the SDK, such as typing a path into a Save As
dialog, and compares. A run is right, wrong (with what came), refused (nothing was done), or failed (it could
not be seen). Each run starts the program anew; after a run that was not right, the desktop too.

    osgym image build --add benchmarks/input_fidelity/addition     # once: the image `toolkits`
    python -m benchmarks.input_fidelity                            # all toolkits, all cells, idle and busy
    python -m benchmarks.input_fidelity --toolkits gtk3,tk --cells save,double --repeat 20 --load 0
    python -m benchmarks.input_fidelity --image small --toolkits tk,x11,xterm,xfce4-terminal
    python -m benchmarks.input_fidelity --no-run --write-doc       # the tables of README.md here
    python -m benchmarks.input_fidelity --list                     # what there is
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, argument_parser, local_service, machine, save, summary
from benchmarks.input_fidelity import kept, tables
from benchmarks.input_fidelity.matrix import CELLS, Player, Row, chosen_cells
from benchmarks.input_fidelity.speed import TEXTS, TypingTime
from benchmarks.input_fidelity.toolkits import TOOLKITS, Toolkit, chosen
from osgym_sdk import Client

DOC = Path(__file__).with_name("README.md")
BUSY = 20


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("--toolkits", default="", metavar="NAME,…", help="rows of the matrix (all there are)")
    parser.add_argument("--cells", default="", metavar="NAME,…", help="things done (all there are)")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each cell (5)")
    busy = f"busy processes in the desktop during the actions; may be repeated (0 and {BUSY})"
    parser.add_argument("--load", type=int, action="append", metavar="N", help=busy)
    parser.add_argument("--image", default="toolkits", help="golden image, or snapshot with qemu (toolkits)")
    parser.add_argument("--runtime", choices=["local", "qemu"], default="local", help="(local)")
    parser.add_argument("--no-speed", action="store_true", help="do not measure the time for each character")
    parser.add_argument("--keep", action="store_true", help="keep rows of the file that are not run again")
    parser.add_argument("--no-run", action="store_true", help="run nothing: for --write-doc")
    parser.add_argument(
        "--write-doc",
        action="store_true",
        help="write the tables of the kept files into benchmarks/input_fidelity/README.md",
    )
    parser.add_argument("--list", action="store_true", help="name toolkits and cells, and end")
    args = parser.parse_args(given)
    try:
        args.toolkits, args.cells = chosen(args.toolkits), chosen_cells(args.cells)
    except ValueError as error:
        parser.error(str(error))
    args.load = [0, BUSY] if args.load is None else args.load
    return args


def tell(row: Row) -> None:
    """Print a row while others are to come."""
    if row.runs:
        print(f"{row.toolkit:15} {row.cell:16} load {row.load:2}  {row.shown}", flush=True)


def measure_typing(client: Client, toolkits: Sequence[Toolkit], repeat: int) -> list[dict[str, Any]]:
    """Measure the time for each character of the texts, in every toolkit that has fields for them."""
    rows: list[dict[str, Any]] = []
    player = Player(client, repeat, 0, tell)
    for toolkit in toolkits:
        for name in TEXTS:
            times = player.typing_times(toolkit, name)
            if times:
                rows.append({"toolkit": toolkit.name, "text": name, "runs": [asdict(one) for one in times]})
                print(_typing_line(toolkit.name, name, times), flush=True)
    return rows


def _typing_line(toolkit: str, name: str, times: Sequence[TypingTime]) -> str:
    typed = summary([one.input_ms for one in times])["median"]
    arrived = summary([one.arrived_ms for one in times])["median"]
    right = sum(one.right for one in times)
    told = f"typed in {typed:.2f} ms, received after {arrived:.2f} ms a character"
    return f"{toolkit:15} {name:26} {told}, right {right} of {len(times)}"


class Report:
    """Results so far, saved after each toolkit, so that an interrupted run is not lost."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._machine = machine()
        self.rows: list[Row] = []
        self.typing: list[dict[str, Any]] = []
        self._kept = kept.read(args.out or kept.NOW) if args.keep else {}

    def save(self) -> Path:
        result = {
            "machine": self._machine,
            "image": self._args.image,
            "runtime": self._args.runtime,
            "repeat": self._args.repeat,
            "rows": kept.joined(self._kept.get("rows", ()), [row.as_json() for row in self.rows if row.runs]),
            "typing": kept.joined(self._kept.get("typing", ()), self.typing),
        }
        return save("input_fidelity", result, self._args.out)


def main() -> None:
    args = arguments()
    if args.list:
        print("toolkits:", ", ".join(TOOLKITS))
        print("\n".join(f"{cell.name:16} {cell.about}" for cell in CELLS.values()))
        return
    if not args.no_run:
        run(args)
    if args.write_doc:
        tables.write(DOC, kept.document())
        print(f"written into {DOC.relative_to(ROOT)}")


def run(args: argparse.Namespace) -> None:
    report = Report(args)
    settings: dict[str, str | int | float] = {"runtime": args.runtime, "warm": 1, "trajectory": "off"}
    with local_service(args.image, settings) as (url, _), Client(url) as client:
        for load in args.load:
            player = Player(client, args.repeat, load, tell)
            for toolkit in args.toolkits:
                report.rows += player.play(toolkit, args.cells)
                report.save()
        if not args.no_speed:
            report.typing = measure_typing(client, args.toolkits, args.repeat)
    print(f"\n{tables.printed(report.rows)}\n\n{tables.differences(report.rows)}\n")
    print(f"saved {report.save()}")


if __name__ == "__main__":
    main()
