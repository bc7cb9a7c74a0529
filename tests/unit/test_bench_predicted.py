"""The model held against a measurement: what is fitted, what is foretold, and up to how many replicas."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.predicted import compared, up_to

IDLE, STEP_S, RESET_S, STEPS, CYCLE_S = 0.01, 0.1, 0.5, 5, 2.0


def load_file(counts: list[int]) -> dict[str, Any]:
    """Windows of a machine with room: each replica a step every two seconds, 200 MiB, 100 of them its own."""
    series: list[dict[str, Any]] = []
    for k in counts:
        steps = 40 * k
        series.append({"replicas": k, "window": "idle", "seconds": 20.0, "cpu_s": 20 * k * IDLE})
        cpu_s = 80 * k * IDLE + 8 * k * RESET_S
        series.append({"replicas": k, "window": "reset", "seconds": 80.0, "cpu_s": cpu_s, "episodes": 8 * k})
        series.append({
            "replicas": k, "window": "busy", "seconds": CYCLE_S * 40, "steps": steps,
            "episodes": steps // STEPS,
            "cpu_s": 80 * k * IDLE + steps * STEP_S + steps / STEPS * RESET_S,
            "pss_mib": 100.0 + 100 * k, "pss_samples": [100.0 + 100 * k] * 3,
            "step_ms": [300.0 * max(1, k / 4)] * steps, "steps_per_episode": [STEPS] * 8,
            "trajectory_s": [10.0] * 8,
        })  # fmt: skip
    return {"machine": {"cores": 2, "date": "2026-01-01T00:00:00+00:00"}, "series": series}


def test_what_few_replicas_show_foretells_memory_and_cpu_of_more() -> None:
    """Rows beyond the fitted ones are not fitted, and a linear machine is foretold as it is."""
    found = compared([load_file([1, 2, 4, 8])], 4)
    assert [row["fitted"] for row in found["rows"]] == [True, True, True, False]
    last = found["rows"][-1]
    assert found["profile"]["step_cpu_s"] == pytest.approx(STEP_S)
    assert last["model"]["pss_mib"] == last["measured"]["pss_mib"] == 900
    assert last["model"]["cores"] == pytest.approx(last["measured"]["cores"], rel=0.1)


def test_fitting_sees_no_row_of_more_replicas() -> None:
    """What is foretold does not change with what is foretold of."""
    data = load_file([1, 2, 4, 8])
    assert {row["replicas"] for row in up_to(data, 4)["series"]} == {1, 2, 4}
    for row in data["series"]:
        if row["replicas"] == 8:
            row["cpu_s"] *= 3
    changed, plain = compared([data], 4), compared([load_file([1, 2, 4, 8])], 4)
    assert changed["profile"] == plain["profile"]
    assert changed["rows"][-1]["model"] == plain["rows"][-1]["model"]


def test_the_largest_number_within_a_limit_ends_at_the_first_beyond_it() -> None:
    """Measured: steps of eight take twice as long as those of one."""
    within = compared([load_file([1, 2, 4, 8])], 4)["replicas_within_times_p95"]
    assert within["1.5"]["measured"] == 4
    assert within["3"]["measured"] == 8
