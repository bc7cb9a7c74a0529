"""Choice of horizons from recorded actions: the cheapest that leave almost no change behind. Pure."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from osgym_host.calibration.replay import Rule, Trace, decide, premature
from osgym_host.images.calibration import CalibrationRow
from osgym_protocol.settle_table import MAX_PROGRAMS, PROGRAM, ActionKind, Table, TimerHorizons

LADDER_MS = (60.0, 100.0, 120.0, 160.0, 200.0, 240.0, 260.0, 300.0, 360.0, 420.0, 500.0, 600.0, 700.0, 800.0)
"""Candidate horizons; GTK's timers of 225 and 250 ms and LibreOffice's of 500 lie below steps of it."""

LATE_COST_MS = 2_000.0
"""Cost of a screen that was not final: about the step in which an agent sees its mistake."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a calibration.

    Attributes:
        late_share: Share of actions after which the screen may still change after the answer.
        max_horizon_ms: Longest horizon, for which a timer that never ends holds up a step.
        min_samples: Number of recorded actions below which a program and kind decide nothing alone.
    """

    late_share: float = 0.01
    max_horizon_ms: float = 600.0
    min_samples: int = 8

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            ValueError: One is invalid.
        """
        if not 0 <= self.late_share < 1:
            raise ValueError(f"late_share must be at least 0 and less than 1: {self.late_share}")
        if not 0 < self.max_horizon_ms <= LADDER_MS[-1]:
            raise ValueError(f"max_horizon_ms must be within 1 to {LADDER_MS[-1]:g}: {self.max_horizon_ms}")
        if self.min_samples < 1:
            raise ValueError(f"min_samples must be at least 1: {self.min_samples}")


@dataclass(frozen=True, slots=True)
class Sample:
    """One recorded action: its kind, its signals, and the programs of the application that had timers."""

    kind: ActionKind
    trace: Trace
    programs: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Results of a rule, ordered by preference."""

    late: int
    mean_wait_ms: float
    horizons: TimerHorizons


def calibrate(samples: Iterable[Sample], rule: Rule, bounds: Bounds) -> list[CalibrationRow]:
    """Choose horizons for each program and kind of action; the order of the samples does not matter.

    Args:
        samples: Recordings under a fixed pause that is longer than every horizon.
        rule: `exact` as the image has it. No horizon becomes shorter than its own.
    """
    cells: dict[tuple[str, ActionKind], list[Trace]] = defaultdict(list)
    for sample in samples:
        for program in sample.programs:
            if PROGRAM.fullmatch(program):
                cells[program, sample.kind].append(sample.trace)
    together = _together(cells, rule, bounds)
    rows = []
    for program, kind in sorted(cells):
        own = _own(program, rule)
        before = _outcome([program], kind, cells[program, kind], rule, own)
        chosen = _chosen([program], kind, cells[program, kind], rule, own, bounds)
        if shared := together.get(kind) if len(cells[program, kind]) < bounds.min_samples else None:
            longer = TimerHorizons(
                max(own.horizon_ms, shared.horizon_ms), max(own.change_horizon_ms, shared.change_horizon_ms)
            )
            chosen = _outcome([program], kind, cells[program, kind], rule, longer)
        rows.append(_row(program, kind, len(cells[program, kind]), before, chosen))
    return rows


def _together(
    cells: Mapping[tuple[str, ActionKind], Sequence[Trace]], rule: Rule, bounds: Bounds
) -> dict[ActionKind, TimerHorizons]:
    """Choose for programs that have too few actions of a kind, from the actions of all of them.

    The timers by which a dialog is accepted are those of a toolkit, not of a program: three actions of each
    of ten programs are as good as thirty of one.
    """
    found = {}
    for kind in ActionKind:
        few = {
            program: traces
            for (program, of), traces in cells.items()
            if of == kind and len(traces) < bounds.min_samples
        }
        # An action is that of each program that had a timer; it counts once.
        traces = list({id(trace): trace for program in sorted(few) for trace in few[program]}.values())
        if traces:
            own = TimerHorizons(rule.horizon_ms, rule.change_horizon_ms)
            found[kind] = _chosen(sorted(few), kind, traces, rule, own, bounds).horizons
    return {
        kind: each
        for kind, each in found.items()
        if each != TimerHorizons(rule.horizon_ms, rule.change_horizon_ms)
    }


def table_of(rows: Sequence[CalibrationRow]) -> dict[str, dict[ActionKind, TimerHorizons]]:
    """Return the table of the applied rows; of too many programs those that gain most."""
    gains: dict[str, int] = defaultdict(int)
    for row in rows:
        if row.applied:
            gains[row.program] += row.premature_before - row.premature_after
    kept = sorted(gains, key=lambda program: (-gains[program], program))[:MAX_PROGRAMS]
    table: dict[str, dict[ActionKind, TimerHorizons]] = {}
    for row in rows:
        if row.applied and row.program in kept:
            chosen = TimerHorizons(row.horizon_ms, row.change_horizon_ms)
            table.setdefault(row.program, {})[row.kind] = chosen
    return table


def with_horizons(rule: Rule, table: Table, kind: ActionKind) -> Rule:
    """Return the rule that the guest agent follows for one kind of action under a table."""
    horizons: dict[str, Mapping[str, float]] = dict(rule.horizons)
    for program, kinds in table.items():
        if own := kinds.get(kind):
            mine = {"horizon_ms": own.horizon_ms, "change_horizon_ms": own.change_horizon_ms}
            horizons[program] = {**horizons.get(program, {}), **mine}
    return replace(rule, horizons=horizons)


def _own(program: str, rule: Rule) -> TimerHorizons:
    horizon_ms, change_ms, _ = rule.horizons_of(program)
    return TimerHorizons(horizon_ms, change_ms)


def _row(program: str, kind: ActionKind, samples: int, before: _Outcome, chosen: _Outcome) -> CalibrationRow:
    return CalibrationRow(
        program=program,
        kind=kind,
        samples=samples,
        premature_before=before.late,
        premature_after=chosen.late,
        horizon_ms=chosen.horizons.horizon_ms,
        change_horizon_ms=chosen.horizons.change_horizon_ms,
        wait_before_ms=round(before.mean_wait_ms, 3),
        wait_after_ms=round(chosen.mean_wait_ms, 3),
        applied=chosen.horizons != before.horizons,
    )


def _chosen(
    programs: Sequence[str],
    kind: ActionKind,
    traces: Sequence[Trace],
    rule: Rule,
    own: TimerHorizons,
    bounds: Bounds,
) -> _Outcome:
    """Return the candidate with the shortest wait among the good ones; `own` where too few actions decide.

    Where none is good, the cost of late changes is weighed against the wait: a screen that changes by itself
    every few seconds is not waited for.
    """

    def steps(own_ms: float) -> list[float]:
        return [own_ms, *(step for step in LADDER_MS if own_ms < step <= bounds.max_horizon_ms)]

    before = _outcome(programs, kind, traces, rule, own)
    allowed = math.floor(bounds.late_share * len(traces))
    if len(traces) < bounds.min_samples or before.late <= allowed:
        return before
    found = [before]
    for horizon_ms, change_ms in itertools.product(steps(own.horizon_ms), steps(own.change_horizon_ms)):
        horizons = TimerHorizons(horizon_ms, change_ms)
        if horizons != own:
            found.append(_outcome(programs, kind, traces, rule, horizons))
    enough = [each for each in found if each.late <= allowed]
    if enough:
        return min(enough, key=_preference)
    return min(found, key=lambda each: (_cost_ms(each, len(traces)), *_preference(each)))


def _cost_ms(each: _Outcome, actions: int) -> float:
    """Return the mean cost of a step, late changes included."""
    return each.mean_wait_ms + LATE_COST_MS * each.late / actions


def _preference(each: _Outcome) -> tuple[float, float, float]:
    return each.mean_wait_ms, each.horizons.horizon_ms, each.horizons.change_horizon_ms


def _outcome(
    programs: Sequence[str], kind: ActionKind, traces: Sequence[Trace], rule: Rule, horizons: TimerHorizons
) -> _Outcome:
    tried = with_horizons(rule, {program: {kind: horizons} for program in programs}, kind)
    waits = [decide(trace, tried) for trace in traces]
    late = sum(premature(trace, wait) for trace, wait in zip(traces, waits, strict=True))
    return _Outcome(late, math.fsum(waits) / len(waits), horizons)
