"""Plays cells on desktops, each run on a program that was started for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.input_fidelity import drag_cells, office_cells, pointer_cells, text_cells
from benchmarks.input_fidelity.speed import TEXTS, TypingTime, typing_time
from benchmarks.input_fidelity.stage import Cell, Refused, Stage, Wrong
from benchmarks.input_fidelity.toolkits import INSIDE, TOOLKITS, Toolkit
from benchmarks.input_fidelity.witnessing import Load, Patience, Witness, WitnessFailed, send_witnesses
from osgym_sdk import Client, Episode, OSGymError

CELLS = {
    cell.name: cell
    for cell in (*text_cells.CELLS, *office_cells.CELLS, *pointer_cells.CELLS, *drag_cells.CELLS)
}
IDLE = Patience(arrival_s=4.0, quiet_s=0.25, factor=1.0)
LOADED = Patience(arrival_s=40.0, quiet_s=2.0, factor=10.0)
PARTNER_LOG = f"{INSIDE}/partner.jsonl"
EPISODE_S = 600.0
WAIT_S = 180.0


@dataclass(frozen=True, slots=True)
class Run:
    """Result of one run of a cell.

    Attributes:
        result: right, wrong, refused, or failed where it could not be seen.
        told: Expected and received values of a wrong run; the reason of others.
    """

    result: str
    told: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Row:
    """All runs of one cell with one toolkit under one load; none where the toolkit lacks what it needs."""

    toolkit: str
    cell: str
    load: int
    runs: list[Run] = field(default_factory=list)

    def count(self, result: str) -> int:
        return sum(run.result == result for run in self.runs)

    @property
    def shown(self) -> str:
        """Return the table's text: `5/5`, `3/5`, `refused`, `failed`, or `–` without runs."""
        if not self.runs:
            return "–"
        for result in ("refused", "failed"):
            if self.count(result) == len(self.runs):
                return result
        return f"{self.count('right')}/{len(self.runs)}"

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Row:
        runs = [Run("right")] * kept["right"] + [Run(**run) for run in kept["other"]]
        return cls(kept["toolkit"], kept["cell"], kept["load"], runs)

    def as_json(self) -> dict[str, Any]:
        """Return it for a file, with the result of each run that was not right."""
        runs = [asdict(run) for run in self.runs if run.result != "right"]
        right = self.count("right")
        return {"toolkit": self.toolkit, "cell": self.cell, "load": self.load, "right": right, "other": runs}


def chosen_cells(names: str) -> list[Cell]:
    """Return the cells of a list with commas; of an empty one all.

    Raises:
        ValueError: A cell of this name is unknown; the message lists the known ones.
    """
    if not names:
        return list(CELLS.values())
    wanted = names.split(",")
    if unknown := [name for name in wanted if name not in CELLS]:
        raise ValueError(f"unknown cell {unknown[0]!r}; valid cells: {', '.join(CELLS)}")
    return [CELLS[name] for name in wanted]


class Player:
    """Plays cells with one client; a desktop is used until something on it was not right.

    Args:
        load: Number of busy processes in the desktop during the actions.
    """

    def __init__(self, client: Client, repeat: int, load: int, report: Callable[[Row], None]) -> None:
        self._client = client
        self._repeat = repeat
        self._load = load
        self._report = report
        self._patience = LOADED if load else IDLE
        self._open: contextlib.ExitStack | None = None
        self._episode: Episode | None = None

    def play(self, toolkit: Toolkit, cells: Sequence[Cell]) -> list[Row]:
        rows = []
        try:
            targets = self._targets(toolkit)
            for cell in cells:
                row = Row(toolkit.name, cell.name, self._load)
                if targets is not None and targets.issuperset(cell.needs):
                    row.runs = [self._run(toolkit, cell) for _ in range(self._repeat)]
                elif targets is None:
                    row.runs = [Run("failed", {"why": "the program does not start"})]
                rows.append(row)
                self._report(row)
        finally:
            self._leave()
        return rows

    def _targets(self, toolkit: Toolkit) -> set[str] | None:
        try:
            with self._started(toolkit) as witness:
                return set(witness.targets)
        except (WitnessFailed, OSGymError) as error:
            print(f"{toolkit.name}: {error}")
            self._leave()
            return None

    def _run(self, toolkit: Toolkit, cell: Cell) -> Run:
        try:
            with contextlib.ExitStack() as stack:
                partner = None
                if cell.partner:
                    other = TOOLKITS[cell.partner]
                    partner = stack.enter_context(self._started(other, log=PARTNER_LOG))
                witness = stack.enter_context(self._started(toolkit))
                stack.enter_context(Load(self._desktop(), self._load))
                cell.play(Stage(self._desktop(), witness, self._patience, partner=partner))
                run = Run("right")
        except Wrong as wrong:
            told = {"what": wrong.what, "expected": wrong.expected, "received": wrong.received}
            run = Run("wrong", told)
        except Refused as refused:
            run = Run("refused", {"why": str(refused)[:300]})
        except (WitnessFailed, OSGymError, RuntimeError) as error:
            run = Run("failed", {"why": f"{type(error).__name__}: {error}"[:300]})
        if run.result != "right" or cell.changes_desktop:
            self._leave()  # what went wrong may have left a button or a dialog behind
        return run

    def typing_times(self, toolkit: Toolkit, text: str) -> list[TypingTime]:
        """Measure a text some times; nothing where the toolkit has no field for it, or does not start."""
        try:
            times = []
            for _ in range(self._repeat):
                with self._started(toolkit) as witness:
                    if TEXTS[text][0] not in witness.targets:
                        break
                    times.append(typing_time(Stage(self._desktop(), witness, self._patience), text))
            return times
        except (WitnessFailed, OSGymError):
            return []
        finally:
            self._leave()

    @contextlib.contextmanager
    def _started(self, toolkit: Toolkit, **log: str) -> Iterator[Witness]:
        witness = Witness(self._desktop(), toolkit, **log)
        try:
            witness.start()
            yield witness
        finally:
            with contextlib.suppress(OSGymError):
                witness.stop()

    def _desktop(self) -> Episode:
        if self._episode is None:
            self._open = contextlib.ExitStack()
            episode = self._client.episode(wait_s=WAIT_S, lease_ttl_s=EPISODE_S)
            self._episode = self._open.enter_context(episode)
            send_witnesses(self._episode)
        return self._episode

    def _leave(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = self._episode = None
