"""Throughput: what counts in a window, and which tasks are long."""

from __future__ import annotations

import pytest
from benchmarks.oracles import LONG, choose_long
from benchmarks.throughput import Books, Cell, row_of

from osgym_sdk import Result
from osgym_sdk._models.trajectory import Trajectory


def result(reward: float | None, duration_s: float = 4.0) -> Result:
    """A trajectory without steps that ended with a reward."""
    trajectory = Trajectory("t", reset_ms={"setup": 100.0, "total": 120.0})
    return Result(0, {"id": "t"}, "t", reward, None, "done", True, trajectory, 1, duration_s)


def test_only_what_earned_1_within_the_window_counts() -> None:
    """By the minute, by the core, and by the minute of CPU time that was used."""
    books = Books(began=100.0, ended=130.0, cpu_s=15.0, pss_mib=512.0)
    books.results = [(99.9, result(1.0)), (100.0, result(1.0)), (110.0, result(0.5)), (130.0, result(1.0))]
    books.results += [(130.1, result(1.0)), (120.0, result(None))]
    row = row_of(books, 2, 4)
    assert (row["solved"], row["episodes"], row["unsolved"]) == (2, 4, {"t": 1})
    assert (row["per_minute"], row["per_minute_and_core"]) == (4.0, 1.0)
    assert (row["per_core_minute"], row["per_minute_and_gib"]) == (8.0, 8.0)
    assert row["setup_ms"] == [100.0, 100.0]


def test_without_a_service_of_its_own_there_is_no_cpu_time() -> None:
    """Nothing is said of it then."""
    row = row_of(Books(began=0.0, ended=60.0, results=[(1.0, result(1.0))]), 1, 2)
    assert row["per_minute"] == 1.0
    assert "per_core_minute" not in row


@pytest.mark.parametrize("flavor", ["small", "full"])
def test_long_tasks_are_long_and_different(flavor: str) -> None:
    """10 to 25 steps each; the small image's are among the full one's."""
    tasks = choose_long(flavor, ())
    assert {len(task.oracle) for task in tasks} <= set(LONG)
    assert len({task.name for task in tasks}) == len(tasks) >= 10
    assert {task.flavor for task in tasks} <= {"small", flavor}
    assert not any(step.certain for task in tasks for step in task.oracle)
    assert all(step.certain for task in choose_long(flavor, (), certain=True) for step in task.oracle)


def test_thinking_makes_the_window_longer() -> None:
    """By what two mean trajectories think, the ramp by one."""
    tasks = choose_long("small", ("files",))
    steps = sum(len(task.oracle) for task in tasks) / len(tasks)
    cell = Cell.of(20.0, tasks, settle="exact", ramp_s=15.0, seconds=60.0)
    assert (cell.ramp_s, cell.seconds) == (15.0 + 20 * steps, 60.0 + 40 * steps)
