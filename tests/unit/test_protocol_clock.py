"""What a desktop's clock may be told to show."""

from __future__ import annotations

from typing import Any

import pytest

from osgym_host.tasks.errors import TaskError
from osgym_host.tasks.parse import parse_task
from osgym_protocol.clock import ClockOptions, parse_clock
from osgym_protocol.codec import WireFormatError
from osgym_sdk import AsyncClient, ConfigError

NINE = 1_767_258_000 * 10**9  # 2026-01-01 09:00 UTC


@pytest.mark.parametrize(
    ("given", "start_ns", "frozen"),
    [
        ("2026-01-01T09:00", NINE, False),
        ("2026-01-01T09:00Z", NINE, False),
        ("2026-01-01T09:00:30", NINE + 30 * 10**9, False),
        ({"start": "2026-01-01T09:00"}, NINE, False),
        ({"start": "2026-01-01T09:00", "frozen": True}, NINE, True),
        (ClockOptions("2026-01-01T09:00", frozen=True), NINE, True),
    ],
)
def test_forms_of_a_clock(given: Any, start_ns: int, frozen: bool) -> None:
    """A time in UTC, with or without seconds, or an object."""
    clock = parse_clock(given)
    assert clock is not None
    assert (clock.start_ns, clock.frozen) == (start_ns, frozen)
    assert parse_clock(clock.to_dict()) == clock


@pytest.mark.parametrize(
    "given",
    [
        "", "now", "2026-01-01", "2026-13-01T09:00", "2026-01-01T25:00", "2026-01-01 09:00",
        "1999-01-01T00:00",
        "2100-01-01T00:00", "2026-01-01T09:00+02:00", "٢٠٢٦-01-01T09:00", "2026-01-01T09:00\n", 1767258000,
        ["2026-01-01T09:00"], {}, {"start": 5}, {"start": "2026-01-01T09:00", "frozen": "yes"},
        {"start": "2026-01-01T09:00", "speed": 2},
    ],
)  # fmt: skip
def test_what_is_no_clock(given: Any) -> None:
    """Whatever else it is, it is refused with a typed error, by client, task and protocol alike."""
    with pytest.raises(WireFormatError):
        parse_clock(given)
    with pytest.raises(ConfigError):
        AsyncClient("http://127.0.0.1:9").episode(clock=given)
    with pytest.raises(TaskError, match=r"osgym\.clock"):
        parse_task({"id": "t", "evaluator": {"func": "infeasible"}, "osgym": {"clock": given}})


def test_a_tasks_clock() -> None:
    """It is the task's own field, off by default."""
    task = {"id": "t", "evaluator": {"func": "infeasible"}, "osgym": {"clock": "2026-01-01T09:00"}}
    assert parse_task(task).osgym.clock == ClockOptions("2026-01-01T09:00")
    assert parse_task({**task, "osgym": {}}).osgym.clock is None
